"""Files and archives of manifests that are nearly right: never a failure, and never more than the
limits allow.
"""

from __future__ import annotations

import io
import tarfile
import tomllib
from collections.abc import Iterator
from random import Random

import pytest

from headrace.core.limits import TOML_DEPTH_MAX, TOML_KEY_PARTS_MAX
from headrace.flags.archive import ArchiveLimits, ArchiveRefused, compress_tar, read_archive
from headrace.flags.lint import lint_files
from headrace.flags.toml import NotToml, read_toml
from headrace.flags.tree import is_kept
from support.flag_trees import ManifestMaker, contents

LIMITS = ArchiveLimits(256 << 10, 256 << 10, members=64, files=32)
SEEDS = range(200)
LONG = f"{'x' * 90}/{'y' * 90}"

_INSIDE = ("[", "]", "{", "}", ".", "#", "=", ",", " ", "a.b.c", "'", '"', "''", '""')
_MULTILINE = (*_INSIDE, "\n")
_QUOTE, _ESCAPED = '"', "\\\\"


class TomlMaker:
    """Makes TOML of which it is known how deep and how long its keys are.

    Texts are full of what would count outside of them, and end in every way that they may end.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.depth = 0
        """Of the deepest value."""
        self.parts = 0
        """Of the longest key."""

    def document(self) -> str:
        lines = []
        for n in range(self.random.randint(1, 6)):
            match self.random.randrange(4):
                case 0:
                    lines.append(f"# {self._soup(_INSIDE)}")
                case 1:
                    lines.append(f"[[{self._key(f't{n}')}]]")
                    self.depth = max(self.depth, 2)
                case _:
                    lines.append(f"{self._key(f'k{n}')} = {self._value(0)} # {self._soup(_INSIDE)}")
        return "\n".join(lines)

    def _soup(self, pieces: tuple[str, ...]) -> str:
        return "".join(self.random.choices(pieces, k=self.random.randrange(8)))

    def _key(self, first: str) -> str:
        """A key that no other begins like."""
        count = self.random.choice([1, 1, 2, 3, TOML_KEY_PARTS_MAX, TOML_KEY_PARTS_MAX + 1])
        self.parts = max(self.parts, count)
        others = ("a", '"."', "'[.'", '"\\"."', "-", "1")
        parts = [first, *self.random.choices(others, k=count - 1)]
        return self.random.choice([".", " . "]).join(parts)

    def _value(self, depth: int) -> str:
        self.depth = max(self.depth, depth)
        if self.random.random() < 0.02:
            more = self.random.choice([TOML_DEPTH_MAX, TOML_DEPTH_MAX + 1]) - depth
            self.depth = max(self.depth, depth + more)
            return "[" * more + "]" * more
        match self.random.randrange(9):
            case 0 if depth < 4:
                inner = ", ".join(self._value(depth + 1) for _ in range(self.random.randrange(3)))
                self.depth = max(self.depth, depth + 1)
                return f"[{inner} {self._comment()}]"
            case 1 if depth < 4:
                inner = ", ".join(
                    f"{self._key(f'm{n}')} = {self._value(depth + 1)}"
                    for n in range(self.random.randrange(3))
                )
                self.depth = max(self.depth, depth + 1)
                return f"{{{inner}}}"
            case 2:
                text = self._soup(_INSIDE).replace("'", "")
                return f"'{text}'"
            case 3:
                text = self._soup(_INSIDE).replace('"', '\\"')
                return f'"{text}{self.random.choice(["", _ESCAPED])}"'
            case 4:
                text = _thinned(self._soup(_MULTILINE), "'") + self._quotes("'")
                return f"'''{text}'''"
            case 5:
                text = _thinned(self._soup(_MULTILINE), '"') + self.random.choice(["", '\\"'])
                return f'"""{text}{self._quotes(_QUOTE)}"""'
            case _:
                return self.random.choice(["1", "1.5", "-0.5e-3", "true", "1979-05-27T07:32:00.5Z"])

    def _comment(self) -> str:
        return self.random.choice(["", f"# {self._soup(_INSIDE)}\n"])

    def _quotes(self, quote: str) -> str:
        """What may stand before the end of a text of several lines."""
        return quote * self.random.randrange(3)


def _thinned(text: str, quote: str) -> str:
    """A text in which quotes stand alone, and not at its ends."""
    while quote * 2 in text:
        text = text.replace(quote * 2, quote)
    return f" {text} "


def judge_toml(seed: int) -> bool:
    """Whether this TOML is taken, which is what it should be."""
    maker = TomlMaker(seed)
    text = maker.document()
    tomllib.loads(text)
    too_much = maker.depth > TOML_DEPTH_MAX or maker.parts > TOML_KEY_PARTS_MAX
    try:
        read_toml(text.encode())
        taken = True
    except NotToml:
        taken = False
    assert taken is not too_much, text
    return taken


def _archive(random: Random) -> bytes:
    """A tar archive of a manifest with members that it should not have."""
    made = io.BytesIO()
    files = contents(ManifestMaker(random.randrange(1 << 32)).tree())
    with tarfile.open(fileobj=made, mode="w", format=random.randrange(3)) as tar:
        for path, content in files.items():
            if random.random() < 0.2:
                path = random.choice([f"./{path}", f"/{path}", f"x/{path}", f"../{path}", LONG])
            info = tarfile.TarInfo(path)
            info.size = len(content)
            if random.random() < 0.05:
                info.type = random.choice([b"1", b"2", b"3", b"5", b"6", b"7", b"S", b"x", b"L"])
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


def _damage(random: Random, raw: bytearray) -> None:
    for _ in range(random.randrange(4)):
        at = random.randrange(len(raw))
        match random.randrange(4):
            case 0:
                raw[at] = random.randrange(256)
            case 1:
                del raw[at : at + random.randrange(1, 1024)]
            case 2:
                raw[at:at] = random.randbytes(random.randrange(600))
            case 3:
                raw[at : at + 12] = random.choice([b"7" * 12, b"\x80" + bytes(11), b"0" * 12])
        if not raw:
            raw.append(0)


def judge_archive(seed: int) -> bool:
    """Whether this archive is taken; nothing in it is then that should not be."""
    random = Random(seed)
    raw = bytearray(_archive(random))
    _damage(random, raw)
    packed = bytearray(compress_tar(bytes(raw)))
    if random.random() < 0.3:
        _damage(random, packed)
    try:
        files = read_archive(bytes(packed), LIMITS)
    except ArchiveRefused:
        return False
    assert len(files) <= LIMITS.files
    assert sum(map(len, files.values())) <= LIMITS.unpacked_bytes
    assert all(map(is_kept, files))
    lint_files(files)
    return True


def test_toml_is_judged_as_it_is_parsed() -> None:
    assert {judge_toml(seed) for seed in SEEDS} == {True, False}


def test_nearly_archives() -> None:
    assert {judge_archive(seed) for seed in SEEDS} == {True, False}


@pytest.mark.soak
def test_nearly_manifests_for_long(fresh_seeds: Iterator[int]) -> None:
    for seed in fresh_seeds:
        judge_toml(seed)
        judge_archive(seed)
