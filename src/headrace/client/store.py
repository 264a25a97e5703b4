"""The object store as a reader sees it, without a server: the newest manifest and what it names."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from headrace.client.credentials import has_profiles, missing_credentials
from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.manifest import Manifest, Segment, decode_root
from headrace.formats.manifest_pages import assemble
from headrace.formats.marks import Marks, decode_marks

_TRIES = 10


class Store:
    """A data directory, or its object store: a path, or s3://bucket/prefix."""

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def _root(self) -> tuple[pafs.FileSystem, str]:
        files, root = open_filesystem(self.path)
        below = f"{root}/{layout.OBJECTS}"
        if files.get_file_info(f"{below}/{layout.MANIFESTS}").type == pafs.FileType.Directory:
            root = below
        return files, root

    def manifest(self) -> Manifest | None:
        """The newest manifest; None where nothing is published."""
        files, root = self._root
        for _ in range(_TRIES):
            wanted = pafs.FileSelector(f"{root}/{layout.MANIFESTS}", allow_not_found=True)
            names = sorted(
                PurePosixPath(info.path).name
                for info in files.get_file_info(wanted)
                if info.path.endswith(".json")
            )
            if not names:
                return None
            name = f"{layout.MANIFESTS}/{names[-1]}"
            try:
                return assemble(decode_root(self.get(name), name), self.get)
            except FileNotFoundError:
                continue  # so many newer ones came that this one, or a page of it, is gone
        raise FileNotFoundError(f"no manifest can be read in {self.path}")

    def get(self, name: str) -> bytes:
        with self.open(name) as file:
            return bytes(file.read())

    def open(self, name: str) -> pa.NativeFile:
        files, root = self._root
        return files.open_input_file(f"{root}/{name}")

    def parquet(self, name: str) -> pq.ParquetFile:
        files, root = self._root
        if isinstance(files, pafs.LocalFileSystem):
            return pq.ParquetFile(f"{root}/{name}", memory_map=True)
        return pq.ParquetFile(self.open(name), pre_buffer=True)

    def index(self, segment: Segment) -> pa.Table:
        raw = self._checked(segment.index, segment.index_checksum)
        try:
            return pq.read_table(pa.BufferReader(raw), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(segment.index, error) from None

    def marks(self, manifest: Manifest) -> Marks:
        """What is dead in the segments; nothing where the manifest does not say."""
        if manifest.marks is None:
            return Marks()
        name = manifest.marks.name
        return decode_marks(self._checked(name, manifest.marks.checksum), name)

    def _checked(self, name: str, checksum: str) -> bytes:
        """What the manifest vouches for: nobody is to believe another."""
        try:
            raw = self.get(name)
        except OSError as error:
            raise unreadable(name, error) from None
        if xxh3_64_hexdigest(raw) != checksum:
            raise Corrupt(name, 0, "checksum mismatch: the bytes are not what was stored")
        return raw

    def native(self, name: str) -> str:
        """The address of an object for other programs."""
        _, root = self._root
        if self.path.startswith("s3://"):
            return f"s3a://{root}/{name}"
        return f"{root}/{name}"


class Missing(Corrupt):
    """An object that a manifest names is not there: a newer one may name others instead."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 0, "the manifest names it, but it is not there")


def unreadable(name: str, error: Exception) -> Corrupt:
    """What became of an object that the manifest names."""
    if isinstance(error, FileNotFoundError):
        return Missing(name)
    return Corrupt(name, 0, f"it cannot be read: {error}")


def open_filesystem(path: str) -> tuple[pafs.FileSystem, str]:
    """A file system and a folder in it."""
    if path.startswith("s3://"):
        if not has_profiles(os.environ, Path.home()) and (
            missing := missing_credentials(os.environ)
        ):
            raise PermissionError(missing)
        bucket = path.removeprefix("s3://").rstrip("/")
        endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL", ""))
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        store = pafs.S3FileSystem(
            endpoint_override=endpoint.netloc or None,
            scheme=endpoint.scheme or None,
            region=region or "us-east-1",
        )
        return store, bucket
    return pafs.LocalFileSystem(), os.path.abspath(path.removeprefix("file://"))
