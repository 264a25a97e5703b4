"""Which object store: the data directory's own, or a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.storage.disk import Disk
    from headrace.storage.objects import Objects

SCHEME = "s3://"


def split_bucket(where: str) -> tuple[str, str]:
    """(bucket, prefix) of s3://bucket/prefix; ValueError for anything else."""
    bucket, _, prefix = where.removeprefix(SCHEME).partition("/")
    if not where.startswith(SCHEME) or not bucket or any(c.isspace() for c in where):
        raise ValueError("s3://bucket or s3://bucket/prefix")
    return bucket, prefix.strip("/")


def open_objects(where: str | None, disk: Disk) -> Objects:
    """The object store at s3://bucket/prefix, or that of the disk when nothing is said."""
    if where is None:
        from headrace.storage.objects import LocalObjects  # settings need neither

        return LocalObjects(disk)
    from headrace.storage.s3 import S3Objects  # only who uses it needs the library

    return S3Objects(*split_bucket(where))
