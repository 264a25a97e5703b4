"""The history of upkeep: an object for each run, in the store itself.

It is stored when a run begins and again when it ends, so a run that was killed is known as one that
never ended. Whoever starts next learns from it when each job ran last.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.manifest import Manifest
from headrace.storage import manifests
from headrace.storage.objects import Objects

FORMAT = 1
RUNNING, DONE, FAILED, STOPPED = "running", "done", "failed", "stopped"
EXPORT = "export"
"""A run that copied records elsewhere."""
RUNS_DEFAULT = 1000
"""Of how many runs the history tells."""
_PROBLEM_MAX = 2000


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of a job."""

    format: int = FORMAT
    job: str
    name: str
    """Of its object."""
    host: str
    pid: int
    started_at_ms: int
    ended_at_ms: int | None = None
    outcome: str = RUNNING
    """`running`, also of one that was killed; `done`, `failed`, or `stopped` by a signal."""
    summary: str = ""
    """How much it did."""
    problem: str | None = None
    manifest: int = 0
    """The version that was the newest when it began."""
    marks: int = 0
    """The generation of marks that it went by."""

    @property
    def seconds(self) -> float | None:
        if self.ended_at_ms is None:
            return None
        return (self.ended_at_ms - self.started_at_ms) / 1000


def new_run(job: str, manifest: Manifest, now_ms: int) -> Run:
    """A run that begins here and now."""
    return Run(
        job=job,
        name="",
        host=socket.gethostname(),
        pid=os.getpid(),
        started_at_ms=now_ms,
        manifest=manifest.version,
        marks=manifest.marks.generation if manifest.marks is not None else 0,
    )


class RunHistory:
    """The runs that the store remembers."""

    def __init__(self, objects: Objects, keep: int) -> None:
        self._objects = objects
        self._keep = keep
        self._ended: dict[str, Run] = {}
        """What was read of runs that are over: it never changes."""

    def begin(self, run: Run) -> Run:
        """Note that a job begins; older runs than are kept are forgotten."""
        name = layout.run(run.started_at_ms, run.job, secrets.token_hex(4))
        begun = msgspec.structs.replace(run, name=name)
        self._objects.put(name, msgspec.json.encode(begun))
        for old in self._objects.list(layout.RUNS)[: -self._keep]:
            self._objects.remove(old.name)
        return begun

    def end(self, run: Run, outcome: str, summary: str, problem: str | None, now_ms: int) -> Run:
        """Note what became of it."""
        ended = msgspec.structs.replace(
            run,
            outcome=outcome,
            summary=summary,
            problem=problem[:_PROBLEM_MAX] if problem is not None else None,
            ended_at_ms=now_ms,
        )
        self._objects.put(run.name, msgspec.json.encode(ended))
        return ended

    def runs(self) -> list[Run]:
        """All runs, oldest first; one that cannot be read is passed over."""
        found = list(self._read())
        self._ended = {run.name: run for run in found if run.outcome != RUNNING}
        return found

    def _read(self) -> Iterator[Run]:
        for listed in self._objects.list(layout.RUNS):
            known = self._ended.get(listed.name)
            if known is not None:
                yield known
                continue
            with suppress(FileNotFoundError, Corrupt):  # forgotten just now; or nobody's
                yield decode_run(self._objects.get(listed.name), listed.name)


def decode_run(raw: bytes, where: str) -> Run:
    try:
        run = msgspec.json.decode(raw, type=Run)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(where, 0, f"not a run: {error}") from None
    if run.format != FORMAT:
        raise Corrupt(where, 0, f"format {run.format} is not one this version reads")
    return run


def note_export(objects: Objects, started_at_ms: int, summary: str) -> str | None:
    """Note that records were copied elsewhere, for who erases them some day; or why it cannot."""
    try:
        history = RunHistory(objects, RUNS_DEFAULT)
        run = history.begin(new_run(EXPORT, manifests.load(objects), started_at_ms))
        history.end(run, DONE, summary, None, int(time.time() * 1000))
    except OSError as error:  # who may only read exports all the same
        return f"this export is not noted in the history of the store: {error}"
    return None
