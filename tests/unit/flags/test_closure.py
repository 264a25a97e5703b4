"""Which files a closure has, and its hash: the vectors of the protocol, and larger ones of ours."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.flags.closure import SegmentGraph, closure_hash, closure_paths, hash_files, hash_row
from headrace.flags.lint import lint_files
from headrace.flags.subscription import EVERY_FLAG, FlagSet
from support import flag_trees

A = {"flags/a.toml": b"fa", "namespace.toml": b"ns", "segments/a.toml": b"sa"}
BUFFER_OF_A = bytes.fromhex(
    "0000000c 666c6167732f612e746f6d6c"
    "3097e26b7f3cbdb920765a6c3d2ba94985e465cccb0664c62cec43fdc7544670"
    "0000000e 6e616d6573706163652e746f6d6c"
    "7bfba6e0021f1fd1183dfefe60216f13140365788780f2a26fd8fc1f08b2aa2c"
    "0000000f 7365676d656e74732f612e746f6d6c"
    "4cf6829aa93728e8f3c97df913fb1bfa95fe5810e2933a05943f8312a98d9cf2"
)
EMPTY = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, EMPTY),
        (
            {"namespace.toml": b""},
            "sha256:abdaefb6ddddaa146d4b782076c8172ff58e8e88e8f1975d07667644dea8a70b",
        ),
        (A, "sha256:3a7b0d15ac047a3b6d125b08e50aaf1a1962e1320b907459b4cbffc99fe5af8b"),
        (
            {"segments/b.toml": b"sb", **A},
            "sha256:aaf38c4a01060bbd8113a7c77260fa84ed2f32a832600f70d53e6158a6a7c070",
        ),
    ],
)
def test_hash_vectors(files: dict[str, bytes], expected: str) -> None:
    assert hash_files(files) == expected


LARGER = json.loads(Path(__file__).with_name("closure_hashes.json").read_bytes())
"""Made with sha256sum and xxd, not with this package; contents are in hexadecimal digits."""


@pytest.mark.parametrize("vector", LARGER, ids=lambda vector: vector["name"])
def test_larger_hash_vectors(vector: dict[str, Any]) -> None:
    files = {path: bytes.fromhex(content) for path, content in vector["files"].items()}
    assert hash_files(files) == vector["hash"]


def test_the_buffer_of_a_hash_is_the_one_that_was_checked_by_hand() -> None:
    rows = [hash_row(path, sha256(content).digest()) for path, content in A.items()]
    assert b"".join(rows) == BUFFER_OF_A
    assert closure_hash(rows) == hash_files(dict(reversed(A.items())))


USED = SegmentGraph(
    flags={"a": ("staff",), "a-b": (), "b": ("beta", "gone")},
    segments={
        "staff": (), "beta": ("paying", "staff"), "paying": ("beta",), "orphan": ("staff",)
    },
)  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "paths"),
    [
        (FlagSet(("a",)), ["flags/a.toml", "segments/staff.toml"]),
        (FlagSet(("a", "missing")), ["flags/a.toml", "segments/staff.toml"]),
        (FlagSet(("missing",)), []),
        # A hyphen sorts before a dot: by their keys, these two would stand the other way round.
        (FlagSet(("a", "a-b")), ["flags/a-b.toml", "flags/a.toml", "segments/staff.toml"]),
        (
            FlagSet(("b",)),
            ["flags/b.toml", "segments/beta.toml", "segments/paying.toml", "segments/staff.toml"],
        ),
        (
            EVERY_FLAG,
            [
                "flags/a-b.toml", "flags/a.toml", "flags/b.toml", "segments/beta.toml",
                "segments/orphan.toml", "segments/paying.toml", "segments/staff.toml",
            ],
        ),
    ],
)  # fmt: skip
def test_files_of_a_closure(flags: FlagSet, paths: list[str]) -> None:
    assert closure_paths(USED, False, flags) == paths
    assert closure_paths(USED, True, flags) == sorted([*paths, "namespace.toml"])


def test_nothing_is_the_closure_of_nothing() -> None:
    assert closure_paths(SegmentGraph({}, {}), False, EVERY_FLAG) == []
    assert closure_paths(SegmentGraph({}, {}), True, FlagSet(("a",))) == ["namespace.toml"]


@given(flag_trees.trees(), st.data())
def test_flags_depend_on_the_segments_that_they_reach(
    tree: dict[str, bytes], data: st.DataObject
) -> None:
    used = SegmentGraph.of(lint_files(tree)[1])
    segments = (
        data.draw(st.sets(st.sampled_from(sorted(used.segments)))) if used.segments else set()
    )
    assert used.depending(segments) == {
        flag for flag in used.flags if not segments.isdisjoint(used.reachable([flag]))
    }


def test_segments_that_need_each_other_end_no_walk_too_late() -> None:
    used = SegmentGraph({"a": ("s",), "b": ("t",), "c": ()}, {"s": ("t",), "t": ("s", "gone")})
    assert used.depending(["s"]) == used.depending(["gone"]) == {"a", "b"}
    assert used.depending([]) == used.depending(["strange"]) == set()
