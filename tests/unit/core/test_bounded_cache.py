"""A cache never holds more than it may."""

from __future__ import annotations

from headrace.core.bounded_cache import BoundedCache


def test_it_holds_no_more_than_it_may_and_always_what_came_last() -> None:
    cache: BoundedCache[int, str] = BoundedCache(3)
    for number in range(10):
        cache.keep(number, str(number))
        assert len(cache) <= 3
        assert cache.get(number) == str(number)
    assert cache.get(0) is None
