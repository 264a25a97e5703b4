"""Naive models are shared with the property tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "properties"))

from rig import loop

__all__ = ["loop"]
