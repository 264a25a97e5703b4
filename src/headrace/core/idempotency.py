"""Idempotency keys: what an earlier append with the same key was given.

Remembered for as long as the window lasts.
"""

from __future__ import annotations

Keys = dict[str, tuple[int, int, int]]
"""key → (first seq, last seq, commit time), oldest first; commit times never fall."""


def find(keys: Keys | None, key: str, window_ms: int, now_ms: int) -> tuple[int, int] | None:
    """The seqs an append with this key was given, if that is still remembered."""
    if keys is None or (known := keys.get(key)) is None:
        return None
    first, last, at_ms = known
    return (first, last) if now_ms - at_ms <= window_ms else None


def remember(
    keys: Keys | None, key: str, first: int, last: int, at_ms: int, window_ms: int
) -> Keys:
    """The keys with this one added and those that have left the window removed."""
    held: Keys = {} if keys is None else keys
    held.pop(key, None)  # an expired namesake must not keep its old place in the order
    held[key] = (first, last, at_ms)
    while held:
        oldest = next(iter(held))
        if at_ms - held[oldest][2] <= window_ms:
            break
        del held[oldest]
    return held
