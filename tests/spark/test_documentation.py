"""Everything that docs/SPARK.md shows, and what docs/FORMATS.md has for other tools, as pasted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipeline.compact import Sizes, compact
from support.pasted import blocks, programs, run, run_shell
from support.segment_store import Layout, SegmentStore

from .server_fixture import ServerFixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

SPARK, FORMATS = "docs/SPARK.md", "docs/FORMATS.md"


def test_the_page_on_spark(
    spark: SparkSession,
    shop: ServerFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In order, beside `data`, with this server's address and in this session."""
    changes = {"http://127.0.0.1:4000": shop.url, "/tmp/": f"{tmp_path}/"}
    (tmp_path / "data").symlink_to(shop.path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark}
    seen: dict[str, int] = {}
    try:
        for language, block in blocks(SPARK, changes):
            seen[language] = seen.get(language, 0) + 1
            match language:
                case "sh" if block.startswith(("pip ", "uv ")):
                    continue  # it is installed
                case "sh":
                    run_shell(block, tmp_path)
                case "sql":
                    for statement in filter(None, map(str.strip, block.split(";"))):
                        spark.sql(statement).collect()
                case "python":
                    if "segments(" in block:
                        shop.numbers("filler", 0, 600, pad=200)
                        shop.wait_sealed("orders", 1)
                    run(block, SPARK, names)
                case _:
                    raise AssertionError(f"nobody runs this: {block}")
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert seen["sh"] >= 2
    assert seen["sql"] >= 1
    assert seen["python"] >= 7
    assert "35" in capfd.readouterr().out
    assert [json.loads(row[6])["n"] for row in shop.rows("report")] == [0, 2, 4, 6, 8]
    for copy in ("orders-copy", "left", "right"):
        assert [row[6] for row in shop.rows(copy)] == [row[6] for row in shop.rows("orders")]


def test_programs_of_other_tools_count_right_after_a_compaction(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The files that it replaced are still there: no janitor ran."""
    import duckdb

    monkeypatch.chdir(tmp_path)
    shelf = SegmentStore(tmp_path / "data").fill(Layout(seed=4, segments=4, dead=0))
    shelf.seal({"bytes": [b"\xff\x00", b"\xfe"]}, media="application/octet-stream")
    compact(spark, shelf.place, Sizes(output_bytes=4000, run_min=2, run_bytes=1 << 20))
    files = f"{tmp_path}/data/objects/segments/*.parquet"
    ((in_the_folder,),) = duckdb.sql(f"select count(*) from '{files}'").fetchall()
    assert in_the_folder > len(shelf.all), "nothing was left behind"
    texts = {at for at in shelf.all if at[0] != "bytes"}
    shown = programs(FORMATS)
    assert len(shown) == 4
    for program in shown:
        names = run(program, FORMATS, {})
        said = capfd.readouterr().out
        assert "log-1" in said
        if "records" in names:  # the quick look
            assert len(names["records"]) == len(texts)
        elif "pandas" in program:
            assert len(names["rows"]) == len(shelf.all)
        elif "SparkSession" in program:
            assert names["rows"].count() == len(shelf.all)
        else:
            ((live,),) = duckdb.sql("select count(*) from live").fetchall()
            assert live == len(shelf.live())
