"""Arrow in a process of ours that has no use for pandas."""

from __future__ import annotations

import sys


class _NoPandas:
    """Finds no pandas, wherever it is installed."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the server does without pandas", name=name)


def leave_pandas_out() -> None:
    """Have this process do without pandas, even where it is installed.

    Arrow loads it with the first array it makes of Python objects: half a second in which the
    interpreter is held again and again, and memory, for nothing.
    """
    sys.meta_path.insert(0, _NoPandas)
