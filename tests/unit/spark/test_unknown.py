"""What is not there is said, in one sentence: logs, stores and options that make no sense."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.client.credentials import has_profiles
from headrace.core.errors import Corrupt
from headrace.formats.manifest import StoreOwner
from headrace.spark.catalog import Catalog
from headrace.spark.options import OptionError, Where, parse_read
from headrace.storage import manifests
from support.segment_store import Layout, SegmentStore
from support.source_world import SourceWorld


@pytest.fixture
def world(tmp_path: Path) -> SourceWorld:
    world = SourceWorld(SegmentStore(tmp_path / "data").fill(Layout(logs=2, recreated=1, dead=0.3)))
    world.append("log-1", 5)
    world.append("fresh", 3)
    return world


@pytest.mark.parametrize("how", ["url", "url path", "path"])
@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("nosuch", "there is no log nosuch; there are "),
        ("log-0,nosuch", "there is no log nosuch; there are "),
        ("log1", r"there is no log log1; did you mean log-1"),
        ("web-*", "no log begins with web-"),
        ("log-*,web-*", "no log begins with web-"),
    ],
)
def test_an_unknown_log(world: SourceWorld, how: str, log: str, said: str) -> None:
    with pytest.raises(LookupError, match=f"^{said}"):
        world.batch(how, log=log)
    with pytest.raises(LookupError, match=f"^{said}"):
        world.available_now(how, None, log=log)


def test_a_log_that_is_gone(world: SourceWorld) -> None:
    world.shelf.mark({}, ["log-1"])
    for how in ("url", "url path", "path"):
        with pytest.raises(LookupError, match="there is no log log-1"):
            world.batch(how, log="log-1")


def test_known_logs_without_records_are_none_of_it(world: SourceWorld) -> None:
    world.shelf.mark({"log-0": [1, world.head("log-0")]})
    for how in ("url", "url path", "path"):
        assert world.batch(how, log="log-0") == []
        assert world.batch(how, log="log-*", from_seq=1000) == []
        assert world.batch(how, log="log-*", to_seq=0) == []
        assert [*filter(None, world.available_now(how, None, log="log-0,log-1", to_seq=0)[0])] == []


def test_without_a_server_only_what_is_sealed_is_known(world: SourceWorld) -> None:
    assert len(world.batch("url path", log="fresh")) == 3
    with pytest.raises(LookupError, match=r"no log fresh;.*only what is sealed is known"):
        world.batch("path", log="fresh")


def test_a_stream_waits_for_logs_with_a_prefix(world: SourceWorld) -> None:
    """But a name that nobody has is a mistake; and who does not wait is told."""
    options = {"log": "web-*", "columns": "log,seq"}
    with world.served():
        reader = world.stream("url", **options)
        start = reader.initialOffset()
        assert start == {"logs": {}}
        world.append("web-1", 2)
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert end["logs"]["web-1"]["seq"] == 2
        with pytest.raises(LookupError, match="there is no log web-2"):
            world.stream("url", log="web-2").initialOffset()


def test_a_named_log_that_went_away_ends_a_stream(world: SourceWorld) -> None:
    _, offset = world.available_now("url path", None, log="log-1")
    world.shelf.mark({}, ["log-1"])
    with pytest.raises(LookupError, match="there is no log log-1"):
        world.available_now("url path", offset, log="log-1")
    lenient, same = world.available_now("url path", offset, log="log-1", failOnDataLoss=False)
    assert (lenient, same) == ([], offset)
    assert world.available_now("url path", offset, log="log-*")[0] == [
        world.batch("url", log="log-0")
    ]


def test_a_path_that_is_none(world: SourceWorld, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for path in (empty, tmp_path / "nowhere"):
        with pytest.raises(LookupError, match=f"^path: there is no manifest in {path}"):
            world.batch("path", path=path, log="log-0")
        with pytest.raises(LookupError, match=f"^path: there is no manifest in {path}"):
            world.batch("url path", path=path, log="log-0")
        assert len(world.batch("url path", path=path, log="fresh")) == 3, "nothing is sealed yet"


def test_a_path_of_another_server(world: SourceWorld) -> None:
    """Its logs have the same ids, and other records."""
    owner = StoreOwner(directory="d1", start="s")
    update = lambda m: msgspec.structs.replace(m, owner=owner)  # noqa: E731
    manifests.update(world.shelf.objects, update)
    world.owner = "d2"
    with pytest.raises(LookupError, match=r"^path: .* is of another server than http"):
        world.batch("url path", log="log-0")
    world.owner = "d1"
    assert world.batch("url path", log="log-0") == world.batch("url", log="log-0")


def test_what_is_damaged_is_named(world: SourceWorld) -> None:
    segment = world.shelf.manifest.segments[0]
    whole = world.shelf.objects.get(segment.index)
    world.shelf.damage(segment.index, len(whole))
    with pytest.raises(Corrupt, match=segment.index):
        world.batch("path", log="log-0")
    world.shelf.objects.put(segment.index, whole)
    world.shelf.damage(segment.name, 1 << 20)
    for how in ("path", "url path"):
        with pytest.raises(Corrupt, match=segment.name):
            world.batch(how, log="log-1")
    world.shelf.remove(segment.name)
    with pytest.raises(Corrupt, match=f"{segment.name}.*not there"):
        world.batch("path", log="log-1")
    assert world.batch("url path", log="log-1"), "the server has it"
    shutil.rmtree(world.shelf.place.data_dir)


BASE = {"url": "http://127.0.0.1:1", "log": "a"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"from_seq": 7, "to_seq": 5}, "from_seq, 7, lies behind to_seq, 5"),
        ({"from_seq": 2, "to_seq": 0}, "from_seq, 2, lies behind to_seq, 0"),
        ({"from_seq": 0}, "from_seq is a whole number from 1 on"),
        ({"to_seq": -1}, "to_seq is a whole number from 0 on"),
        ({"from_ts": "2026-02-01", "to_ts": "2026-01-01"}, "from_ts lies behind to_ts"),
        ({"startingOffsets": "latest", "from_seq": 5}, "startingOffsets latest and from_seq"),
        ({"fromSeq": 5}, "there is no option fromSeq; it is from_seq"),
        ({"max_rows_per_trigger": 5}, "there is no option max_rows_per_trigger; it is max"),
        ({"logs": "a"}, "there is no option logs; it is log"),
        ({"log": "a,**"}, r"log: \*\*"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_read(BASE | {name: str(value) for name, value in options.items()})


def test_bounds_that_select_nothing_are_none_that_select_everything() -> None:
    assert parse_read(BASE | {"to_seq": "0"}).wanted.last == 0
    empty = parse_read(BASE | {"from_seq": "8", "to_seq": "7"}).wanted
    assert (empty.first, empty.last) == (8, 7)


def test_a_bucket_that_nobody_can_be_known_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("HOME", str(tmp_path))
    bucket = Catalog(Where(None, "s3://bucket/prefix", None, 0.0))
    with pytest.raises(OSError, match="path: s3://bucket/prefix cannot be read: no credentials, "):
        bucket.manifest()
    assert not has_profiles({}, tmp_path)
    (tmp_path / "mine").touch()
    assert has_profiles({"AWS_CONFIG_FILE": str(tmp_path / "mine")}, tmp_path)
