"""Every test has a virtual loop."""

from __future__ import annotations

from support.rig import loop

__all__ = ["loop"]
