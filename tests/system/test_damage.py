"""Bytes that are not what they were: reported where they are, never skipped, never made worse."""

from __future__ import annotations

import hashlib
import re
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from .kill_history import Clock
from .launching import Servers, manifest_of, run_headrace, serve_to_the_end, wait_until
from .topics_wire import Connection, read_pages, read_state

pytestmark = pytest.mark.system

BATCHES = 40
BATCH_RECORDS = 5


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory after SIGKILL whose records are all in the journal, every one of them synced."""
    directory = tmp_path_factory.mktemp("journal") / "data"
    write(directory, {}, pad=100)
    return directory


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory after a graceful stop with records in sealed segments."""
    directory = tmp_path_factory.mktemp("segments") / "data"
    write(directory, {"HEADRACE_SEAL_BYTES": "64KiB"}, pad=4000, graceful=True)
    assert segments_of(directory), "nothing was sealed"
    return directory


def write(directory: Path, env: dict[str, str], *, pad: int, graceful: bool = False) -> None:
    with ExitStack() as stack:
        server = Servers(directory, stack)(**env).start()
        connection = stack.enter_context(Connection(server.port))
        for batch in range(BATCHES):
            records = [
                {"data": f"{name(batch * BATCH_RECORDS + n)} {'x' * pad}"}
                for n in range(BATCH_RECORDS)
            ]
            body = {"records": records, "config": {"durability": "fsync"}}
            connection.ask("POST", "/v0/topics/precious", body)
        if graceful:
            wait_until(lambda: manifest_of(directory) > 0, "a segment")
            assert server.stop() == 0
        else:
            server.kill()


def name(number: int) -> str:
    return f"record-{number:05d}"


def journals_of(directory: Path) -> list[Path]:
    """Journal files with something in them, oldest first."""
    return [path for path in sorted(directory.glob("journal/*.log")) if path.stat().st_size]


def segments_of(directory: Path) -> list[Path]:
    return sorted(directory.glob("objects/segments/*.parquet"))


def copy(directory: Path, to: Path) -> Path:
    shutil.copytree(directory, to)
    return to


