"""Every file name of a data directory, in one place."""

from __future__ import annotations

from typing import NamedTuple

LOCK = "LOCK"
UNSYNCED = "UNSYNCED"
"""There while a sync of the journal has failed and no start has drawn the consequences."""
SIGNING_KEY = "signing.key"
SERVER_ID = "server.id"
JOURNAL = "journal"
SNAPSHOTS = "snapshots"
OBJECTS = "objects"
STAGED = "staged"

SEGMENTS = "segments"
COMPANIONS = "companions"
MANIFESTS = "manifests"
PAGES = "pages"
BUILDS = "builds"
PLANS = "plans"
MARKS = "marks"
LEASES = "leases"
RUNS = "runs"

STORE = (SEGMENTS, COMPANIONS, MANIFESTS, PAGES, BUILDS, PLANS, MARKS, LEASES, RUNS)
"""The folders of the object store."""

FOLDERS = (
    JOURNAL,
    SNAPSHOTS,
    STAGED,
    *(f"{OBJECTS}/{folder}" for folder in STORE if folder not in (BUILDS, LEASES, RUNS)),
)
"""Where the server may have left files unfinished."""

TEMPORARY = ".tmp"
"""Ends the names of files that are not finished, or are nothing yet; a start removes them."""

_DIGITS = 20
_PIPELINE = "p-"
"""Begins the names of segments that the pipeline made."""
_RETIRED = "retired-"
_CLOCK = "clock-"


def journal_file(position: int) -> str:
    """The journal file that starts at this position."""
    return f"{JOURNAL}/{position:0{_DIGITS}d}.log"


def spare_file(token: str) -> str:
    """A file that may become a journal file; of no meaning to anybody but who made it."""
    return f"{JOURNAL}/spare-{token}{TEMPORARY}"


def snapshot_file(position: int) -> str:
    """The snapshot from which replay goes on at this position."""
    return f"{SNAPSHOTS}/{position:0{_DIGITS}d}.snap"


class StagedName(NamedTuple):
    """What a staged file is named after."""

    transaction: str
    batch: int
    chunk: str
    """Of a chunk, with the key that staged it; nothing else has one."""
    kind: str

    @property
    def key(self) -> str:
        """Whose chunk it is; nothing for one from before that was noted."""
        return self.chunk.partition(".")[2]


def staged_chunk(transaction: str, batch: int, chunk: str) -> str:
    """Records that wait for their commit."""
    return f"{STAGED}/{transaction}.{batch}.{chunk}.chunk"


def chunk_of(path: str) -> str:
    """What a staged chunk is called."""
    name = staged_name(path)
    assert name is not None, path
    return name.chunk


def staged_commit(transaction: str, batch: int) -> str:
    """What was decided about a batch that is on its way to its logs."""
    return f"{STAGED}/{transaction}.{batch}.commit"


def staged_done(transaction: str, batch: int) -> str:
    """The same when the batch is in its logs."""
    return f"{STAGED}/{transaction}.{batch}.done"


def staged_name(path: str) -> StagedName | None:
    """What a staged file is named after; None for a stranger."""
    transaction, _, rest = path.removeprefix(f"{STAGED}/").partition(".")
    batch, _, rest = rest.partition(".")
    chunk, _, kind = rest.rpartition(".")
    if not (batch.isascii() and batch.isdigit()) or kind not in ("chunk", "commit", "done"):
        return None
    return StagedName(transaction, int(batch), chunk, kind)


def segment(number: int, attempt: str = "") -> str:
    """A segment.

    Each attempt to seal it has files of its own; the manifest says which ones count.
    """
    return f"{SEGMENTS}/{_numbered(number, attempt)}.parquet"


def segment_index(number: int, attempt: str = "") -> str:
    """Which log lies where in a segment."""
    return f"{COMPANIONS}/{_numbered(number, attempt)}.index.parquet"


def segment_tags(number: int, attempt: str = "") -> str:
    """The tags of a segment, sorted by log and tag."""
    return f"{COMPANIONS}/{_numbered(number, attempt)}.tags.parquet"


def rewritten(name: str) -> tuple[str, str, str]:
    """A segment that the pipeline made, its index and its tags."""
    stem = f"{_PIPELINE}{name}"
    return (
        f"{SEGMENTS}/{stem}.parquet",
        f"{COMPANIONS}/{stem}.index.parquet",
        f"{COMPANIONS}/{stem}.tags.parquet",
    )


def build(token: str) -> str:
    """What describes the files of a build."""
    return f"{BUILDS}/{token}.json"


def build_file(token: str, family: str) -> str:
    """The companion of one family, or the hashes of its keys."""
    return f"{BUILDS}/{token}.{family}" + ("" if family.endswith(".hash") else ".parquet")


def build_of(name: str) -> str:
    """The build that a file in its folder belongs to, by the name of what describes it."""
    return build(name.rpartition("/")[2].partition(".")[0])


def answer(token: str) -> str:
    """What a task says to the driver of its job, if that is much; removed when it was read."""
    return f"{BUILDS}/{token}.answer"


def marks_copy(token: str) -> str:
    """The marks that a job works by; removed when it ends."""
    return f"{BUILDS}/{token}.marks"


def retired(token: str) -> str:
    """Which objects a change of the manifest left behind."""
    return f"{BUILDS}/{_RETIRED}{token}.json"


def is_retired(name: str) -> bool:
    return name.startswith(f"{BUILDS}/{_RETIRED}")


def is_foreign(name: str) -> bool:
    """Whether the pipeline wrote this object, or is about to: the server leaves it alone."""
    folder, _, file = name.rpartition("/")
    return folder in (BUILDS, LEASES, RUNS) or file.startswith(_PIPELINE)


def job_of(name: str) -> str:
    """The token of the job that made an object of the pipeline: what its lease is named after."""
    stem = name.rpartition("/")[2].partition(".")[0]
    return stem.removeprefix(_PIPELINE).partition("-")[0]


def lease(token: str) -> str:
    """That a job is at work."""
    return f"{LEASES}/{token}.json"


def clock(token: str) -> str:
    """Stored to see what time it is in the store."""
    return f"{LEASES}/{_CLOCK}{token}.json"


def is_clock(name: str) -> bool:
    return name.startswith(f"{LEASES}/{_CLOCK}")


def run(started_at_ms: int, job: str, token: str) -> str:
    """A run of a job of upkeep, in the order of their starts."""
    return f"{RUNS}/{started_at_ms:0{_DIGITS}d}-{job}-{token}.json"


def plans(generation: int) -> str:
    """Which logs want companions."""
    return f"{PLANS}/{generation:010d}.json"


def marks(generation: int) -> str:
    """What is dead in the segments."""
    return f"{MARKS}/{generation:010d}.parquet"


def _numbered(number: int, attempt: str) -> str:
    return f"{number:010d}-{attempt}" if attempt else f"{number:010d}"


def manifest(version: int) -> str:
    return f"{MANIFESTS}/{version:010d}.json"


def page(version: int, token: str) -> str:
    """A part of a manifest, first of this version; later ones may name it, too."""
    return f"{PAGES}/{version:010d}-{token}.parquet"


def is_page(name: str) -> bool:
    return name.startswith(f"{PAGES}/")


def number_of(name: str) -> int | None:
    """The number a file of ours is named after, or None for a stranger's."""
    stem = name.rsplit("/", 1)[-1].split(".", 1)[0]
    return int(stem) if stem.isascii() and stem.isdigit() else None
