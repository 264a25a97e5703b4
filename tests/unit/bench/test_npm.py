from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headrace_bench.peers import npm


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    return tmp_path


def install(package: str, version: str) -> None:
    folder = npm.find_packages() / "node_modules" / package
    folder.mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"version": version}))


def test_packages_are_looked_for_where_the_command_puts_them(cache: Path) -> None:
    command = npm.format_install("bullmq@6", "ioredis@5")
    assert command == f"npm install --prefix {cache}/headrace/bench-peers bullmq@6 ioredis@5"
    install("bullmq", "6.7.0")
    assert npm.is_installed("bullmq")
    assert npm.describe("bullmq") == "6.7.0"


def test_one_missing_package_is_enough_to_be_missing() -> None:
    install("bullmq", "6.7.0")
    assert not npm.is_installed("bullmq", "ioredis")
    assert npm.describe("ioredis") == "not installed"


def test_without_node_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install("bullmq", "6.7.0")
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert not npm.is_installed("bullmq")
    assert npm.format_install("bullmq@6").startswith("apt-get install nodejs npm")
