"""Which tests stay together when several processes run them (`make test`).

Tests that share something costly share a process: the Spark session, a conformance server, what a
module sets up. Sweeps, simulations and properties share nothing, and some take long: each is on its
own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
APART = {"faults", "simulation", "properties"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Say which group the test belongs to."""
    item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item: pytest.Item) -> str:
    if item.get_closest_marker("spark") or "spark" in getattr(item, "fixturenames", ()):
        return "spark"
    callspec = getattr(item, "callspec", None)
    scenario = callspec.params.get("scenario") if callspec is not None else None
    folder = item.path.relative_to(TESTS).parts[0]
    if folder in APART or (scenario is not None and scenario.case.own_server):
        return item.nodeid
    if scenario is not None:
        return " ".join(f"{name}={value}" for name, value in sorted(scenario.env.items()))
    return str(item.path)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name long and unreadable bytes by where they stand: both processes must find the same names,
    and what is compressed or masked differs from one to the other.
    """
    if isinstance(val, bytes) and not (
        len(val) <= 64 and val.isascii() and val.decode().isprintable()
    ):
        return argname
    return None
