"""Durations and sizes of the configuration file: `7d`, `2Gi`."""

from __future__ import annotations

import re

_DURATION = re.compile(r"([0-9]{1,18})([smhdw])")
_SIZE = re.compile(r"([0-9]{1,18})(|K|Ki|M|Mi|G|Gi|T|Ti)")

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_UNITS_BYTES = {
    "": 1,
    "K": 10**3,
    "Ki": 1 << 10,
    "M": 10**6,
    "Mi": 1 << 20,
    "G": 10**9,
    "Gi": 1 << 30,
    "T": 10**12,
    "Ti": 1 << 40,
}


def parse_duration_ms(text: str) -> int | None:
    """A whole number and its unit, one of s m h d w, in milliseconds; None for anything else."""
    found = _DURATION.fullmatch(text)
    return None if found is None else int(found[1]) * _UNITS_MS[found[2]]


def parse_size_bytes(text: str) -> int | None:
    """A whole number and its unit, one of K Ki M Mi G Gi T Ti or none, in bytes; else None."""
    found = _SIZE.fullmatch(text)
    return None if found is None else int(found[1]) * _UNITS_BYTES[found[2]]
