"""The hostile disk itself: it takes what a real disk may take, and nothing that was synced."""

from __future__ import annotations

import errno
from random import Random

import pytest

from headrace.storage.disk import make_folders
from support.hostile import BLANK_BYTES, Crash, HostileDisk, Survival

ANY = list(Survival)


@pytest.fixture
def disk() -> HostileDisk:
    made = HostileDisk()
    make_folders(made, ("f",))
    return made


@pytest.mark.parametrize("survival", ANY)
def test_what_was_synced_survives(disk: HostileDisk, survival: Survival) -> None:
    file = disk.create_append("f/log")
    file.write([b"synced"])
    file.sync()
    disk.write("f/whole", (b"content",))
    disk.sync_folder("f")
    for seed in range(20):
        after = disk.lose_power(survival, Random(seed))
        assert after.read("f/log") == b"synced"
        assert after.read("f/whole") == b"content"


def test_what_was_not_synced_survives_as_the_variant_says(disk: HostileDisk) -> None:
    file = disk.create_append("f/log")
    disk.sync_folder("f")
    file.write([b"a" * 100])
    file.sync()
    file.write([b"b" * 300])

    def left(survival: Survival) -> set[bytes]:
        return {disk.lose_power(survival, Random(seed)).read("f/log") for seed in range(50)}

    assert left(Survival.NOTHING) == {b"a" * 100}
    assert left(Survival.EVERYTHING) == {b"a" * 100 + b"b" * 300}
    prefixes = left(Survival.PREFIX)
    assert len(prefixes) > 5
    assert all(p == b"a" * 100 + b"b" * (len(p) - 100) for p in prefixes)
    pages = left(Survival.PAGES)
    assert any(b"\0" in p and p.endswith(b"b") for p in pages), "out of order"
    assert any(p.endswith(b"\0") for p in pages), "length before bytes"
    assert all(p.startswith(b"a" * 100) for p in pages)


def test_what_is_written_over_is_old_or_new_part_by_part(disk: HostileDisk) -> None:
    disk.write("f/spare", (b"a" * 300,))
    disk.blank("f/spare", 400)
    disk.rename("f/spare", "f/log")
    disk.sync_folder("f")
    file = disk.open_blank("f/log")
    file.write([b"b" * 100])
    file.sync()
    file.write([b"c" * 200])
    whole = b"b" * 100 + b"c" * 200 + bytes(100)
    assert disk.read("f/log") == whole

    def left(survival: Survival) -> set[bytes]:
        return {disk.lose_power(survival, Random(seed)).read("f/log") for seed in range(50)}

    assert left(Survival.NOTHING) == {b"b" * 100 + bytes(300)}
    assert left(Survival.EVERYTHING) == {whole}
    for found in left(Survival.PREFIX):
        assert found.rstrip(b"\0") == b"b" * 100 + b"c" * found.count(b"c")
    pages = left(Survival.PAGES)
    assert all(len(p) == 400 and p.startswith(b"b" * 100) and p.endswith(bytes(100)) for p in pages)
    assert any(b"\0c" in p for p in pages), "out of order"


def test_a_file_that_is_blanked_keeps_old_bytes_until_synced(disk: HostileDisk) -> None:
    disk.write("f/a", (b"a" * 1000,))
    disk.sync_folder("f")
    disk.crash_at = disk.calls + 4  # open, blank, sync, blank, then the sync
    with pytest.raises(Crash):
        disk.blank("f/a", 1000)
    after = disk.lose_power(Survival.NOTHING, Random(0)).read("f/a")
    assert after == bytes(BLANK_BYTES) + b"a" * (1000 - BLANK_BYTES)
    assert disk.kill().read("f/a") == bytes(2 * BLANK_BYTES) + b"a" * (1000 - 2 * BLANK_BYTES)


def test_names_need_a_folder_sync(disk: HostileDisk) -> None:
    disk.write("f/kept", (b"kept",))
    disk.write("f/old", (b"moved",))
    disk.sync_folder("f")
    disk.write("f/new", (b"new",))
    disk.rename("f/old", "f/moved")
    disk.link("f/kept", "f/second")
    disk.remove("f/kept")
    assert disk.list("f") == ["moved", "new", "second"]
    assert disk.lose_power(Survival.NOTHING, Random(0)).list("f") == ["kept", "old"]
    assert disk.lose_power(Survival.EVERYTHING, Random(0)).list("f") == disk.copy().kill().list("f")
    for seed in range(50):
        names = disk.lose_power(Survival.PAGES, Random(seed)).list("f")
        assert ("old" in names) != ("moved" in names), "a rename is whole or absent"


def test_a_replaced_file_keeps_its_old_content_until_synced(disk: HostileDisk) -> None:
    disk.write("f/a", (b"old",))
    disk.sync_folder("f")
    disk.crash_at = disk.calls + 2  # truncate, write, then the sync
    with pytest.raises(Crash):
        disk.write("f/a", (b"new",))
    assert disk.kill().read("f/a") == b"new"
    assert disk.lose_power(Survival.NOTHING, Random(0)).read("f/a") == b"old"
    assert disk.lose_power(Survival.EVERYTHING, Random(0)).read("f/a") == b"new"


