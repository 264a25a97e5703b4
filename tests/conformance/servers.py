"""The servers that conformance tests talk to."""

from __future__ import annotations

import urllib.error
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path

from headrace_bench.process import ServerProcess

PATIENCE = {"STREAMS_REQUEST_TIMEOUT_MS": "60000", "STREAMS_APPEND_TIMEOUT_MS": "60000"}
"""On a machine that is held up; a case that wants a server's own patience gives an empty value."""


class ServerUnderTest(ServerProcess):
    """A real server; counts as ready, too, when it asks its probes for a key."""

    def __init__(self, data_dir: Path, *, env: Mapping[str, str] | None = None) -> None:
        given = PATIENCE | dict(env or {})
        super().__init__(data_dir, env={k: v for k, v in given.items() if v or k not in PATIENCE})

    def wait_ready(self) -> None:
        try:
            super().wait_ready()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != HTTPStatus.UNAUTHORIZED:
                raise


SharedServer = Callable[[Mapping[str, str]], ServerUnderTest]
