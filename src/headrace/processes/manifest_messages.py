"""What the server and the manifest process say to each other.

A conversation is about one manifest: it is checked, then what the server lacks of it is fetched.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.core.limits import MANIFEST_TURN_S
from headrace.flags.model import LintReport


class CheckArchive(msgspec.Struct, frozen=True, tag=True):
    """A form with an archive, as it came: take it apart, and say what is in it and what is wrong.

    Its files can be fetched until the next one is checked.
    """

    content_type: str
    body: bytes
    archive_bytes_max: int
    manifest_bytes_max: int
    """Of the archive as it is, and of the files in it."""
    parse_s: float = MANIFEST_TURN_S
    """For how long files are parsed that are not known: then others have a turn."""


class FetchFiles(msgspec.Struct, frozen=True, tag=True):
    """Of the manifest that was checked last: some contents by digest, some files in parsed form."""

    contents: list[bytes]
    parsed: list[str]


class ParseFiles(msgspec.Struct, frozen=True, tag=True):
    """Contents of files by path, which were checked long ago: parse them."""

    files: dict[str, bytes]


Request = CheckArchive | FetchFiles | ParseFiles


class CheckedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of a manifest that was checked."""

    path: str
    digest: bytes
    size: int


class FileSummary(msgspec.Struct, frozen=True, array_like=True):
    """A file in parsed form."""

    path: str
    segments_used: tuple[str, ...]
    definition: bytes
    """What it defines, in msgpack; the server reads that when it is asked for the flag."""


class ManifestChecked(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """What is in a manifest and what is wrong with it."""

    files: list[CheckedFile]
    """Sorted by the bytes of their paths."""
    closure_hash: str
    flag_count: int
    segment_count: int
    report: LintReport
    files_parsed: int
    """How many were not known from before."""


class CheckUnfinished(msgspec.Struct, frozen=True, tag=True):
    """The time was not enough. What was parsed is known when the same archive comes again."""

    files_parsed: int
    processor_s: float
    """What this took of a processor."""


class FilesFetched(msgspec.Struct, frozen=True, tag=True):
    """Contents in the order in which they were asked for, and files in parsed form."""

    contents: list[bytes]
    parsed: list[FileSummary]


class FilesParsed(msgspec.Struct, frozen=True, tag=True):
    """The files, in the order in which they were given."""

    files: list[FileSummary]
    files_parsed: int


class NotTaken(msgspec.Struct, frozen=True, tag=True):
    """What came is refused; the process is ready for the next."""

    code: str
    """Of `core.errors.Code`."""
    message: str
    detail: dict[str, Any] = {}


Reply = ManifestChecked | CheckUnfinished | FilesFetched | FilesParsed | NotTaken

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
