"""A request: its head, and its body as it comes."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    BODY_WAITING_BYTES_MAX,
    PATH_SHOWN_BYTES_MAX,
    QUERY_PARAMETERS_MAX,
    REQUEST_ID_LENGTH_MAX,
)
from headrace.web.bodies import cut_short
from headrace.web.request_ids import new_request_id

if TYPE_CHECKING:
    from headrace.web.connection import Connection


@cache
def _field(name: str) -> bytes:
    """The name of a header as the parser has it; there are a few dozen."""
    return name.lower().encode()


def split_query(text: str) -> list[tuple[str, str]]:
    """The parameters of a query, as names and values."""
    if text.count("&") >= QUERY_PARAMETERS_MAX:
        message = f"a query has at most {QUERY_PARAMETERS_MAX} parameters"
        raise Refused(Code.INVALID, message, max_parameters=QUERY_PARAMETERS_MAX)
    if "%" in text or "+" in text:
        return parse_qsl(text, keep_blank_values=True)
    pairs = (part.partition("=") for part in text.split("&") if part)
    return [(name, value) for name, _, value in pairs]


class Request:
    """What a client asked for. Its connection fills the body in."""

    # (What most requests leave as it is stands here: that costs none of them anything.)
    is_http10 = False
    keep_alive = True
    expects = False
    """Whether the peer waits to be asked for its body."""
    body: bytes | bytearray = b""
    complete = False
    """Whether all of the body is there."""
    answered = False
    read_max = BODY_WAITING_BYTES_MAX
    """How much of the body is taken in before somebody asks for more of it."""
    _waiter: asyncio.Future[None] | None = None
    _params: dict[str, list[str]] | None = None
    _id: str | None = None

    def __init__(
        self, connection: Connection, method: str, target: bytes, headers: dict[bytes, bytes]
    ) -> None:
        self.connection = connection
        self.method = method
        self.query = b""
        if b"?" in target:
            target, _, query = target.partition(b"?")
            self.query = query.partition(b"#")[0] if b"#" in query else query
        self.raw_path = target
        self.headers = headers
        """By name; several of one name are joined by commas."""

    # --- the head ---------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The path for people, the beginning of a long one."""
        text = self.raw_path[:PATH_SHOWN_BYTES_MAX].decode("ascii", "replace")
        return unquote(text) if "%" in text else text

    @property
    def segments(self) -> list[str]:
        """The parts of the path as they came: an encoded slash is a letter of a name."""
        return self.raw_path.decode("utf-8", "replace").split("/")

    @property
    def id(self) -> str:
        """By which the request is found in the log: its `X-Request-ID`, or a new one."""
        if self._id is None:
            given = self.headers.get(b"x-request-id")
            self._id = (given and _parse_id(given)) or new_request_id()
        return self._id

    def __contains__(self, header: str) -> bool:
        return _field(header) in self.headers

    def get_header(self, name: str) -> str | None:
        value = self.headers.get(_field(name))
        return None if value is None else value.decode("latin-1")

    @property
    def content_type(self) -> str | None:
        return self.get_header("content-type")

    @property
    def accept(self) -> str:
        return self.get_header("accept") or "*/*"

    @property
    def content_length(self) -> int | None:
        length = self.headers.get(b"content-length")
        return None if length is None else int(length)  # the connection let only digits through

    @property
    def query_string(self) -> str:
        return self.query.decode("latin-1")

    def get_params(self, name: str) -> list[str]:
        """All values of a query parameter."""
        return self._query_params().get(name, [])

    @property
    def param_names(self) -> list[str]:
        """Which query parameters there are."""
        return list(self._query_params())

    def _query_params(self) -> dict[str, list[str]]:
        if self._params is None:
            self._params = {}
            if self.query:
                for each, value in split_query(self.query_string):
                    self._params.setdefault(each, []).append(value)
        return self._params

    def get_param(self, name: str) -> str | None:
        """A query parameter; of several, the last."""
        values = self.get_params(name)
        return values[-1] if values else None

    @property
    def url(self) -> str:
        """Where this is, as the caller sees us."""
        path = self.raw_path.decode("latin-1")
        host = self.get_header("host")
        return f"http://{host}{path}" if host else path

    # --- the body ---------------------------------------------------------------------------------

    def add(self, piece: bytes) -> None:
        """More of the body came."""
        if not self.body:
            self.body = piece
        else:
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += piece
        if self._waiter is not None and len(self.body) >= self.read_max:
            self.wake()

    def end(self) -> None:
        """The body is there."""
        self.complete = True
        if self._waiter is not None:
            self.wake()

    def wake(self) -> None:
        """Something happened that who waits for the body wants to know."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def read(self, size_max: int) -> bytes:
        """The body, or as much of it as it takes to see that it is longer than `size_max`."""
        connection = self.connection
        self.read_max = size_max + 1
        while not self.complete and len(self.body) <= size_max:
            if connection.gone:
                raise cut_short()  # the client hung up: half a body is none
            connection.take_body(self)
            self._waiter = waiter = asyncio.get_running_loop().create_future()
            await waiter
        body = self.body
        return body if isinstance(body, bytes) else bytes(body)


def _parse_id(given: bytes) -> str | None:
    """An id that a caller gave, if it can stand in a header and in a line of the log."""
    fits = len(given) <= REQUEST_ID_LENGTH_MAX and given.isascii()
    text = given.decode("ascii") if fits else ""
    return text if text.isprintable() else None
