"""How streams say no: the status, the code and the envelope of every refusal."""

from __future__ import annotations

import msgspec

from headrace.core.errors import Code, Refused
from headrace.web.answers import Answer
from headrace.web.request import Request
from headrace.web.surface import Refusal, complete

WORDS = {
    Code.INVALID: Refusal(
        400, "bad_request", "A header, a parameter or the body is not as it must be."
    ),
    Code.UNAUTHENTICATED: Refusal(401, "unauthorized", "The bearer key is missing or unknown."),
    Code.FORBIDDEN: Refusal(
        403,
        "forbidden",
        "The key lacks the scope, or the name is outside its prefixes.",
    ),
    Code.PRODUCER_FENCED: Refusal(403, "producer_fenced", "The producer goes on in a later epoch."),
    Code.LOG_NOT_FOUND: Refusal(404, "not_found", "The stream does not exist, or its time was up."),
    Code.NOT_FOUND: Refusal(404, "not_found", "There is nothing at this path."),
    Code.METHOD_NOT_ALLOWED: Refusal(
        405, "method_not_allowed", "The path does not take this method."
    ),
    Code.NOT_ACCEPTABLE: Refusal(
        406, "not_acceptable", "The Accept header rules out what is served."
    ),
    Code.REQUEST_TIMEOUT: Refusal(408, "request_timeout", "The request took too long."),
    Code.APPEND_TIMEOUT: Refusal(
        408,
        "append_timeout",
        "The append was not stored in time, and may still be.",
    ),
    Code.CONFLICT: Refusal(
        409,
        "conflict",
        "It exists with another configuration, holds another type, or Stream-Seq did not rise.",
    ),
    Code.LOG_INCOMPATIBLE: Refusal(
        409, "conflict", "The name belongs to a log of another surface."
    ),
    Code.CLOSED: Refusal(409, "stream_closed", "The stream takes no more."),
    Code.PRODUCER_GAP: Refusal(409, "producer_gap", "An earlier write of the producer is missing."),
    Code.GONE: Refusal(
        410,
        "gone",
        "The stream was deleted and lives on in forks, or the offset is of an earlier life.",
    ),
    Code.FENCED: Refusal(
        409, "FENCED", "This wake is over: another generation began or the lease ended."
    ),
    Code.ALREADY_CLAIMED: Refusal(409, "ALREADY_CLAIMED", "Another worker holds the lease."),
    Code.NOTHING_PENDING: Refusal(409, "NOTHING_PENDING", "The subscription has nothing to do."),
    Code.URL_REJECTED: Refusal(400, "WEBHOOK_URL_REJECTED", "A webhook must not be called there."),
    Code.BODY_TOO_LARGE: Refusal(413, "payload_too_large", "The body is over the limit."),
    Code.MEDIA_TYPE: Refusal(
        415, "unsupported_media_type", "The content encoding is not known here."
    ),
    Code.THROTTLED: Refusal(429, "overloaded", "A cap is reached or writes come too fast."),
    Code.INTERNAL: Refusal(500, "internal", "A bug in the server."),
    Code.NOT_READY: Refusal(503, "unavailable", "The server is reading its journal."),
    Code.SHUTTING_DOWN: Refusal(503, "unavailable", "The server is about to stop."),
    Code.READ_ONLY: Refusal(
        503, "unavailable", "The journal failed: reads go on, writes need a restart."
    ),
    Code.STORAGE_UNAVAILABLE: Refusal(503, "unavailable", "Nothing can be written at the moment."),
}
REFUSALS = complete(WORDS)
_RETRY_AFTER_S = {429: 1, 503: 5}


class ErrorBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    code: str
    message: str
    current_holder: str | None = None
    """Who holds the lease, and in which generation; for subscriptions only."""
    generation: int | None = None


class StreamError(msgspec.Struct):
    """The one shape of every refusal."""

    error: ErrorBody


def refuse(refused: Refused, request: Request, started: float) -> Answer:
    """The answer to what is refused."""
    status = REFUSALS[refused.code].status
    headers = [("cache-control", "no-store"), ("content-type", "application/json")]
    if status in _RETRY_AFTER_S:
        after_s = -(-refused.detail.get("retry_after_ms", 0) // 1000) or _RETRY_AFTER_S[status]
        headers.append(("retry-after", str(after_s)))
    match refused.code:
        case Code.UNAUTHENTICATED:
            headers.append(("www-authenticate", "Bearer"))
        case Code.PRODUCER_FENCED:
            headers.append(("producer-epoch", str(refused.detail["epoch"])))
        case Code.PRODUCER_GAP:
            headers.append(("producer-expected-seq", str(refused.detail["expected"])))
            headers.append(("producer-received-seq", str(refused.detail["received"])))
        case Code.CLOSED:
            headers.append(("stream-closed", "true"))
    if (offset := refused.detail.get("next_offset")) is not None:
        headers.append(("stream-next-offset", offset))
    return Answer(status, headers, encode_error(refused))


def encode_error(refused: Refused) -> bytes:
    """The body of a refusal."""
    body = ErrorBody(
        code=REFUSALS[refused.code].code,
        message=refused.message,
        current_holder=refused.detail.get("current_holder"),
        generation=refused.detail.get("generation"),
    )
    return msgspec.json.encode(StreamError(body))
