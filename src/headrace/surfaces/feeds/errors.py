"""How feeds say no: a code and a message, or a problem of RFC 9457 for who asks for one."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from headrace.core.errors import Code, Refused
from headrace.search.values import format_date
from headrace.surfaces.feeds.wire import Instant, SequenceNumber
from headrace.web.accept import prefers
from headrace.web.answers import Answer, Headers, retry_after
from headrace.web.request import Request
from headrace.web.surface import Refusal, complete

VENDOR = "application/vnd.epistola.v1+json"
PROBLEM = "application/problem+json"
_PROBLEMS = "https://epistola.app/errors/"
_NO_PROBLEM = "about:blank"
_REJECTED_SHOWN = 200
_MISSING = re.compile(r"missing required field `(\w+)`")

REFUSALS = complete(
    {
        Code.INVALID: ("VALIDATION_ERROR", "A value that cannot be; `errors` says which and why."),
        Code.BATCH_TOO_LARGE: Refusal(413, "PAYLOAD_TOO_LARGE", "The batch holds too much."),
        Code.RECORD_TOO_LARGE: Refusal(413, "PAYLOAD_TOO_LARGE", "An event is too large."),
        Code.UNAUTHENTICATED: (
            "UNAUTHORIZED", "No credential, or one that is unknown, expired or revoked.",
        ),
        Code.FORBIDDEN: ("FORBIDDEN", "The roles do not include this, or not for this tenant."),
        Code.LOG_NOT_FOUND: ("NOT_FOUND", "There is no such tenant: it has never had an event."),
        Code.NOT_FOUND: ("NOT_FOUND", "There is nothing of this id, or nothing at this path."),
        Code.METHOD_NOT_ALLOWED: ("METHOD_NOT_ALLOWED", "The path does not take this method."),
        Code.NOT_ACCEPTABLE: ("NOT_ACCEPTABLE", "The Accept header rules out what is served."),
        Code.LOG_INCOMPATIBLE: ("CONFLICT", "The name of the log is another surface's."),
        Code.CONFLICT: ("CONFLICT", "It does not go with what is there."),
        Code.GONE: (
            "CURSOR_EXPIRED", "Events behind the cursor are gone: earliestAvailable is the first.",
        ),
        Code.CURSOR_EXPIRED: (
            "CURSOR_EXPIRED", "Events behind the cursor of the tracker are gone.",
        ),
        Code.SOURCE_DELETED: Refusal(404, "NOT_FOUND", "The feed that it reads is gone."),
        Code.TRACKER_NOT_FOUND: ("NOT_FOUND", "There is no such tracker."),
        Code.WEBHOOK_NOT_FOUND: ("NOT_FOUND", "There is no such subscription."),
        Code.TRACKER_LEASED: (
            "TRACKER_LEASED", "Another node is active: activeNode, until leaseExpiresAt.",
        ),
        Code.FENCED: ("CONFLICT", "Another node has taken over meanwhile."),
        Code.URL_REJECTED: ("VALIDATION_ERROR", "This is no URL that may be called."),
        Code.BODY_TOO_LARGE: ("PAYLOAD_TOO_LARGE", "The body is over the limit."),
        Code.MEDIA_TYPE: (
            "UNSUPPORTED_MEDIA_TYPE", f"The body is neither {VENDOR} nor application/json.",
        ),
        Code.LOG_FULL: Refusal(429, "RATE_LIMITED", "The server holds all it may hold."),
        Code.THROTTLED: (
            "RATE_LIMITED", "A cap is reached, or writes come too fast; see Retry-After.",
        ),
        Code.INTERNAL: ("INTERNAL_ERROR", "A bug in the server."),
        Code.NOT_READY: ("UNAVAILABLE", "The server is reading its journal; see Retry-After."),
        Code.SHUTTING_DOWN: ("UNAVAILABLE", "The server is about to stop; see Retry-After."),
        Code.READ_ONLY: ("UNAVAILABLE", "The journal failed: writes need a restart."),
        Code.STORAGE_UNAVAILABLE: (
            "UNAVAILABLE", "Nothing can be written at the moment; see Retry-After.",
        ),
    }
)  # fmt: skip
"""Status and code of every refusal."""

_PROBLEM_NAMES = {
    Code.INVALID: "validation-error",
    Code.UNAUTHENTICATED: "unauthorized",
    Code.FORBIDDEN: "forbidden",
    Code.LOG_NOT_FOUND: "not-found",
    Code.NOT_FOUND: "not-found",
    Code.LOG_INCOMPATIBLE: "conflict",
    Code.CONFLICT: "conflict",
    Code.TRACKER_LEASED: "conflict",
    Code.FENCED: "conflict",
    Code.URL_REJECTED: "validation-error",
    Code.TRACKER_NOT_FOUND: "not-found",
    Code.WEBHOOK_NOT_FOUND: "not-found",
    Code.SOURCE_DELETED: "not-found",
    Code.LOG_FULL: "rate-limited",
    Code.THROTTLED: "rate-limited",
}
"""Types of problems that have a name; of others the status says all."""
_ERRORS, _EARLIEST = "errors", "earliest_seq"
"""Details that are told."""
_FIELDS = {
    "ack_seq": "acknowledgeUpTo",
    "max_records": "batchSettings.maxBatchSize",
    "delay_ms": "batchSettings.maxDelaySeconds",
    "filter": "filters",
}
"""What values are called here that the engine refuses."""


class FieldError(msgspec.Struct, rename="camel"):
    """What is wrong with one value of a request."""

    field: str
    message: str
    rejected_value: Any = UNSET


class FeedError(msgspec.Struct, rename="camel"):
    """Every refusal."""

    code: str
    message: str
    errors: list[FieldError] | UnsetType = UNSET
    earliest_available: SequenceNumber | UnsetType = UNSET
    active_node: str | UnsetType = UNSET
    lease_expires_at: Instant | UnsetType = UNSET


class FeedProblem(msgspec.Struct, rename="camel"):
    """Every refusal, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] | UnsetType = UNSET
    earliest_available: SequenceNumber | UnsetType = UNSET
    active_node: str | UnsetType = UNSET
    lease_expires_at: Instant | UnsetType = UNSET


