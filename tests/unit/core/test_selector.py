"""Selectors, and an index of many of them: it finds what asking each of them would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import LogConfig
from headrace.core.match import TagEq, TagPrefix
from headrace.core.record import Block, block, draft
from headrace.core.selector import ColumnFeature, ColumnSelector, Condition, IsOneOf
from headrace.core.selector_index import Picked, SelectorIndex

texts = st.sampled_from(["", "a", "ab", "abc", "b"])
columns = st.none() | st.lists(st.none() | texts, min_size=4, max_size=4)
blocks = st.builds(
    lambda tags, nodes, keys: block(draft([b"1"] * 4, None, tags, nodes, keys), 7, 0),
    columns,
    columns,
    columns,
)
matches = st.none() | st.builds(TagEq, texts) | st.builds(TagPrefix, texts)
selectors = st.builds(ColumnSelector, st.frozensets(texts), matches, st.none() | texts)
configs = st.builds(LogConfig, dedupe_node=st.booleans())


def naive(selector: ColumnSelector, config: LogConfig, whole: Block, at: int) -> bool:
    tag, node, key = (None if c is None else c[at] for c in (whole.tags, whole.nodes, whole.keys))
    if config.dedupe_node and node is not None and node in selector.exclude:
        return False
    if selector.key is not None and selector.key != key:
        return False
    return selector.match is None or selector.match.matches(tag)


@given(selectors, configs, blocks)
def test_a_selector_picks_by_all_its_columns(
    selector: ColumnSelector, config: LogConfig, whole: Block
) -> None:
    bound = selector.bind(config)
    wanted = [at for at in range(1, 4) if naive(selector, config, whole, at)]
    assert list(bound.pick(whole, range(1, 4))) == wanted
    if bound.takes_all(whole):
        assert wanted == [1, 2, 3]


@given(st.lists(selectors, max_size=8), st.integers(0, 8), configs, blocks)
def test_an_index_finds_what_each_selector_picks(
    some: list[ColumnSelector], kept: int, config: LogConfig, whole: Block
) -> None:
    findable = list(dict.fromkeys(one for one in some if one.conditions))
    index = SelectorIndex()
    for one in [*findable, *findable]:
        index.add(one)
    for one in findable[kept:]:
        index.remove(one)
    found = index.find(whole, range(1, 4), config)
    picked = {one: list(one.bind(config).pick(whole, range(1, 4))) for one in findable[:kept]}
    assert found == {one: picks for one, picks in picked.items() if picks}
    for one in findable[:kept]:
        known = Picked(6)
        if one in found:
            known.add(whole, found[one][:1])
            known.add(whole, found[one][1:])
            assert known.by_block == {whole.first: (whole, picked[one])}
        index.remove(one)
    assert not len(index)
    assert index._root.empty


def test_conditions_are_what_is_looked_up_first() -> None:
    keyed = Condition(ColumnFeature("keys"), IsOneOf(("k",)))
    assert ColumnSelector(key="k", match=TagEq("t")).conditions == (keyed,)
    tagged = Condition(ColumnFeature("tags", 1), IsOneOf(("t",)))
    assert ColumnSelector(match=TagPrefix("t")).conditions == (tagged,)
    assert ColumnSelector(frozenset("n")).conditions == ()