def fingerprint(directory: Path) -> dict[str, tuple[str, int]]:
    """Every file with its content and the time it was last changed."""
    return {
        str(path.relative_to(directory)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x40
    path.write_bytes(content)


def find_record(directory: Path, number: int) -> tuple[Path, int]:
    """The journal file and offset where the payload of a record stands."""
    for path in journals_of(directory):
        offset = path.read_bytes().find(name(number).encode())
        if offset >= 0:
            return path, offset
    raise AssertionError(f"{name(number)} stands in no journal file")


def records_of(server_port: int) -> list[str]:
    with Connection(server_port) as connection:
        pages = read_pages(connection, Clock(), "precious")
    return [seen.payload.data[1:13].decode() for page in pages for seen in page.records]


# --- damage in the middle ---


def test_damage_in_the_middle_is_reported_and_left_alone(pristine: Path, data_dir: Path) -> None:
    copy(pristine, data_dir)
    path, offset = find_record(data_dir, BATCHES * BATCH_RECORDS // 2)
    flip(path, offset)
    before = fingerprint(data_dir)
    refused = serve_to_the_end(data_dir)
    assert refused.returncode != 0
    assert "Traceback" not in refused.stdout
    check_place(refused.stdout, path, offset)
    journal = {file: print_ for file, print_ in fingerprint(data_dir).items() if "journal" in file}
    assert journal == {file: print_ for file, print_ in before.items() if "journal" in file}


def test_verify_reports_damage_in_the_journal(pristine: Path, data_dir: Path) -> None:
    copy(pristine, data_dir)
    path, offset = find_record(data_dir, BATCHES * BATCH_RECORDS // 2)
    flip(path, offset)
    before = fingerprint(data_dir)
    verified = run_headrace("verify", "--data-dir", str(data_dir))
    assert verified.returncode != 0
    assert "Traceback" not in verified.stdout
    check_place(verified.stdout, path, offset)
    assert fingerprint(data_dir) == before


def check_place(output: str, path: Path, offset: int) -> None:
    """The file is named, and the offset is the start of the damaged frame or inside of it."""
    assert path.name in output, output
    offsets = [int(text.replace(",", "")) for text in re.findall(r"byte (\d[\d,]*)", output)]
    frame_bytes_max = 16 * 1024
    assert any(offset - frame_bytes_max < told <= offset for told in offsets), (offset, output)


def test_a_missing_journal_file_in_the_middle_is_not_skipped(
    new_server: Servers, data_dir: Path
) -> None:
    """Rotation before sealing leaves several files; one of them gone is damage, not a start."""
    server = new_server(HEADRACE_SEAL_BYTES="16KiB").start()
    with Connection(server.port) as connection:
        for _ in range(60):
            connection.ask("POST", "/v0/topics/precious", {"records": [{"data": "x" * 1000}] * 5})
    server.kill()
    journals = journals_of(data_dir)
    if len(journals) < 3:
        pytest.skip("every file but the newest is sealed already")
    journals[-2].unlink()
    refused = serve_to_the_end(data_dir)
    assert refused.returncode != 0
    assert "Traceback" not in refused.stdout


def test_verify_finds_nothing_wrong_where_nothing_is(pristine: Path, sealed: Path) -> None:
    for directory in (pristine, sealed):
        before = fingerprint(directory)
        verified = run_headrace("verify", "--data-dir", str(directory))
        assert verified.returncode == 0, verified.stdout
        assert fingerprint(directory) == before


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_verify_reports_damage_in_a_segment(share: float, sealed: Path, data_dir: Path) -> None:
    copy(sealed, data_dir)
    path = segments_of(data_dir)[0]
    flip(path, int(path.stat().st_size * share))
    verified = run_headrace("verify", "--data-dir", str(data_dir))
    assert verified.returncode != 0
    assert path.name in verified.stdout
    assert "Traceback" not in verified.stdout


def test_verify_reports_a_segment_that_is_gone(sealed: Path, data_dir: Path) -> None:
    copy(sealed, data_dir)
    path = segments_of(data_dir)[0]
    path.unlink()
    verified = run_headrace("verify", "--data-dir", str(data_dir))
    assert verified.returncode != 0
    assert path.name in verified.stdout
    assert "Traceback" not in verified.stdout


def test_a_damaged_snapshot_loses_nothing(
    sealed: Path, data_dir: Path, new_server: Servers
) -> None:
    """An older snapshot or the journal stands in for it; or the server says that it cannot."""
    copy(sealed, data_dir)
    snapshots = list(data_dir.glob("snapshots/*.snap"))
    assert snapshots, "no snapshot was written"
    for path in snapshots:
        flip(path, path.stat().st_size // 2)
    server = new_server()
    try:
        server.start()
    except RuntimeError:
        assert any(path.name in server.output() for path in snapshots), server.output()
        assert "Traceback" not in server.output()
    else:
        assert records_of(server.port) == [name(n) for n in range(BATCHES * BATCH_RECORDS)]


# --- a torn tail ---


@pytest.mark.parametrize("torn_bytes", [1, 9, 300])
def test_a_torn_tail_ends_the_log(
    torn_bytes: int, pristine: Path, data_dir: Path, new_server: Servers
) -> None:
    copy(pristine, data_dir)
    newest = journals_of(data_dir)[-1]
    content = newest.read_bytes().rstrip(b"\0")
    newest.write_bytes(content[:-torn_bytes])
    server = new_server().start()
    found = records_of(server.port)
    everything = [name(number) for number in range(BATCHES * BATCH_RECORDS)]
    assert found == everything[: len(found)]
    assert len(found) % BATCH_RECORDS == 0
    assert len(everything) - len(found) <= BATCH_RECORDS
    with Connection(server.port) as connection:
        body = {"records": [{"data": "record-after"}]}
        answer = connection.ask("POST", "/v0/topics/precious", body)
    assert answer["first_seq"] > len(found)
    server.kill()
    server.start()
    assert records_of(server.port) == [*found, "record-after"]


def test_zeros_at_the_end_are_a_torn_tail(
    pristine: Path, data_dir: Path, new_server: Servers
) -> None:
    """What a file system may leave when it grew the file and lost power before the bytes came."""
    copy(pristine, data_dir)
    with journals_of(data_dir)[-1].open("ab") as file:
        file.write(bytes(5000))
    server = new_server().start()
    assert records_of(server.port) == [name(number) for number in range(BATCHES * BATCH_RECORDS)]


def test_verify_tells_a_torn_tail_from_damage(pristine: Path, data_dir: Path) -> None:
    copy(pristine, data_dir)
    newest = journals_of(data_dir)[-1]
    newest.write_bytes(newest.read_bytes().rstrip(b"\0")[:-3])
    verified = run_headrace("verify", "--data-dir", str(data_dir))
    assert verified.returncode == 0, verified.stdout
    assert "Traceback" not in verified.stdout


# --- looking without touching ---


def test_inspect_reads_and_changes_nothing(pristine: Path, sealed: Path) -> None:
    for directory in (pristine, sealed):
        before = fingerprint(directory)
        inspected = run_headrace("inspect", "--data-dir", str(directory))
        assert inspected.returncode == 0, inspected.stdout
        assert "precious" in inspected.stdout
        assert fingerprint(directory) == before


def test_inspect_works_after_a_torn_tail(pristine: Path, data_dir: Path) -> None:
    copy(pristine, data_dir)
    newest = journals_of(data_dir)[-1]
    newest.write_bytes(newest.read_bytes().rstrip(b"\0")[:-7])
    before = fingerprint(data_dir)
    inspected = run_headrace("inspect", "--data-dir", str(data_dir))
    assert inspected.returncode == 0, inspected.stdout
    assert "precious" in inspected.stdout
    assert fingerprint(data_dir) == before


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_directory_that_is_not_there_is_named(command: str, tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    refused = run_headrace(command, "--data-dir", str(missing))
    assert refused.returncode != 0
    assert str(missing) in refused.stdout
    assert "Traceback" not in refused.stdout
    assert not missing.exists()


def test_sealed_records_are_read_back_after_a_restart(
    sealed: Path, data_dir: Path, new_server: Servers
) -> None:
    copy(sealed, data_dir)
    server = new_server(HEADRACE_TAIL_BYTES="0", HEADRACE_BLOCK_CACHE_BYTES="0").start()
    assert records_of(server.port) == [name(number) for number in range(BATCHES * BATCH_RECORDS)]
    with Connection(server.port) as connection:
        state = read_state(connection, "precious")
    assert state is not None
    assert (state.head, state.count) == (BATCHES * BATCH_RECORDS, BATCHES * BATCH_RECORDS)
