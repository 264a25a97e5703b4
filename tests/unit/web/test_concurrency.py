from __future__ import annotations

import pytest

from headrace.core.cap import Cap
from headrace.core.errors import Code, Refused
from headrace.web.concurrency import Slots
from headrace.web.credentials import ALL_SCOPES, LOCAL, Principal

ANN = Principal("ann", ALL_SCOPES)
BOB = Principal("bob", ALL_SCOPES)


def test_one_key_cannot_take_more_than_its_share() -> None:
    slots = Slots(per_key=Cap("max_inflight_per_key", 2))
    held = [slots.take(ANN), slots.take(ANN)]
    with pytest.raises(Refused) as refusal:
        slots.take(ANN)
    assert refusal.value.code is Code.THROTTLED
    assert refusal.value.detail == {"limit": "max_inflight_per_key", "max": 2}
    with slots.take(BOB):
        assert len(slots) == 3
    held[0].free()
    held.append(slots.take(ANN))
    assert len(slots) == 2


def test_the_total_is_shared_by_all() -> None:
    slots = Slots(total=Cap("max_sse_connections", 2), per_key=Cap("per_key", 9))
    with slots.take(ANN), slots.take(BOB), pytest.raises(Refused, match="max_sse_connections"):
        slots.take(LOCAL)
    assert len(slots) == 0


def test_without_keys_only_the_total_counts() -> None:
    slots = Slots(total=Cap("total", 3), per_key=Cap("per_key", 1))
    held = [slots.take(LOCAL) for _ in range(3)]
    assert len(slots) == len(held)


def test_zero_means_unlimited() -> None:
    slots = Slots(per_key=Cap("per_key", 0))
    held = [slots.take(ANN) for _ in range(50)]
    assert len(slots) == len(held)


def test_a_slot_is_freed_however_it_ends_and_only_once() -> None:
    slots = Slots(per_key=Cap("per_key", 1))
    with pytest.raises(KeyError), slots.take(ANN):
        raise KeyError
    assert len(slots) == 0
    slot = slots.take(ANN)
    slot.free()
    slot.free()
    assert len(slots) == 0
    slot = slots.take(ANN)
    del slot
    assert len(slots) == 0
    slots.take(ANN).free()
