"""The process of a server: what it takes of the environment it is started in."""

from __future__ import annotations

import pytest

from headrace.config.declarations import SETTINGS
from headrace_bench.process import without_settings


@pytest.mark.parametrize("name", [setting.name for setting in SETTINGS])
def test_no_setting_of_who_starts_it_reaches_a_server(name: str) -> None:
    assert without_settings({name: "1", "PATH": "/bin"}) == {"PATH": "/bin"}
