"""What Python workers of Spark do for themselves, whoever's task they run."""

from __future__ import annotations

import gc

_frozen = False


def freeze_gc() -> None:
    """Keep what is loaded by now out of every later look for garbage.

    Spark has a worker look behind each of its tasks, and modules alone take 40 ms of that.
    """
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
