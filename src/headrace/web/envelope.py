"""The envelope of Headrace's own JSON: where the time went in every reply, one shape of refusals.

Topics, bulk and operations speak it; a surface with a contract of its own brings its own.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from headrace.core.errors import Code, Refused
from headrace.web.answers import JSON, JSON_LINE, Answer, Reply
from headrace.web.calls import Call, Refuse
from headrace.web.request import Request
from headrace.web.surface import Refusals, Words

WORDS: Words = {
    Code.INVALID: ("invalid_request", "Malformed JSON, a wrong type, a value out of range."),
    Code.UNAUTHENTICATED: ("unauthorized", "The bearer key is missing or unknown."),
    Code.FORBIDDEN: ("forbidden", "The key lacks the scope, or the name is outside its prefixes."),
    Code.NOT_FOUND: ("not_found", "There is nothing at this path."),
    Code.METHOD_NOT_ALLOWED: ("method_not_allowed", "The path does not take this method."),
    Code.NOT_ACCEPTABLE: ("not_acceptable", "The Accept header rules out what is served."),
    Code.BODY_TOO_LARGE: ("payload_too_large", "The body is over the limit, packed or unpacked."),
    Code.MEDIA_TYPE: ("unsupported_media_type", "The body is not application/json in UTF-8."),
    Code.THROTTLED: ("throttled", "A cap is reached or writes come too fast; see Retry-After."),
    Code.INTERNAL: ("internal", "A bug in the server."),
    Code.NOT_READY: ("not_ready", "The server is reading its journal; see Retry-After."),
    Code.SHUTTING_DOWN: ("shutting_down", "The server is about to stop; see Retry-After."),
    Code.READ_ONLY: ("read_only", "The journal failed: reads go on, writes need a restart."),
    Code.STORAGE_UNAVAILABLE: (
        "storage_unavailable",
        "No room on the disk, or no descriptor is left: writes go on when it has passed.",
    ),
}
"""What is refused on every surface that speaks like this."""
_RETRY = {Code.THROTTLED, Code.NOT_READY, Code.SHUTTING_DOWN, Code.STORAGE_UNAVAILABLE}
_RETRY_AFTER_S = "1"


class ErrorBody(msgspec.Struct):
    code: str
    message: str
    detail: dict[str, Any] | UnsetType = UNSET


class RefusalTimes(msgspec.Struct):
    server_total_ms: float


class ErrorReply(msgspec.Struct):
    """Every refusal."""

    error: ErrorBody
    performance: RefusalTimes


def close(call: Call, reply: Reply) -> Answer:
    """An open reply with where the time went as its last member."""
    reply.parts.append(call.performance(reply.scanned))
    return Answer(reply.status, [], reply.parts, JSON_LINE)


def refuser(refusals: Refusals) -> Refuse:
    """How a surface with these words refuses."""

    def refuse(refused: Refused, request: Request, started: float) -> Answer:
        status, code, _ = refusals[refused.code]
        reply = ErrorReply(
            ErrorBody(code, refused.message, refused.detail or UNSET),
            RefusalTimes(round((perf_counter() - started) * 1e3, 3)),
        )
        headers = [("content-type", JSON), ("cache-control", "no-store")]
        if refused.code in _RETRY:
            headers.append(("retry-after", _RETRY_AFTER_S))
        if refused.code is Code.UNAUTHENTICATED:
            headers.append(("www-authenticate", "Bearer"))
        return Answer(status, headers, msgspec.json.encode(reply))

    return refuse
