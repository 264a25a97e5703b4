"""What is remembered of changes, what a change touches, and which templates there are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.profiles.changes import Changes
from headrace.profiles.templates import INVALID, RATE_LIMITED, Template, Templates, parse_wanted
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

# --- remembering ----------------------------------------------------------------------------------


def test_a_touch_counts_from_its_generation_on() -> None:
    touches = Touches(100, 100)
    touches.touch(1)
    assert not touches.is_touched([1], 0)
    assert touches.flush() == ({1}, False)
    assert touches.is_touched([9, 1], 0)
    assert not touches.is_touched([1], 1)
    assert not touches.is_touched([2], 0)
    assert touches.is_anything_touched(0)
    assert not touches.is_anything_touched(1)


def test_who_asks_about_what_was_forgotten_is_told_that_it_may_be() -> None:
    touches = Touches(4, 100)
    for id in (1, 2, 3, 4, 5):
        touches.touch(id)
        touches.flush()
    assert len(touches) <= 4
    assert touches.is_touched([99], 0)
    assert not touches.is_touched([99], 4)
    assert touches.is_touched([5], 4)
    assert touches.is_touched([4], 3)


def test_too_many_at_once_are_everyone() -> None:
    touches = Touches(100, 2)
    for id in (1, 2, 2, 1):
        touches.touch(id)
    assert not touches.everyone_pending
    touches.touch(3)
    assert touches.flush() == ({1, 2}, True)
    assert touches.overflows == 1
    assert touches.is_touched([99], 0)
    assert not touches.is_touched([99, 1], 1)


# --- templates ------------------------------------------------------------------------------------


def activate(templates: Templates, entity: str, *names: str, now_ms: int = 0) -> Template | str:
    wanted = parse_wanted(entity, [(name, "string") for name in names])
    return templates.activate(wanted, None, 3, now_ms)


def test_a_template_is_active_until_nobody_used_it_for_its_time() -> None:
    templates = Templates(TemplateLimits(default_inactivity_ttl_ms=10))
    template = activate(templates, "e", "b", "a")
    assert isinstance(template, Template)
    assert template.fields == (("a", "string"), ("b", "string"))
    assert (template.active_from, template.expires_at_ms) == (3, 10)
    assert activate(templates, "e", "a", "b", now_ms=5) is template
    assert template.expires_at_ms == 15
    templates.use(template, 6, for_ms=100)
    templates.expire(115)
    assert [*templates.of("e")] == [template]
    templates.expire(116)
    assert len(templates) == 0
    assert [*templates.of("e")] == []


@pytest.mark.parametrize(
    ("entity", "fields"),
    [
        ("", [("a", "string")]),
        ("e", []),
        ("e", [("a", "string"), ("b", "string"), ("c", "string"), ("d", "string")]),
        ("e", [("a", "string"), ("a", "string")]),
        ("e", [("", "string")]),
        ("e", [("a\0b", "string")]),
        ("e", [("a", "uuid")]),
        ("e" * 257, [("a", "string")]),
    ],
)
def test_templates_that_there_cannot_be(entity: str, fields: list[tuple[str, str]]) -> None:
    templates = Templates(TemplateLimits())
    assert templates.activate(parse_wanted(entity, fields), None, 0, 0) == INVALID


def test_the_same_names_in_another_encoding() -> None:
    templates = Templates(TemplateLimits())
    assert isinstance(activate(templates, "e", "a"), Template)
    assert templates.activate(parse_wanted("e", [("a", "int64")]), None, 0, 0) == INVALID


def test_only_so_many_become_active_in_a_minute() -> None:
    templates = Templates(TemplateLimits(activation_rate_limit_per_minute=2))
    assert isinstance(activate(templates, "e", "a"), Template)
    assert isinstance(activate(templates, "e", "b"), Template)
    assert activate(templates, "e", "c") == RATE_LIMITED
    assert isinstance(activate(templates, "e", "a"), Template)  # it is active already
    assert isinstance(activate(templates, "e", "c", now_ms=60_000), Template)


def test_those_used_last_stay_when_there_are_too_many() -> None:
    limits = TemplateLimits(max_active_templates_per_entity=2, max_active_templates_per_stream=3)
    templates = Templates(limits)
    first, second = activate(templates, "e", "a"), activate(templates, "e", "b")
    assert isinstance(first, Template)
    templates.use(first, 1)
    activate(templates, "e", "c")
    assert templates.dropped == [second]
    activate(templates, "f", "a")
    activate(templates, "f", "b")
    assert templates.dropped == [second, first]
    assert len(templates) == 3


# --- what a change touches ------------------------------------------------------------------------


class Bench:
    """A stream with templates, and what its changes touch."""

    def __init__(self, **config: Any) -> None:
        self.touches = Touches(1000, 1000)
        self.templates = Templates(TemplateLimits())
        found = activate(self.templates, "todos", "tenant")
        assert isinstance(found, Template)
        self.template = found
        self.changes = Changes(TouchConfig(enabled=True, **config), self.templates, self.touches)
        self.changes.begin(lagging=False, now_ms=1000)

    def take(self, operation: str, entity: str = "todos", **more: Any) -> set[int]:
        record = {"type": entity, "key": "1", "headers": {"operation": operation}, **more}
        self.changes.take(msgspec.json.encode(record))
        return self.touches.flush()[0]

    def fine(self, *args: str, fields: str = "", member: bool = False) -> set[int]:
        """The ids of the keys of single records."""
        found = set()
        for arg in args:
            parts = [arg.encode()]
            found.add(id_of(watch_key(self.template.id, parts)))
            found |= {id_of(membership_key(self.template.id, parts))} if member else set()
            found |= {id_of(field_key(self.template.id, name, parts)) for name in fields.split()}
        return found

    @property
    def coarse(self) -> set[int]:
        return {id_of(table_key("todos")), id_of(template_key(self.template.id))}


def test_what_changes_touch() -> None:
    bench = Bench()
    a, b = {"tenant": "a", "x": 1}, {"tenant": "b", "x": 1}
    assert bench.take("insert", value=a) == bench.coarse | bench.fine("a", member=True)
    assert bench.take("delete", old_value=a) == bench.coarse | bench.fine("a", member=True)
    assert bench.take("update", old_value=a, value=b) == bench.coarse | bench.fine(
        "a", "b", member=True
    )
    changed = bench.take("update", old_value=a, value=a | {"x": 2, "y": 3})
    assert changed == bench.coarse | bench.fine("a", fields="x y")
    assert bench.take("update", old_value=a, value=a) == bench.coarse | bench.fine("a")


def test_records_without_the_fields_have_no_keys() -> None:
    bench = Bench()
    assert bench.take("insert", value={"tenant": None}) == bench.coarse
    assert bench.take("insert", value=None) == bench.coarse
    assert bench.take("insert", "other", value={"tenant": "a"}) == {id_of(table_key("other"))}


def test_values_that_nobody_can_tell_blur_the_template() -> None:
    bench = Bench()
    assert bench.take("insert", value={"tenant": 5}) == bench.coarse | {bench.template.blur_id}


def test_control_records_touch_nothing() -> None:
    bench = Bench()
    bench.changes.take(b'{"headers":{"control":"reset"}}')
    assert bench.touches.settled


def test_what_cannot_be_read_touches_everyone() -> None:
    for raw in (
        b"5",
        b'{"type":"todos"}',
        b'{"type":"todos","headers":{"operation":"x"},"value":5}',
    ):
        bench = Bench()
        bench.changes.take(raw)
        assert bench.touches.everyone_pending


def test_without_what_was_before() -> None:
    value = {"tenant": "b", "x": 1}
    bench = Bench()
    behind = bench.fine("b", fields="tenant x", member=True)
    assert bench.take("update", value=value) == bench.coarse | behind | {bench.template.blur_id}
    assert bench.take("delete") == bench.coarse | {bench.template.blur_id}
    bench = Bench(on_missing_before="skipBefore")
    assert bench.take("update", value=value) == bench.coarse | behind
    assert bench.take("delete") == bench.coarse


def test_beyond_the_budget_everyone_is_touched() -> None:
    bench = Bench(fine_touch_budget_per_batch=2)
    bench.take("insert", value={"tenant": "a"})
    assert not bench.touches.is_touched([99], 0)
    bench.take("insert", value={"tenant": "b"})
    assert bench.touches.is_touched([99], 1)
    bench.changes.begin(lagging=False, now_ms=1000)
    bench.take("insert", value={"tenant": "c"})
    assert not bench.touches.is_touched([99], 2)
    bench = Bench(lag_reserved_fine_touch_budget_per_batch=0)
    bench.changes.begin(lagging=True, now_ms=1000)
    bench.take("insert", value={"tenant": "a"})
    assert bench.touches.is_touched([99], 0)


def test_tokens_are_filled_up_by_the_second() -> None:
    bench = Bench(fine_tokens_per_second=2, fine_burst_tokens=2)
    for now_ms, overflown in ((1000, False), (1100, True), (4000, False)):
        bench.changes.begin(lagging=False, now_ms=now_ms)
        before = bench.touches.generation
        bench.take("insert", value={"tenant": "a"})
        assert bench.touches.is_touched([99], before) is overflown
