"""Feeds, black box over HTTP: every case of `feeds/*.toml` is one test."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cases import Scenario
from .playing import parameters, play
from .servers import SharedServer


@pytest.mark.parametrize("scenario", parameters(Path(__file__).parent / "feeds"))
def test_feeds(scenario: Scenario, shared_server: SharedServer, tmp_path: Path) -> None:
    play(scenario, shared_server, tmp_path / "data")
