"""Connections live on the virtual loop of the fault tests: no sockets, no real time."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "faults"))
