"""How topics say no: the status, the code and the envelope of every refusal."""

from __future__ import annotations

from typing import Any

from headrace.core.errors import Code, Refused

REFUSALS: dict[Code, tuple[int, str, str]] = {
    Code.INVALID: (400, "invalid_request", "Malformed JSON, a wrong type, a value out of range."),
    Code.BATCH_TOO_LARGE: (400, "batch_too_large", "More records or seqs than one call may carry."),
    Code.RECORD_TOO_LARGE: (400, "record_too_large", "A record or its meta is over its limit."),
    Code.UNAUTHENTICATED: (401, "unauthorized", "The bearer key is missing or unknown."),
    Code.FORBIDDEN: (
        403,
        "forbidden",
        "The key lacks the scope, or the name is outside its prefixes.",
    ),
    Code.LOG_NOT_FOUND: (404, "topic_not_found", "The topic does not exist and was not created."),
    Code.ROUTER_NOT_FOUND: (404, "router_not_found", "The router does not exist."),
    Code.NOT_FOUND: (404, "not_found", "There is nothing at this path."),
    Code.METHOD_NOT_ALLOWED: (405, "method_not_allowed", "The path does not take this method."),
    Code.NOT_ACCEPTABLE: (406, "not_acceptable", "The Accept header rules out what is served."),
    Code.LOG_INCOMPATIBLE: (409, "topic_exists_incompatible", "The type of a topic cannot change."),
    Code.ROUTER_CYCLE: (409, "router_cycle", "Records would go in a circle; see allow_cycle."),
    Code.LOG_NOT_EMPTY: (409, "topic_not_empty", "if_empty was asked for and there are records."),
    Code.NOT_A_QUEUE: (409, "not_a_queue", "Only a topic of type queue has jobs."),
    Code.BODY_TOO_LARGE: (
        413,
        "payload_too_large",
        "The body is over the limit, packed or unpacked.",
    ),
    Code.MEDIA_TYPE: (415, "unsupported_media_type", "The body is not application/json in UTF-8."),
    Code.LOG_FULL: (422, "topic_full", "A topic with discard reject has no room for this write."),
    Code.THROTTLED: (
        429,
        "throttled",
        "A cap is reached or writes come too fast; see Retry-After.",
    ),
    Code.INTERNAL: (500, "internal", "A bug in the server."),
    Code.NOT_READY: (503, "not_ready", "The server is reading its journal; see Retry-After."),
    Code.SHUTTING_DOWN: (503, "shutting_down", "The server is about to stop; see Retry-After."),
    Code.READ_ONLY: (503, "read_only", "The journal failed: reads go on, writes need a restart."),
    Code.STORAGE_UNAVAILABLE: (
        503,
        "storage_unavailable",
        "No room on the disk, or no descriptor is left: writes go on when it has passed.",
    ),
}

_RETRY = {Code.THROTTLED, Code.NOT_READY, Code.SHUTTING_DOWN, Code.STORAGE_UNAVAILABLE}
_RETRY_AFTER_S = "1"


def refusals(refused: Refused) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Status, headers and body of a refusal."""
    # A code that is not in the table belongs to another surface: here it would be a bug.
    status, code, _ = REFUSALS.get(refused.code, REFUSALS[Code.INTERNAL])
    error: dict[str, Any] = {"code": code, "message": refused.message}
    if refused.detail:
        error["detail"] = refused.detail
    headers = {}
    if refused.code in _RETRY:
        headers["retry-after"] = _RETRY_AFTER_S
    if refused.code is Code.UNAUTHENTICATED:
        headers["www-authenticate"] = "Bearer"
    return status, headers, {"error": error}
