"""Fuzzers use the connections of the unit tests, in memory and without real time."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
for folder in ("faults", "unit/web"):
    sys.path.insert(0, str(TESTS / folder))
