"""The manifest process: takes archives apart, parses and lints what is in them.

Run as a module it reads requests from standard input and answers on standard output, and ends when
its input does, however the server went away. It keeps files in parsed form by path and content: of
a manifest in which one file changed, one is parsed.
"""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from hashlib import sha256
from time import monotonic, process_time
from typing import BinaryIO

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import MANIFEST_PARSED_BYTES, MANIFEST_PROCESS_BYTES
from headrace.core.sized_cache import SizedCache
from headrace.flags.archive import ArchiveLimits, ArchiveRefused, read_archive
from headrace.flags.closure import hash_digests
from headrace.flags.lint import lint_tree
from headrace.flags.model import LintReport, ParsedFile
from headrace.flags.parsing import parse_file
from headrace.flags.tree import FileKind, kind_of, path_bytes
from headrace.formats.multipart import parse_form
from headrace.processes.manifest_messages import (
    CheckArchive,
    CheckedFile,
    CheckUnfinished,
    FetchFiles,
    FilesFetched,
    FilesParsed,
    FileSummary,
    ManifestChecked,
    NotTaken,
    ParseFiles,
    Reply,
    Request,
    decode_request,
    encode,
)
from headrace.processes.message_pipe import read_message, write_message

FIELD = "archive"
"""The field of the form that holds the archive."""

_FILE_OVERHEAD_BYTES = 256
_TOO_LARGE = ("too_large", "too_many_members")


class ParsedFiles:
    """Files in parsed form, by path and digest; the least recently used go when there are many."""

    def __init__(self, bytes_max: int = MANIFEST_PARSED_BYTES) -> None:
        self._files: SizedCache[tuple[str, bytes]] = SizedCache(bytes_max)
        self.parsed = 0
        """How many files have been parsed so far."""

    def get(self, path: str, digest: bytes, content: bytes) -> ParsedFile:
        """A file in parsed form."""
        key = path, digest
        known: ParsedFile | None = self._files.get(key)
        if known is None:
            self.parsed += 1
            known = parse_file(path, content)
            self._files.put(key, known, len(path) + len(content) + _FILE_OVERHEAD_BYTES)
        return known


class _Unpacked(msgspec.Struct, frozen=True):
    """An archive, and what was in it."""

    body: bytes
    """The form it came in."""
    files: dict[str, bytes]
    digests: dict[str, bytes]
    """Sorted by the bytes of their paths."""


class ManifestWorker:
    """Answers requests, one after the other."""

    def __init__(self) -> None:
        self._parsed = ParsedFiles()
        self._contents: dict[bytes, bytes] = {}
        self._checked: dict[str, ParsedFile] = {}
        """The manifest that was checked last."""
        self._unfinished: _Unpacked | None = None
        """The last one that needs another turn."""

    def answer(self, request: Request) -> Reply:
        """The answer to a request; what is refused is told, too."""
        try:
            match request:
                case CheckArchive():
                    return self._check(request)
                case FetchFiles():
                    return self._fetch(request)
                case ParseFiles():
                    return self._parse(request)
        except ArchiveRefused as refused:
            code = Code.BODY_TOO_LARGE if refused.reason in _TOO_LARGE else Code.INVALID
            detail = {"reason": refused.reason, "path": refused.path}
            return NotTaken(code.value, refused.message, detail)
        except Refused as refused:
            return NotTaken(refused.code.value, refused.message, refused.detail)

    def _check(self, request: CheckArchive) -> ManifestChecked | CheckUnfinished:
        self._contents, self._checked = {}, {}
        began = process_time()
        try:
            unpacked = self._unpack(request)
        except ArchiveRefused as refused:
            if (problem := refused.lint_problem) is None:
                raise
            return _describe(_Unpacked(request.body, {}, {}), LintReport((problem,)), 0)
        before, until = self._parsed.parsed, monotonic() + request.parse_s
        checked: dict[str, ParsedFile] = {}
        for path, digest in unpacked.digests.items():
            if self._parsed.parsed > before and monotonic() > until:
                self._unfinished = unpacked
                return CheckUnfinished(self._parsed.parsed - before, process_time() - began)
            checked[path] = self._parsed.get(path, digest, unpacked.files[path])
        self._contents = {digest: unpacked.files[path] for path, digest in unpacked.digests.items()}
        self._checked = checked
        return _describe(unpacked, lint_tree(checked), self._parsed.parsed - before)

    def _unpack(self, request: CheckArchive) -> _Unpacked:
        """The files of an archive; one that was not finished before is unpacked already."""
        known = self._unfinished
        if known is not None and known.body == request.body:
            self._unfinished = None
            return known
        limits = ArchiveLimits(request.archive_bytes_max, request.manifest_bytes_max)
        files = read_archive(find_archive(request), limits)
        paths = sorted(files, key=path_bytes)
        digests = {path: sha256(files[path]).digest() for path in paths}
        return _Unpacked(request.body, files, digests)

    def _fetch(self, request: FetchFiles) -> FilesFetched:
        return FilesFetched(
            [self._contents[digest] for digest in request.contents],
            [_summarise(path, self._checked[path]) for path in request.parsed],
        )

    def _parse(self, request: ParseFiles) -> FilesParsed:
        before = self._parsed.parsed
        files = [
            _summarise(path, self._parsed.get(path, sha256(content).digest(), content))
            for path, content in request.files.items()
        ]
        return FilesParsed(files, self._parsed.parsed - before)


def _describe(unpacked: _Unpacked, report: LintReport, files_parsed: int) -> ManifestChecked:
    files, digests = unpacked.files, unpacked.digests
    kinds = [kind_of(path) for path in digests]
    return ManifestChecked(
        files=[CheckedFile(path, digest, len(files[path])) for path, digest in digests.items()],
        closure_hash=hash_digests(digests),
        flag_count=kinds.count(FileKind.FLAG),
        segment_count=kinds.count(FileKind.SEGMENT),
        report=report,
        files_parsed=files_parsed,
    )


def find_archive(request: CheckArchive) -> bytes:
    """The archive in a form; other fields are passed over."""
    found = [
        part.content
        for part in parse_form(request.content_type, request.body)
        if part.name == FIELD
    ]
    if len(found) != 1:
        raise Refused(Code.INVALID, f"the form has one field called {FIELD}", field=FIELD)
    return found[0]


def _summarise(path: str, file: ParsedFile) -> FileSummary:
    return FileSummary(path, file.segments_used, encode(file.definition))


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer until there are no more requests, or no more memory."""
    worker = ManifestWorker()
    while (body := read_message(requests)) is not None:
        try:
            reply = encode(worker.answer(decode_request(body)))
        except MemoryError:
            reply = b""
        if not reply:
            del worker, body  # there must be room to say so
            write_message(replies, encode(_TOO_MUCH))
            return
        write_message(replies, reply)


_TOO_MUCH = NotTaken(Code.BODY_TOO_LARGE.value, "it takes too much memory to check this manifest")


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MANIFEST_PROCESS_BYTES, MANIFEST_PROCESS_BYTES))
    with suppress(BrokenPipeError):  # the server is gone; nobody waits for the answer
        serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
