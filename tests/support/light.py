"""JVMs of child processes that start fast: drivers, masters, workers and executors alike."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

import headrace
from headrace.pipeline.java import find_java
from headrace.pipeline.session import class_archive

_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"


@cache
def _options() -> str:
    archive = class_archive(find_java())
    return f"{_FLAGS} -XX:SharedArchiveFile={archive}" if archive else _FLAGS


def environment(**more: str) -> dict[str, str]:
    """What to start a program with that uses Spark in whatever way."""
    return os.environ | {
        "JAVA_HOME": str(find_java().home),
        "JDK_JAVA_OPTIONS": _options(),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(headrace.__file__).parents[1]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **more,
    }
