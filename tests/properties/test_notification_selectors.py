"""Which notifications a filter wants: selectors and the index of them agree with a naive answer."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import LogConfig
from headrace.core.errors import Refused
from headrace.core.record import block as make_block
from headrace.core.record import draft
from headrace.core.selector_index import SelectorIndex
from headrace.surfaces.notifications.identifiers import parse_wanted
from headrace.surfaces.notifications.selector import NotificationSelector
from headrace.surfaces.notifications.shapes import parse_polygon, read_polygon
from support import notices
from support.notices import STORM, block_of

Asked = dict[str, Any]


def selector(asked: Asked) -> NotificationSelector:
    return NotificationSelector(parse_wanted(STORM, STORM.name, asked))


@given(notices.wanted, st.lists(notices.notified, min_size=1, max_size=4))
def test_a_selector_picks_what_its_filter_wants(asked: Asked, sent: list[Asked]) -> None:
    whole = block_of(sent)
    wanted = [at for at, one in enumerate(sent) if notices.matches(asked, one)]
    picked = selector(asked)
    assert picked == selector(asked)
    assert hash(picked) == hash(selector(asked))
    assert list(picked.pick(whole, range(len(sent)))) == wanted
    assert list(picked.pick(whole, list(range(1, len(sent))))) == [at for at in wanted if at]


steps = st.lists(
    st.tuples(
        st.lists(notices.wanted, max_size=4),
        st.integers(0, 4),
        st.lists(notices.notified, min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=4,
)


@given(steps)
def test_an_index_finds_who_is_to_be_told(
    steps: list[tuple[list[Asked], int, list[Asked]]],
) -> None:
    index = SelectorIndex()
    there: dict[NotificationSelector, Asked] = {}
    for coming, leaving, sent in steps:
        for gone in list(there)[:leaving]:
            del there[gone]
            index.remove(gone)
        for asked in coming:
            if (one := selector(asked)).conditions:
                there[one] = asked
                index.add(one)
        whole = block_of(sent)
        found = {
            one: list(picks)
            for one, picks in index.find(whole, range(len(sent)), LogConfig()).items()
        }
        naive = {
            one: [at for at, each in enumerate(sent) if notices.matches(asked, each)]
            for one, asked in there.items()
        }
        assert found == {one: picks for one, picks in naive.items() if picks}


def test_records_of_other_kinds_are_not_picked() -> None:
    spatial = selector({"point": "1,1"})
    nothing = make_block(draft([b"{}"]), 1, 0)
    assert spatial.pick(nothing, range(1)) == []
    other = make_block(
        draft([b'{"identifier":{}}', b"{}", b"{}"], tags=["storm.a.b.c.d", "storm.a", None]), 1, 0
    )
    assert spatial.pick(other, range(3)) == []
    assert selector({}).pick(other, range(3)) == [0]
    assert selector({}).conditions == ()
    assert not selector({}).takes_all(other)


def test_a_subject_that_is_known_is_looked_up_as_a_whole() -> None:
    asked = {"region": "NORTH", "severity": 4, "anomaly": 1.5, "station": "a.b"}
    (condition,) = selector(asked).conditions
    assert condition.test.values == ("storm.north.4.1%2E5.a%2Eb",)  # type: ignore[union-attr]


@given(notices.rings, st.sampled_from(["{}", " {} ", "({})", " ( {} ) "]))
def test_a_stored_polygon_is_read_as_it_was_parsed(ring: list[list[float]], form: str) -> None:
    text = form.format(", ".join(f"{lat},{lon}" for lat, lon in ring))
    for sent in (ring, json.dumps(ring), f" {json.dumps(ring)}", text):
        assert read_polygon(sent) == parse_polygon("polygon", sent)


numbers = st.sampled_from(
    ["0", "-0", "1.5", " 2", "3 ", "+4", "5e0", "1e", "", "--1", "1 2", "nan"]
)
wild = st.sampled_from(["90", "-90.5", "180", "181", "1e999", "1_0", ".", "6."])


@given(st.lists(numbers | wild, max_size=12), st.booleans())
def test_a_plain_text_is_parsed_as_with_a_closer_look(parts: list[str], closes: bool) -> None:
    text = ",".join([*parts, *parts[:2]] if closes else parts)

    def parsed(sent: str) -> object:
        try:
            return parse_polygon("polygon", sent).ring
        except Refused as refused:
            return refused.message

    assert parsed(text) == parsed(f"({text})")
