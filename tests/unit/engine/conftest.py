"""Whole engines live on the rig of the fault tests: no threads, no real disk, no real time."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "faults"))

from rig import loop

__all__ = ["loop"]
