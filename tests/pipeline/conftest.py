"""One Spark session for all tests, and stores with segments but without a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.pipeline.session import Target, Weight, session

from .shelf import Shelf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session("tests", Target(), Weight(sql=False, partitions=1)) as spark:
        yield spark


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "data")
