"""Whole engines live on the rig: no threads, no real disk, no real time."""

from __future__ import annotations

from support.engine_harness import loop

__all__ = ["loop"]
