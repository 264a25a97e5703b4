"""How flags say no: a status and a code for every refusal there is, and those of their own."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from headrace.core.errors import Code, Refused
from headrace.web.answers import Answer, json_answer, retry_after
from headrace.web.api_envelope import refuse_api
from headrace.web.request import Request
from headrace.web.surface import Refusal, complete

REFUSALS = complete(
    {
        Code.INVALID: ("invalid_request", "A value that cannot be, or a body that is no JSON."),
        Code.BATCH_TOO_LARGE: Refusal(413, "payload_too_large", "The upload holds too much."),
        Code.RECORD_TOO_LARGE: Refusal(413, "payload_too_large", "A file is too large."),
        Code.UNAUTHENTICATED: (
            "unauthorized", "No token, or one that is unknown, expired or revoked.",
        ),
        Code.FORBIDDEN: ("forbidden", "The token is made for something else."),
        Code.LOG_NOT_FOUND: ("namespace_not_found", "There is no such namespace."),
        Code.NOT_FOUND: ("not_found", "There is nothing at this path."),
        Code.METHOD_NOT_ALLOWED: ("method_not_allowed", "The path does not take this method."),
        Code.NOT_ACCEPTABLE: ("not_acceptable", "The Accept header rules out what is served."),
        Code.LOG_INCOMPATIBLE: ("conflict", "The name of the log is another surface's."),
        Code.CONFLICT: ("conflict", "There is one already."),
        Code.GONE: ("closure_unavailable", "The files of this version are not kept any more."),
        Code.BODY_TOO_LARGE: ("payload_too_large", "The body is over the limit."),
        Code.MEDIA_TYPE: ("unsupported_media_type", "The body is of another type."),
        Code.URI_TOO_LONG: ("uri_too_long", "The query is over the limit; there is no body."),
        Code.LOG_FULL: Refusal(429, "rate_limit_exceeded", "The server holds all it may hold."),
        Code.THROTTLED: (
            "rate_limit_exceeded",
            "A cap is reached, or writes come too fast; see Retry-After.",
        ),
        Code.INTERNAL: ("internal_error", "A bug in the server."),
        Code.NOT_READY: ("unavailable", "The server is reading its journal; see Retry-After."),
        Code.SHUTTING_DOWN: ("unavailable", "The server is about to stop; see Retry-After."),
        Code.READ_ONLY: ("unavailable", "The journal failed: writes need a restart."),
        Code.STORAGE_UNAVAILABLE: (
            "unavailable",
            "Nothing can be written at the moment; see Retry-After.",
        ),
    }
)  # fmt: skip
"""Status and usual code of every refusal."""


class FlagsProblem(NamedTuple):
    """A code of the wire that is narrower than a refusal of the core."""

    core: Code
    refusal: Refusal

    def refused(self, message: str, **details: Any) -> Refused:
        """A refusal with this code."""
        return Refused(self.core, message, **{_PROBLEM: self}, **details)


_PROBLEM = "problem"
"""The detail that holds the problem; it is not told."""


def _problem(core: Code, code: str, meaning: str, status: int | None = None) -> FlagsProblem:
    return FlagsProblem(core, Refusal(status or core.status, code, meaning))


TENANT_NOT_FOUND = _problem(Code.NOT_FOUND, "tenant_not_found", "There is no such tenant.")
NAMESPACE_NOT_FOUND = _problem(
    Code.NOT_FOUND, "namespace_not_found", "There is no such namespace, or not this version of it."
)
TOKEN_NOT_FOUND = _problem(Code.NOT_FOUND, "token_not_found", "There is no such token here.")
MANIFEST_NOT_FOUND = _problem(
    Code.NOT_FOUND, "manifest_not_found", "The namespace has no manifest yet."
)
VERSION_NOT_FOUND = _problem(Code.NOT_FOUND, "version_not_found", "There is no such version.")
FLAG_NOT_FOUND = _problem(Code.NOT_FOUND, "flag_not_found", "There is no such flag.")
TENANT_EXISTS = _problem(Code.CONFLICT, "tenant_exists", "There is a tenant of this name.")
NAMESPACE_EXISTS = _problem(Code.CONFLICT, "namespace_exists", "The tenant has this namespace.")
VERSION_CONFLICT = _problem(Code.CONFLICT, "version_conflict", "If-Version names another version.")
LINT_FAILED = _problem(Code.INVALID, "manifest_lint_failed", "The manifest has errors.", 422)
SCHEMA_VERSION_MISMATCH = _problem(
    Code.INVALID, "schema_version_mismatch", "Files of a major version not known here.", 422
)
PARSE_ERROR = _problem(Code.INVALID, "parse_error", "OFREP: the body is no JSON.")
INVALID_CONTEXT = _problem(Code.INVALID, "invalid_context", "OFREP: the context is none.")
INVALID_SUBSCRIPTION = _problem(
    Code.INVALID, "invalid_subscription", "See details.reason: what is wrong with ns."
)
CLOSURE_TOKEN_INVALID = _problem(
    Code.UNAUTHENTICATED,
    "closure_token_invalid",
    "The signed token of the URL is wrong, expired, or for something else.",
)


OFREP = "/ofrep/v1/evaluate/flags"
"""How paths of OFREP end, but for the key of a flag."""
_OFREP_CODES = frozenset(("FLAG_NOT_FOUND", "PARSE_ERROR", "INVALID_CONTEXT"))
_GENERAL = "GENERAL"


class OfrepFailure(msgspec.Struct, omit_defaults=True):
    """A refusal of OFREP."""

    errorCode: str  # noqa: N815  (OFREP calls it so)
    errorDetails: str  # noqa: N815
    key: str | None = None
    """The flag, where one was asked for."""


def refuse(refused: Refused, request: Request, started: float) -> Answer:
    """The answer to what is refused."""
    details = dict(refused.detail)
    problem = details.pop(_PROBLEM, None)
    refusal = REFUSALS[refused.code] if problem is None else problem.refusal
    if refused.code is Code.URI_TOO_LONG:
        return Answer(refusal.status, [("cache-control", "no-store")])  # the contract: no body
    if OFREP in request.path:
        answer = _refuse_ofrep(refused, refusal, request)
    else:
        answer = refuse_api(Refused(refused.code, refused.message, **details), refusal, request)
    answer.headers += retry_after(refusal.status, details)
    if refused.code is Code.UNAUTHENTICATED:
        answer.headers.append(("www-authenticate", "Bearer"))
    return answer


def _refuse_ofrep(refused: Refused, refusal: Refusal, request: Request) -> Answer:
    key = request.path.rpartition(OFREP)[2].removeprefix("/") or None
    code = refusal.code.upper()
    if code not in _OFREP_CODES:
        code = "FLAG_NOT_FOUND" if refusal.status == 404 and key else _GENERAL
    body = OfrepFailure(code, refused.message, key)
    return json_answer(msgspec.json.encode(body), refusal.status)
