"""Idempotency keys and their window."""

from __future__ import annotations

from headrace.core.idempotency import find, remember


def test_a_key_stands_for_its_append_until_the_window_has_passed() -> None:
    keys = remember(None, "k", 4, 6, at_ms=1000, window_ms=50)
    assert find(keys, "k", 50, now_ms=1050) == (4, 6)
    assert find(keys, "k", 50, now_ms=1051) is None
    assert find(keys, "other", 50, now_ms=1000) is None
    assert find(None, "k", 50, now_ms=1000) is None


def test_old_keys_go_when_a_new_one_comes() -> None:
    keys = remember(None, "a", 1, 1, at_ms=1000, window_ms=50)
    keys = remember(keys, "b", 2, 2, at_ms=1040, window_ms=50)
    keys = remember(keys, "c", 3, 3, at_ms=1060, window_ms=50)
    assert list(keys) == ["b", "c"]


def test_a_key_used_again_is_young_again() -> None:
    keys = remember(None, "a", 1, 1, at_ms=1000, window_ms=50)
    keys = remember(keys, "b", 2, 2, at_ms=1010, window_ms=50)
    keys = remember(keys, "a", 3, 3, at_ms=1051, window_ms=50)
    assert keys == {"b": (2, 2, 1010), "a": (3, 3, 1051)}
    assert list(keys) == ["b", "a"]
