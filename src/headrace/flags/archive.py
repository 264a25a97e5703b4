"""Archives of manifests: tar in gzip, the same bytes for the same files, and read without trust.

An archive is unpacked piece by piece, into memory alone. What its limits do not allow is refused
where it is found, before anything of it is held: a bomb costs no more than the limits say.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from headrace.core.limits import (
    ARCHIVE_EXTENSION_BYTES_MAX,
    ARCHIVE_MEMBERS_MAX,
    ARCHIVE_PATH_BYTES_MAX,
    MANIFEST_FILES_MAX,
)
from headrace.flags.model import LintProblem
from headrace.flags.tar import (
    BLOCK_BYTES,
    DIRECTORY,
    GNU_LONG_LINK,
    GNU_LONG_NAME,
    LINKS,
    PAX,
    PAX_GLOBAL,
    RECORD_BYTES,
    REGULAR,
    ZERO_BLOCK,
    NotTar,
    TarHeader,
    format_header,
    padding_of,
    parse_header,
    parse_pax,
    parse_pax_size,
)
from headrace.flags.tree import is_kept, is_misplaced, path_bytes, wrapper_of

_GZIP_HEADER = b"\x1f\x8b\x08\0" + bytes(4) + b"\0\xff"
"""No name, no time, no system: nothing in it depends on where it was packed."""
_LEVEL = 6
_PIECE_BYTES = 64 << 10
_GZIP_ONLY = 16 + zlib.MAX_WBITS

RefusedReason = Literal[
    "too_large", "not_gzip", "truncated", "trailing_data", "malformed", "too_many_members",
    "unsafe_path", "duplicate_path", "misplaced", "link", "special_file",
]  # fmt: skip


class ArchiveLimits(msgspec.Struct, frozen=True):
    """How much of an archive is taken."""

    packed_bytes: int
    unpacked_bytes: int
    """Of the whole tar: with headers, and with what is no part of a manifest."""
    members: int = ARCHIVE_MEMBERS_MAX
    files: int = MANIFEST_FILES_MAX
    """Of the manifest."""


class ArchiveRefused(Exception):
    """An archive that is none, is too large, or has in it what no manifest has."""

    def __init__(self, reason: RefusedReason, message: str, path: str = "") -> None:
        super().__init__(message)
        self.reason: RefusedReason = reason
        self.message = message
        self.path = path

    @property
    def lint_problem(self) -> LintProblem | None:
        """The same as a problem of lint, if it is one: links are."""
        return LintProblem("E018", self.message, self.path) if self.reason == "link" else None


def write_tar(files: Mapping[str, bytes]) -> bytes:
    """Files by path as a tar archive, sorted by the bytes of their paths."""
    pieces: list[bytes] = []
    for path in sorted(files, key=path_bytes):
        content = files[path]
        pieces += (format_header(path, len(content)), content, bytes(padding_of(len(content))))
    written = sum(map(len, pieces))
    pieces.append(bytes(tar_size(map(len, files.values())) - written))
    return b"".join(pieces)


def tar_size(sizes: Iterable[int]) -> int:
    """The length of the tar archive of files of these sizes."""
    members = sum(BLOCK_BYTES + size + padding_of(size) for size in sizes)
    return -(-(members + 2 * BLOCK_BYTES) // RECORD_BYTES) * RECORD_BYTES


def compress_tar(tar: bytes) -> bytes:
    """A tar archive in gzip."""
    packer = zlib.compressobj(_LEVEL, wbits=-zlib.MAX_WBITS)
    trailer = zlib.crc32(tar).to_bytes(4, "little") + (len(tar) & 0xFFFFFFFF).to_bytes(4, "little")
    return b"".join((_GZIP_HEADER, packer.compress(tar), packer.flush(), trailer))


def read_archive(packed: bytes, limits: ArchiveLimits) -> dict[str, bytes]:
    """The files of a manifest in an archive, by path.

    Files that are no part of a manifest are passed over; links and special files refuse the whole.
    So do files of a manifest that all lie elsewhere: who packed the directory instead of what is
    in it did not mean a manifest without files.
    """
    if len(packed) > limits.packed_bytes:
        raise ArchiveRefused("too_large", f"the archive has more than {limits.packed_bytes} bytes")
    try:
        return _Reading(packed, limits).files()
    except NotTar as problem:
        raise ArchiveRefused("malformed", str(problem)) from None


class _Unpacking:
    """Takes bytes out of gzip as they are asked for, up to a limit."""

    __slots__ = ("_ahead", "_fed", "_inflater", "_left", "_limit", "_packed")

    def __init__(self, packed: bytes, limit: int) -> None:
        self._packed = memoryview(packed)
        self._fed = 0
        self._inflater = zlib.decompressobj(_GZIP_ONLY)
        self._ahead = bytearray()
        self._limit = self._left = limit

    def take(self, size: int) -> bytes:
        """The next bytes; refuses an archive that has no more so many."""
        self._check(size)
        while len(self._ahead) < size:
            if not self._unpack():
                raise ArchiveRefused("truncated", "the archive ends too early")
        taken = bytes(memoryview(self._ahead)[:size])
        del self._ahead[:size]
        return taken

    def skip(self, size: int) -> None:
        """Pass over the next bytes, without holding them."""
        self._check(size)
        while size:
            step = min(size, _PIECE_BYTES)
            self.take(step)
            size -= step

    def finish(self) -> None:
        """Refuse an archive in which anything but zeroes follows."""
        while True:
            if self._ahead.strip(b"\0"):
                raise ArchiveRefused("trailing_data", "something follows the end of the archive")
            self._ahead.clear()
            if not self._unpack():
                break
        if not self._inflater.eof:
            raise ArchiveRefused("truncated", "the archive ends too early")
        # Writers to pipes fill up behind the gzip, too.
        if self._inflater.unused_data.strip(b"\0") or bytes(self._packed[self._fed :]).strip(b"\0"):
            raise ArchiveRefused("trailing_data", "something follows the end of the archive")

    def _check(self, size: int) -> None:
        """Refuse an archive with so many bytes more, before they are unpacked."""
        if size > len(self._ahead) + self._left:
            raise self._too_large()

    def _unpack(self) -> bool:
        """Unpack a piece; False if there is none."""
        inflater = self._inflater
        while not inflater.eof:
            piece: bytes | memoryview = inflater.unconsumed_tail
            if not piece:
                piece = self._packed[self._fed : self._fed + _PIECE_BYTES]
                self._fed += len(piece)
            try:
                # One byte more than is allowed tells that there is more.
                unpacked = inflater.decompress(piece, min(_PIECE_BYTES, self._left + 1))
            except zlib.error:
                raise ArchiveRefused("not_gzip", "the archive is no tar.gz, or damaged") from None
            if len(unpacked) > self._left:
                raise self._too_large()
            if unpacked:
                self._left -= len(unpacked)
                self._ahead += unpacked
                return True
            if not piece:
                return False
        return False

    def _too_large(self) -> ArchiveRefused:
        return ArchiveRefused("too_large", f"the archive unpacks to more than {self._limit} bytes")


class _Extension(msgspec.Struct):
    """What extended headers say of the member that follows."""

    name: bytes | None = None
    size: int | None = None


class _Reading:
    """Reads one archive, member by member."""

    __slots__ = ("_bytes", "_files", "_limits", "_members", "_misplaced")

    def __init__(self, packed: bytes, limits: ArchiveLimits) -> None:
        self._bytes = _Unpacking(packed, limits.unpacked_bytes)
        self._limits = limits
        self._members = 0
        self._files: dict[str, bytes] = {}
        self._misplaced = ""
        """A file that lies where no manifest has one; if there is one, one in a wrapper."""

    def files(self) -> dict[str, bytes]:
        extension: _Extension | None = None
        while (header := self._next_header()) is not None:
            if header.type == PAX_GLOBAL:
                self._pass_global(header)
            elif header.type in (PAX, GNU_LONG_NAME, GNU_LONG_LINK):
                extension = self._extend(extension or _Extension(), header)
            else:
                self._member(header, extension or _Extension())
                extension = None
        if extension is not None:
            raise NotTar("an extended header stands before nothing")
        self._bytes.finish()
        if self._misplaced and not self._files:
            raise ArchiveRefused("misplaced", _where_files_lie(self._misplaced), self._misplaced)
        return self._files

    def _next_header(self) -> TarHeader | None:
        """The header of the next member; None behind the last one."""
        block = self._bytes.take(BLOCK_BYTES)
        if block == ZERO_BLOCK:
            if self._bytes.take(BLOCK_BYTES) != ZERO_BLOCK:
                raise ArchiveRefused("trailing_data", "something follows the end of the archive")
            return None
        self._members += 1
        if self._members > self._limits.members:
            raise ArchiveRefused(
                "too_many_members", f"the archive has more than {self._limits.members} members"
            )
        return parse_header(block)

    def _pass_global(self, header: TarHeader) -> None:
        """Pass over what is said of all members, as versions of git do; of no use to us."""
        for keyword, _ in parse_pax(self._extension(header)):
            if keyword in (b"path", b"size"):
                raise NotTar("a header for all members says what can be true of one alone")

    def _extend(self, known: _Extension, header: TarHeader) -> _Extension:
        """What is known of the next member with one more extended header."""
        raw = self._extension(header)
        if header.type == GNU_LONG_NAME:
            known.name = raw.partition(b"\0")[0]
        elif header.type == PAX:
            for keyword, value in parse_pax(raw):
                if keyword.startswith(b"GNU.sparse"):
                    raise ArchiveRefused("special_file", "sparse files are not taken")
                if keyword == b"path":
                    known.name = value
                elif keyword == b"size":
                    known.size = parse_pax_size(value)
        return known

    def _extension(self, header: TarHeader) -> bytes:
        if header.size > ARCHIVE_EXTENSION_BYTES_MAX:
            raise NotTar(f"an extended header has more than {ARCHIVE_EXTENSION_BYTES_MAX} bytes")
        return self._content(header.size)

    def _member(self, header: TarHeader, extension: _Extension) -> None:
        """Take in a member that is a file of the manifest; pass over one that is not."""
        name = header.name if extension.name is None else extension.name
        size = header.size if extension.size is None else extension.size
        path = _safe_path(name)
        if header.type in LINKS:
            raise ArchiveRefused("link", "links are not taken", path)
        is_directory = header.type == DIRECTORY or (header.type in REGULAR and name.endswith(b"/"))
        if is_directory and not size:
            return
        if is_directory or header.type not in REGULAR:
            raise ArchiveRefused("special_file", "only files and directories are taken", path)
        if not is_kept(path):
            if is_misplaced(path) and not wrapper_of(self._misplaced):
                self._misplaced = path
            self._bytes.skip(size + padding_of(size))
            return
        if path in self._files:
            raise ArchiveRefused("duplicate_path", "the archive has this file twice", path)
        if len(self._files) >= self._limits.files:
            raise ArchiveRefused(
                "too_many_members", f"a manifest has at most {self._limits.files} files"
            )
        self._files[path] = self._content(size)

    def _content(self, size: int) -> bytes:
        content = self._bytes.take(size)
        self._bytes.skip(padding_of(size))
        return content


def _where_files_lie(misplaced: str) -> str:
    """Why an archive with this file holds none of a manifest."""
    if wrapper := wrapper_of(misplaced):
        return f"the files lie in the directory {wrapper}: pack what is in it, not the directory"
    return "no file lies at namespace.toml, flags/<key>.toml or segments/<key>.toml"


def _safe_path(name: bytes) -> str:
    """A path below the directory that was packed; refuses any other."""
    if len(name) > ARCHIVE_PATH_BYTES_MAX or b"\0" in name or not name:
        raise ArchiveRefused("unsafe_path", "the archive has a path that is none")
    path = name.decode("utf-8", "backslashreplace")
    parts = path.split("/")
    if path.startswith("/") or ".." in parts:
        raise ArchiveRefused("unsafe_path", "the archive has a path that leads out of it", path)
    return "/".join(part for part in parts if part not in ("", "."))
