"""Peers that run in Node: where their packages are, and how to get them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

NODE = "node"


def find_packages() -> Path:
    """Outside every repository and kept, so that only the first run needs the network."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "headrace" / "bench-peers"


def is_installed(*packages: str) -> bool:
    return shutil.which(NODE) is not None and all(
        _manifest(package).exists() for package in packages
    )


def format_install(*packages: str) -> str:
    """The command that installs the packages (each as `name@version`) where they are found."""
    command = f"npm install --prefix {find_packages()} {' '.join(packages)}"
    return command if shutil.which(NODE) else f"apt-get install nodejs npm; {command}"


def describe(package: str) -> str:
    """The version that is installed, for the report."""
    if not is_installed(package):
        return "not installed"
    version: str = json.loads(_manifest(package).read_text())["version"]
    return version


def _manifest(package: str) -> Path:
    return find_packages() / "node_modules" / package / "package.json"
