"""The envelope of refusals below `/api/v1`, where nothing answers that has one of its own."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.core.errors import Refused
from headrace.web.answers import Answer, json_answer
from headrace.web.request import Request
from headrace.web.surface import Refusal


class ApiProblem(msgspec.Struct):
    code: str
    message: str
    details: dict[str, Any]


class ApiError(msgspec.Struct):
    """A refusal: what is wrong, and the id by which the request is found."""

    error: ApiProblem
    request_id: str


def refuse_api(refused: Refused, refusal: Refusal, request: Request) -> Answer:
    """Say no in this envelope."""
    body = ApiError(ApiProblem(refusal.code, refused.message, refused.detail), request.id)
    return json_answer(msgspec.json.encode(body), refusal.status)
