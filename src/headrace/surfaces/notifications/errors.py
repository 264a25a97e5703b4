"""How notifications say no: a code, a label and a status for every refusal there is.

Most refusals are called by what was asked for: the same mistake is an invalid watch request on one
path and an invalid replay request on another.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from headrace.core.errors import Code, Refused
from headrace.web.answers import JSON, Answer, Headers, retry_after
from headrace.web.api_envelope import refuse_api
from headrace.web.calls import Refuse
from headrace.web.request import Request
from headrace.web.surface import Refusal, complete

API = "/api/v1"


class Operation(Enum):
    """What is asked for: the code and the label of requests for it that make no sense, and of its
    failures.
    """

    NOTIFY = "INVALID_NOTIFICATION_REQUEST", "Invalid Notification Request"
    WATCH = "INVALID_WATCH_REQUEST", "Invalid Watch Request"
    REPLAY = "INVALID_REPLAY_REQUEST", "Invalid Replay Request"
    ADMIN = "INVALID_ADMIN_REQUEST", "Invalid Admin Request"
    OTHER = "INVALID_REQUEST", "Invalid Request"

    @property
    def code(self) -> str:
        return self.value[0]

    @property
    def label(self) -> str:
        return self.value[1]


_PATHS = {
    f"{API}/notification": Operation.NOTIFY,
    f"{API}/watch": Operation.WATCH,
    f"{API}/replay": Operation.REPLAY,
}
_BELOW = {f"{API}/wis2/": Operation.NOTIFY, f"{API}/admin/": Operation.ADMIN}


def operation_of(path: str) -> Operation:
    """What a path is for."""
    if (known := _PATHS.get(path)) is not None:
        return known
    return next(
        (each for prefix, each in _BELOW.items() if path.startswith(prefix)), Operation.OTHER
    )


class RequestProblem(NamedTuple):
    """A code of the wire that is narrower than a refusal of the core."""

    code: str
    label: str | None = None
    """None: that of the operation."""


INVALID_JSON = RequestProblem("INVALID_JSON")
UNKNOWN_FIELD = RequestProblem("UNKNOWN_FIELD")
INVALID_SHAPE = RequestProblem("INVALID_REQUEST_SHAPE")
UNKNOWN_EVENT_TYPE = RequestProblem("UNKNOWN_EVENT_TYPE", "unknown_event_type")

_PROBLEM = "problem"
"""The detail that holds the problem."""


def invalid(problem: RequestProblem, message: str, **detail: Any) -> Refused:
    """A refusal with a code of its own."""
    return Refused(Code.INVALID, message, **{_PROBLEM: problem}, **detail)


REFUSALS = complete(
    {
        Code.INVALID: Refusal(
            400,
            "INVALID_NOTIFICATION_REQUEST",
            "Or INVALID_WATCH_REQUEST, INVALID_REPLAY_REQUEST: a value that cannot be."
            " INVALID_JSON, UNKNOWN_FIELD, INVALID_REQUEST_SHAPE, UNKNOWN_EVENT_TYPE: the body.",
        ),
        Code.UNAUTHENTICATED: Refusal(
            401, "UNAUTHORIZED", "Nobody said who asks, or the credential is not good."
        ),
        Code.FORBIDDEN: Refusal(403, "FORBIDDEN", "The roles of the user do not include this."),
        Code.NOT_FOUND: Refusal(404, "not_found", "There is nothing at this path."),
        Code.METHOD_NOT_ALLOWED: Refusal(
            405, "method_not_allowed", "The path does not take this method."
        ),
        Code.NOT_ACCEPTABLE: Refusal(
            406, "NOT_ACCEPTABLE", "The Accept header rules out what is served."
        ),
        Code.LOG_INCOMPATIBLE: Refusal(
            409, "CONFLICT", "The log of the event type belongs to another surface."
        ),
        Code.BODY_TOO_LARGE: Refusal(413, "PAYLOAD_TOO_LARGE", "The body is over the limit."),
        Code.RECORD_TOO_LARGE: Refusal(413, "PAYLOAD_TOO_LARGE", "The notification is too large."),
        Code.MEDIA_TYPE: Refusal(
            415, "UNSUPPORTED_MEDIA_TYPE", "The content encoding is not known here."
        ),
        Code.THROTTLED: Refusal(
            429, "TOO_MANY_REQUESTS", "A cap is reached or writes come too fast; see Retry-After."
        ),
        Code.INTERNAL: Refusal(
            500,
            "INTERNAL_ERROR",
            "A bug in the server; NOTIFICATION_PROCESSING_FAILED for notifications,"
            " SSE_STREAM_INITIALIZATION_FAILED for streams.",
        ),
        Code.READ_ONLY: Refusal(
            500, "NOTIFICATION_STORAGE_FAILED", "The journal failed: writes need a restart."
        ),
        Code.NOT_READY: Refusal(
            503, "SERVICE_UNAVAILABLE", "The server is reading its journal; see Retry-After."
        ),
        Code.SHUTTING_DOWN: Refusal(
            503, "SERVICE_UNAVAILABLE", "The server is about to stop; see Retry-After."
        ),
        Code.STORAGE_UNAVAILABLE: Refusal(
            503, "SERVICE_UNAVAILABLE", "Nothing can be written at the moment; see Retry-After."
        ),
    }
)
"""Status and usual code of every refusal; those of INVALID and INTERNAL depend on the operation."""

_LABELS = {
    Code.UNAUTHENTICATED: "unauthorized",
    Code.FORBIDDEN: "forbidden",
    Code.NOT_READY: "service_unavailable",
    Code.SHUTTING_DOWN: "service_unavailable",
    Code.STORAGE_UNAVAILABLE: "service_unavailable",
    Code.BODY_TOO_LARGE: "Payload Too Large",
    Code.RECORD_TOO_LARGE: "Payload Too Large",
    Code.THROTTLED: "Too Many Requests",
    Code.READ_ONLY: "Notification Storage Failed",
}
_NO_DETAILS = frozenset((Code.UNAUTHENTICATED, Code.FORBIDDEN))
_FAILURES: Mapping[Operation, RequestProblem] = {
    Operation.NOTIFY: RequestProblem(
        "NOTIFICATION_PROCESSING_FAILED", "Notification Processing Failed"
    ),
    Operation.WATCH: RequestProblem(
        "SSE_STREAM_INITIALIZATION_FAILED", "SSE stream creation failed"
    ),
    Operation.REPLAY: RequestProblem(
        "SSE_STREAM_INITIALIZATION_FAILED", "SSE stream creation failed"
    ),
}


class NotificationError(msgspec.Struct):
    """Every refusal but those of admin routes."""

    code: str
    error: str
    message: str
    request_id: str
    details: str | UnsetType = UNSET
    configured_event_types: list[str] | UnsetType = UNSET
    topic: str | UnsetType = UNSET


class AdminReply(msgspec.Struct, omit_defaults=True):
    """What became of a deletion."""

    success: bool
    message: str
    request_id: str
    notification_id: str | None = None


def describe(refused: Refused, operation: Operation) -> tuple[int, RequestProblem]:
    """The status, the code and the label of a refusal."""
    status, code, _ = REFUSALS[refused.code]
    problem = refused.detail.get(_PROBLEM)
    if problem is None:
        if refused.code is Code.INVALID:
            problem = RequestProblem(operation.code)
        elif refused.code is Code.INTERNAL and operation in _FAILURES:
            problem = _FAILURES[operation]
        else:
            problem = RequestProblem(
                code, _LABELS.get(refused.code, code.replace("_", " ").title())
            )
    return status, problem


def refuser(*, takes_passwords: bool) -> Refuse:
    """How the surface refuses; `takes_passwords` where it is said that Basic is taken."""
    challenges: Headers = [("www-authenticate", "Bearer")]
    if takes_passwords:
        challenges.append(("www-authenticate", 'Basic realm="headrace"'))

    def refuse(refused: Refused, request: Request, started: float) -> Answer:
        if refused.code in (Code.NOT_FOUND, Code.METHOD_NOT_ALLOWED):
            return refuse_api(refused, REFUSALS[refused.code], request)
        operation = operation_of(request.path)
        status, problem = describe(refused, operation)
        headers: Headers = [("content-type", JSON), ("cache-control", "no-store")]
        if refused.code is Code.UNAUTHENTICATED:
            headers += challenges
        headers += retry_after(status, refused.detail)
        if operation is Operation.ADMIN and status in (400, 500):
            return Answer(status, headers, encode_admin(False, refused.message, request.id))
        return Answer(status, headers, _encode(refused, problem, operation, request.id))

    return refuse


def _encode(
    refused: Refused, problem: RequestProblem, operation: Operation, request_id: str
) -> bytes:
    detail = refused.detail
    details = detail.get("details", refused.message)
    has_none = refused.code in _NO_DETAILS or details is UNSET
    return msgspec.json.encode(
        NotificationError(
            problem.code,
            problem.label or operation.label,
            refused.message,
            request_id,
            UNSET if has_none else str(details),
            detail.get("configured_event_types", UNSET),
            detail.get("topic", UNSET)
            if operation in (Operation.WATCH, Operation.REPLAY)
            else UNSET,
        )
    )


def encode_admin(
    success: bool, message: str, request_id: str, notification_id: str | None = None
) -> bytes:
    """The body of an answer to an admin."""
    return msgspec.json.encode(AdminReply(success, message, request_id, notification_id))
