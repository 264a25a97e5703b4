"""Refusals on the wire: every code has a status, and who may come back is told when."""

from __future__ import annotations

import msgspec
import pytest

from headrace.core.errors import Code, Refused
from headrace.surfaces.streams.errors import refuse


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
    found, headers, body = refuse(Refused(code, "why", **detail))
    assert (found, dict(headers).get("retry-after")) == (status, after)
    assert msgspec.json.decode(body)["error"]["message"] == "why"


def test_a_code_of_another_surface_is_a_bug() -> None:
    status, _, body = refuse(Refused(Code.NOT_A_QUEUE, "why"))
    assert (status, msgspec.json.decode(body)["error"]["code"]) == (500, "internal")
