"""Stores with segments but without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.segment_store import SegmentStore


@pytest.fixture
def shelf(tmp_path: Path) -> SegmentStore:
    return SegmentStore(tmp_path / "data")
