"""The servers that conformance tests talk to."""

from __future__ import annotations

import urllib.error
from collections.abc import Callable, Mapping
from http import HTTPStatus

from headrace.bench.process import ServerProcess


class ServerUnderTest(ServerProcess):
    """A real server; counts as ready, too, when it asks its probes for a key."""

    def wait_ready(self) -> None:
        try:
            super().wait_ready()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != HTTPStatus.UNAUTHORIZED:
                raise


SharedServer = Callable[[Mapping[str, str]], ServerUnderTest]
