"""Chromium without a window, on a page that the test itself serves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .reports import Reports

HERE = Path(__file__).parent
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--remote-debugging-port=0",  # keeps it open after the page has loaded
)
END_S = 60.0


@contextmanager
def browsing(chromium: str, profile: Path, reports: Reports, **settings: Any) -> Iterator[None]:
    """A browser that shows our page with these settings."""
    page = (HERE / "page.html").read_text().replace("SETTINGS", json.dumps(settings))
    scripts = {f"/{path.name}": path.read_text() for path in HERE.glob("*.mjs")}
    reports.serve({"/": page, **scripts})
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [chromium, *FLAGS, f"--user-data-dir={profile}", f"{reports.url}/"],
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            yield
        except AssertionError as problem:
            said.seek(0)
            problem.add_note(f"chromium said: {said.read().decode()[-2000:]}")
            raise
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(END_S)
