"""The one way to say no: a refusal with a code.

Each surface maps the code to its own status and body.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn


class Code(Enum):
    """Every reason the product refuses something, with the status it usually has over HTTP.

    A surface may say another one, and has its own words.
    """

    status: int

    def __new__(cls, value: str, status: int) -> Code:
        code = object.__new__(cls)
        code._value_ = value
        code.status = status
        return code

    INVALID = "invalid", 400
    BATCH_TOO_LARGE = "batch_too_large", 400
    RECORD_TOO_LARGE = "record_too_large", 400
    UNAUTHENTICATED = "unauthenticated", 401
    FORBIDDEN = "forbidden", 403
    LOG_NOT_FOUND = "log_not_found", 404
    ROUTER_NOT_FOUND = "router_not_found", 404
    ROUTER_CYCLE = "router_cycle", 409
    TRACKER_NOT_FOUND = "tracker_not_found", 404
    WEBHOOK_NOT_FOUND = "webhook_not_found", 404
    TRACKER_LEASED = "tracker_leased", 409
    CURSOR_EXPIRED = "cursor_expired", 410
    SOURCE_DELETED = "source_deleted", 410
    NOT_FOUND = "not_found", 404
    METHOD_NOT_ALLOWED = "method_not_allowed", 405
    NOT_ACCEPTABLE = "not_acceptable", 406
    LOG_INCOMPATIBLE = "log_incompatible", 409
    CONFLICT = "conflict", 409
    CLOSED = "closed", 409
    PRODUCER_FENCED = "producer_fenced", 403
    PRODUCER_GAP = "producer_gap", 409
    GONE = "gone", 410
    FENCED = "fenced", 409
    ALREADY_CLAIMED = "already_claimed", 409
    NOTHING_PENDING = "nothing_pending", 409
    URL_REJECTED = "url_rejected", 400
    REQUEST_TIMEOUT = "request_timeout", 408
    APPEND_TIMEOUT = "append_timeout", 408
    LOG_NOT_EMPTY = "log_not_empty", 409
    NOT_A_QUEUE = "not_a_queue", 409
    BODY_TOO_LARGE = "body_too_large", 413
    URI_TOO_LONG = "uri_too_long", 414
    MEDIA_TYPE = "media_type", 415
    LOG_FULL = "log_full", 422
    THROTTLED = "throttled", 429
    INTERNAL = "internal", 500
    NOT_READY = "not_ready", 503
    SHUTTING_DOWN = "shutting_down", 503
    READ_ONLY = "read_only", 503
    STORAGE_UNAVAILABLE = "storage_unavailable", 503


TELLING = frozenset(
    {
        Code.INVALID, Code.LOG_NOT_FOUND, Code.ROUTER_NOT_FOUND, Code.ROUTER_CYCLE, Code.NOT_FOUND,
        Code.LOG_INCOMPATIBLE, Code.LOG_NOT_EMPTY, Code.NOT_A_QUEUE, Code.CONFLICT, Code.CLOSED,
        Code.GONE, Code.PRODUCER_FENCED, Code.PRODUCER_GAP, Code.FENCED, Code.ALREADY_CLAIMED,
        Code.NOTHING_PENDING, Code.TRACKER_NOT_FOUND, Code.WEBHOOK_NOT_FOUND, Code.TRACKER_LEASED,
        Code.CURSOR_EXPIRED, Code.SOURCE_DELETED,
    }
)  # fmt: skip
"""Refusals that tell of what there is and what is not."""


class Refused(Exception):
    """The engine said no and nothing changed."""

    def __init__(self, code: Code, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail


def refuse_invalid(message: str) -> NoReturn:
    """What was asked makes no sense, whatever the state of things."""
    raise Refused(Code.INVALID, message)


class Corrupt(Exception):
    """Bytes are not what they were: says which file, where, and what is wrong with it."""

    def __init__(self, where: str, offset: int, problem: str) -> None:
        super().__init__(f"{where}, byte {offset}: {problem}")
        self.where = where
        self.offset = offset
        self.problem = problem
