"""The rig: what the product catches does not stay there."""

from __future__ import annotations

import asyncio

import pytest

from headrace.delivery.tasks import Tasks
from support.engine_harness import nothing_swallowed, small


def test_an_assertion_inside_a_push_escapes() -> None:
    async def work() -> None:
        async def push() -> None:
            raise AssertionError("7 was deleted")

        failed = asyncio.Event()
        Tasks().start(push(), failed.set)
        await failed.wait()

    with pytest.raises(AssertionError, match="7 was deleted"), small():
        asyncio.run(work())


def test_a_disk_that_fails_is_no_bug() -> None:
    async def work() -> None:
        async def push() -> None:
            raise OSError("as planned")

        failed = asyncio.Event()
        Tasks().start(push(), failed.set)
        await failed.wait()

    with nothing_swallowed():
        asyncio.run(work())
