"""Tables and amounts as people read them."""

from __future__ import annotations

from collections.abc import Sequence


def install(extra: str) -> str:
    """How to get the packages of an extra, wherever this one came from."""
    return f"`pip install 'headrace[{extra}]'`, in a clone `pip install -e '.[{extra}]'`"


def table(titles: str, rows: Sequence[tuple[object, ...]]) -> list[str]:
    """Aligned columns: numbers to the right, text to the left."""
    cells = [titles.split(), *([str(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [isinstance(value, int) for value in rows[0]] if rows else [False] * len(widths)
    return [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in cells
    ]


def count(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(size_bytes: int) -> str:
    """Bytes in the unit that fits."""
    amount, units = float(size_bytes), ["KiB", "MiB", "GiB", "TiB"]
    if size_bytes < 1024:
        return count(size_bytes, "byte")
    while amount >= 1024 and units:
        amount, unit = amount / 1024, units.pop(0)
    return f"{amount:.1f} {unit}"
