"""Stores with segments but without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "data")
