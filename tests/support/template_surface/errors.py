"""How diaries say no: two words of their own, and the core's for the rest."""

from __future__ import annotations

import msgspec

from headrace.core.errors import Code, Refused
from headrace.web.answers import Answer
from headrace.web.request import Request
from headrace.web.surface import Refusal, complete

REFUSALS = complete(
    {
        Code.LOG_NOT_FOUND: Refusal(404, "no_such_diary", "Nobody wrote in it yet."),
        Code.UNAUTHENTICATED: Refusal(401, "who_are_you", "A key is missing."),
    }
)


def refuse(refused: Refused, request: Request, started: float) -> Answer:
    status, code, _ = REFUSALS[refused.code]
    body = msgspec.json.encode({"problem": code, "says": refused.message})
    return Answer(status, [("content-type", "application/json")], body)
