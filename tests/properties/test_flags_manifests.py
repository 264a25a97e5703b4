"""Manifests, closures, deltas and archives against what they promise, whatever the files are."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.flags.archive import (
    ArchiveLimits,
    ArchiveRefused,
    compress_tar,
    read_archive,
    write_tar,
)
from headrace.flags.closure import SegmentGraph, closure_paths, hash_files
from headrace.flags.delta import Closure, DeltaEntry, Unverified, apply_delta, diff
from headrace.flags.evaluation import Definitions, evaluate_all
from headrace.flags.lint import lint_files
from headrace.flags.model import FlagDefinition, ParsedFile
from headrace.flags.parsing import parse_file
from headrace.flags.subscription import FlagSet, decode_subscription, encode_subscription
from headrace.flags.tree import NAMESPACE_PATH
from support import flag_trees
from support.flag_trees import Files, naive_closure

LIMITS = ArchiveLimits(1 << 20, 1 << 20)


def closure_of(files: Files, flags: FlagSet) -> Files:
    report, parsed = lint_files(files)
    assert report.errors == ()
    paths = closure_paths(SegmentGraph.of(parsed), NAMESPACE_PATH in files, flags)
    return {path: files[path] for path in paths}


def digests(files: Files) -> dict[str, bytes]:
    return {path: sha256(content).digest() for path, content in files.items()}


@given(flag_trees.trees(), flag_trees.flag_sets())
def test_every_closure_of_a_clean_manifest_is_clean(files: Files, flags: FlagSet) -> None:
    report, parsed = lint_files(files)
    assert report.errors == ()
    closure = closure_of(files, flags)
    assert set(closure) == naive_closure(files, flags)
    assert list(closure) == sorted(closure, key=str.encode)
    again, of_closure = lint_files(closure)
    assert again.errors == ()
    assert all(parsed[path] == of_closure[path] for path in closure)
    assert closure_of(closure, flags) == closure


def wire(old: Files, new: Files, flags: FlagSet) -> list[DeltaEntry]:
    """The delta between two versions, as it is sent."""
    before, after = closure_of(old, flags), closure_of(new, flags)
    changes = diff(
        Closure(1, digests(before), hash_files(before)),
        Closure(2, digests(after), hash_files(after)),
        old,
        new,
    )
    entries = []
    for change in changes:
        came = (before.get(change.path), after.get(change.path))
        in_both = change.path in old and change.path in new
        assert (
            change.op
            == {
                (False, True): "enter" if in_both else "added",
                (True, True): "modified",
                (True, False): "leave" if in_both else "removed",
            }[came[0] is not None, came[1] is not None]
        )
        if change.digest is None:
            entries.append(DeltaEntry(change.path, change.op))
        else:
            content = after[change.path]
            assert sha256(content).digest() == change.digest
            entries.append(
                DeltaEntry(change.path, change.op, change.digest.hex(), b64encode(content).decode())
            )
    return entries


@given(flag_trees.histories(), flag_trees.flag_sets())
def test_a_client_that_applies_deltas_holds_the_closure(
    versions: list[Files], flags: FlagSet
) -> None:
    held = closure_of(versions[0], flags)
    for old, new in pairwise(versions):
        entries = wire(old, new, flags)
        closure = closure_of(new, flags)
        assert bool(entries) == (held != closure)
        if entries:
            held = apply_delta(held, entries)
        assert held == closure


@given(flag_trees.histories(versions_max=2), flag_trees.flag_sets(), st.data())
def test_a_delta_that_was_changed_on_its_way_is_never_applied_wrongly(
    versions: list[Files], flags: FlagSet, data: st.DataObject
) -> None:
    old, new = versions[0], versions[-1]
    entries = wire(old, new, flags)
    held, wanted = closure_of(old, flags), closure_of(new, flags)
    if not entries:
        return
    index = data.draw(st.integers(0, len(entries) - 1))
    name = data.draw(st.sampled_from(["path", "op", "sha256", "content_b64", "drop", "double"]))
    if name == "drop":
        changed = entries[:index] + entries[index + 1 :]
    elif name == "double":
        changed = [*entries, entries[index]]
    else:
        others = ["", "enter", "leave", "removed", "flags/a.toml", "YQ==", "0" * 64]
        changed = list(entries)
        changed[index] = msgspec.structs.replace(
            entries[index], **{name: data.draw(st.sampled_from(others))}
        )
    try:
        applied = apply_delta(held, changed)
    except Unverified:
        return
    # What no check of a file could notice, the hash of the closure does.
    assert (hash_files(applied) == hash_files(wanted)) is (applied == wanted)


@given(flag_trees.trees())
def test_archives_hold_what_was_packed(files: Files) -> None:
    packed = compress_tar(write_tar(files))
    assert packed == compress_tar(write_tar(dict(sorted(files.items(), reverse=True))))
    assert read_archive(packed, LIMITS) == files


@given(flag_trees.trees(), st.data())
def test_damaged_archives_are_refused_or_whole(files: Files, data: st.DataObject) -> None:
    """Damage inside of gzip is found by its checksum, so the tar is damaged as well."""
    raw = bytearray(write_tar(files))
    is_packed = data.draw(st.booleans())
    if is_packed:
        raw = bytearray(compress_tar(raw))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "repeat"])):
            case "flip":
                raw[at] = data.draw(st.integers(0, 255))
            case "cut":
                del raw[at : at + data.draw(st.integers(1, 1024))]
            case "insert":
                raw[at:at] = data.draw(st.binary(max_size=600))
            case "repeat":
                raw[at:at] = raw[max(0, at - 512) : at]
        if not raw:
            return
    packed = bytes(raw) if is_packed else compress_tar(bytes(raw))
    try:
        found = read_archive(packed, LIMITS)
    except ArchiveRefused:
        return
    assert sum(map(len, found.values())) <= LIMITS.unpacked_bytes
    if is_packed:
        assert found == files
    lint_files(found)


@given(st.sampled_from(["namespace.toml", "flags/a.toml", "segments/s0.toml"]), st.data())
def test_any_bytes_are_a_file_or_have_problems(path: str, data: st.DataObject) -> None:
    files = data.draw(flag_trees.trees())
    text = bytearray(files.get(path, b'schema_version = "0.1"'))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from([b"", b'"', b"[", b"{", b"}", b".", b"=", b"\n", b"1", b"\xff", b"_"])
            | st.binary(max_size=4)
        )
    parsed = parse_file(path, bytes(text))
    assert (parsed.definition is None) == any(each.is_error for each in parsed.problems)
    packed = msgspec.msgpack.encode(parsed)
    assert msgspec.msgpack.decode(packed, type=ParsedFile) == parsed


@given(
    flag_trees.trees(),
    flag_trees.contexts(),
    st.none() | st.sampled_from(["prod", "stage", "_", "other"]),
    st.booleans(),
)
def test_whoever_asks_gets_a_variant_of_every_flag(
    files: Files, context: dict[str, Any], environment: str | None, testing: bool
) -> None:
    _, parsed = lint_files(files)
    definitions = Definitions.of(parsed.values())
    everything = evaluate_all(definitions, context, environment, testing)
    assert everything.keys() == definitions.flags.keys()
    for key, evaluation in everything.items():
        flag = definitions.flags[key]
        assert isinstance(flag, FlagDefinition)
        assert flag.variants[evaluation.variant] == evaluation.value
        closure = closure_of(files, FlagSet((key,)))
        narrow = Definitions.of(lint_files(closure)[1].values())
        assert evaluate_all(narrow, context, environment, testing) == {key: evaluation}


@settings(max_examples=30)
@given(flag_trees.flag_sets())
def test_subscriptions_go_through_urls(flags: FlagSet) -> None:
    assert decode_subscription(encode_subscription(flags)) == flags


def test_a_large_manifest_is_clean() -> None:
    files = flag_trees.large_tree(200, 50)
    report, _ = lint_files(files)
    assert report.errors == report.warnings == ()
    assert len(files) == 251
    assert "segments/segment-8.toml" in closure_of(files, FlagSet(("flag-9",)))
