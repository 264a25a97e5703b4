"""Java is found where it may be, and what is missing is said in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline import java
from headrace.pipeline.errors import CannotRun, NoSpark
from headrace.pipeline.java import Java, find_java
from headrace.pipeline.session import scratch_folder


def _install(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture(autouse=True)
def _no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("1.8.0_402", 8)]
)
def test_versions(version: str, major: int) -> None:
    assert Java(Path("/x"), version).major == major


def test_the_configured_one_comes_first(tmp_path: Path) -> None:
    chosen = _install(tmp_path / "chosen", "21.0.1")
    other = _install(tmp_path / "other", "17.0.1")
    environ = {"JAVA_HOME": str(chosen), "PATH": str(other / "bin")}
    assert find_java(environ) == Java(chosen, "21.0.1")
    assert find_java({"PATH": str(other / "bin")}) == Java(other.resolve(), "17.0.1")


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = _install(tmp_path / "old", "1.8.0_402")
    new = _install(tmp_path / "new", "17.0.1")
    environ = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert find_java(environ).home == new.resolve()


def test_one_that_says_its_version_itself(tmp_path: Path) -> None:
    home = _install(tmp_path / "mute", "17")
    (home / "release").unlink()
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"22.0.1\"' >&2\n")
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}) == Java(home, "22.0.1")


def test_what_is_missing_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoSpark, match="none was found: install Java 17 or newer"):
        find_java({"PATH": str(tmp_path)})
    old = _install(tmp_path / "old", "11.0.2")
    with pytest.raises(NoSpark, match=r"Java 11\.0\.2 in .* is too old for Spark"):
        find_java({"PATH": str(old / "bin")})


def test_a_user_without_a_home_is_told_which_variable_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    with pytest.raises(CannotRun, match="XDG_CACHE_HOME"), scratch_folder():
        pass
