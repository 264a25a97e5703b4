"""One surface writes, another reads: every case of this folder's files is one test."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.cases import Scenario
from conformance.playing import parameters, play
from conformance.servers import SharedServer


@pytest.mark.parametrize("scenario", parameters(Path(__file__).parent))
def test_crossing(scenario: Scenario, shared_server: SharedServer, tmp_path: Path) -> None:
    play(scenario, shared_server, tmp_path / "data")