def invalid_field(field: str, problem: str, rejected: Any = UNSET) -> Refused:
    """A value that cannot be: `problem` says what it is, or must be."""
    if isinstance(rejected, str):
        rejected = rejected[:_REJECTED_SHOWN]
    error = FieldError(field, f"{field} {problem}", rejected)
    return Refused(Code.INVALID, error.message, **{_ERRORS: [error]})


def cursor_expired(earliest: int) -> Refused:
    """The events behind a cursor are gone; the first there is has this number, or will have it."""
    message = "Requested cursor is older than the retention window"
    return Refused(Code.GONE, message, **{_EARLIEST: earliest})


class _Told(NamedTuple):
    errors: list[FieldError] | UnsetType
    earliest_available: int | UnsetType
    active_node: str | UnsetType
    lease_expires_at: str | UnsetType


def _told(refused: Refused) -> _Told:
    detail = refused.detail
    errors = detail.get(_ERRORS, UNSET)
    if errors is UNSET and refused.code is Code.INVALID:  # of the shared layers
        path = [_FIELDS.get(detail["field"], detail["field"])] if "field" in detail else []
        if missing := _MISSING.search(refused.message):
            path.append(missing[1])
        if path:
            errors = [FieldError(".".join(path), refused.message)]
    elif refused.code is Code.URL_REJECTED:
        errors = [FieldError("callbackUrl", refused.message)]
    until_ms = detail.get("lease_expires_at_ms")
    return _Told(
        errors,
        detail.get(_EARLIEST, UNSET),
        detail.get("active_node", UNSET),
        UNSET if until_ms is None else format_date(until_ms),
    )


def encode_error(refused: Refused) -> bytes:
    """A refusal in the shape of the surface."""
    code = REFUSALS[refused.code].code
    return msgspec.json.encode(FeedError(code, refused.message, *_told(refused)))


def _encode_problem(refused: Refused) -> bytes:
    status, name = REFUSALS[refused.code].status, _PROBLEM_NAMES.get(refused.code)
    type, title = _PROBLEMS + name if name else _NO_PROBLEM, HTTPStatus(status).phrase
    return msgspec.json.encode(FeedProblem(type, title, status, refused.message, *_told(refused)))


def refuse(refused: Refused, request: Request, started: float) -> Answer:
    """The answer to what is refused."""
    status = REFUSALS[refused.code].status
    wants_problem = _asks_for_problems(request.accept)
    headers: Headers = [
        ("content-type", PROBLEM if wants_problem else VENDOR),
        ("cache-control", "no-store"),
        *retry_after(status, refused.detail),
    ]
    if refused.code is Code.UNAUTHENTICATED:
        headers += [("www-authenticate", "Bearer"), ("www-authenticate", "ApiKey")]
    encode = _encode_problem if wants_problem else encode_error
    return Answer(status, headers, encode(refused))


def _asks_for_problems(accept: str) -> bool:
    """Whether problems are named among what is accepted: nothing else is ever sent as one."""
    return PROBLEM in accept.lower() and prefers(accept, PROBLEM) is not None
