"""Tokens of the catalog: kept as digests, found by them, gone when they are revoked."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from random import Random
from unittest import mock

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.token import Grants
from headrace.engine.start import Started, stop
from headrace.storage.checks.findings import Problem
from headrace.storage.verification import Verification
from support.engine_harness import boot, small
from support.hostile import HostileDisk, Survival
from support.virtual import VirtualClock, VirtualLoop

ONE, TWO = sha256(b"one").digest(), sha256(b"two").digest()
READER = Grants(1, ("a.",), ("acme",), ("acme/billing",), ("reader",), "here")


async def again(started: Started, disk: HostileDisk, clock: VirtualClock, how: str) -> Started:
    """Another start, by what the journal says or by what a snapshot says."""
    if how == "snapshot":
        await started.upkeep.snapshot()
    await stop(started)
    disk.world.locked.clear()
    return await boot(disk, clock)


@pytest.mark.parametrize("how", ["journal", "snapshot"])
def test_tokens_are_there_after_a_restart(loop: VirtualLoop, how: str) -> None:
    async def script() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        started = await boot(disk, clock)
        tokens = started.engine.tokens
        one = await tokens.issue(ONE, READER, label="ci", created_by="admin")
        two = await tokens.issue(TWO, Grants())
        assert one.id != two.id
        assert tokens.find(ONE) == one
        assert await tokens.revoke(two.id)
        assert tokens.find(TWO) is None
        started = await again(started, disk, clock, how)
        tokens = started.engine.tokens
        assert await tokens.list() == [one]
        assert tokens.find(ONE) == one
        assert tokens.find(TWO) is None
        assert await tokens.revoke(one.id)
        assert not await tokens.revoke(one.id)
        started = await again(started, disk, clock, how)
        assert await started.engine.tokens.list() == []
        assert started.engine.tokens.find(ONE) is None
        await stop(started)

    with small():
        loop.run_until_complete(script())


@pytest.mark.parametrize("survival", Survival)
def test_what_was_answered_outlives_a_loss_of_power(loop: VirtualLoop, survival: Survival) -> None:
    async def script() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        started = await boot(disk, clock)
        one = await started.engine.tokens.issue(ONE, READER)
        disk = disk.lose_power(survival, Random(1))
        started = await boot(disk, clock)
        assert started.engine.tokens.find(ONE) == one
        assert await started.engine.tokens.revoke(one.id)
        disk = disk.lose_power(survival, Random(2))
        started = await boot(disk, clock)
        assert started.engine.tokens.find(ONE) is None
        await stop(started)
        problems = [found for found in Verification(disk).run() if isinstance(found, Problem)]
        assert problems == []

    with small():
        loop.run_until_complete(script())


def test_a_token_is_revoked_at_once_and_observers_hear_of_it(loop: VirtualLoop) -> None:
    async def script() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        tokens, heard = started.engine.tokens, list[str]()
        tokens.observe_revoked(heard.append)
        token = await tokens.issue(ONE, READER)
        revoking = loop.create_task(tokens.revoke(token.id))
        revoking.add_done_callback(lambda _: heard.append("durable"))
        with (
            mock.patch.object(
                started.engine.journal, "wait_synced", side_effect=Refused(Code.READ_ONLY, "no")
            ),
            pytest.raises(Refused),
        ):
            await revoking
        assert heard == [token.id, "durable"]
        assert tokens.find(ONE) is None
        await stop(started)

    with small():
        loop.run_until_complete(script())


def test_whoever_asks_meanwhile_is_told_what_is_durable(loop: VirtualLoop) -> None:
    """Also that there is no such token: a loss of power could bring it back."""

    async def script() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        tokens, journal = started.engine.tokens, started.engine.journal
        for again in (True, False):
            token = await tokens.issue(ONE, READER)
            revoking = loop.create_task(tokens.revoke(token.id))
            await asyncio.sleep(0)
            assert not tokens.is_valid(token.id)
            assert journal.synced < journal.tail
            assert not await (tokens.revoke(token.id) if again else tokens.list())
            assert journal.synced == journal.tail
            assert await revoking
        await stop(started)

    with small():
        loop.run_until_complete(script())


def test_a_token_ends_by_itself(loop: VirtualLoop) -> None:
    async def script() -> None:
        clock = VirtualClock(loop)
        started = await boot(HostileDisk(), clock)
        tokens, now_ms = started.engine.tokens, clock.now_ms()
        token = await tokens.issue(ONE, READER, expires_at_ms=now_ms + 1)
        assert token.is_valid(now_ms)
        assert not token.is_valid(now_ms + 1)
        with mock.patch.object(clock, "now_ms", return_value=now_ms + 1):
            assert tokens.find(ONE) is None
            assert not tokens.is_valid(token.id)
        await stop(started)

    with small():
        loop.run_until_complete(script())


def test_there_are_so_many_tokens_and_expired_ones_make_room(loop: VirtualLoop) -> None:
    async def script() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        tokens = started.engine.tokens
        with (
            mock.patch("headrace.engine.tokens.TOKENS_MAX", 1),
            mock.patch("headrace.engine.tokens._CAP", mock.Mock(wraps=None)) as cap,
        ):
            await tokens.issue(ONE, READER, expires_at_ms=1)
            await tokens.issue(TWO, READER)
            cap.check.assert_called_with(0)
            assert [token.digest for token in await tokens.list()] == [TWO]
            await tokens.issue(ONE, READER)
            cap.check.assert_called_with(1)
        await stop(started)

    with small():
        loop.run_until_complete(script())


def test_a_token_that_made_room_stays_gone_behind_a_snapshot(loop: VirtualLoop) -> None:
    """A start reads the journal from before the snapshot, where records are not sealed yet."""

    async def script() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        started = await boot(disk, clock)
        tokens = started.engine.tokens
        with mock.patch("headrace.engine.tokens.TOKENS_MAX", 1):
            await tokens.issue(ONE, READER, expires_at_ms=1)
            two = await tokens.issue(TWO, READER)
        started = await again(started, disk, clock, "snapshot")
        assert await started.engine.tokens.list() == [two]
        await stop(started)

    with small():
        loop.run_until_complete(script())
