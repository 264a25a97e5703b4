"""Verification: silent about a directory as the engine leaves it, and exact about each damage."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from xxhash import xxh3_64_hexdigest

from headrace.core.config import Kind, LogConfig
from headrace.core.contents import Contents
from headrace.core.entry import (
    Append,
    Claim,
    Configure,
    Create,
    Delay,
    Delete,
    Drop,
    Entry,
    Extend,
    LoseAtRestart,
    Refer,
    Release,
    Stop,
    Trim,
)
from headrace.core.log import Log
from headrace.core.queue_state import Lease, Places, Queue
from headrace.core.record import Block, block, draft
from headrace.core.retention import Ledger
from headrace.engine.start import stop
from headrace.formats import layout
from headrace.formats.frame import encode_frame
from headrace.formats.manifest import Manifest, Segment, decode_root, encode_root
from headrace.formats.segment import SCHEMA, LogRows, build
from headrace.formats.snapshot import Captured, Foot, decode_snapshot, encode_part
from headrace.storage.checks.agreement import Agreement
from headrace.storage.checks.findings import Finding, Note, Problem
from headrace.storage.checks.history import History
from headrace.storage.checks.payloads import block_problems, is_json
from headrace.storage.checks.segments import SegmentCheck
from headrace.storage.checks.states import is_set, state_problems
from headrace.storage.disk import RealDisk
from headrace.storage.memory import MemoryDisk
from headrace.storage.objects import LocalObjects
from headrace.storage.verification import Verification
from support import directories


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return directories.build(tmp_path_factory.mktemp("clean") / "data")


@pytest.fixture
def root(pristine: Path, tmp_path: Path) -> Path:
    """A copy of the directory, to be damaged."""
    return Path(shutil.copytree(pristine, tmp_path / "data"))


def verify(root: Path) -> list[Finding]:
    return list(Verification(RealDisk(root)).run())


def problems(root: Path) -> list[Problem]:
    return [finding for finding in verify(root) if isinstance(finding, Problem)]


def files(root: Path, pattern: str) -> list[Path]:
    return sorted(root.glob(pattern))


def objects(root: Path, pattern: str) -> list[str]:
    """The names of objects, in order."""
    return [str(path.relative_to(root / "objects")) for path in files(root / "objects", pattern)]


# --- nothing wrong ---


def test_what_the_engine_leaves_is_clean(pristine: Path) -> None:
    before = directories.fingerprint(pristine)
    assert verify(pristine) == []
    assert directories.fingerprint(pristine) == before


def test_a_killed_server_leaves_nothing_wrong(tmp_path: Path) -> None:
    root = directories.build(tmp_path / "data", clean=False)
    assert problems(root) == []


def test_a_server_without_logs_leaves_nothing_wrong(tmp_path: Path) -> None:
    async def come_and_go() -> None:
        await stop(await directories.boot(tmp_path))

    asyncio.run(come_and_go())
    assert verify(tmp_path) == []


def test_an_empty_directory_is_clean(tmp_path: Path) -> None:
    assert verify(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_progress_comes_to_the_end(pristine: Path) -> None:
    seen: list[int] = []
    verification = Verification(RealDisk(pristine), seen.append)
    list(verification.run())
    assert sum(seen) == pytest.approx(verification.measure().size_bytes, rel=0.01)


def test_a_torn_tail_is_a_note(root: Path) -> None:
    newest = files(root, "journal/*")[-1]
    directories.replace(newest, directories.content_of(newest) + b"\1" * 100)
    (note,) = verify(root)
    assert isinstance(note, Note)
    assert note.where == f"journal/{newest.name}"
    assert "100 bytes" in note.what


def test_journal_files_that_nobody_needs_may_be_missing(root: Path) -> None:
    """They are removed oldest first, but a power loss may bring back the oldest alone."""
    (root / "journal/00000000000000000000.log").write_bytes(b"")
    (note,) = verify(root)
    assert isinstance(note, Note)
    assert "are missing" in note.what


def test_objects_that_no_manifest_names_are_notes(root: Path) -> None:
    (root / "objects/segments/0000000099.parquet").write_bytes(b"half a segment")
    (note,) = verify(root)
    assert isinstance(note, Note)
    assert note.where == "objects/segments/0000000099.parquet"


# --- one damage each: the pattern of the file, and what is done to it ---


def flip_at(share: float) -> Callable[[Path], None]:
    return lambda path: directories.flip(path, int(path.stat().st_size * share))


def garble(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


DAMAGES = {
    "journal flipped": ("journal/*", flip_at(0.5)),
    "journal cut": ("journal/*", cut),
    "snapshot flipped": ("snapshots/*", flip_at(0.5)),
    "snapshot cut": ("snapshots/*", cut),
    "segment flipped": ("objects/segments/*", flip_at(0.1)),
    "segment flipped at its end": ("objects/segments/*", flip_at(0.95)),
    "segment cut": ("objects/segments/*", cut),
    "segment removed": ("objects/segments/*", Path.unlink),
    "index garbled": ("objects/companions/*.index.parquet", garble),
    "index removed": ("objects/companions/*.index.parquet", Path.unlink),
    "tags cut": ("objects/companions/*.tags.parquet", cut),
    "tags removed": ("objects/companions/*.tags.parquet", Path.unlink),
    "manifest garbled": ("objects/manifests/*", garble),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_in_the_file_that_has_it(damage: str, root: Path) -> None:
    pattern, do = DAMAGES[damage]
    path = files(root, pattern)[0]
    do(path)
    before = directories.fingerprint(root)
    found = problems(root)
    assert str(path.relative_to(root)) in {problem.where for problem in found}, found
    assert directories.fingerprint(root) == before


def test_a_journal_file_that_is_missing_is_missed(root: Path) -> None:
    *_, before, needed, _ = files(root, "journal/*")
    needed.unlink()
    found = problems(root)
    assert any(before.name in f"{problem.where} {problem.what}" for problem in found), found


def test_every_damaged_frame_is_named_with_its_place(root: Path) -> None:
    path = files(root, "journal/*")[0]
    for share in (0.2, 0.5, 0.8):
        directories.flip(path, int(path.stat().st_size * share))
    places = [found.place for found in problems(root) if found.where.startswith("journal")]
    assert len(places) == 3
    assert all(place.startswith("byte ") for place in places)


def test_a_journal_that_ends_before_the_snapshot_is_cut(root: Path) -> None:
    """Without the snapshot this would be a torn tail."""
    newest = files(root, "journal/*")[-1]
    directories.replace(newest, directories.content_of(newest)[:-100])
    found = [problem.where for problem in problems(root)]
    assert found == [f"journal/{newest.name}", "recovery"]


def test_many_logs_in_one_row_group() -> None:
    names = sorted((f"log-{number}", number + 1) for number in range(16384))
    rows = [LogRows(number, name, [block(draft([b"1"]), 1, 1)]) for name, number in names]
    built = build(rows)
    objects = LocalObjects(MemoryDisk())
    objects.put("segments/many", built.segment)
    objects.put("companions/many", built.index)
    segment = Segment(
        number=1,
        name="segments/many",
        index="companions/many",
        tags=None,
        journal_start=0,
        journal_stop=1,
        logs=built.logs,
        rows=built.rows,
        record_bytes=built.record_bytes,
        file_bytes=len(built.segment),
        checksum=xxh3_64_hexdigest(built.segment),
        index_checksum=xxh3_64_hexdigest(built.index),
        tags_checksum=None,
    )
    check = SegmentCheck(objects, segment, Agreement({}, {}), lambda size_bytes: None)
    assert list(check.run()) == []


# --- content with the right checksum that cannot be ---


def edit_manifest(root: Path, edit: Callable[[Manifest], Manifest]) -> str:
    """Change the newest manifest; returns its place."""
    path = files(root, "objects/manifests/*")[-1]
    path.write_bytes(encode_root(edit(decode_root(path.read_bytes(), path.name))))
    return str(path.relative_to(root))


def edit_first(**changes: object) -> Callable[[Manifest], Manifest]:
    def edit(manifest: Manifest) -> Manifest:
        first = msgspec.structs.replace(manifest.segments[0], **changes)
        return msgspec.structs.replace(manifest, segments=(first, *manifest.segments[1:]))

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        edit_first(rows=1),
        edit_first(seq_min=1 << 40),
        edit_first(seq_max=0),
        edit_first(ts_max=0),
        edit_first(journal_stop=1 << 40),
        lambda manifest: msgspec.structs.replace(manifest, sealed_to=0),
        lambda manifest: msgspec.structs.replace(manifest, version=77),
        lambda manifest: msgspec.structs.replace(manifest, next_number=1),
        lambda manifest: msgspec.structs.replace(manifest, segments=manifest.segments[::-1]),
    ],
)
def test_an_edited_manifest_does_not_fit(edit: Callable[[Manifest], Manifest], root: Path) -> None:
    where = edit_manifest(root, edit)
    assert where in {problem.where for problem in problems(root)}


def test_segments_that_a_manifest_forgot_leave_records_missing(root: Path) -> None:
    forgotten = objects(root, "segments/*")[-1:] + objects(root, "companions/*")[-2:]
    edit_manifest(root, lambda m: msgspec.structs.replace(m, segments=m.segments[:-1]))
    found = verify(root)
    notes = {note.where for note in found if isinstance(note, Note)}
    assert notes == {f"objects/{name}" for name in forgotten}
    missing = [problem for problem in found if isinstance(problem, Problem)]
    assert {problem.where for problem in missing} == {"recovery"}
    assert any("records of" in problem.what for problem in missing)


def reseal(root: Path, name: str, table: pa.Table, field: str) -> None:
    """Write an object of the first segment anew, with a checksum that fits."""
    path = root / "objects" / name
    pq.write_table(table, path)
    raw = path.read_bytes()
    changes: dict[str, object] = {field: xxh3_64_hexdigest(raw)}
    if field == "checksum":
        changes["file_bytes"] = len(raw)
    edit_manifest(root, edit_first(**changes))


def swap(table: pa.Table, column: str, values: Sequence[object]) -> pa.Table:
    at = table.schema.get_field_index(column)
    return table.set_column(
        at, table.schema.field(at), pa.array(values, table.schema.field(at).type)
    )


@pytest.mark.parametrize(
    ("column", "change", "what"),
    [
        ("seq", lambda values: values[:1] + values[:1] + values[2:], "seq is not above"),
        ("ts", lambda values: [values[0] + 10**9, *values[1:]], "time is before"),
        ("log", lambda values: ["zzz", *values[1:]], "another name"),
        ("log_id", lambda values: [9, *values[1:]], "sorts before"),
        ("data", lambda values: ["{", *values[1:]], "data is not JSON"),
        ("meta", lambda values: ["{'a'}", *values[1:]], "meta is not JSON"),
    ],
)
def test_rows_that_cannot_be_are_found(
    column: str, change: Callable[[list[object]], list[object]], what: str, root: Path
) -> None:
    name = objects(root, "segments/*")[0]
    table = pq.read_table(root / "objects" / name, schema=SCHEMA)
    table = swap(table, column, change(table.column(column).to_pylist()))
    reseal(root, name, table, "checksum")
    found = [problem for problem in problems(root) if what in problem.what]
    assert [(problem.where, problem.place[:4]) for problem in found] == [
        (f"objects/{name}", "row ")
    ]


@pytest.mark.parametrize(
    ("kind", "column"), [("index", "row_start"), ("index", "record_bytes"), ("tags", "size")]
)
def test_companions_must_say_what_the_rows_say(kind: str, column: str, root: Path) -> None:
    name = objects(root, f"companions/*.{kind}.parquet")[0]
    table = pq.read_table(root / "objects" / name)
    values = table.column(column).to_pylist()
    values[2] += 1
    reseal(root, name, swap(table, column, values), f"{kind}_checksum")
    found = [problem for problem in problems(root) if "where the rows say" in problem.what]
    assert [(problem.where, problem.place) for problem in found] == [(f"objects/{name}", "row 2")]


def edit_snapshot(root: Path, name: str, edit: Callable[[Log], None]) -> str:
    path = files(root, "snapshots/*")[-1]
    head, logs = decode_snapshot(path.read_bytes(), path.name)
    captured: list[Captured] = list(logs)
    for item in captured:
        if item.log is not None and item.log.name == name:
            edit(item.log)
    parts = [encode_part(head), *map(encode_part, captured), encode_part(Foot(len(captured)))]
    path.write_bytes(b"".join(parts))
    return str(path.relative_to(root))


def test_a_state_that_cannot_be_is_found(root: Path) -> None:
    def edit(log: Log) -> None:
        log.count += 1

    where = edit_snapshot(root, "plain", edit)
    found = {(problem.where, problem.place) for problem in problems(root)}
    assert found == {(where, 'log "plain"'), ("recovery", 'log "plain"')}


def test_a_state_that_does_not_agree_with_the_records_is_found(root: Path) -> None:
    def edit(log: Log) -> None:
        log.size_bytes += 8

    edit_snapshot(root, "plain", edit)
    (problem,) = problems(root)
    assert (problem.where, problem.place) == ("recovery", 'log "plain"')


def test_an_extent_that_recovery_does_not_know_is_found(root: Path) -> None:
    def edit(log: Log) -> None:
        log.extents = log.extents[1:]

    edit_snapshot(root, "synced", edit)
    (problem,) = problems(root)
    where = f"objects/{objects(root, 'segments/*')[0]}"
    assert (problem.where, problem.place) == (where, 'log "synced"')


def test_a_frame_with_an_impossible_entry_is_found(root: Path) -> None:
    newest = files(root, "journal/*")[-1]
    content = directories.content_of(newest)
    position = int(newest.stem) + len(content)
    again = Append(1, block(draft([b"1"]), 1, 1))
    directories.replace(newest, content + encode_frame(again, position, position))
    found = problems(root)
    assert (f"journal/{newest.name}", f"byte {len(content)}") in {(p.where, p.place) for p in found}


# --- the rules, one by one ---

CREATE = Create(1, "one", "topics", LogConfig(), 0, 0)


def appended(first: int, ts_ms: int = 5) -> Append:
    return Append(1, block(draft([b"1", b"2"]), first, ts_ms))


ONE, TWO = sha256(b"1").digest(), sha256(b"2").digest()
NAMED_LATE = Refer(1, 9, 1, taken=ONE)


def named(taken: bytes = ONE, released: bytes = b"", first: int = 0) -> Refer:
    """Log 9 names two contents, or releases some."""
    if released:
        return Refer(1, 9, 2, released=released)
    return Refer(1, 9, 1, first or 1, ONE + TWO, [17, 17], taken)


def contradictions(*entries: Entry, complete: bool = True) -> list[str]:
    history = History(complete=complete)
    return [what for entry in entries for what in history.contradictions(entry)]


@pytest.mark.parametrize(
    "entries",
    [
        (CREATE, appended(1), appended(3), Stop()),
        (CREATE, appended(1), appended(10)),  # what lies between was never journaled
        (CREATE, appended(1), Delete(1, [1, 1], 1, 17), Trim(1, 2, 0, 0, 0)),
        (CREATE, Drop(1), Create(2, "one", "topics", LogConfig(), 0, 0)),
        (CREATE, Claim(1, "w", 1, 9, 5, [1, 3]), Claim(1, "w", 1, 9, 7, [2]), Release(1, [3], 0)),
        (CREATE, appended(1), named(taken=ONE + ONE + TWO), named(released=ONE + ONE)),
    ],
)
def test_a_journal_without_contradictions(entries: Sequence[Entry]) -> None:
    assert contradictions(*entries) == []


@pytest.mark.parametrize(
    ("what", "entries"),
    [
        ("given out before", (CREATE, appended(1), appended(2))),
        ("given out before", (CREATE, LoseAtRestart(1, [1, 8], 8, 0), appended(8))),
        ("given out before", (CREATE, Configure(1, LogConfig(), 4), appended(4))),
        ("is before 5", (CREATE, appended(1), appended(3, ts_ms=4))),
        ("never created", (appended(1),)),
        ("dropped before", (CREATE, Drop(1), appended(1))),
        ("not above 1", (CREATE, Drop(1), CREATE)),
        ('"one" belongs', (CREATE, Create(2, "one", "topics", LogConfig(), 0, 0))),
        ("sorted", (CREATE, Delete(1, [5, 4], 1, 17))),
        ("says 3 records", (CREATE, Delete(1, [4, 5], 3, 17))),
        ("below zero", (CREATE, Trim(1, 2, 0, -1, 0))),
        ("do not ascend", (CREATE, Claim(1, "w", 1, 9, 5, [3, 3]))),
        ("do not ascend", (CREATE, Release(1, [], 0))),
        ("do not ascend", (CREATE, Extend(1, [2, 1], 9))),
        ("sorted", (CREATE, Delay(1, [2, 1], 9))),
        ("named before they are there", (CREATE, named(taken=ONE))),
        ("not whole", (CREATE, appended(1), Refer(1, 9, 1, 1, ONE, [17, 17]))),
        ("not whole", (CREATE, appended(1), named(taken=ONE[1:]))),
        ("below zero", (CREATE, appended(1), Refer(1, 9, 1, 1, ONE, [0]))),
        ("comes that was there", (CREATE, appended(1), named(), named(first=1))),
        ("comes that was there", (CREATE, appended(1), Refer(1, 9, 1, 1, ONE + ONE, [17, 17]))),
        ("that is not there", (CREATE, appended(1), Refer(1, 9, 1, taken=ONE))),
        ("that is not there", (CREATE, appended(1), named(), named(released=ONE), NAMED_LATE)),
        ("more often than it was", (CREATE, appended(1), named(), named(released=ONE + ONE))),
        (
            "fence 6 is not above 6",
            (CREATE, Claim(1, "w", 1, 9, 5, [1, 3]), Claim(1, "w", 1, 9, 6, [2])),
        ),
    ],
)
def test_contradictions_are_told(what: str, entries: Sequence[Entry]) -> None:
    (told,) = contradictions(*entries)
    assert what in told


def test_logs_of_a_journal_without_its_beginning_need_no_creation() -> None:
    assert contradictions(appended(1), complete=False) == []


@pytest.mark.parametrize(
    "bad",
    [
        Block(2, 1, 0, b"", b""),
        Block(1, 1, 0, b"1", b""),
        Block(1, 1, 0, b"1", (2).to_bytes(4, "little")),
        Block(1, 1, 0, b"1", (1).to_bytes(4, "little"), tags=["a", "b"]),
        Block(1, 1, 0, b"{", (1).to_bytes(4, "little")),
        Block(1, 1, 0, b"1", (1).to_bytes(4, "little"), metas=[b"\xff"]),
    ],
)
def test_blocks_that_cannot_be(bad: Block) -> None:
    assert len(list(block_problems(bad))) == 1


@pytest.mark.parametrize(
    ("raw", "valid"),
    [(b"1", True), (b'{"a":[]}', True), (b"", False), (b"1,2", False), (b'"\xff"', False)],
)
def test_json(raw: bytes, valid: bool) -> None:
    assert is_json(raw) is valid


@pytest.mark.parametrize(
    ("held", "valid"),
    [
        ((), True),
        ((1, 1), True),
        ((1, 2, 4, 4), True),
        ((1, 2, 3, 4), False),  # neighbours would have melted together
        ((2, 1), False),
        ((1, 5, 3, 9), False),
        ((1, 2, 3), False),
    ],
)
def test_sets_of_seqs(held: Sequence[int], valid: bool) -> None:
    assert is_set(held) is valid


def state(**fields: object) -> Log:
    """A log with ten records of 20 bytes, then as told."""
    known: dict[str, object] = {"head": 10, "count": 10, "size_bytes": 200}
    return Log(1, "one", "topics", LogConfig(), **known | fields)  # type: ignore[arg-type]


def ledger(count: int, size: int) -> Ledger:
    held = Ledger()
    held.add(block(draft([b"x" * (size - 16)] * count), 1, 1))
    return held


def contents(count: int, size: int = 20, times: int = 1) -> Contents:
    """So many contents, each named so many times."""
    held = Contents()
    digests = b"".join(sha256(b"%d" % seq).digest() for seq in range(count))
    held.refer(Refer(1, 9, 1, 1, digests, [size] * count, digests * times))
    return held


@pytest.mark.parametrize(
    "good",
    [
        state(),
        state(head=0, count=0, size_bytes=0),
        state(floor_cap=11, count=0, size_bytes=0),
        state(deleted=[3, 4], gaps=[6, 6], count=7),
        state(extents=[(1, 1, 4), (3, 5, 10)]),
        state(contents=contents(10)),
        state(contents=contents(9), deleted=[10, 10], count=9, size_bytes=180),
    ],
)
def test_states_that_can_be(good: Log) -> None:
    assert list(state_problems(good)) == []


@pytest.mark.parametrize(
    "bad",
    [
        state(count=9),
        state(size_bytes=100),
        state(count=0, floor_cap=11),
        state(floor_ttl=0),
        state(deleted=[4, 3]),
        state(deleted=[9, 11], count=8),
        state(gaps=[1, 2], floor_lost=2, count=8),
        state(volatile=[11, 11]),
        state(ledger=ledger(10, 20)),
        state(extents=[(2, 1, 4), (2, 5, 10)]),
        state(extents=[(1, 1, 4), (2, 4, 10)]),
        state(extents=[(1, 1, 11)]),
        state(keys={"k": (9, 12, 0)}),
        state(contents=contents(9)),
        state(contents=contents(10), deleted=[3, 3], head=11),
        state(contents=contents(11)),
        state(contents=contents(10, size=21)),
        state(contents=contents(10, times=0)),
    ],
)
def test_states_that_cannot_be(bad: Log) -> None:
    assert len(list(state_problems(bad))) == 1


def jobs(**fields: object) -> Log:
    """A queue with ten jobs, of which some were handed out and others set aside; then as told."""
    good: dict[str, object] = {
        "cursor": 4,
        "fence": 9,
        "dead_lettered": 0,
        "aside": [7, 8],
        "returned": [2],
        "leases": {1: Lease(8, "w", 99), 3: Lease(9, "v", 99)},
        "delayed": {4: 99, 7: 99},
        "deliveries": {1: 1, 2: 3, 3: 1},
        "groups": {"g": [6, 8]},
    }
    queue = Queue.load(msgspec.convert(list((good | fields).values()), Places))
    config = LogConfig(kind=Kind.QUEUE)
    return Log(1, "q", "topics", config, head=10, count=10, size_bytes=200, queue=queue)


def test_jobs_that_can_be() -> None:
    assert list(state_problems(jobs())) == []


@pytest.mark.parametrize(
    ("what", "bad"),
    [
        ("1 jobs are in two places", jobs(returned=[2, 4])),
        ("jobs 2 lie below the cursor", jobs(returned=[], deliveries={1: 1, 3: 1})),
        ("jobs 11 are gone", jobs(returned=[2, 11], aside=[7, 8, 11, 11])),
        ("jobs 5 are set aside and fresh", jobs(returned=[2, 5])),
        ("jobs 3 are under a lease", jobs(deliveries={1: 1, 2: 3})),
        ("jobs 9 were delivered", jobs(deliveries={1: 1, 2: 3, 3: 1, 9: 1})),
        ("a lease has fence 9; the highest given out is 8", jobs(fence=8)),
        ("jobs are kept track of", state(queue=Queue())),
    ],
)
def test_jobs_that_cannot_be(what: str, bad: Log) -> None:
    (told,) = state_problems(bad)
    assert what in told


def test_a_cursor_lies_before_the_head() -> None:
    log = Log(1, "q", "topics", LogConfig(kind=Kind.QUEUE))
    log.jobs.cursor = 1
    assert ["its cursor, 1," in what for what in state_problems(log)] == [True]


@pytest.mark.parametrize(
    ("held", "problems"), [(ledger(10, 20), 0), (ledger(9, 20), 1), (ledger(10, 21), 1), (None, 1)]
)
def test_a_ledger_must_agree_with_its_log(held: Ledger | None, problems: int) -> None:
    log = state(ledger=held)
    log.config = LogConfig(ttl_ms=1)
    assert len(list(state_problems(log))) == problems


# --- the command ---


def test_the_command_says_that_all_is_well(
    pristine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert directories.run_command("verify", "--data-dir", str(pristine)) == 0
    out = capsys.readouterr().out
    assert "0 problems, 0 notes in 6 journal files, 2 snapshots and 4 segments" in out


def test_the_command_lists_problems(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = files(root, "objects/segments/*")[0]
    path.unlink()
    assert directories.run_command("verify", "--data-dir", str(root)) == 1
    problem, summary = capsys.readouterr().out.splitlines()
    assert problem.startswith(f"objects/segments/{path.name}: ")
    assert "1 problem, " in summary


def test_the_command_keeps_away_from_a_directory_in_use(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = RealDisk(root)
    server.lock(layout.LOCK)
    assert directories.run_command("verify", "--data-dir", str(root)) == 2
    assert f"{root} is in use" in capsys.readouterr().err
    for held in server._held:
        held.close()


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_the_command_needs_a_data_directory(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert directories.run_command("verify", "--data-dir", str(tmp_path / name)) == 2
    assert str(tmp_path / name) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_who_may_not_read_the_directory_is_told_so(
    command: str, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(disk: RealDisk, path: str) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", f"{root}/{path}")

    monkeypatch.setattr(RealDisk, "exists", refuse)
    assert directories.run_command(command, "--data-dir", str(root)) == 2
    assert "as the user who runs the server" in capsys.readouterr().err
