"""A follower that is tied to whoever started it may also end by itself."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading
from headrace.pipeline.follow import stop_with_input

stop_with_input(threading.Event())
sys.exit(3)
"""


def test_it_ends_while_its_input_is_open() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.wait(60) == 3
        assert process.stderr is not None
        assert process.stderr.read() == b""
