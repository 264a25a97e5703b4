"""Which task takes on which item."""

from __future__ import annotations

from headrace.pipeline.limits import TASK_BYTES, TASK_ITEMS_MAX
from headrace.pipeline.tasks import share_tasks


def test_neighbours_that_are_small_share_a_task() -> None:
    assert share_tasks([]) == []
    assert share_tasks([TASK_BYTES * 8]) == [0]
    assert share_tasks([1, TASK_BYTES, 1, TASK_BYTES - 1, 0]) == [0, 1, 2, 2, 2]
    many = share_tasks([10] * 3000)
    assert many == sorted(many)
    assert max(map(many.count, set(many))) == TASK_ITEMS_MAX
    assert many[-1] + 1 == -(-3000 // TASK_ITEMS_MAX)
