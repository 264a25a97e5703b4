"""wrk, a load generator that others wrote: it costs far less than a request does any server."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

from headrace_bench.errors import BenchError

PROGRAM = "wrk"
INSTALL = "apt-get install wrk"
MISSING = f"{PROGRAM} not found, so its scenario is left out; to run it: `{INSTALL}`."
_SCRIPT = """\
local requests = {%s}
local last = 0
request = function()
  last = last %% #requests + 1
  return requests[last]
end
"""
_RATE = re.compile(r"^Requests/sec:\s+([\d.]+)$", re.MULTILINE)
_FAILURES = re.compile(r"^\s*(Socket errors|Non-2xx or 3xx responses): .*$", re.MULTILINE)
_GRACE_S = 30


def is_installed() -> bool:
    return shutil.which(PROGRAM) is not None


def request_rate(
    port: int, connections: int, requests: Sequence[bytes], *, warmup_s: float, window_s: float
) -> float:
    """Requests a second that were answered; any failed one is a failure."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        # What JSON escapes in ASCII, Lua reads alike.
        script.write(
            _SCRIPT % ",".join(json.dumps(request.decode("ascii")) for request in requests)
        )
        script.flush()
        _run(port, connections, script.name, warmup_s)
        return parse_rate(_run(port, connections, script.name, window_s))


def _run(port: int, connections: int, script: str, seconds: float) -> str:
    whole_s = math.ceil(seconds)  # it knows no parts of seconds
    command = [PROGRAM, "-t", "1", "-c", str(connections), "-d", str(whole_s), "-s", script]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{port}"],
        capture_output=True,
        text=True,
        timeout=whole_s + _GRACE_S,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"{PROGRAM} failed: {done.stderr or done.stdout}")
    return done.stdout


def parse_rate(output: str) -> float:
    """The requests a second in what wrk printed, if there was no failure."""
    if failures := _FAILURES.search(output):
        raise BenchError(f"{PROGRAM}: {failures[0].strip()}")
    rate = _RATE.search(output)
    if rate is None:
        raise BenchError(f"{PROGRAM} printed something unexpected: {output!r}")
    return float(rate[1])
