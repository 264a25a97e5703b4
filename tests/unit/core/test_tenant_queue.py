"""The queue that tenants share."""

from __future__ import annotations

import pytest

from headrace.core.cap import Cap
from headrace.core.errors import Code, Refused
from headrace.core.tenant_queue import TenantQueue

UNCAPPED = Cap("", 0)


def test_tenants_are_served_in_turn() -> None:
    queue: TenantQueue[str] = TenantQueue(UNCAPPED, UNCAPPED)
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.put(item[0], item)
    assert len(queue) == 6
    assert [queue.take(), queue.take()] == ["a1", "b1"]
    queue.put("d", "d1")
    assert [queue.take() for _ in range(5)] == ["c1", "a2", "b2", "d1", "a3"]
    assert not queue


def test_one_who_comes_again_waits_behind_the_others() -> None:
    queue: TenantQueue[str] = TenantQueue(UNCAPPED, UNCAPPED)
    queue.put("a", "a1")
    queue.put("b", "b1")
    assert queue.take() == "a1"
    queue.put("a", "a2")
    assert [queue.take(), queue.take()] == ["b1", "a2"]


def test_what_is_put_back_waits_behind_others_and_before_its_own() -> None:
    queue: TenantQueue[str] = TenantQueue(Cap("total", 4), Cap("per_tenant", 2))
    for item in ("a1", "a2", "b1", "b2"):
        queue.put(item[0], item)
    assert queue.take() == "a1"
    queue.put("c", "c1")
    queue.put_back("a", "a1")  # whatever the caps say: it was let in
    assert [queue.take() for _ in range(5)] == ["b1", "c1", "a1", "b2", "a2"]
    queue.put_back("a", "a1")
    assert (len(queue), queue.take()) == (1, "a1")


def test_no_more_than_so_many_wait() -> None:
    queue: TenantQueue[int] = TenantQueue(Cap("total", 3), Cap("per_tenant", 2))
    queue.put("a", 1)
    queue.put("a", 2)
    with pytest.raises(Refused) as refused:
        queue.put("a", 3)
    assert refused.value.code is Code.THROTTLED
    assert refused.value.detail["limit"] == "per_tenant"
    queue.put("b", 1)
    with pytest.raises(Refused) as refused:
        queue.put("c", 1)
    assert refused.value.detail["limit"] == "total"
    queue.take()
    queue.put("c", 1)
