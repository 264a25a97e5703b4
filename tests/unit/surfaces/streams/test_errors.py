"""Refusals on the wire: every code has a status, and who may come back is told when."""

from __future__ import annotations

import msgspec
import pytest

from headrace.core.errors import Code, Refused
from headrace.surfaces.streams.errors import refuse
from support.asking import make_request


@pytest.mark.parametrize(
    ("code", "detail", "status", "after"),
    [
        (Code.THROTTLED, {}, 429, "1"),
        (Code.THROTTLED, {"retry_after_ms": 2500}, 429, "3"),
        (Code.NOT_READY, {}, 503, "5"),
        (Code.SHUTTING_DOWN, {}, 503, "5"),
        (Code.READ_ONLY, {}, 503, "5"),
        (Code.APPEND_TIMEOUT, {}, 408, None),
        (Code.BODY_TOO_LARGE, {}, 413, None),
    ],
)
def test_what_passes_says_when_to_come_back(
    code: Code, detail: dict[str, object], status: int, after: str | None
) -> None:
    answer = refuse(Refused(code, "why", **detail), make_request("GET", "/v1/stream/s"), 0.0)
    assert (answer.status, dict(answer.headers).get("retry-after")) == (status, after)
    assert msgspec.json.decode(bytes(answer.body))["error"]["message"] == "why"