def test_a_crashed_process_does_nothing_more(disk: HostileDisk) -> None:
    disk.crash_at = disk.calls + 1
    with pytest.raises(Crash):
        disk.write("f/a", (b"x",))
    for call in (disk.list, disk.sync_folder):
        with pytest.raises(Crash):
            call("f")
    assert disk.kill().read("f/a") == b""


def test_a_kill_inside_a_write_may_tear_it(disk: HostileDisk) -> None:
    file = disk.create_append("f/log")
    disk.crash_at = disk.calls
    with pytest.raises(Crash):
        file.write([b"0123456789"])
    assert disk.kill().read("f/log") == b""
    torn = {disk.kill(torn=Random(seed)).read("f/log") for seed in range(50)}
    assert len(torn) > 5
    assert all(b"0123456789".startswith(part) for part in torn)


def test_a_kill_keeps_the_boot_and_frees_the_lock(disk: HostileDisk) -> None:
    disk.lock("LOCK")
    assert disk.kill().boot_id() == disk.boot_id()
    disk.kill().lock("LOCK")
    after = disk.lose_power(Survival.EVERYTHING, Random(0))
    assert after.boot_id() != disk.boot_id()
    after.lock("LOCK")


def test_a_failed_sync_is_not_made_good_by_the_next(disk: HostileDisk) -> None:
    file = disk.create_append("f/log")
    disk.sync_folder("f")
    disk.faults[disk.calls + 1] = errno.EIO
    file.write([b"lost"])
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.write([b"kept"])
    file.sync()
    assert disk.read("f/log") == b"lostkept"
    assert disk.lose_power(Survival.NOTHING, Random(0)).read("f/log") == b"\0\0\0\0kept"


def _unsynced(disk: HostileDisk) -> None:
    file = disk.create_append("f/log")
    file.write([b"a" * 100])
    file.sync()
    disk.sync_folder("f")
    disk.faults[disk.calls + 1] = errno.EIO
    file.write([b"b" * 300])
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()


def test_what_a_failed_sync_covered_is_read_once(disk: HostileDisk) -> None:
    _unsynced(disk)
    assert disk.read("f/log") == b"a" * 100 + b"b" * 300
    assert disk.read("f/log") == b"a" * 100 + bytes(300)


def test_what_a_failed_sync_covered_may_be_gone_in_the_same_boot(disk: HostileDisk) -> None:
    _unsynced(disk)
    assert disk.kill().read("f/log") == b"a" * 100 + b"b" * 300
    left = {disk.kill(evicted=Random(seed)).read("f/log") for seed in range(20)}
    assert len(left) > 5
    assert all(found.startswith(b"a" * 100) and len(found) == 400 for found in left)
    assert disk.kill(evicted=Random(0)).boot_id() == disk.boot_id()


def test_what_cannot_be_written_back_is_told_once(disk: HostileDisk) -> None:
    file = disk.create_append("f/log")
    file.write([b"a" * 300])
    left = disk.fail_to_write_back(Random(0))
    with pytest.raises(OSError, match="Input/output error"):
        left.sync("f/log")
    left.sync("f/log")
    assert left.lose_power(Survival.EVERYTHING, Random(0)).read("f/log") != b"a" * 300


@pytest.mark.parametrize("unsynced", ["", "f", "f/inner"])
def test_a_new_folder_needs_a_sync_of_the_one_above(unsynced: str) -> None:
    disk = HostileDisk()
    disk.make_folder("f/inner")
    disk.write("f/inner/a", (b"x",))
    syncs = {"": disk.sync_root}
    syncs |= {"f": lambda: disk.sync_folder(""), "f/inner": lambda: disk.sync_folder("f")}
    for folder, sync in syncs.items():
        if folder != unsynced:
            sync()
    disk.sync_folder("f/inner")
    assert disk.kill().read("f/inner/a") == b"x"
    after = disk.lose_power(Survival.NOTHING, Random(0))
    with pytest.raises(FileNotFoundError):
        after.list(unsynced)
    after.make_folder(unsynced)
    assert after.list(unsynced) == []


def test_a_full_disk_takes_half_a_write(disk: HostileDisk) -> None:
    file = disk.create_append("f/log")
    disk.faults[disk.calls] = errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        file.write([b"0123456789"])
    assert disk.read("f/log") == b"01234"


def test_calls_are_numbered_and_told_beforehand(disk: HostileDisk) -> None:
    told: list[tuple[int, str, str]] = []
    start = disk.calls
    disk.before = lambda number, kind, path: told.append((number, kind, path))
    disk.write("f/a", (b"x",))
    assert told == [
        (start, "truncate", "f/a"),
        (start + 1, "write", "f/a"),
        (start + 2, "sync", "f/a"),
    ]
    assert disk.trace[start:] == [(kind, path) for _, kind, path in told]
