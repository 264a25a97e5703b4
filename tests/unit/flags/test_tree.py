"""Which files of a directory are part of a manifest."""

from __future__ import annotations

import pytest

from headrace.flags.tree import FileKind, flag_path, is_kept, key_of, kind_of, segment_path


@pytest.mark.parametrize(
    ("path", "kind", "key"),
    [
        ("namespace.toml", FileKind.NAMESPACE, "namespace"),
        (flag_path("a"), FileKind.FLAG, "a"),
        (segment_path("a-b_c"), FileKind.SEGMENT, "a-b_c"),
        ("flags/namespace.toml", FileKind.FLAG, "namespace"),
        # Lint says what is wrong with these names; they are not left out in silence.
        ("flags/Not A Key.toml", FileKind.FLAG, "Not A Key"),
        ("segments/a.b.toml", FileKind.SEGMENT, "a.b"),
    ],
)
def test_files_of_a_manifest(path: str, kind: FileKind, key: str) -> None:
    assert kind_of(path) is kind
    assert is_kept(path)
    assert key_of(path) == key


@pytest.mark.parametrize(
    "path",
    [
        "", "README.md", "other.toml", ".namespace.toml", "flags", "flags/", "flags/.toml",
        "flags/.hidden.toml", "flags/a.json", "flags/a.toml.bak", "flags/sub/a.toml",
        "segments/sub/a.toml", "./namespace.toml", "/namespace.toml", "/flags/a.toml",
        "flags/../namespace.toml", "Flags/a.toml", "flagsx/a.toml", "a/flags/b.toml",
    ],
)  # fmt: skip
def test_files_that_are_no_part_of_it(path: str) -> None:
    assert kind_of(path) is None
    assert not is_kept(path)
