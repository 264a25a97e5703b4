"""A surface: a protocol as a value. Routes, and how it refuses, authenticates and answers.

Everything else is derived from the routes: which path takes which method, `Allow`, the OpenAPI
document and the page of documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from headrace.core.errors import Code
from headrace.engine.flow.shared_timeout import SharedTimeout
from headrace.observe import Sample
from headrace.web.answers import JSON, Answer, Handover, Headers, Reply
from headrace.web.calls import Authenticate, Call, Refuse, by_key
from headrace.web.credentials import Principal, Scope
from headrace.web.request import Request

Handler = Callable[[Call], Coroutine[Any, Any, Answer | Reply | Handover]]


class Parameter(NamedTuple):
    """A value in the query, the path or a header."""

    name: str
    type: Any
    description: str
    place: Literal["query", "path", "header"] = "query"
    default: Any = None
    example: Any = None
    required: bool = False
    """Segments of the path always are."""


class Described(NamedTuple):
    """What one status brings: the type of its body, if it has one, and when it is sent."""

    type: Any
    description: str
    media: str = JSON
    also: Mapping[str, Any] = {}
    """Types of the body under other media types, for who asks for those."""
    links: Mapping[str, Any] = {}
    """What can be asked for with what it tells, as OpenAPI has it."""


class Refusal(NamedTuple):
    """How a surface says no for one reason."""

    status: int
    code: str
    meaning: str


Refusals = Mapping[Code, Refusal]
"""How a surface says no, for every reason there is."""
Words = Mapping[Code, tuple[str, str] | Refusal]
"""What a surface calls refusals and what they mean; with a status where it is not the usual one."""


class Route(msgspec.Struct, frozen=True):
    """One operation: who answers, and what its documentation says.

    A scope of `None` means that no key is asked for.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    """What it does; a route without one is not told of."""
    replies: Mapping[int, Described]
    request: Any = None
    """The type of the body, if it is JSON; of several, any."""
    media: str = JSON
    """The media type of the body."""
    requires_body: bool = False
    parameters: Sequence[Parameter] = ()
    scope: Scope | None = None
    roles: tuple[str, ...] = ()
    """Of these, one is needed; on surfaces that have roles."""
    operation: str = ""
    """What clients call it that are made of the document; derived from the path if not given."""
    group: str = ""
    description: str = ""
    example: Any = None
    lives_long: bool = False
    """Whether it counts as a connection that is pushed to while it is under way."""
    head: bool = False
    """Whether HEAD is answered, too, without the body."""
    authenticate: Authenticate | None = None
    """Who asks, where that is said in another way than everywhere on the surface."""
    security: Mapping[str, Any] | None = None
    """That way, as OpenAPI has it."""
    cors: bool = True
    """Whether pages of other origins may be allowed to call what is at this path."""


class OutgoingCall(msgspec.Struct, frozen=True, kw_only=True):
    """What a surface posts to receivers that somebody registered, as its documentation has it."""

    summary: str
    description: str = ""
    request: Any
    """The type of the body."""
    media: str = JSON
    parameters: Sequence[Parameter] = ()
    """Its headers."""
    replies: Mapping[int, str]
    """What statuses of the receiver mean."""
    group: str = ""


_BEARER = {"bearer": {"type": "http", "scheme": "bearer"}}


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """One protocol."""

    name: str
    title: str
    prefixes: tuple[str, ...]
    """Paths below are the surface's, whether there is something or not."""
    routes: Sequence[Route]
    refusals: Refusals
    refuse: Refuse
    authenticate: Authenticate = by_key
    finish: Callable[[Call, Reply], Answer] | None = None
    """Closes an open reply."""
    headers: Headers = msgspec.field(default_factory=list)
    """Of every answer."""
    options: Callable[[Request, str], Answer] = lambda request, allow: Answer(
        200, [("allow", allow)]
    )
    """Tells what a path takes."""
    shared_timeout: Callable[[Request, Route], SharedTimeout | None] | None = None
    """How long a request may take."""
    security: Mapping[str, Any] = msgspec.field(default_factory=lambda: dict(_BEARER))
    """How who asks is known, as OpenAPI has it."""
    webhooks: Mapping[str, OutgoingCall] = {}
    """What the surface calls, by name."""
    compresses: bool = False
    """Whether answers are packed for those who take that."""
    observe: Callable[[Request, str | None, int], None] | None = None
    """Told of every answer: the path of its route, if there is one, and the status."""
    samples: Callable[[Principal], Sequence[Sample]] | None = None
    """Metrics of its own, as far as somebody may see them."""
    servers: tuple[str, ...] = ()
    """Below which paths all of it is found, where there are several, as OpenAPI has it."""
    openapi_path: str | None = None
    """Where clients of the protocol look for its OpenAPI document, which has a path anyway."""


def complete(words: Words) -> dict[Code, Refusal]:
    """How a surface says no, for every reason: those it has no words for in the core's."""
    said = {code: words.get(code, (code.value, "")) for code in Code}
    return {
        code: each if isinstance(each, Refusal) else Refusal(code.status, *each)
        for code, each in said.items()
    }


_ALWAYS = (
    Code.UNAUTHENTICATED, Code.FORBIDDEN, Code.THROTTLED, Code.NOT_READY, Code.STORAGE_UNAVAILABLE,
)  # fmt: skip
"""What every endpoint may answer."""


def with_refusals(
    ok: Mapping[int, Described],
    codes: Sequence[Code | Refusal],
    refusals: Refusals,
    error_type: Any,
) -> dict[int, Described]:
    """The good replies of an endpoint, and the refusals it can give: these, and what all can."""
    replies = dict(ok)
    for code in (*codes, *_ALWAYS):
        status, name, _ = code if isinstance(code, Refusal) else refusals[code]
        said = replies[status].description + ", " if status in replies else ""
        replies[status] = Described(error_type, f"{said}`{name}`")
    return dict(sorted(replies.items()))
