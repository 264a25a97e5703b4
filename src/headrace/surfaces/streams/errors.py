"""How streams say no: the status, the code and the envelope of every refusal."""

from __future__ import annotations

import msgspec

from headrace.core.errors import Code, Refused
from headrace.web.answers import Answer, retry_after
from headrace.web.request import Request
from headrace.web.surface import Words, complete

WORDS: Words = {
    Code.INVALID: ("bad_request", "A header, a parameter or the body is not as it must be."),
    Code.UNAUTHENTICATED: ("unauthorized", "The bearer key is missing or unknown."),
    Code.FORBIDDEN: ("forbidden", "The key lacks the scope, or the name is outside its prefixes."),
    Code.PRODUCER_FENCED: ("producer_fenced", "The producer goes on in a later epoch."),
    Code.LOG_NOT_FOUND: ("not_found", "The stream does not exist, or its time was up."),
    Code.NOT_FOUND: ("not_found", "There is nothing at this path."),
    Code.METHOD_NOT_ALLOWED: ("method_not_allowed", "The path does not take this method."),
    Code.NOT_ACCEPTABLE: ("not_acceptable", "The Accept header rules out what is served."),
    Code.REQUEST_TIMEOUT: ("request_timeout", "The request took too long."),
    Code.APPEND_TIMEOUT: ("append_timeout", "The append was not stored in time, and may still be."),
    Code.CONFLICT: (
        "conflict",
        "It exists with another configuration, holds another type, or Stream-Seq did not rise.",
    ),
    Code.LOG_INCOMPATIBLE: ("conflict", "The name belongs to a log of another surface."),
    Code.CLOSED: ("stream_closed", "The stream takes no more."),
    Code.PRODUCER_GAP: ("producer_gap", "An earlier write of the producer is missing."),
    Code.GONE: (
        "gone",
        "The stream was deleted and lives on in forks, or the offset is of an earlier life.",
    ),
    Code.FENCED: ("FENCED", "This wake is over: another generation began or the lease ended."),
    Code.ALREADY_CLAIMED: ("ALREADY_CLAIMED", "Another worker holds the lease."),
    Code.NOTHING_PENDING: ("NOTHING_PENDING", "The subscription has nothing to do."),
    Code.URL_REJECTED: ("WEBHOOK_URL_REJECTED", "A webhook must not be called there."),
    Code.BODY_TOO_LARGE: ("payload_too_large", "The body is over the limit."),
    Code.MEDIA_TYPE: ("unsupported_media_type", "The content encoding is not known here."),
    Code.THROTTLED: ("overloaded", "A cap is reached or writes come too fast."),
    Code.INTERNAL: ("internal", "A bug in the server."),
    Code.NOT_READY: ("unavailable", "The server is reading its journal."),
    Code.SHUTTING_DOWN: ("unavailable", "The server is about to stop."),
    Code.READ_ONLY: ("unavailable", "The journal failed: reads go on, writes need a restart."),
    Code.STORAGE_UNAVAILABLE: ("unavailable", "Nothing can be written at the moment."),
}
REFUSALS = complete(WORDS)


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
    headers += retry_after(status, refused.detail)
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
