from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.core.batching import batches


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([9], [[9]]),
        ([2, 2, 1], [[2, 2, 1]]),
        ([2, 2, 2], [[2, 2], [2]]),
        ([9, 1, 9], [[9], [1], [9]]),
        ([0, 0, 0, 0], [[0, 0, 0], [0]]),
    ],
)
def test_neighbours_are_together_up_to_size_and_count(
    sizes: list[int], expected: list[list[int]]
) -> None:
    assert list(batches(sizes, int, 5, 3)) == expected


def test_no_more_is_looked_at_than_one_behind_a_batch() -> None:
    looked_at: list[int] = []

    def items() -> Iterator[int]:
        for size in (3, 3, 3):
            looked_at.append(size)
            yield size

    assert next(batches(items(), int, 4)) == [3]
    assert len(looked_at) == 2
