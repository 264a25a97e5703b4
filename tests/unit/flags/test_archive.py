"""Archives: the same bytes for the same files, and nothing in them that is not a manifest's."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from headrace.core.limits import ARCHIVE_EXTENSION_BYTES_MAX, ARCHIVE_PATH_BYTES_MAX
from headrace.flags.archive import (
    ArchiveLimits,
    ArchiveRefused,
    compress_tar,
    read_archive,
    tar_size,
    write_tar,
)
from headrace.flags.tar import NotTar, format_header, parse_header, parse_pax

FILES = {
    "flags/a.toml": b"x" * 700,
    "flags/a-b.toml": b"",
    "namespace.toml": b"n",
    "segments/s.toml": bytes(512),
}
LIMITS = ArchiveLimits(1 << 20, 4 << 20)
FLAG = "flags/a.toml"


def member(name: str, content: bytes = b"", **fields: object) -> Callable[[tarfile.TarFile], None]:
    def add(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        for field, value in fields.items():
            setattr(info, field, value)
        tar.addfile(info, io.BytesIO(content))

    return add


def tar_of(
    *members: Callable[[tarfile.TarFile], None], format: int = tarfile.USTAR_FORMAT
) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=format) as tar:
        for add in members:
            add(tar)
    return packed.getvalue()


def read(tar: bytes, limits: ArchiveLimits = LIMITS) -> dict[str, bytes]:
    return read_archive(compress_tar(tar), limits)


def reason(tar: bytes, limits: ArchiveLimits = LIMITS) -> str:
    with pytest.raises(ArchiveRefused) as refused:
        read(tar, limits)
    return refused.value.reason


def test_the_recipe_of_the_protocol_is_what_python_writes_too() -> None:
    ordered = sorted(FILES, key=str.encode)
    assert write_tar(FILES) == tar_of(*(member(path, FILES[path]) for path in ordered))
    assert write_tar({}) == tar_of() == bytes(10_240)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 8192, 8193, 10_240])
@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_the_size_of_an_archive_is_known_before_it_is_written(size: int, count: int) -> None:
    files = {f"flags/f{n}.toml": bytes(size) for n in range(count)}
    assert tar_size([size] * count) == len(write_tar(files))


def test_an_archive_depends_on_its_files_alone() -> None:
    packed = compress_tar(write_tar(FILES))
    assert packed == compress_tar(write_tar(dict(reversed(FILES.items()))))
    assert packed[:10] == bytes.fromhex("1f8b08000000000000ff")
    assert gzip.decompress(packed) == write_tar(FILES)
    assert read_archive(packed, LIMITS) == FILES


def test_a_path_that_ustar_does_not_hold_is_not_written() -> None:
    with pytest.raises(ValueError, match="too long"):
        write_tar({f"flags/{'a' * 100}.toml": b""})


def test_what_is_no_part_of_a_manifest_is_passed_over() -> None:
    tar = tar_of(
        member("./", type=tarfile.DIRTYPE),
        member("./flags/", type=tarfile.DIRTYPE),
        member("./flags/a.toml", b"a"),
        member("./flags/._a.toml", b"\0\1"),
        member("flags/sub/b.toml", b"b"),
        member("flags//b.toml", b"b"),
        member(".git/config", b"c"),
        member("README.md", b"r" * 2000),
        member("other.toml", b"o"),
        member("segments/s.json", b"{}"),
        member("namespace.toml", b"n"),
    )
    assert read(tar) == {"flags/a.toml": b"a", "flags/b.toml": b"b", "namespace.toml": b"n"}


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_other_programs(format: int) -> None:
    long = f"docs/{'x' * 90}/{'y' * 90}.md"
    tar = tar_of(
        member(FLAG, b"a", mtime=1.5, uname="käthe", uid=1000),
        member(long, b"l"),
        member("segments/s.toml", b"s"),
        format=format,
    )
    assert read(tar) == {"flags/a.toml": b"a", "segments/s.toml": b"s"}


def raw_header(name: bytes, magic: bytes, prefix: bytes) -> bytes:
    block = bytearray(format_header("x", 0))
    block[:100] = name.ljust(100, b"\0")
    block[257:265] = magic
    block[345:500] = prefix.ljust(155, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def test_the_prefix_of_a_name_is_one_in_ustar_alone() -> None:
    end = bytes(1024)
    assert read(raw_header(b"a.toml", b"ustar\x0000", b"flags") + end) == {FLAG: b""}
    # What is there in headers of GNU are times, and nothing at all in older ones.
    assert read(raw_header(b"flags/a.toml", b"ustar  \0", b"0123") + end) == {FLAG: b""}
    assert read(raw_header(b"flags/a.toml", bytes(8), b"junk") + end) == {FLAG: b""}


def test_long_names_are_read_as_they_are() -> None:
    name = f"flags/{'a' * 200}.toml"
    for format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert read(tar_of(member(name, b"a"), format=format)) == {name: b"a"}


def pax(records: bytes, type: bytes = tarfile.XHDTYPE) -> Callable[[tarfile.TarFile], None]:
    return member("pax", records, type=type)


def record(keyword: str, value: str) -> bytes:
    body = f" {keyword}={value}\n".encode()
    length = len(body)
    while len(str(length)) + len(body) != length:
        length = len(str(length)) + len(body)
    return str(length).encode() + body


def test_extended_headers_say_name_and_size() -> None:
    named = record("path", FLAG) + record("comment", "a=b\nc")
    assert read(tar_of(pax(named), member("x", b"a"))) == {FLAG: b"a"}
    with_comment = tar_of(pax(record("comment", "0" * 40), tarfile.XGLTYPE), member(FLAG, b"a"))
    assert read(with_comment) == {FLAG: b"a"}
    assert read(tar_of(pax(record("comment", "x"), tarfile.XGLTYPE))) == {}
    sized = tar_of(pax(record("size", "3")), member(FLAG, b"abc"))
    assert read(sized) == {FLAG: b"abc"}


@pytest.mark.parametrize(
    "records",
    [
        b"x", b"0 a=b\n", b"6 a=b", b"7 a=b\n", b"5 a=b\n", b" a=b\n", b"6 ab\n\n", b"-6 a=b\n",
        b"99999999999 a=b\n", b"4 =\n", record("size", "-1"), record("size", "x"),
        record("size", "9" * 30), "٦ a=b\n".encode(),
    ],
)  # fmt: skip
def test_malformed_extended_headers(records: bytes) -> None:
    assert reason(tar_of(pax(records), member(FLAG, b"a"))) == "malformed"


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([member("flags/l.toml", type=tarfile.SYMTYPE, linkname=FLAG)], "link"),
        ([member("README", type=tarfile.SYMTYPE, linkname="/etc/passwd")], "link"),
        ([member("flags/l.toml", type=tarfile.LNKTYPE, linkname=FLAG)], "link"),
        ([member("flags/d.toml", type=tarfile.CHRTYPE)], "special_file"),
        ([member("d", type=tarfile.BLKTYPE)], "special_file"),
        ([member("d", type=tarfile.FIFOTYPE)], "special_file"),
        ([member("d", type=tarfile.CONTTYPE)], "special_file"),
        ([member("d", type=tarfile.GNUTYPE_SPARSE)], "special_file"),
        ([member("d", type=b"Z")], "special_file"),
        ([member("flags/", b"data", type=tarfile.DIRTYPE)], "special_file"),
        ([member("flags/", b"data")], "special_file"),
        ([pax(record("GNU.sparse.major", "1")), member(FLAG)], "special_file"),
        ([member("/flags/a.toml")], "unsafe_path"),
        ([member("../flags/a.toml")], "unsafe_path"),
        ([member("flags/../a.toml")], "unsafe_path"),
        ([member("README/..")], "unsafe_path"),
        ([member("")], "unsafe_path"),
        ([pax(record("path", "")), member(FLAG)], "unsafe_path"),
        ([pax(record("path", "/x")), member(FLAG)], "unsafe_path"),
        ([pax(record("path", "flags/a.toml\0x")), member(FLAG)], "unsafe_path"),
        ([pax(record("path", "a" * (ARCHIVE_PATH_BYTES_MAX + 1))), member(FLAG)], "unsafe_path"),
        ([member(FLAG), member(FLAG)], "duplicate_path"),
        ([member(FLAG), member("./flags//a.toml")], "duplicate_path"),
        ([member(FLAG), pax(record("path", FLAG)), member("x")], "duplicate_path"),
        ([member(FLAG), pax(record("path", "x"))], "malformed"),
        ([pax(record("path", FLAG), tarfile.XGLTYPE), member("x")], "malformed"),
        ([pax(record("comment", "x" * ARCHIVE_EXTENSION_BYTES_MAX)), member("x")], "malformed"),
        ([pax(record("size", str(1 << 40))), member(FLAG)], "too_large"),
        ([pax(record("size", str(1 << 40))), member("ignored")], "too_large"),
    ],
)
def test_members_that_no_manifest_has(
    members: list[Callable[[tarfile.TarFile], None]], why: str
) -> None:
    assert reason(tar_of(*members)) == why


def test_a_link_is_a_problem_of_lint() -> None:
    with pytest.raises(ArchiveRefused) as refused:
        read(tar_of(member("flags/l.toml", type=tarfile.SYMTYPE, linkname=FLAG)))
    problem = refused.value.lint_problem
    assert problem is not None
    assert (problem.code, problem.path) == ("E018", "flags/l.toml")
    with pytest.raises(ArchiveRefused) as refused:
        read(tar_of(member("x", type=tarfile.FIFOTYPE)))
    assert refused.value.lint_problem is None


def test_names_that_are_no_text_are_left_to_lint() -> None:
    tar = tar_of(member("flags/ä.toml")).replace("ä".encode(), b"\xff\xfe")
    raw = bytearray(tar)
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    assert read(bytes(raw)) == {"flags/\\xff\\xfe.toml": b""}


def test_damaged_headers() -> None:
    tar = bytearray(tar_of(member(FLAG, b"a")))
    for at in (0, 124, 148, 156, 300):
        damaged = bytearray(tar)
        damaged[at] ^= 1
        assert reason(bytes(damaged)) == "malformed"
    with pytest.raises(NotTar):
        list(parse_pax(b"garbage"))
    huge = bytearray(tar)
    huge[124:136] = b"\x80" + bytes(10) + b"\x01"
    huge[148:156] = b" " * 8
    huge[148:156] = b"%06o\0 " % sum(huge[:512])
    with pytest.raises(NotTar):
        parse_header(bytes(huge[:512]))


def test_headers_summed_as_signed_bytes_are_taken() -> None:
    raw = bytearray(format_header("x", 0))
    raw[:2] = b"\xc3\xa4"
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % (sum(raw) - 512)
    assert parse_header(bytes(raw)).name == "ä".encode()


WHOLE = compress_tar(write_tar(FILES))


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (b"", "truncated"),
        (b"\x1f", "truncated"),
        (b"not gzip at all", "not_gzip"),
        (write_tar(FILES), "not_gzip"),
        (zlib.compress(write_tar(FILES)), "not_gzip"),
        (WHOLE[:-1], "truncated"),
        (WHOLE[:20], "truncated"),
        (WHOLE[:-1] + b"\1", "not_gzip"),
        (WHOLE + b"x", "trailing_data"),
        (WHOLE + bytes(512) + b"x", "trailing_data"),
        (WHOLE + bytes(200_000) + b"x", "trailing_data"),
        (WHOLE + WHOLE, "trailing_data"),
        (gzip.compress(b""), "truncated"),
        (gzip.compress(bytes(512)), "truncated"),
        (gzip.compress(write_tar(FILES)[:-9000]), "truncated"),
        (gzip.compress(bytes(512) + b"x" * 512), "trailing_data"),
        (gzip.compress(bytes(1024) + b"x"), "trailing_data"),
        (gzip.compress(bytes(200_000) + b"x"), "trailing_data"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_archive(packed: bytes, why: str) -> None:
    with pytest.raises(ArchiveRefused) as refused:
        read_archive(packed, LIMITS)
    assert refused.value.reason == why


@pytest.mark.parametrize("zeroes", [1, 512, 200_000])
def test_zeroes_behind_the_gzip_as_writers_to_pipes_fill_up(zeroes: int) -> None:
    packed = WHOLE + bytes(zeroes)
    assert read_archive(packed, LIMITS) == FILES
    with pytest.raises(ArchiveRefused) as refused:
        read_archive(packed, ArchiveLimits(len(packed) - 1, LIMITS.unpacked_bytes))
    assert refused.value.reason == "too_large"


def test_what_programs_of_other_systems_add() -> None:
    apple = record("LIBARCHIVE.xattr.com.apple.provenance", "AQIA=") + record("mtime", "1.5")
    tar = tar_of(
        member("./", type=tarfile.DIRTYPE),
        member("./._.", b"attributes"),
        member("./._flags", b"attributes"),
        pax(apple),
        member("./flags/", type=tarfile.DIRTYPE),
        pax(apple),
        member("./flags/._a.toml", b"\0\5\x16\7"),
        pax(apple),
        member("./flags/a.toml", b"a"),
        member("./flags/.DS_Store", b"\0"),
    )
    assert read(tar) == {FLAG: b"a"}


@pytest.mark.parametrize(
    ("paths", "told", "directory"),
    [
        (["w/namespace.toml"], "w/namespace.toml", "directory w:"),
        (["w/README", "./w//flags/a.toml", "w/segments/s.toml"], "w/flags/a.toml", "directory w:"),
        (["w/other.toml", "w/flags/a.toml"], "w/flags/a.toml", "directory w:"),
        (["v/w/flags/namespace.toml"], "v/w/flags/namespace.toml", "directory v/w:"),
        (["other.toml"], "other.toml", "no file lies at"),
        (["flags/sub/a.toml"], "flags/sub/a.toml", "no file lies at"),
    ],
)
def test_files_of_a_manifest_that_all_lie_elsewhere(
    paths: list[str], told: str, directory: str
) -> None:
    with pytest.raises(ArchiveRefused) as refused:
        read(tar_of(*map(member, paths)))
    assert (refused.value.reason, refused.value.path) == ("misplaced", told)
    assert directory in refused.value.message
    assert read(tar_of(*map(member, paths), member(FLAG, b"a"))) == {FLAG: b"a"}


def test_an_archive_without_files_of_a_manifest_is_an_empty_one() -> None:
    for paths in (
        [],
        ["README.md"],
        [".a.toml", "flags/.a.toml", ".git/flags/a.toml", "w/._a.toml"],
    ):
        assert read(tar_of(*map(member, paths))) == {}


def test_a_whole_archive_may_end_without_filling() -> None:
    packed = gzip.compress(bytes(1024))
    assert read_archive(packed, ArchiveLimits(len(packed), 1024)) == {}


def test_limits_are_kept_to_the_byte() -> None:
    tar = write_tar(FILES)
    packed = compress_tar(tar)
    assert read_archive(packed, ArchiveLimits(len(packed), len(tar))) == FILES
    for limits in (
        ArchiveLimits(len(packed) - 1, len(tar)),
        ArchiveLimits(len(packed), len(tar) - 1),
    ):
        with pytest.raises(ArchiveRefused) as refused:
            read_archive(packed, limits)
        assert refused.value.reason == "too_large"
    assert read(tar, ArchiveLimits(len(packed), len(tar), members=4, files=4)) == FILES
    assert reason(tar, ArchiveLimits(1 << 20, 1 << 20, files=3)) == "too_many_members"
    assert reason(tar, ArchiveLimits(1 << 20, 1 << 20, members=3)) == "too_many_members"


def bomb(header: bytes, zeroes: int) -> bytes:
    """A member of zeroes, packed a thousand times smaller."""
    packer = zlib.compressobj(9, wbits=31)
    pieces = [packer.compress(header)]
    pieces += [packer.compress(bytes(1 << 20)) for _ in range(zeroes >> 20)]
    return b"".join((*pieces, packer.flush()))


@pytest.mark.parametrize("name", [FLAG, "ignored"])
@pytest.mark.parametrize("claimed", [64 << 20, 2 << 20])
def test_a_bomb_takes_no_more_memory_than_the_limits_allow(name: str, claimed: int) -> None:
    packed = bomb(format_header(name, claimed), 64 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveRefused):
            read_archive(packed, LIMITS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * LIMITS.unpacked_bytes
