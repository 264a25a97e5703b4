"""Whose a transaction is: bound to the key that staged first, through restarts, within its caps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from unittest import mock

import msgspec
import pytest
from xxhash import xxh3_64_intdigest

from headrace.core.cap import Cap
from headrace.core.config import LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    STAGED_CHUNK_BYTES_MIN,
    TRANSACTION_KEPT_MS,
    TRANSACTION_ONCE_MS_MIN,
)
from headrace.core.record import draft
from headrace.core.transaction import LOCAL, Caller, Chunk, Commit
from headrace.engine.engine import Engine
from headrace.engine.logs.transactions import BatchCommitted
from headrace.formats.staged import encode_staged
from headrace.storage.staging import Staging
from headrace.surfaces.bulk.chunks import ChunkLimits
from headrace.surfaces.bulk.routes import Bulk
from headrace.web.credential_store import CredentialStore
from headrace.web.credentials import ALL_SCOPES, Keyring, Principal, Scope
from support.asking import make_call, make_gate, make_request
from support.engine_harness import Unhurried, boot, view
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

ANN, BOB = Caller("ann"), Caller("bob")
SMALL = Caller("small", lambda log: log.startswith("small"))


async def stage(
    engine: Engine, by: Caller, transaction: str = "t", batch: int = 0, name: str = "0-0-0"
) -> bool:
    chunk = Chunk("victim", draft([b"%d" % batch]))
    return await engine.transactions.stage(transaction, batch, name, chunk, by)


async def commit(
    engine: Engine, by: Caller, transaction: str = "t", batch: int = 0, *, once: bool = False
) -> BatchCommitted:
    return await engine.transactions.commit(
        transaction, batch, ["0-0-0"], owner="topics", create=LogConfig(), once=once, by=by
    )


async def send(
    engine: Engine, by: Caller, transaction: str = "t", batch: int = 0
) -> BatchCommitted:
    await stage(engine, by, transaction, batch)
    return await commit(engine, by, transaction, batch)


async def check(engine: Engine, by: Caller) -> None:
    engine.transactions.check("t", by)


ACTS: list[Callable[[Engine, Caller], Awaitable[object]]] = [
    stage,
    commit,
    lambda engine, by: engine.transactions.abort("t", 0, by),
    check,
]


async def refuse_all(engine: Engine, by: Caller) -> None:
    for act in ACTS:
        with pytest.raises(Refused) as refused:
            await act(engine, by)
        assert refused.value.code is Code.FORBIDDEN
        assert "victim" not in refused.value.message + str(refused.value.detail)


async def rows(engine: Engine) -> list[bytes]:
    return [record.data for record in (await view(engine, "victim")).records.values()]


@pytest.mark.parametrize("committed", [False, True])
def test_others_are_refused_also_after_a_restart(loop: VirtualLoop, committed: bool) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        await (send if committed else stage)(engine, ANN)
        for _ in range(2):
            await refuse_all(engine, BOB)
            disk = disk.kill()
            engine = (await boot(disk, clock)).engine
        assert (await commit(engine, ANN)).repeated is committed
        assert not (await send(engine, ANN, batch=1)).repeated
        assert await rows(engine) == [b"0", b"1"]

    loop.run(story())


def test_who_comes_first_has_it_when_two_come_at_once(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop), pool=Unhurried())).engine
        done = await asyncio.gather(
            stage(engine, ANN), stage(engine, BOB, name="0-0-1"), return_exceptions=True
        )
        refused = [each for each in done if isinstance(each, Refused)]
        assert [each.code for each in refused] == [Code.FORBIDDEN]
        assert (await commit(engine, ANN)).rows == 1

    loop.run(story())


def test_where_a_chunk_goes_is_not_told_to_who_may_not_write_there(loop: VirtualLoop) -> None:
    """The rights of a key may have changed since it staged."""

    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await stage(engine, Caller("small"))
        with pytest.raises(Refused) as refused:
            await commit(engine, SMALL)
        assert refused.value.code is Code.FORBIDDEN
        assert "victim" not in refused.value.message + str(refused.value.detail)

    loop.run(story())


# --- keys that go, and files from before keys were noted ------------------------------------------


def gone(key: str) -> bool:
    return key == "ann"


def test_what_a_key_left_is_taken_over_by_who_may_write_there(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        await send(engine, ANN)
        await stage(engine, ANN, batch=1)
        engine.transactions.is_gone = gone
        await refuse_all(engine, SMALL)
        assert engine.transactions.waiting.chunks == 1
        assert not await stage(engine, BOB), "that batch was committed by the key before"
        assert engine.transactions.waiting.chunks == 0
        await stage(engine, BOB, batch=1)
        for _ in range(2):
            engine.transactions.is_gone = gone
            await refuse_all(engine, ANN)
            disk = disk.kill()
            engine = (await boot(disk, clock)).engine
        await commit(engine, BOB, batch=1)
        assert await rows(engine) == [b"0", b"1"]

    loop.run(story())


def test_a_batch_on_its_way_arrives_before_it_is_taken_over(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        killed = mock.patch.object(engine.transactions, "_finish", side_effect=OSError("killed"))
        with killed, pytest.raises(OSError, match="killed"):
            await send(engine, ANN)
        engine = (await boot(disk.kill(), clock)).engine
        engine.transactions.is_gone = gone
        await send(engine, BOB, batch=1)
        assert await rows(engine) == [b"0", b"1"]

    loop.run(story())


def old_file(*fields: object) -> bytes:
    body = msgspec.msgpack.encode(fields)
    return xxh3_64_intdigest(body).to_bytes(8, "little") + body


def test_files_from_before_keys_were_noted(loop: VirtualLoop) -> None:
    """One batch on its way, one in its logs, one staged; each belongs to who comes first."""

    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        log, _ = await engine.logs.put("victim", "topics", LogConfig())
        files = {
            "way.0.0-0-0.chunk": old_file("victim", draft([b"0"]), True),
            "way.0.commit": old_file("way", 0, [("0-0-0", log.id, 1)], 1, False),
            "there.0.commit": old_file("there", 0, [("0-0-0", log.id, 1)], 1, False),
            "staged.0.0-0-0.chunk": old_file("victim", draft([b"0"]), True),
        }
        staging = Staging(disk)
        for name, content in files.items():
            staging.put(f"staged/{name}", content)
        disk = disk.kill()
        engine = (await boot(disk, clock)).engine
        await engine.transactions.resume()
        assert await rows(engine) == [b"0"]
        for name in ("way", "there"):
            with pytest.raises(Refused):
                await stage(engine, SMALL, name)
            assert (await commit(engine, ANN, name)).repeated
            with pytest.raises(Refused):
                await commit(engine, BOB, name)
        assert not (await commit(engine, ANN, "staged")).repeated
        engine = (await boot(disk.kill(), clock)).engine
        await engine.transactions.resume()
        assert await rows(engine) == [b"0", b"0"]
        for name in ("way", "there", "staged"):
            assert (await commit(engine, ANN, name)).repeated
        assert not engine.transactions.waiting.chunks

    loop.run(story())


def test_a_keyring_knows_which_keys_are_gone() -> None:
    keys = Keyring.parse("one,two")
    ring = CredentialStore(keys)
    ids = [principal.id for principal in keys.principals]
    assert [ring.is_gone(id) for id in (*ids, LOCAL.key)] == [False, False, True]
    assert [CredentialStore().is_gone(id) for id in (*ids, LOCAL.key)] == [True, True, False]


# --- caps -----------------------------------------------------------------------------------------


async def assert_throttled(work: Awaitable[object], limit: str) -> None:
    with pytest.raises(Refused) as refused:
        await work
    assert (refused.value.code, refused.value.detail["limit"]) == (Code.THROTTLED, limit)


def test_a_key_fills_its_own_share_of_what_waits(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        for number in range(2):
            await stage(engine, ANN, name=f"0-0-{number}")
        engine = (await boot(disk.kill(), clock)).engine
        await assert_throttled(stage(engine, ANN, name="0-0-2"), "staged_bytes_per_key")
        await stage(engine, BOB, "u")
        await assert_throttled(stage(engine, BOB, "u", name="0-0-1"), "staged_bytes")
        await engine.transactions.abort("t", 0, ANN)
        await stage(engine, ANN, name="0-0-2")

    share = 2 * STAGED_CHUNK_BYTES_MIN
    with (
        mock.patch(
            "headrace.engine.logs.chunks._BYTES_PER_KEY", Cap("staged_bytes_per_key", share)
        ),
        mock.patch(
            "headrace.engine.logs.chunks._BYTES",
            Cap("staged_bytes", share + STAGED_CHUNK_BYTES_MIN),
        ),
    ):
        loop.run(story())


def test_a_key_has_so_many_transactions(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock = VirtualClock(loop)
        engine = (await boot(HostileDisk(), clock)).engine
        transactions = engine.transactions
        await send(engine, ANN, "a")
        await stage(engine, ANN, "once")
        await commit(engine, ANN, "once", once=True)
        await stage(engine, ANN, "c")
        await assert_throttled(commit(engine, ANN, "c"), "transactions_per_key")
        await send(engine, BOB, "b")
        await send(engine, ANN, "a", 1)
        clock.skew_ms += TRANSACTION_ONCE_MS_MIN + 1
        assert not (await commit(engine, ANN, "c")).repeated
        assert [transactions.last(each) for each in ("a", "once", "c")] == [1, None, 0]
        clock.skew_ms += TRANSACTION_KEPT_MS + 1
        await transactions.sweep()
        assert [transactions.last(each) for each in ("a", "b", "c")] == [None, None, None]
        await send(engine, ANN, "d")

    per_key = Cap("transactions_per_key", 2)
    with mock.patch("headrace.engine.logs.commit_history._PER_KEY", per_key):
        loop.run(story())


# --- which batches are committed ------------------------------------------------------------------


def test_a_commit_knows_those_before_it_but_for_the_oldest() -> None:
    newest = Commit("t", 0, [], 0)
    for batch in (1, 2, 5, 7, 8):
        newest = Commit("t", batch, [], 0, earlier=newest.batches)
    assert newest.batches == ((0, 2), (5, 5), (7, 8))
    assert [newest.has(batch) for batch in (0, 2, 5, 7, 8, 9)] == [True] * 5 + [False]
    for batch in (3, 4, 6):
        with pytest.raises(Refused, match="passed over"):
            newest.has(batch)
    with mock.patch("headrace.core.transaction.BATCH_SPANS_MAX", 2):
        newest = Commit("t", 10, [], 0, earlier=newest.batches)
        assert newest.batches == ((7, 8), (10, 10))
    assert encode_staged(newest)


@pytest.mark.parametrize(
    ("who", "may"),
    [
        (Principal("ann", ALL_SCOPES, ("victim",)), True),
        (Principal("operator", ALL_SCOPES), True),
        (Principal("bob", ALL_SCOPES, ("bob:",)), False),
        (Principal("bob", ALL_SCOPES, ("victim",)), False),
        (Principal("writer", Scope.WRITE), False),
    ],
)
def test_who_may_give_a_transaction_up(loop: VirtualLoop, who: Principal, may: bool) -> None:
    async def play() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await send(engine, ANN)
        await stage(engine, ANN, batch=1)
        bulk = Bulk(ChunkLimits(10, 1000, 100, 50, 50), 1000)
        request = make_request("DELETE", "/v0/transactions/t")
        call = make_call(make_gate(engine), request, who, transaction="t")
        if may:
            await bulk.give_up(call)
            assert engine.transactions.last("t") is None
            return
        with pytest.raises(Refused) as refused:
            await bulk.give_up(call)
        assert refused.value.code is Code.FORBIDDEN
        assert engine.transactions.last("t") == 0
        assert engine.transactions.waiting.chunks == 1

    loop.run(play())
