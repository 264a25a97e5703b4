"""What the journal promises, whoever runs its commits: the loop, a thread or a process."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from headrace.core.entry import Entry, Reserve
from headrace.core.errors import Code, Refused
from headrace.formats import layout
from headrace.formats.layout import TEMPORARY
from headrace.processes.sync_process import best_writer
from headrace.storage.disk import Disk, make_folders
from headrace.storage.journal import Journal, Writer, WriterThread
from headrace.storage.replay import frames_of, journal_files
from support.hostile import HostileDisk, Survival
from support.writers import LoopWriter

_WRITERS: dict[str, Callable[[Journal, asyncio.AbstractEventLoop], Writer]] = {
    "loop": lambda journal, _: LoopWriter(journal),
    "thread": WriterThread,
    "process": best_writer,  # a thread again where a file has no number
}


@pytest.fixture(params=_WRITERS)
def start(request: pytest.FixtureRequest) -> Callable[[Disk, int], Journal]:
    """Starts a journal with each kind of writer."""

    def begin(disk: Disk, position: int = 0) -> Journal:
        disk.make_folder(layout.JOURNAL)
        journal = Journal(disk, position)
        journal.open(_WRITERS[request.param])
        return journal

    return begin


Start = Callable[..., Journal]


def entry(number: int) -> Entry:
    return Reserve(1, number)


def replayed(disk: Disk) -> list[Entry]:
    return [
        entry
        for file in journal_files(disk)
        for frame in frames_of(disk, file)
        for entry in frame.entries
    ]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 120))


def test_what_was_waited_for_is_there_in_order(disk: Disk, start: Start) -> None:
    async def work() -> None:
        journal = start(disk)
        for number in range(10):
            position = journal.enqueue([entry(2 * number), entry(2 * number + 1)])
            if number % 3 == 0:
                await journal.wait_written(position)
                assert replayed(disk)[: 2 * number + 2] == [entry(n) for n in range(2 * number + 2)]
        await journal.wait_synced(journal.tail)
        assert journal.synced == journal.written == journal.tail
        await journal.close()
        assert replayed(disk) == [entry(n) for n in range(20)]

    run(work())


def test_what_cannot_be_encoded_leaves_nothing_behind(disk: Disk, start: Start) -> None:
    async def work() -> None:
        journal = start(disk)
        await journal.wait_written(journal.enqueue([entry(1)]))
        before = journal.tail
        with pytest.raises(OverflowError):
            journal.enqueue([entry(2), entry(1 << 70)])
        assert journal.tail == before
        await journal.wait_synced(journal.enqueue([entry(3)]))
        await journal.close()
        assert replayed(disk) == [entry(1), entry(3)]

    run(work())


def test_many_waiters_wake_in_journal_order(disk: Disk, start: Start) -> None:
    async def work() -> None:
        journal = start(disk)
        order: list[int] = []

        async def append(number: int) -> None:
            position = journal.enqueue([entry(number)], sync=number % 2 == 0)
            wait = journal.wait_synced if number % 2 == 0 else journal.wait_written
            await wait(position, lambda: order.append(number))

        await asyncio.gather(*(append(number) for number in range(100)))
        assert sorted(order) == list(range(100))
        for kind in (0, 1):
            same = [number for number in order if number % 2 == kind]
            assert same == sorted(same)
        await journal.close()
        assert replayed(disk) == [entry(n) for n in range(100)]

    run(work())


def test_a_group_commits_together(disk: Disk, start: Start) -> None:
    async def work() -> None:
        journal = start(disk)
        positions = [journal.enqueue([entry(n)], sync=True) for n in range(1000)]
        await journal.wait_synced(positions[-1])
        assert journal.stats.syncs < 100
        assert journal.stats.frames == 1000
        await journal.close()

    run(work())


def test_waiting_for_the_past_is_immediate(disk: Disk, start: Start) -> None:
    async def work() -> None:
        journal = start(disk)
        position = journal.enqueue([entry(1)])
        await journal.wait_synced(position)
        called: list[str] = []
        assert journal.wait_synced(position, lambda: called.append("synced")).done()
        assert journal.wait_written(position, lambda: called.append("written")).done()
        assert called == ["synced", "written"]
        await journal.close()

    run(work())


def test_a_waiter_that_left_holds_up_nobody(disk: Disk, start: Start) -> None:
    async def work() -> None:
        journal = start(disk)
        called: list[int] = []
        first = journal.wait_synced(journal.enqueue([entry(1)]), lambda: called.append(1))
        second = journal.wait_synced(journal.enqueue([entry(2)]), lambda: called.append(2))
        first.cancel()
        await second
        assert called == [1, 2]
        await journal.close()

    run(work())


def test_a_late_waiter_for_an_older_position_is_served(disk: Disk, start: Start) -> None:
    async def work() -> None:
        journal = start(disk)
        older = journal.enqueue([entry(1)])
        newer = journal.enqueue([entry(2)])
        await asyncio.gather(journal.wait_synced(newer), journal.wait_synced(older))
        await journal.close()

    run(work())


def test_rotation_starts_a_file_where_the_last_one_ended(disk: Disk, start: Start) -> None:
    async def work() -> None:
        journal = start(disk)
        cuts = [0]
        for number in range(6):
            journal.enqueue([entry(number)])
            if number % 2:
                cuts.append(journal.rotate())
                assert journal.rotate() == cuts[-1], "an empty file is not rotated"
        await journal.wait_synced(journal.tail)
        assert [file.start for file in journal_files(disk)] == cuts
        await journal.close()
        assert replayed(disk) == [entry(n) for n in range(6)]

    run(work())


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_a_journal_goes_on_in_its_spares(disk: Disk, start: Start, size: int) -> None:
    """However large they are, and in an empty file when there is none or it is not there."""

    async def work() -> None:
        journal = start(disk)
        spares = [layout.spare_file(f"{number}") for number in range(3)]
        for path in spares:
            disk.blank(path, size)
        disk.remove(spares[1])
        journal.spares.extend(spares)
        starts = [0]
        for number in range(40):
            journal.enqueue([entry(number)])
            if number % 10 == 9:
                starts.append(journal.rotate())
                await journal.wait_synced(journal.tail)
        assert not journal.spares
        assert [file.start for file in journal_files(disk)] == starts
        assert disk.list(layout.JOURNAL, unfinished=True) == []
        assert disk.size(layout.journal_file(starts[1])) >= size
        assert disk.size(layout.journal_file(starts[2])) == starts[3] - starts[2]
        await journal.close()
        assert replayed(disk) == [entry(n) for n in range(40)]

    run(work())


def test_a_journal_goes_on_where_another_ended(disk: Disk, start: Start) -> None:
    async def work() -> None:
        journal = start(disk)
        position = journal.enqueue([entry(1)])
        await journal.close()
        again = start(disk, position)
        again.enqueue([entry(2)])
        await again.close()
        assert replayed(disk) == [entry(1), entry(2)]

    run(work())


def test_a_journal_goes_on_where_another_never_wrote(disk: Disk, start: Start) -> None:
    """A process may die between making its file and its first frame, or in the middle of that."""

    async def work() -> None:
        journal = start(disk)
        await journal.close()
        again = start(disk)
        again.enqueue([entry(1)])
        await again.close()
        assert replayed(disk) == [entry(1)]

    run(work())


def _break(disk: HostileDisk, kind: str, code: int) -> None:
    """The next call of this kind fails, once."""

    def watch(number: int, called: str, path: str) -> None:
        if called == kind and not disk.faults:
            disk.faults[number] = code

    disk.before = watch


def test_what_a_file_holds_is_durable_before_the_next_one_counts(start: Start) -> None:
    async def work() -> None:
        disk = HostileDisk()
        journal = start(disk)
        make_folders(disk, (layout.JOURNAL,))
        await journal.wait_written(journal.enqueue([entry(1)]))
        journal.rotate()
        await journal.wait_synced(journal.enqueue([entry(2)], sync=True))
        left = disk.copy().lose_power(Survival.NOTHING, Random(0))
        assert replayed(left) == [entry(1), entry(2)]
        await journal.close()

    run(work())


@pytest.mark.parametrize(
    ("kind", "code"), [("sync", errno.EIO), ("sync", errno.ENOSPC), ("append", errno.EIO)]
)
def test_a_failed_commit_ends_the_journal(
    start: Start, kind: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        disk = HostileDisk()
        journal = start(disk)
        good = journal.enqueue([entry(1)], sync=True)
        await journal.wait_synced(good)
        _break(disk, kind, code)
        # The second of these reaches the writer after the failure and before anybody knows of it.
        bad = journal.wait_synced(journal.enqueue([entry(2)], sync=True))
        later = []
        while journal.failure is None:
            later.append(journal.wait_synced(journal.enqueue([entry(3)], sync=True)))
            await asyncio.sleep(0)
        for wait in (bad, *later, journal.wait_synced(journal.tail)):
            with pytest.raises(Refused) as refused:
                await wait
            assert refused.value.code is Code.READ_ONLY
        for call in (lambda: journal.enqueue([entry(4)]), journal.rotate):
            with pytest.raises(Refused):
                call()
        await asyncio.sleep(0.01)
        assert journal.synced == good, "nothing is called synced after a failed sync"
        assert journal.wait_synced(good).done()
        calls = [called for called, path in disk.trace]
        failed = max(n for n, called in enumerate(calls) if called == kind)
        noted = [path for called, path in disk.trace[failed + 1 :] if called != "close"]
        assert {*noted} <= {layout.UNSYNCED, layout.UNSYNCED + TEMPORARY, ""}, "the rest is left"
        assert disk.exists(layout.UNSYNCED) is (kind == "sync")
        await journal.close()

    run(work())
    said = [record.message for record in caplog.records if "read-only" in record.message]
    assert len(said) == 1, "operators are told, once"


def _break_for_a_while(disk: HostileDisk, kind: str, code: int) -> Callable[[], None]:
    """Calls of this kind fail until told otherwise."""
    broken = [True]

    def watch(number: int, called: str, path: str) -> None:
        if called == kind and broken[0]:
            disk.faults[number] = code

    disk.before = watch
    return lambda: broken.__setitem__(0, False)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("append", errno.ENOSPC),
        ("append", errno.EAGAIN),
        ("create_append", errno.EMFILE),
        ("create_append", errno.ENOSPC),
        ("sync_folder", errno.ENFILE),
    ],
)
def test_an_error_that_passes_holds_the_journal_up_and_nothing_else(
    start: Start, kind: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.storage.journal.JOURNAL_RETRY_S", 0.001)

    async def work() -> None:
        disk = HostileDisk()
        journal = start(disk)
        await journal.wait_synced(journal.enqueue([entry(1)], sync=True))
        mend = _break_for_a_while(disk, kind, code)
        journal.enqueue([entry(2)])
        journal.rotate()
        waiting = journal.wait_synced(journal.enqueue([entry(3)], sync=True))
        while journal.stall is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert journal.refusal().code is Code.STORAGE_UNAVAILABLE
        later = journal.wait_synced(journal.enqueue([entry(4)], sync=True))
        tried = disk.calls
        while disk.calls < tried + 20:  # noqa: ASYNC110  (it tries again and again)
            await asyncio.sleep(0)
        assert journal.failure is None
        assert not waiting.done()
        assert not later.done()
        mend()
        await asyncio.gather(waiting, later)
        assert journal.stall is None
        await journal.close()
        assert replayed(disk) == [entry(number) for number in (1, 2, 3, 4)]

    run(work())
