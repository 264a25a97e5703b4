"""The one way to say no: a refusal with a code.

Each surface maps the code to its own status and body.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn


class Code(Enum):
    """Every reason the product refuses something. Each surface must map all of them."""

    INVALID = "invalid"
    BATCH_TOO_LARGE = "batch_too_large"
    RECORD_TOO_LARGE = "record_too_large"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    LOG_NOT_FOUND = "log_not_found"
    ROUTER_NOT_FOUND = "router_not_found"
    ROUTER_CYCLE = "router_cycle"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NOT_ACCEPTABLE = "not_acceptable"
    LOG_INCOMPATIBLE = "log_incompatible"
    CONFLICT = "conflict"
    CLOSED = "closed"
    PRODUCER_FENCED = "producer_fenced"
    PRODUCER_GAP = "producer_gap"
    GONE = "gone"
    FENCED = "fenced"
    ALREADY_CLAIMED = "already_claimed"
    NOTHING_PENDING = "nothing_pending"
    URL_REJECTED = "url_rejected"
    REQUEST_TIMEOUT = "request_timeout"
    APPEND_TIMEOUT = "append_timeout"
    LOG_NOT_EMPTY = "log_not_empty"
    NOT_A_QUEUE = "not_a_queue"
    BODY_TOO_LARGE = "body_too_large"
    MEDIA_TYPE = "media_type"
    LOG_FULL = "log_full"
    THROTTLED = "throttled"
    INTERNAL = "internal"
    NOT_READY = "not_ready"
    SHUTTING_DOWN = "shutting_down"
    READ_ONLY = "read_only"
    STORAGE_UNAVAILABLE = "storage_unavailable"


TELLING = frozenset(
    {
        Code.INVALID, Code.LOG_NOT_FOUND, Code.ROUTER_NOT_FOUND, Code.ROUTER_CYCLE, Code.NOT_FOUND,
        Code.LOG_INCOMPATIBLE, Code.LOG_NOT_EMPTY, Code.NOT_A_QUEUE, Code.CONFLICT, Code.CLOSED,
        Code.GONE, Code.PRODUCER_FENCED, Code.PRODUCER_GAP, Code.FENCED, Code.ALREADY_CLAIMED,
        Code.NOTHING_PENDING,
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
