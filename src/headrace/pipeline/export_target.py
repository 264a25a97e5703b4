"""Where an export goes: one file or a folder of them, here or in a bucket.

Tasks write parts, wherever they run; the driver looks at what is there, and lets it count only when
that is everything.
"""

from __future__ import annotations

import fcntl
import glob
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from headrace.pipeline.errors import CannotRun, JobFailed
from headrace.pipeline.limits import FORMATS
from headrace.storage.objects import StoreError
from headrace.storage.stores import SCHEME, split_bucket

if TYPE_CHECKING:
    from headrace.storage.s3 import S3Objects

SUCCESS = "_SUCCESS"
"""An object beside the parts in a bucket, stored last: without it they are not all there."""
_COPY_BYTES = 8 << 20
_PROOF = ".driver"
"""A file beside the parts in a folder, which the driver locks while it works."""


class ExportPart(msgspec.Struct, frozen=True):
    """A file as its task left it."""

    name: str
    rows: int
    size_bytes: int


class FolderTarget(msgspec.Struct, frozen=True):
    """A path of the driver's, which tasks elsewhere may or may not have. Parts are written beside
    it, to a folder that no other export uses, and get its name when all are there.
    """

    path: Path
    format: str
    single: bool
    token: str

    def __str__(self) -> str:
        return str(self.path)

    @property
    def _aside(self) -> Path:
        return self.path.with_name(f".{self.path.name}.{self.token}.part")

    def check(self) -> None:
        """Refuse a name that is taken."""
        if self.path.exists():
            raise CannotRun(f"{self.path} exists; name something that does not")

    def begin(self) -> AbstractContextManager[object]:
        """Make room for parts, in place of what killed exports left; others keep off while what
        this returns is open.
        """
        for aside in self.path.parent.glob(f".{glob.escape(self.path.name)}.*.part"):
            if _is_locked(aside / _PROOF):
                raise CannotRun(f"another export writes to {self.path}; {aside} is its folder")
            shutil.rmtree(aside, ignore_errors=True)
        try:
            self._aside.mkdir(parents=True)
            proof = (self._aside / _PROOF).open("wb")
        except OSError as error:
            raise CannotRun(f"{self.path} cannot be written: {error.strerror}") from None
        with suppress(OSError):  # where nobody can lock files, nobody takes this one for left
            fcntl.flock(proof, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return proof

    def problem(self) -> str | None:
        """Why a task cannot write here; asked where the task runs."""
        if (self._aside / _PROOF).exists():
            return None
        return (
            f"Spark's workers do not share the folder of {self.path} with this machine: "
            f"name one that they do, or a bucket: --to {SCHEME}…"
        )

    def part(self, at: int) -> str:
        """The name of a part; parts are in order by name."""
        return f"part-{at:05}.{self.format}"

    @contextmanager
    def open(self, name: str) -> Iterator[Path]:
        """A file to write, which gets its name when the block ends without an error."""
        # A task may run twice at a time: who is last replaces a file by the same one.
        path = self._aside / f".{name}-{secrets.token_hex(4)}"
        yield path
        _sync(path)
        path.replace(self._aside / name)

    def sizes(self) -> dict[str, int]:
        """The parts that are there, as the driver sees them."""
        return {path.name: path.stat().st_size for path in self._aside.glob("part-*")}

    def publish(self, parts: Sequence[ExportPart]) -> None:
        """Let the parts count."""
        if self.path.exists():
            raise JobFailed(f"{self.path} was written by somebody else meanwhile, and stays so")
        for path in self._aside.glob(".part-*"):
            path.unlink()
        _sync(self._aside)
        if self.single:
            (self._aside / parts[0].name).rename(self.path)
            self.abandon()
        else:
            self._aside.rename(self.path)
            (self.path / _PROOF).unlink()
        _sync(self.path.parent)

    def abandon(self) -> None:
        """Leave nothing of what did not become whole."""
        shutil.rmtree(self._aside, ignore_errors=True)


def _is_locked(path: Path) -> bool:
    """Whether a process that lives holds this file, or nobody can tell."""
    try:
        with path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _sync(path: Path) -> None:
    """What is told to be there survives a power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class BucketTarget(msgspec.Struct, frozen=True):
    """An object, or objects below a prefix. A bucket renames nothing: a single object is written
    beside its name and copied in the end, a folder is whole when it has `_SUCCESS`.
    """

    bucket: str
    path: str
    format: str
    single: bool
    token: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.path}"

    @property
    def _parent(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def _name(self) -> str:
        return self.path.rpartition("/")[2]

    def _objects(self) -> S3Objects:
        from headrace.storage.s3 import S3Objects

        return S3Objects(self.bucket, self._parent if self.single else self.path)

    def check(self) -> None:
        from headrace.storage.s3 import S3Objects

        above, name = S3Objects(self.bucket, self._parent), self._name
        there = {listed.name.rpartition("/")[2] for listed in above.list(name)}
        if there and SUCCESS not in there and any(part.startswith("part-") for part in there):
            raise CannotRun(f"{self} has no {SUCCESS}: an export was ended there; remove it first")
        if there or above.look(name) is not None:
            raise CannotRun(f"{self} exists; name something that does not")

    def begin(self) -> AbstractContextManager[object]:
        """A bucket has room."""
        return nullcontext()

    def problem(self) -> str | None:
        try:
            self._objects().look(SUCCESS)
        except StoreError as error:
            return f"Spark's workers cannot use the bucket: {error}"
        return None

    def part(self, at: int) -> str:
        # Parts of another export to the same place are told apart from ours.
        if self.single:
            return f".{self._name}.{self.token}.part"
        return f"part-{at:05}-{self.token}.{self.format}"

    @contextmanager
    def open(self, name: str) -> Iterator[Path]:
        with TemporaryDirectory(prefix="headrace-export-") as folder:
            path = Path(folder) / name
            yield path
            self._objects().put_file(name, path)

    def sizes(self) -> dict[str, int]:
        objects = self._objects()
        if self.single:
            found = objects.look(self.part(0))
            return {} if found is None else {self.part(0): found.size_bytes}
        there = {listed.name: listed.size_bytes for listed in objects.list("")}
        if others := [name for name in there if self.token not in name]:
            raise JobFailed(f"somebody else wrote to {self} meanwhile: {others[0]}")
        return there

    def publish(self, parts: Sequence[ExportPart]) -> None:
        objects = self._objects()
        if not self.single:
            objects.put(SUCCESS, b"")
            return
        if objects.look(self._name) is not None:
            raise JobFailed(f"{self} was written by somebody else meanwhile, and stays so")
        with (
            self.open(self._name) as path,
            objects.open(parts[0].name) as source,
            path.open("wb") as file,
        ):
            shutil.copyfileobj(source, file, _COPY_BYTES)
        self.abandon()

    def abandon(self) -> None:
        objects = self._objects()
        # What led here may be that the bucket cannot be used.
        with suppress(StoreError):
            if self.single:
                objects.remove(self.part(0))
                return
            for listed in objects.list(""):
                if self.token in listed.name:
                    objects.remove(listed.name)


ExportTarget = FolderTarget | BucketTarget


def parse_target(to: str, format: str | None) -> ExportTarget:
    """A target as the user names it: one file if it ends in a format, else a folder."""
    ending = to.rpartition(".")[2]
    single = ending in FORMATS
    chosen = format or (ending if single else FORMATS[0])
    token = secrets.token_hex(6)
    if "://" not in to:
        # Tasks elsewhere are in other folders.
        return FolderTarget(Path(to).absolute(), chosen, single, token)
    try:
        bucket, path = split_bucket(to)
    except ValueError:
        raise CannotRun(f"an export goes to a path, or to {SCHEME}bucket/path, not {to}") from None
    if not path:
        raise CannotRun(f"{to} is a whole bucket; name a path in it")
    return BucketTarget(bucket, path, chosen, single, token)
