"""Neighbours in batches: what is worked on together, in order, and not too much at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import TypeVar

T = TypeVar("T")


def batches(
    items: Iterable[T], size_of: Callable[[T], int], size_max: int, count_max: float = inf
) -> Iterator[list[T]]:
    """As many items each as come to no more than this size and count; one at least."""
    batch: list[T] = []
    held = 0
    for item in items:
        size = size_of(item)
        if batch and (held + size > size_max or len(batch) >= count_max):
            yield batch
            batch, held = [], 0
        batch.append(item)
        held += size
    if batch:
        yield batch
