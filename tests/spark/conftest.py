"""A real server with a little of everything in it, for one Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_bench.process import ServerProcess

from .server_fixture import ServerFixture

SEAL_BYTES = 64 << 10
ROW_GROUP_ROWS = 100


@pytest.fixture(scope="session")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Seals often, so that a few thousand records lie in several segments, and each log in several
    row groups of one, as it does where there are millions.
    """
    folder = tmp_path_factory.mktemp("spark")
    data_dir = folder / "data"
    (folder / "sitecustomize.py").write_text(
        f"from headrace.core import limits\nlimits.ROW_GROUP_ROWS = {ROW_GROUP_ROWS}\n"
    )
    env = {"HEADRACE_SEAL_BYTES": str(SEAL_BYTES), "PYTHONPATH": str(folder)}
    with ServerProcess(data_dir, env=env) as server:
        yield server


@pytest.fixture(scope="session")
def shop(process: ServerProcess) -> ServerFixture:
    return ServerFixture(process)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
