"""What jobs ask of the running server: sealing is its own work."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.pipeline.errors import CannotRun, JobFailed

if TYPE_CHECKING:
    from headrace.client.http import Sealed

API_KEY = "HEADRACE_API_KEY"
_WRONG_SERVER = frozenset((404, 405))
_WRONG_KEY = frozenset((401, 403))


def ask_to_seal(url: str, api_key: str | None, *, retire_journal: bool) -> Sealed:
    """Have a server seal everything that was written before, and tell when it is published."""
    from headrace.client.http import Failed, Server

    try:
        with Server(url, api_key or os.environ.get(API_KEY)) as server:
            return server.seal(retire_journal=retire_journal)
    except ValueError as error:
        raise CannotRun(str(error)) from None
    except Failed as failed:
        if not failed.status:
            raise CannotRun(
                f"{failed}; only a running server seals: start it, or say with --url where it is"
            ) from None
        if failed.status in _WRONG_KEY:
            advice = f"set {API_KEY}, or give --api-key, to a key with scope admin and no prefixes"
            raise CannotRun(f"{url} refused: {failed}; {advice}") from None
        if failed.status in _WRONG_SERVER:
            raise CannotRun(f"{url} does not know how to seal ({failed}): update it") from None
        raise JobFailed(f"{url} did not seal: {failed}") from None
