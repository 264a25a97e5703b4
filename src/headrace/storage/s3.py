"""Objects in a bucket of S3, or of anything that speaks its protocol.

Credentials, region and endpoint come from the usual AWS_* variables. Needs the extra `s3`.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.client.credentials import KEYS, missing_credentials
from headrace.printing import install
from headrace.storage.objects import Listed, NoCredentials, StoreError

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
    from obstore.store import S3Store
except ImportError:
    raise StoreError(f"an object store on S3 needs one more package: {install('s3')}") from None

_CONNECT_S = 5
_REQUEST_S = 30
_RETRIES_MAX = 6
_RETRY_S = 60
_PAUSES_S = (0.1, 0.3, 1.0, 3.0)
"""Between attempts of a conditional write."""
_ROLE = re.compile(r"/latest/(api/token|meta-data/)")
"""Where the library asked for a role of the machine, if that is what failed."""
_ANSWER = re.compile(r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?")
_SAID_MAX = 500
_READ_AHEAD_BYTES = 1 << 20
"""Columns of a row group lie side by side: one request brings several."""


class S3Objects:
    """Objects below a prefix of a bucket."""

    def __init__(
        self, bucket: str, prefix: str = "", pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._where = f"s3://{bucket}/{prefix}".rstrip("/")
        self._pause = pause
        require_credentials(self._where, os.environ)
        self._store = _connect(bucket, prefix, _RETRIES_MAX)
        # A conditional write that is repeated may find that it was first itself: we repeat it.
        self._once = _connect(bucket, prefix, 0)

    def put(self, name: str, content: bytes) -> None:
        with self._told(name):
            obstore.put(self._store, name, bytes(content))

    def put_file(self, name: str, path: Path) -> None:
        """Store a file that may be larger than memory; it shows once all of it is there."""
        with self._told(name):
            obstore.put(self._store, name, path)

    def put_new(self, name: str, content: bytes) -> bool:
        doubtful = False
        for pause_s in (*_PAUSES_S, None):
            try:
                obstore.put(self._once, name, bytes(content), mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                # An attempt of ours that seemed to fail may be what is there, or was.
                return doubtful and self._holds(name, content)
            except BaseError as error:
                if pause_s is None or not _may_pass(error):
                    raise self._error(name, error) from None
                doubtful = True
                self._pause(pause_s)
            else:
                return True
        raise AssertionError

    def _holds(self, name: str, content: bytes) -> bool:
        try:
            return self.get(name) == content
        except FileNotFoundError:
            return False

    def get(self, name: str) -> bytes:
        with self._told(name):
            return bytes(obstore.get(self._store, name).bytes())

    def open(self, name: str) -> pa.NativeFile:
        with self._told(name):
            size = obstore.head(self._store, name)["size"]
        return pa.PythonFile(_Reader(self, name, size), mode="r")

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of an object that is at least as long."""
        with self._told(name):
            return bytes(obstore.get_range(self._store, name, start=start, end=stop))

    def list(self, folder: str) -> list[Listed]:
        with self._told(folder):
            found = [
                _listed(meta)
                for batch in obstore.list(self._store, prefix=folder)
                for meta in batch
            ]
        return sorted(found)

    def look(self, name: str) -> Listed | None:
        try:
            with self._told(name):
                return _listed(obstore.head(self._store, name))
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        try:
            with self._told(name):
                obstore.delete(self._store, name)
        except FileNotFoundError:
            pass

    def settle(self, folder: str) -> None:
        """Whatever a bucket shows is durable."""

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotFoundError):
            raise FileNotFoundError(f"{self._where}/{name}") from None
        except BaseError as error:
            raise self._error(name, error) from None

    def _error(self, name: str, error: Exception) -> StoreError:
        said = _in_short(str(error))
        if _ROLE.search(said):
            keys = " and ".join(KEYS)
            problem = f"no credentials, {keys} are not set, and this machine is given no role"
            return NoCredentials(f"{self._where}: {problem}: {said}")
        return StoreError(f"{self._where}/{name}: {said}")


class _Reader(io.RawIOBase):
    """An object to read from at any place, a window of it in memory."""

    def __init__(self, objects: S3Objects, name: str, size: int) -> None:
        self._objects = objects
        self._name = name
        self._size = size
        self._at = 0
        self._window = b""
        self._window_start = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size < 0 else min(self._size, self._at + size)
        if stop <= self._at:
            return b""
        if not self._window_start <= self._at <= stop <= self._window_start + len(self._window):
            ahead = min(self._size, max(stop, self._at + _READ_AHEAD_BYTES))
            self._window = self._objects.read_range(self._name, self._at, ahead)
            self._window_start = self._at
        start = self._at - self._window_start
        found = self._window[start : start + stop - self._at]
        self._at = stop
        return found


def _in_short(text: str) -> str:
    """What the server answered, if it did; else what the library says, without its own workings."""
    if answer := _ANSWER.search(text):
        return ": ".join(filter(None, answer.groups()))
    return " ".join(text.partition("Debug source:")[0].split())[:_SAID_MAX]


def _listed(meta: Any) -> Listed:
    modified_ms = int(meta["last_modified"].timestamp() * 1000)
    return Listed(str(meta["path"]), int(meta["size"]), modified_ms)


def require_credentials(where: str, environ: Mapping[str, str]) -> None:
    """Refuse to begin when nothing says who we are.

    The library would ask for a role of the machine, for minutes where there is nobody to ask.
    """
    if missing := missing_credentials(environ):
        raise NoCredentials(f"{where}: {missing}")


def _connect(bucket: str, prefix: str, retries: int) -> Any:
    try:
        return S3Store(
            bucket,
            prefix=prefix or None,
            client_options={
                "allow_http": True,  # an endpoint says itself whether it is encrypted
                "connect_timeout": timedelta(seconds=_CONNECT_S),
                "timeout": timedelta(seconds=_REQUEST_S),
            },
            retry_config={
                "max_retries": retries,
                "retry_timeout": timedelta(seconds=_RETRY_S),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=100),
                    "max_backoff": timedelta(seconds=5),
                    "base": 2,
                },
            },
        )
    except (BaseError, ValueError, TypeError) as error:
        raise StoreError(f"s3://{bucket}/{prefix}: {error}") from None


def _may_pass(error: BaseError) -> bool:
    """Whether the next attempt may succeed: not after a no to who we are or what we ask for."""
    return type(error).__name__ in ("GenericError", "JoinError")
