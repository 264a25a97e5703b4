"""What a change touches: its table, the templates that look at it, and their keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from headrace.profiles.templates import Template, Templates, field_values
from headrace.profiles.touchconfig import TouchConfig
from headrace.profiles.touches import Touches
from headrace.profiles.touchkeys import (
    Unkeyed,
    encode_arg,
    field_key,
    id_of,
    membership_key,
    table_key,
    watch_key,
)


class _Headers(msgspec.Struct):
    operation: str | None = None


class _Change(msgspec.Struct):
    headers: _Headers
    type: str = ""
    value: Raw | UnsetType = UNSET
    old_value: Raw | UnsetType = UNSET


_changes = msgspec.json.Decoder(_Change)
_rows = msgspec.json.Decoder(dict[str, Any] | None)

Row = dict[str, Any] | None
Args = list[bytes] | None


class Changes:
    """Reads the changes of one stream and notes what they touch."""

    def __init__(self, config: TouchConfig, templates: Templates, touches: Touches) -> None:
        self._skips_before = config.on_missing_before == "skipBefore"
        self._config = config
        self._templates = templates
        self._touches = touches
        self._tokens: float = config.fine_burst_tokens
        self._filled_at_ms = 0
        self._left = 0
        self.fine = 0
        """Keys of single records touched so far."""

    def begin(self, *, lagging: bool, now_ms: int) -> None:
        """A new batch: so many keys of single records may be touched in it."""
        config = self._config
        refill = (now_ms - self._filled_at_ms) * config.fine_tokens_per_second / 1000
        self._tokens = min(config.fine_burst_tokens, self._tokens + max(0.0, refill))
        self._filled_at_ms = now_ms
        budget = (
            config.lag_reserved_fine_touch_budget_per_batch
            if lagging
            else config.fine_touch_budget_per_batch
        )
        self._left = min(budget, int(self._tokens))

    def take(self, raw: bytes | memoryview) -> None:
        """Note what one record touches."""
        try:
            change = _changes.decode(raw)
            if change.headers.operation is None:
                return
            self._touches.touch_table(id_of(table_key(change.type)))
            templates = self._templates.of(change.type)
            if templates and not self._touches.everyone_pending:
                self._look(change, tuple(templates))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            self._touches.overflow()  # a record from before the stream had its profile, or so

    def _look(self, change: _Change, templates: tuple[Template, ...]) -> None:
        after = None if change.value is UNSET else _rows.decode(change.value)
        before = None if change.old_value is UNSET else _rows.decode(change.old_value)
        blind = change.old_value is UNSET and change.headers.operation != "insert"
        if change.headers.operation == "delete":
            after = None
        elif change.headers.operation == "insert":
            before = None
        for template in templates:
            self._touches.touch(template.key_id)
            if blind and not self._skips_before:
                self._touches.touch(template.blur_id)
            try:
                ids = set(_keys(template, before, after, blind=blind))
            except Unkeyed:
                self._touches.touch(template.blur_id)
                continue
            self._spend(len(ids))
            if self._touches.everyone_pending:
                return
            for id in ids:
                self._touches.touch(id)

    def _spend(self, count: int) -> None:
        self.fine += count
        self._left -= count
        self._tokens -= count
        if self._left < 0:
            self._touches.overflow()


def _keys(template: Template, before: Row, after: Row, *, blind: bool) -> Iterator[int]:
    """The ids of the keys of single records that a change touches."""
    left, right = _args(template, before), _args(template, after)
    for args in (left, right):
        if args is not None:
            yield id_of(watch_key(template.id, args))
            if left != right:
                yield id_of(membership_key(template.id, args))
    if right is not None and after is not None and (blind or left == right):
        known: dict[str, Any] = {} if before is None else before
        for name in known.keys() | after.keys():
            if blind or known.get(name, UNSET) != after.get(name, UNSET):
                yield id_of(field_key(template.id, name, right))


def _args(template: Template, row: Row) -> Args:
    """The values of a row as they are hashed; None when one is missing, and so there is no key."""
    if row is None:
        return None
    args = [encode_arg(value, encoding) for value, encoding in field_values(row, template)]
    return None if None in args else args  # type: ignore[return-value]
