"""Request logs: every record becomes one envelope of the same twenty keys, without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import EVLOG_KEYS_MAX
from headrace.profiles.configs import describe, need_json, parse_config
from headrace.profiles.fields import (
    INTEGER_OR_NULL,
    NUMBER_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    keyword,
    typed,
    words,
)
from headrace.profiles.profile import Installed
from headrace.profiles.redaction import Redactor
from headrace.profiles.touchconfig import TouchConfig
from headrace.search.values import format_date

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?",
    re.ASCII | re.DOTALL,
)
_DIGITS_MAX = 32
_LEVELS = {level: level for level in ("debug", "info", "warn", "error")}
_TEXTS = ("message", "path", "why", "fix", "link")
"""Where people put secrets without meaning to."""


class EvlogConfig(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """What can be said of the profile."""

    kind: str
    redact_keys: list[str] = []
    redact_text: bool = True


class Envelope(msgspec.Struct, rename="camel"):
    """A record as the stream holds it."""

    timestamp: str
    level: str
    service: str | None
    environment: str | None
    version: str | None
    region: str | None
    request_id: str | None
    trace_id: str | None
    span_id: str | None
    method: str | None
    path: str | None
    status: int | None
    duration: int | float | None
    message: str | None
    why: str | None
    fix: str | None
    link: str | None
    sampling: Any
    redaction: Redaction
    context: dict[str, Any]


class Redaction(msgspec.Struct):
    keys: list[str]


class _Ids(msgspec.Struct, rename="camel"):
    request_id: str | None = None
    trace_id: str | None = None


_RESERVED = frozenset(Envelope.__struct_encode_fields__[:20])
_records = msgspec.json.Decoder(dict[str, Any])
_ids = msgspec.json.Decoder(_Ids)
_encode = msgspec.json.Encoder().encode


class Evlog:
    """The profile of one stream."""

    kind: ClassVar[str] = "evlog"

    def __init__(self, config: EvlogConfig) -> None:
        self._redactor = Redactor(config.redact_keys, texts=config.redact_text)
        self.config = msgspec.json.encode(config)
        self.touch: TouchConfig | None = None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Evlog:
        config = parse_config(raw, EvlogConfig)
        keys = list(dict.fromkeys(key.strip().lower() for key in config.redact_keys))
        if len(config.redact_keys) > EVLOG_KEYS_MAX:
            raise Refused(Code.INVALID, f"profile.redactKeys has at most {EVLOG_KEYS_MAX} keys")
        if not all(keys):
            raise Refused(Code.INVALID, "profile.redactKeys must not have empty keys")
        return cls(msgspec.structs.replace(config, redact_keys=keys))

    def check(self, *, is_json: bool, empty: bool) -> None:
        need_json(self.kind, is_json)
        if not empty:
            raise Refused(Code.INVALID, "evlog profile requires an empty stream")

    def installs(self) -> Installed | None:
        return Installed(SCHEMA, search=SEARCH)

    def normalise(self, raws: Sequence[bytes], now_ms: int) -> Sequence[bytes]:
        now = format_date(now_ms)
        return [_encode(self._envelope(raw, now)) for raw in raws]

    def key_of(self, raw: bytes) -> str | None:
        ids = _ids.decode(raw)
        return ids.request_id or ids.trace_id

    def _envelope(self, raw: bytes, now: str) -> Envelope:
        given = _decode(raw)
        get = given.get
        why, fix, link = _text(get("why")), _text(get("fix")), _text(get("link"))
        status = _whole(get("status"))
        trace_id, span_id = _text(get("traceId")), _text(get("spanId"))
        if trace_id is None or span_id is None:
            trace_id, span_id = _trace(given, trace_id, span_id)
        level = get("level")
        known = _LEVELS.get(level.strip().lower()) if type(level) is str else None
        keys: list[str] = []
        envelope = Envelope(
            _text(get("timestamp")) or now,
            known or _judge(why or fix or link, status),
            _text(get("service")),
            _text(get("environment")),
            _text(get("version")),
            _text(get("region")),
            _text(get("requestId")),
            trace_id,
            span_id,
            _text(get("method")),
            _text(get("path")),
            status,
            _number(get("duration")),
            _text(get("message")),
            why,
            fix,
            link,
            get("sampling"),
            Redaction(keys),
            _gather(given),
        )
        self._redact(envelope, keys)
        return envelope

    def _redact(self, envelope: Envelope, keys: list[str]) -> None:
        for name in _TEXTS:
            text = getattr(envelope, name)
            if text is not None and (cleaned := self._redactor.clean_text(text)) is not None:
                setattr(envelope, name, cleaned)
                keys.append(name)
        self._redactor.clean(envelope.context, keys)


def _decode(raw: bytes) -> dict[str, Any]:
    try:
        return _records.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(Code.INVALID, f"evlog record {describe(error)}") from None


def _text(value: object) -> str | None:
    return (value.strip() or None) if type(value) is str else None


def _number(value: object) -> int | float | None:
    if type(value) is int or type(value) is float:
        return value
    if type(value) is str and len(value) <= _DIGITS_MAX and _NUMBER.fullmatch(value.strip()):
        number = float(value)
        if number in (float("inf"), float("-inf")):
            return None
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    return None


def _whole(value: object) -> int | None:
    number = _number(value)
    if type(number) is float:
        return int(number) if number.is_integer() and abs(number) < 2**53 else None
    return number  # type: ignore[return-value]


def _judge(complaint: str | None, status: int | None) -> str:
    """The level of a record that does not say it."""
    if complaint is not None or (status is not None and status >= 500):
        return "error"
    return "warn" if status is not None and status >= 400 else "info"


def _trace(
    given: dict[str, Any], trace_id: str | None, span_id: str | None
) -> tuple[str | None, str | None]:
    """What a record does not say of its trace itself: its trace context may, or its header."""
    context = given.get("traceContext")
    headers = [given.get("traceparent")]
    if type(context) is dict:
        trace_id = trace_id or _text(context.get("traceId"))
        span_id = span_id or _text(context.get("spanId"))
        headers.append(context.get("traceparent"))
    for header in headers:
        parts = _TRACEPARENT.fullmatch(header.strip().lower()) if type(header) is str else None
        if parts is not None:
            return trace_id or parts[1], span_id or parts[2]
    return trace_id, span_id


def _gather(given: dict[str, Any]) -> dict[str, Any]:
    """The context of a record: what it calls so, and all that has no place of its own."""
    context = given.get("context")
    if type(context) is not dict:
        context = {"context": context} if "context" in given else {}
    if not given.keys() <= _RESERVED:
        for key, value in given.items():
            if key not in _RESERVED:
                context[key] = value
    return context


# --- what comes with it ---------------------------------------------------------------------------

_FOLDED = ("level", "service", "environment", "method")
SCHEMA = msgspec.json.encode(
    {
        "type": "object",
        "additionalProperties": False,
        "required": [field.encode_name for field in msgspec.structs.fields(Envelope)],
        "properties": {
            "timestamp": TEXT,
            "level": {"type": "string", "enum": list(_LEVELS)},
            **dict.fromkeys(("service", "environment", "version", "region"), TEXT_OR_NULL),
            **dict.fromkeys(("requestId", "traceId", "spanId", "method", "path"), TEXT_OR_NULL),
            "status": INTEGER_OR_NULL,
            "duration": NUMBER_OR_NULL,
            **dict.fromkeys(("message", "why", "fix", "link"), TEXT_OR_NULL),
            "sampling": {},
            "redaction": {
                "type": "object",
                "required": ["keys"],
                "properties": {"keys": {"type": "array", "items": TEXT}},
            },
            "context": {"type": "object"},
        },
    }
)
SEARCH = msgspec.json.encode(
    {
        "primaryTimestampField": "timestamp",
        "aliases": {
            "env": "environment",
            "msg": "message",
            "req": "requestId",
            "span": "spanId",
            "time": "timestamp",
            "trace": "traceId",
            "ts": "timestamp",
        },
        "defaultFields": [
            {"field": "message", "boost": 2},
            {"field": "why", "boost": 1.5},
            {"field": "fix", "boost": 1.25},
            {"field": "error.message", "boost": 2},
        ],
        "fields": {
            "timestamp": typed("/timestamp", "date"),
            **{name: keyword(f"/{name}", "lowercase_v1") for name in _FOLDED},
            **{name: keyword(f"/{name}") for name in ("requestId", "traceId", "spanId", "path")},
            "status": typed("/status", "integer"),
            "duration": typed("/duration", "float"),
            **{name: words(f"/{name}") for name in ("message", "why", "fix")},
            "error.message": words("/context/error/message"),
        },
    }
)
