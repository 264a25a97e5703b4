"""How streams say no: the status, the code and the envelope of every refusal."""

from __future__ import annotations

import msgspec

from headrace.core.errors import Code, Refused

REFUSALS: dict[Code, tuple[int, str, str]] = {
    Code.INVALID: (400, "bad_request", "A header, a parameter or the body is not as it must be."),
    Code.UNAUTHENTICATED: (401, "unauthorized", "The bearer key is missing or unknown."),
    Code.FORBIDDEN: (
        403,
        "forbidden",
        "The key lacks the scope, or the name is outside its prefixes.",
    ),
    Code.PRODUCER_FENCED: (403, "producer_fenced", "The producer goes on in a later epoch."),
    Code.LOG_NOT_FOUND: (404, "not_found", "The stream does not exist, or its time was up."),
    Code.NOT_FOUND: (404, "not_found", "There is nothing at this path."),
    Code.METHOD_NOT_ALLOWED: (405, "method_not_allowed", "The path does not take this method."),
    Code.NOT_ACCEPTABLE: (406, "not_acceptable", "The Accept header rules out what is served."),
    Code.REQUEST_TIMEOUT: (408, "request_timeout", "The request took too long."),
    Code.APPEND_TIMEOUT: (
        408,
        "append_timeout",
        "The append was not stored in time, and may still be.",
    ),
    Code.CONFLICT: (
        409,
        "conflict",
        "It exists with another configuration, holds another type, or Stream-Seq did not rise.",
    ),
    Code.LOG_INCOMPATIBLE: (409, "conflict", "The name belongs to a log of another surface."),
    Code.CLOSED: (409, "stream_closed", "The stream takes no more."),
    Code.PRODUCER_GAP: (409, "producer_gap", "An earlier write of the producer is missing."),
    Code.GONE: (
        410,
        "gone",
        "The stream was deleted and lives on in forks, or the offset is of an earlier life.",
    ),
    Code.FENCED: (409, "FENCED", "This wake is over: another generation began or the lease ended."),
    Code.ALREADY_CLAIMED: (409, "ALREADY_CLAIMED", "Another worker holds the lease."),
    Code.NOTHING_PENDING: (409, "NOTHING_PENDING", "The subscription has nothing to do."),
    Code.URL_REJECTED: (400, "WEBHOOK_URL_REJECTED", "A webhook must not be called there."),
    Code.BODY_TOO_LARGE: (413, "payload_too_large", "The body is over the limit."),
    Code.MEDIA_TYPE: (415, "unsupported_media_type", "The content encoding is not known here."),
    Code.THROTTLED: (429, "overloaded", "A cap is reached or writes come too fast."),
    Code.INTERNAL: (500, "internal", "A bug in the server."),
    Code.NOT_READY: (503, "unavailable", "The server is reading its journal."),
    Code.SHUTTING_DOWN: (503, "unavailable", "The server is about to stop."),
    Code.READ_ONLY: (503, "unavailable", "The journal failed: reads go on, writes need a restart."),
    Code.STORAGE_UNAVAILABLE: (503, "unavailable", "Nothing can be written at the moment."),
}
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


def refuse(refused: Refused) -> tuple[int, list[tuple[str, str]], bytes]:
    """Status, headers and body of a refusal."""
    # A code that is not in the table belongs to another surface: here it would be a bug.
    status, code, _ = REFUSALS.get(refused.code, REFUSALS[Code.INTERNAL])
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
        case Code.METHOD_NOT_ALLOWED:
            headers.append(("allow", refused.detail["allow"]))
    if (offset := refused.detail.get("next_offset")) is not None:
        headers.append(("stream-next-offset", offset))
    body = ErrorBody(
        code=code,
        message=refused.message,
        current_holder=refused.detail.get("current_holder"),
        generation=refused.detail.get("generation"),
    )
    return status, headers, msgspec.json.encode(StreamError(body))
