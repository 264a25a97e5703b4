"""State: every record is a change of an entity's record, or a mark between changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NoReturn

import msgspec
from msgspec import UNSET, Raw, UnsetType

from headrace.core.errors import refuse_invalid
from headrace.profiles.configs import need_json, parse_config
from headrace.profiles.profile import Installed
from headrace.profiles.touchconfig import TouchConfig
from headrace.search.values import parse_date_ms

_OFFSET = re.compile(r"-1|[0-9A-TV-Za-tv-z]{26}", re.ASCII)
_TIME = re.compile(r"[0-9-]{10}[Tt][0-9:]{8}(?:\.[0-9]{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)


class StateConfig(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    kind: str
    touch: TouchConfig | None = None


class Headers(msgspec.Struct, forbid_unknown_fields=True):
    operation: Literal["insert", "update", "delete"] | UnsetType = UNSET
    control: Literal["snapshot-start", "snapshot-end", "reset"] | UnsetType = UNSET
    txid: str | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    offset: str | UnsetType = UNSET


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """A record, whichever of the two it is."""

    headers: Headers
    type: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    old_value: Raw | UnsetType = UNSET


_changes = msgspec.json.Decoder(Change)


class StateProtocol:
    """The profile of one stream."""

    kind: ClassVar[str] = "state-protocol"

    def __init__(self, config: StateConfig) -> None:
        touch = config.touch
        self.touch = touch if touch is not None and touch.enabled else None
        self.config = _format(config)
        self._needs_before = self.touch is not None and self.touch.on_missing_before == "error"

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> StateProtocol:
        return cls(parse_config(raw, StateConfig))

    def check(self, *, is_json: bool, empty: bool) -> None:
        need_json(self.kind, is_json)
        for setting, value in () if self.touch is None else self.touch.without_effect():
            refuse_invalid(f"profile.touch.{setting} can only be {value}: it has no effect here")

    def installs(self) -> Installed | None:
        return None

    def normalise(self, raws: Sequence[bytes], now_ms: int) -> Sequence[bytes]:
        for raw in raws:
            self._check(_decode(raw))
        return raws

    def key_of(self, raw: bytes) -> str | None:
        return None

    def _check(self, record: Change) -> None:
        headers = record.headers
        if (headers.operation is UNSET) == (headers.control is UNSET):
            _refuse("headers must have either operation or control")
        if headers.control is not UNSET:
            _check_control(record)
        else:
            _check_change(record)
            if self._needs_before and record.old_value is UNSET and headers.operation != "insert":
                _refuse(f"old_value is required for {headers.operation}: onMissingBefore is error")


def _format(config: StateConfig) -> bytes:
    """As it is kept and told: with every default of what is there."""
    told: dict[str, Any] = {"kind": config.kind}
    if config.touch is not None:
        told["touch"] = config.touch
    return msgspec.json.encode(told)


def _decode(raw: bytes) -> Change:
    try:
        return _changes.decode(raw)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        _refuse(f"{problem} at {place.rstrip('`').lstrip('.')}" if place.strip("`.") else problem)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _refuse(f"cannot be read: {error}")


def _check_change(record: Change) -> None:
    headers = record.headers
    if not record.type or not record.key:
        _refuse("type and key must be non-empty strings")
    if record.value is UNSET and headers.operation != "delete":
        _refuse(f"value is required for {headers.operation}")
    if headers.offset is not UNSET:
        _refuse("headers.offset belongs to control records")
    if headers.txid is not UNSET and not headers.txid:
        _refuse("headers.txid must be a non-empty string")
    if headers.timestamp is not UNSET and not _is_time(headers.timestamp):
        _refuse("headers.timestamp must be a time as in RFC 3339")


def _check_control(record: Change) -> None:
    headers = record.headers
    fields = (record.type, record.key, record.value, record.old_value)
    if any(field is not UNSET for field in fields):
        _refuse("control records have only headers")
    if headers.txid is not UNSET or headers.timestamp is not UNSET:
        _refuse("headers of control records have only control and offset")
    if headers.offset is not UNSET and _OFFSET.fullmatch(headers.offset) is None:
        _refuse("headers.offset must be an offset")


def _is_time(text: str) -> bool:
    return _TIME.fullmatch(text) is not None and parse_date_ms(text) is not None


def _refuse(problem: str) -> NoReturn:
    refuse_invalid(f"state-protocol record: {problem}")
