"""Every test has a virtual loop."""

from __future__ import annotations

from support.engine_harness import loop

__all__ = ["loop"]
