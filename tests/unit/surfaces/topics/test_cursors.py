"""Composite cursors: what goes into an id comes out again, and nothing else gets in."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Code, Refused
from headrace.core.limits import COMPOSITE_BYTES_MAX, CURSOR_DEAD_MAX, CURSOR_ORDERS_MAX, U64_MAX
from headrace.surfaces.topics.cursors import (
    Checkpoint,
    CursorHistory,
    format_label,
    parse_composite,
    parse_label,
)

labels = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,40}(@[0-9]{1,6})?", fullmatch=True)
places = st.dictionaries(labels, st.integers(0, U64_MAX), max_size=30)


def trail_of(seqs: dict[str, int]) -> CursorHistory:
    cursor_history = CursorHistory("tag")
    for label, seq in seqs.items():
        cursor_history.tell(label, seq)
    return cursor_history


@given(places)
def test_an_id_tells_every_place(seqs: dict[str, int]) -> None:
    assert parse_composite(trail_of(seqs).id().decode()) == seqs


@given(st.integers(100, 300), st.data())
def test_a_long_id_is_a_checkpoint_that_tells_the_same(count: int, data: st.DataObject) -> None:
    seqs = {f"{'x' * 60}-{i}": data.draw(st.integers(0, 1 << 40)) for i in range(count)}
    cursor_history = trail_of(seqs)
    id = cursor_history.id().decode()
    assert len(id) < COMPOSITE_BYTES_MAX
    cursor = parse_composite(id)
    assert isinstance(cursor, Checkpoint)
    assert not cursor_history.is_foreign(cursor)
    assert cursor_history.resolve(cursor) == seqs
    assert CursorHistory("other").is_foreign(cursor)


def test_a_checkpoint_does_not_know_what_came_later() -> None:
    long = [f"{'x' * 100}-{i}" for i in range(60)]
    cursor_history = trail_of(dict.fromkeys(long, 1))
    before = parse_composite(cursor_history.id().decode())
    cursor_history.tell("later", 5)
    cursor_history.tell(long[0], 2)
    assert cursor_history.resolve(before) == dict.fromkeys(long, 1)


def test_topics_that_come_and_go_do_not_pile_up() -> None:
    cursor_history = trail_of({f"{'x' * 100}-{i}": 1 for i in range(60)})
    oldest = parse_composite(cursor_history.id().decode())
    sizes = []
    for number in range(20 * CURSOR_DEAD_MAX):
        cursor_history.tell(f"{'y' * 100}@{number}", 7)
        sizes.append(len(cursor_history.id()))
        cursor_history.drop(f"{'y' * 100}@{number}")
    assert max(sizes) < 400
    assert len(cursor_history._orders) <= CURSOR_ORDERS_MAX
    assert cursor_history.resolve(oldest) is None, "too old to be known"
    newest = parse_composite(cursor_history.id().decode())
    known = cursor_history.resolve(newest)
    assert known is not None
    assert {f"{'x' * 100}-{i}": 1 for i in range(60)}.items() <= known.items()


def test_a_new_stream_tells_only_its_own_places() -> None:
    cursor_history = trail_of({"a": 9, "b": 9, "c@4": 9})
    cursor_history.restart({"a": 2, "b": 9})
    assert parse_composite(cursor_history.id().decode()) == {"a": 2, "b": 9}
    cursor_history.drop("c@4")
    assert parse_composite(cursor_history.id().decode()) == {"a": 2, "b": 9}


def test_a_label_tells_the_epoch_only_where_it_must() -> None:
    assert format_label("jobs", None) == "jobs"
    assert parse_label("jobs") == ("jobs", None)
    assert parse_label(format_label("jobs", 57)) == ("jobs", 57)


def packed(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "text",
    [
        "", "!", "e30=x", packed("[1]"), packed("{"), packed('{"a":-1}'), packed('{"a":1.5}'),
        packed('{"a":"1"}'), packed(f'{{"a":{U64_MAX + 1}}}'), packed('{"a":true}'),
        "c.", "c.tag", "c.tag.x.AA", "c.tag.0.!", "c.tag.0.gA", "c.tag.-1.AA.", "x" * 100_000,
        packed(f'{{"a@{"9" * 5000}":1}}'), packed(f'{{"a@{U64_MAX + 1}":1}}'),
        packed('{"a@":1}'), packed('{"a@x":1}'), packed('{"a@1@2":1}'), packed('{"a@-1":1}'),
        f"c.tag.{'9' * 5000}.AA", "c.tag.0." + "_" * 1000,
    ],
)  # fmt: skip
def test_a_cursor_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refusal:
        parse_composite(text)
    assert refusal.value.code is Code.INVALID


@given(st.text(max_size=60))
def test_no_cursor_does_harm(text: str) -> None:
    try:
        parse_composite(text)
    except Refused as refused:
        assert refused.code is Code.INVALID  # noqa: PT017
