"""Arrow without pandas, in a process of its own: this one may have loaded it long ago."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import pyarrow as pa
from headrace.formats.arrow import leave_pandas_out
leave_pandas_out()
assert pa.array(["a", None], pa.string()).to_pylist() == ["a", None]
assert "pandas" not in sys.modules
"""


def test_arrays_are_made_without_pandas_even_where_it_is_installed() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
