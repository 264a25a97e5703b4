"""All logs together: names, ids, totals."""

from __future__ import annotations

from headrace.core import supersession
from headrace.core.config import Durability, LogConfig
from headrace.core.entry import Create, Drop
from headrace.core.limits import SHARED_MAX
from headrace.core.record import draft
from headrace.core.state import State, apply, create


def state_with(*names: str) -> State:
    state = State()
    for name in names:
        apply(state, create(state, name, "topics", LogConfig(), 0))
    return state


def test_an_id_is_never_given_again() -> None:
    state = state_with("a", "b")
    apply(state, Drop(2))
    assert create(state, "b", "topics", LogConfig(), 0).log == 3


def test_the_first_seqs_are_promised_with_the_log() -> None:
    state = State()
    assert create(state, "a", "topics", LogConfig(), 7) == Create(
        1, "a", "topics", LogConfig(), 7, 1024
    )
    synced = LogConfig(durability=Durability.FSYNC)
    assert create(state, "a", "topics", synced, 7).reserved == 0


def test_names_are_listed_in_order() -> None:
    state = state_with("b", "a:2", "a:1", "c")
    assert list(state.names(after="", prefix="")) == ["a:1", "a:2", "b", "c"]
    assert list(state.names(after="a:1", prefix="a:")) == ["a:2"]
    apply(state, Drop(state.by_name["b"].id))
    assert list(state.names(after="a:2", prefix="")) == ["c"]


def test_totals_follow_every_entry() -> None:
    state = state_with("a", "b")
    for name in ("a", "b"):
        apply(state, supersession.append(state.by_name[name], None, draft([b"1"]), None, 0).append)
    assert (state.count, state.size_bytes) == (2, 34)
    apply(state, Drop(state.by_name["a"].id))
    assert (state.count, state.size_bytes) == (1, 17)


def test_equal_configs_are_held_once() -> None:
    state = state_with("a", "b")
    assert state.by_name["a"].config is state.by_name["b"].config


def test_ids_are_those_of_all_logs_and_maybe_of_some_that_are_gone() -> None:
    state = state_with("a", "b", "c")
    assert list(state.ids()) == [1, 2, 3]
    apply(state, Drop(2))
    assert list(state.ids()) == [1, 2, 3]
    apply(state, Drop(1))
    assert list(state.ids()) == [3]


def test_configs_and_texts_that_logs_had_are_not_kept_for_ever() -> None:
    state = State()
    for number in range(3 * SHARED_MAX):
        state.share(LogConfig(ttl_ms=number))
        state.share_text(f"text/{number}")
    assert len(state._configs) <= SHARED_MAX
    assert len(state._texts) <= SHARED_MAX
    assert state.share(LogConfig(ttl_ms=7)) is state.share(LogConfig(ttl_ms=7))
