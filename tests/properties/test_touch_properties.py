"""Whoever waits for records hears of every change of them, whatever the change says of itself."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.profiles.changes import Changes
from headrace.profiles.templates import Template, Templates, parse_wanted
from headrace.profiles.touchconfig import TemplateLimits, TouchConfig
from headrace.profiles.touches import Touches
from headrace.profiles.touchkeys import (
    field_key,
    id_of,
    membership_key,
    table_key,
    template_key,
    watch_key,
)

values = st.sampled_from([*"xxxxxyyyyy", None, 5])
rows = st.fixed_dictionaries({"a": values, "b": values, "c": st.integers(0, 2)})
keys = st.sampled_from(["1", "1", "2"])
steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "drop", "other", "flush", "flush"]),
        keys,
        rows,
        st.booleans(),  # whether the change says what was before
    ),
    min_size=3,
    max_size=25,
)
ARGS = [(a, b) for a in "xy" for b in "xy"]


def args_of(row: dict[str, Any] | None) -> tuple[str, str] | None:
    """What somebody who reads the record would find it under."""
    if row is None or not isinstance(row["a"], str) or not isinstance(row["b"], str):
        return None
    return row["a"], row["b"]


@settings(max_examples=500, deadline=None)
@given(steps, st.sampled_from([2000, 3]), st.sampled_from([1000, 4]))
def test_no_change_is_missed(
    story: list[tuple[str, str, dict[str, Any], bool]], budget: int, remembered: int
) -> None:
    touches, templates = Touches(remembered, 1000), Templates(TemplateLimits())
    template = templates.activate(parse_wanted("e", [("a", "string"), ("b", "string")]), None, 0, 0)
    assert isinstance(template, Template)
    changes = Changes(
        TouchConfig(enabled=True, fine_touch_budget_per_batch=budget), templates, touches
    )
    changes.begin(lagging=False, now_ms=0)
    table: dict[str, dict[str, Any]] = {}
    watched: dict[tuple[str, str], int] = {}
    """When records that are found like this last changed, in generations."""
    members: dict[tuple[str, str], int] = {}
    fields: dict[tuple[str, str], int] = {}
    last = 0
    for step, key, row, tells in story:
        before = table.get(key)
        if step == "flush":
            touches.flush()
            changes.begin(lagging=False, now_ms=0)
            continue
        record: dict[str, Any] = {"type": "e", "key": key}
        if step == "other":
            record |= {"type": "f", "value": row, "headers": {"operation": "insert"}}
            changes.take(msgspec.json.encode(record))
            continue
        after = None if step == "drop" else row
        if before is None and after is None:
            continue
        if before is None:
            record |= {"value": after, "headers": {"operation": "insert"}}
        else:
            operation = "delete" if after is None else "update"
            record |= {"headers": {"operation": operation}}
            record |= {} if after is None else {"value": after}
            record |= {"old_value": before} if tells else {}
        changes.take(msgspec.json.encode(record))
        now = last = touches.generation + 1
        left, right = args_of(before), args_of(after)
        for found in {left, right} - {None}:
            assert found is not None
            watched[found] = now
            if left != right:
                members[found] = now
        if left is not None and left == right and before is not None and after is not None:
            fields |= {left: now} if before["c"] != after["c"] else {}
        if after is None:
            table.pop(key)
        else:
            table[key] = after
    touches.flush()
    for after_generation in range(touches.generation + 1):
        coarse = last > after_generation
        for id in (id_of(table_key("e")), id_of(template_key(template.id))):
            assert touches.is_touched([id], after_generation) or not coarse
        for args in ARGS:
            parts = [arg.encode() for arg in args]
            for truth, id in (
                (watched, id_of(watch_key(template.id, parts))),
                (members, id_of(membership_key(template.id, parts))),
                (fields, id_of(field_key(template.id, "c", parts))),
            ):
                told = touches.is_touched([id, template.blur_id], after_generation)
                assert told or truth.get(args, 0) <= after_generation
