"""Stores with segments but without a server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .shelf import Shelf

# What search means is said there once.
sys.path.insert(0, str(Path(__file__).parents[1] / "properties"))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "data")
