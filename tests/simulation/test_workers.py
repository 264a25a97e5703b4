"""Queues under seeded workers and crashes; `make soak` looks at fresh seeds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.job_oracle import Hold, Oracle

from .workers import simulate

_FIXED = range(8)
_KEPT = (
    16,  # an ack that waited for a segment took the job of a newer lease of the same worker
    3472071821,  # nobody heard that a lease was shortened, and it was (of the oracle)
)


@pytest.mark.parametrize("seed", [*_FIXED, *_KEPT])
def test_every_job_ends_once(seed: int) -> None:
    simulate(seed)


@pytest.mark.soak
def test_every_job_ends_once_with_fresh_seeds(fresh_seeds: Iterator[int]) -> None:
    for seed in fresh_seeds:
        simulate(seed)


def test_a_seed_tells_the_same_story_twice() -> None:
    assert simulate(7) == simulate(7)


@pytest.mark.parametrize(("asked_ms", "early"), [(None, True), (2000, True), (1000, False)])
def test_an_extension_nobody_heard_of_may_count(asked_ms: int | None, early: bool) -> None:
    oracle = Oracle("held", durable_leases=True)
    oracle.offer(b"job")
    oracle.deliver(b"job", Hold("a", 1, deadline_ms=3000, got_ms=0), number=1, deliveries=1)
    if asked_ms is not None:
        oracle.extending(b"job", 1, asked_ms)
    oracle.restart()
    oracle.deliver(b"job", Hold("b", 2, deadline_ms=4000, got_ms=1500), number=1, deliveries=2)
    assert bool(oracle.complaints) is early
