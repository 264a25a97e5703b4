"""What every system test gets: a data directory of its own and servers that end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .launching import Servers


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Where a server of this test keeps its data; not made yet."""
    return tmp_path / "data"


@pytest.fixture
def new_server(data_dir: Path) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(data_dir, stack)
