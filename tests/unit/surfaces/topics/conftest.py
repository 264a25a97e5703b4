"""Streams and sockets stand on the rig of the fault tests: a whole engine without real time."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "faults"))
