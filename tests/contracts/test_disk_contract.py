"""What every disk promises while nothing goes wrong."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headrace.formats.layout import TEMPORARY
from headrace.storage.disk import Disk, RealDisk, make_folders, write_atomically


def test_a_written_file_reads_back_whole(disk: Disk) -> None:
    disk.write("folder/a", (b"one ", b"", b"two"))
    assert disk.read("folder/a") == b"one two"
    assert disk.map("folder/a") == b"one two"
    assert disk.size("folder/a") == 7
    assert disk.exists("folder/a")


def test_an_empty_file_reads_as_nothing(disk: Disk) -> None:
    disk.write("folder/a", ())
    assert disk.read("folder/a") == disk.map("folder/a") == b""


def test_a_second_write_replaces_the_first(disk: Disk) -> None:
    disk.write("folder/a", (b"a long first content",))
    disk.write("folder/a", (b"short",))
    assert disk.read("folder/a") == b"short"


def test_parts_may_come_from_a_generator(disk: Disk) -> None:
    disk.write("folder/a", (b"%d," % n for n in range(5)))
    assert disk.read("folder/a") == b"0,1,2,3,4,"


def test_an_append_file_grows_in_order(disk: Disk) -> None:
    file = disk.create_append("folder/log")
    assert disk.read("folder/log") == b""
    file.write([b"a", b"b"])
    file.sync()
    file.write([b"c"])
    assert disk.read("folder/log") == b"abc"
    file.close()
    assert disk.read("folder/log") == b"abc"


def test_writes_and_syncs_append(disk: Disk) -> None:
    file = disk.create_append("folder/log")
    file.write([b"a", b"b"])
    file.write([b"c"])
    file.write([b"d", bytearray(b"e")])
    file.sync()
    file.close()
    assert disk.read("folder/log") == b"abcde"


def test_an_append_file_takes_more_parts_than_one_system_call_does(disk: Disk) -> None:
    file = disk.create_append("folder/log")
    file.write([b"%04d" % n for n in range(3000)])
    file.write([b"%04d" % n for n in range(3000, 6000)])
    file.close()
    assert disk.read("folder/log") == b"".join(b"%04d" % n for n in range(6000))


def test_an_append_file_is_new_or_refused(disk: Disk) -> None:
    disk.write("folder/log", (b"old",))
    with pytest.raises(FileExistsError):
        disk.create_append("folder/log")
    assert disk.read("folder/log") == b"old"


@pytest.mark.parametrize("size", [1, 64, 4096, 10_000, 600_000])
def test_a_blank_file_is_zeroes(disk: Disk, size: int) -> None:
    disk.blank("folder/new", size)
    assert disk.read("folder/new") == bytes(size)
    disk.write("folder/used", (b"what it was",))
    disk.blank("folder/used", size)
    assert disk.read("folder/used") == bytes(max(size, 11))


def test_a_file_that_is_large_enough_keeps_its_size_when_blanked(disk: Disk) -> None:
    disk.write("folder/used", (b"x" * 9000,))
    disk.blank("folder/used", 5000)
    assert disk.read("folder/used") == bytes(9000)


@pytest.mark.parametrize("size", [3, 4096, 5000, 20_000])
def test_a_blank_file_is_written_from_its_start_and_beyond_its_end(disk: Disk, size: int) -> None:
    disk.blank("folder/blank", size)
    disk.rename("folder/blank", "folder/log")
    file = disk.open_blank("folder/log")
    assert disk.read("folder/log") == bytes(size)
    written = b""
    for part in (b"first", b"a" * 3000, b"b" * 1091, b"", b"c" * 4096, b"d" * 4095, b"e", b"f"):
        file.write([part, part])
        written += part * 2
        assert disk.read("folder/log") == written.ljust(size, b"\0")
    file.sync()
    file.close()
    assert disk.read("folder/log") == written.ljust(size, b"\0")


@pytest.mark.parametrize("blank_bytes", [0, 20_000])
def test_a_write_that_found_no_room_is_written_again_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blank_bytes: int
) -> None:
    disk = RealDisk(tmp_path)
    if blank_bytes:
        disk.blank("log", blank_bytes)
    file = disk.open_blank("log") if blank_bytes else disk.create_append("log")
    file.write([b"before"])
    pwritev, calls = os.pwritev, list[int]()

    def write_half(fd: int, parts: list[bytes], at: int) -> int:
        calls.append(at)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "no space")
        return pwritev(fd, [b"".join(parts)[:1000]], at)

    monkeypatch.setattr(os, "pwritev", write_half)
    with pytest.raises(OSError, match="no space"):
        file.write([b"a" * 900, b"b" * 900])
    monkeypatch.undo()
    file.write([b"a" * 900, b"b" * 900])
    file.sync()
    file.close()
    assert calls == [6, 1006]
    assert disk.read("log").rstrip(b"\0") == b"before" + b"a" * 900 + b"b" * 900


def test_a_blank_file_takes_more_parts_than_one_system_call_does(disk: Disk) -> None:
    disk.blank("folder/log", 30_000)
    file = disk.open_blank("folder/log")
    parts = [b"%04d" % n for n in range(5000)]
    file.write(parts)
    file.close()
    assert disk.read("folder/log") == b"".join(parts).ljust(30_000, b"\0")


def test_open_read_reads_anywhere(disk: Disk) -> None:
    disk.write("folder/a", (b"0123456789",))
    with disk.open_read("folder/a") as file:
        assert file.size() == 10
        file.seek(4)
        assert file.read(3) == b"456"
        assert file.read_at(2, 8) == b"89"


def test_an_open_file_outlives_its_name(disk: Disk) -> None:
    disk.write("folder/a", (b"still here",))
    with disk.open_read("folder/a") as file:
        disk.remove("folder/a")
        assert file.read() == b"still here"


def test_list_is_sorted_and_shows_only_its_folder_without_temporaries(disk: Disk) -> None:
    disk.make_folder("folder/inner")
    for name in ("b", "a", "c" + TEMPORARY, "inner/d"):
        disk.write(f"folder/{name}", (b"",))
    assert [name for name in disk.list("folder") if name != "inner"] == ["a", "b"]
    assert disk.list("folder/inner") == ["d"]


def test_an_empty_folder_lists_nothing(disk: Disk) -> None:
    assert disk.list("folder") == []


def test_making_a_folder_twice_keeps_what_is_in_it(disk: Disk) -> None:
    disk.write("folder/a", (b"kept",))
    disk.make_folder("folder")
    assert disk.read("folder/a") == b"kept"


def test_rename_replaces(disk: Disk) -> None:
    disk.write("folder/old", (b"new content",))
    disk.write("folder/name", (b"old content",))
    disk.rename("folder/old", "folder/name")
    assert disk.read("folder/name") == b"new content"
    assert not disk.exists("folder/old")


def test_link_gives_a_second_name_to_the_first_who_comes(disk: Disk) -> None:
    disk.write("folder/mine", (b"mine",))
    disk.write("folder/yours", (b"yours",))
    disk.link("folder/mine", "folder/prize")
    with pytest.raises(FileExistsError):
        disk.link("folder/yours", "folder/prize")
    disk.remove("folder/mine")
    assert disk.read("folder/prize") == b"mine"


def test_remove_is_content_with_what_is_not_there(disk: Disk) -> None:
    disk.write("folder/a", (b"",))
    disk.remove("folder/a")
    disk.remove("folder/a")
    assert not disk.exists("folder/a")
    assert disk.list("folder") == []


@pytest.mark.parametrize("call", ["read", "map", "size", "open_read", "open_blank"])
def test_a_missing_file_is_not_found(disk: Disk, call: str) -> None:
    assert not disk.exists("folder/none")
    with pytest.raises(FileNotFoundError):
        getattr(disk, call)("folder/none")


@pytest.mark.parametrize("call", ["rename", "link"])
def test_a_missing_file_gets_no_other_name(disk: Disk, call: str) -> None:
    with pytest.raises(FileNotFoundError):
        getattr(disk, call)("folder/none", "folder/name")
    assert not disk.exists("folder/name")


def test_syncs_change_nothing_that_can_be_seen(disk: Disk) -> None:
    disk.write("folder/a", (b"x",))
    disk.sync_folder("folder")
    assert disk.read("folder/a") == b"x"
    assert disk.list("folder") == ["a"]


def test_a_lock_is_held_once(disk: Disk) -> None:
    disk.lock("LOCK")
    with pytest.raises(BlockingIOError):
        disk.lock("LOCK")


def test_the_boot_id_stays_while_the_system_runs(disk: Disk) -> None:
    assert disk.boot_id() == disk.boot_id() != ""


def test_write_atomically_leaves_the_file_and_nothing_else(disk: Disk) -> None:
    write_atomically(disk, "folder/a", (b"first",))
    write_atomically(disk, "folder/a", (b"second",))
    assert disk.read("folder/a") == b"second"
    assert not disk.exists("folder/a" + TEMPORARY)


def test_two_processes_cannot_hold_one_data_directory(tmp_path: Path) -> None:
    holder = RealDisk(tmp_path)
    holder.lock("LOCK")
    with pytest.raises(BlockingIOError):
        RealDisk(tmp_path).lock("LOCK")
    holder._held[0].close()


def test_a_folder_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder's name is an entry of the one above; unsynced there, it goes with all it holds.

    Also one that is there: who made it may have been killed before the sync.
    """
    synced: list[str] = []
    real_fsync = os.fsync

    def note(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real_fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    root = tmp_path.resolve() / "data"
    disk = RealDisk(root)
    for _ in range(2):
        synced.clear()
        make_folders(disk, ("objects/segments", "journal"))
        above = synced[: -len(("root", "objects"))]
        assert str(tmp_path.resolve()) == above[0], "the name of the data directory"
        assert [Path(folder) for folder in above] == list(root.parents)[: len(above)]
        assert synced[len(above) :] == [str(root), str(root / "objects")]
