"""One HTTP connection: bytes to requests, answers to bytes.

A request whose body came with its head is answered without a turn of the loop between: it is begun
as soon as the parser returns, and what it answers leaves with all else that this turn writes. A
connection can be handed over to a sink, which then writes to the transport itself; a request for a
WebSocket is a request like any other until then.

What a connection may cost is bounded, whoever is at the other end (decision 25):

- The parser is given a little at a time, and no more while requests wait or when a turn was long.
- The head of a request, what is between the chunks of a body, and how long we wait for either.
- What is refused here is refused as everywhere else, in its turn, and so that the peer can read it.
- A connection that waits for its next request keeps nothing of the last.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import httptools
import msgspec

from headrace.core.limits import (
    CHUNK_FRAMING_BYTES_MAX,
    CHUNKS_PER_TURN,
    FEED_BYTES,
    HEAD_BYTES_FAIR,
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    HEADS_BYTES_MAX,
    PEER_TIMEOUT_S,
    REQUESTS_PER_TURN,
)
from headrace.web import heads
from headrace.web.answers import NO_BODY, Answer, Handover, format_head, format_lines
from headrace.web.heads import Unacceptable
from headrace.web.http2_refusal import Http2Refusal, behind_preface
from headrace.web.lingering_close import LingeringClose
from headrace.web.request import Request
from headrace.web.request_task import RequestTask
from headrace.web.unsent_answers import UnsentAnswers

_OFFER = (b"upgrade", b"http2-settings", b"connection")
_PREFACE_CAME = ("Pause on PRI/Upgrade",)
"""What the parser says when a client speaks HTTP/2."""
_HEAD_END = b"\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_JOINED_BYTES_MAX = 4096
"""Of a body that is written in one piece with its head."""
_METHODS = {name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "DELETE")}
_IDLE, _HEAD, _BODY = 0, 1, 2
"""What the parser is in the middle of."""

Send = Callable[[Request, Answer | Handover | None], None]
Respond = Callable[[Request, Send], RequestTask | None]
"""Has a request answered by a call of `Send`, at once or later; returns who is at it then."""


class Connections(msgspec.Struct):
    """What all connections share: what each may do, and what they hold together."""

    count_max: int = sys.maxsize
    head_s: float = 30.0
    """How long a connection may take for the head of a request, or for its first byte."""
    body_s: float = 30.0
    """How long a body may stand still, and how long one that nobody wants may take."""
    stopping: bool = False
    """Whether the server is about to stop: no connection waits for another request."""
    keep_alive_s: float = 75.0
    """How long a connection may wait for its next request."""
    head_bytes: int = 0
    """Of heads that did not come at once, until their requests are answered."""
    date: str = ""
    """The `Date` of every answer, as a line."""
    open: set[Any] = msgspec.field(default_factory=set)
    """The protocols of all connections: ours, and those they were handed over to."""
    tasks: dict[Request, RequestTask] = msgspec.field(default_factory=dict)
    """Who answers requests that take a while."""
    unsent: UnsentAnswers = msgspec.field(default_factory=UnsentAnswers)


class Connection(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport
    _phase = _IDLE
    _unread: memoryview | None = None
    """What came and was not given to the parser yet."""
    _held = False
    """Whether the transport reads nothing more for now."""
    _reading_on = False
    """Whether reading goes on in the next turn of the loop."""
    _stopped = False
    """Whether the parser is given nothing more, for one of two reasons."""
    _upgrading = False
    """A request for a WebSocket waits for its answer: what follows may not be HTTP."""
    _final_reply: bytes | None = None
    """What to send before we close, once that is what comes next."""
    _head_bytes = 0
    """What came of this head so far, if it did not come at once."""
    _charged_bytes = 0
    """What of heads is counted in what all connections hold."""
    _body_left = 0
    """What is to come of a body whose length is known."""
    _chunked = False
    _chunks = 0
    """Pieces of a body in chunks that came with what the parser was last given."""
    _framing_bytes = 0
    """What came since the last of them."""
    _since: float | None = None
    """Since when we wait for the peer; nothing while the peer waits for us."""
    _patience_s = 0.0
    _is_new = True
    """Whether no request came yet."""
    _begun = 0
    """Requests that were begun in this turn of the loop."""
    _advancing = False
    """Whether requests are being begun right now, one after the other."""
    _is_full = False
    """Whether the peer does not take what we write."""
    _incoming: Request | None = None
    """The request whose body is being received."""
    under_way: Request | None = None
    """The request that is being answered; others may wait behind it."""
    _timer: asyncio.TimerHandle | None = None
    gone = False
    """Whether the peer has hung up, or says no more, or we have left."""
    on_gone: Callable[[], None] | None = None
    """Called when that happens; set while somebody waits for something to tell the peer."""

    def __init__(self, respond: Respond, shared: Connections) -> None:
        self._respond = respond
        self._shared = shared
        self.loop = asyncio.get_running_loop()
        self._queue: deque[Request] = deque()
        """Requests that wait for their turn."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._parser = _new_parser(self)

    # --- coming and going -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        shared = self._shared
        shared.open.add(self)
        if len(shared.open) > shared.count_max:
            # Close at once, without a wait for the peer: it holds a descriptor.
            busy = Unacceptable("there are too many connections", heads.UNAVAILABLE, "throttled")
            transport.write(busy.format(shared.date))
            transport.close()
        else:
            _give_up_on_stuck_peers(transport)
            self._wait(shared.head_s)
            self._watch(shared.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.open.discard(self)
        self._let_go()

    def eof_received(self) -> bool:
        """The peer says nothing more: what it has asked for is answered, and then we close.

        It may be gone for good, too: nobody waits for something new to tell it.
        """
        last = self._queue[-1] if self._queue else self.under_way
        if last is None or not last.complete:
            return False
        last.keep_alive = False
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()
        return True

    def shutdown(self) -> None:
        """The server is about to stop: what is under way is answered, and nothing else."""
        if self.under_way is None and not self._queue:
            self.transport.close()
        else:
            last = self._queue[-1] if self._queue else self.under_way
            assert last is not None
            last.keep_alive = False

    def _let_go(self) -> None:
        """The connection is no longer ours.

        Every ring is broken: memory is free at once, and not when the collector comes.
        """
        self.gone = True
        if self._is_full:
            self._shared.unsent.free(self.transport)
        waiting = self._incoming
        self._rest()
        self._unread = None
        self._queue.clear()
        self._parser = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if waiting is not None:
            waiting.wake()
        if self.on_gone is not None:
            self.on_gone()

    def _rest(self) -> None:
        """All is said; there may be another request, for which nothing of the last is needed."""
        self._incoming = self.under_way = None
        self._headers = []
        self._url = b""
        if self._charged_bytes:
            self._release_heads(0)
        self._since, self._patience_s = self.loop.time(), self._shared.keep_alive_s

    def _release_heads(self, held_bytes: int) -> None:
        """Of heads no more than so many bytes are still held."""
        if self._charged_bytes > held_bytes:
            self._shared.head_bytes -= self._charged_bytes - held_bytes
            self._charged_bytes = held_bytes

    def _hand_over(self, given: Handover) -> None:
        """Give the connection to a sink; HTTP is over on it.

        Requests behind the one that asked for it are dropped. What the peer of a WebSocket said
        before it heard of us is not.
        """
        self.on_gone = None
        early = bytes(self._unread or b"") if self._upgrading else b""
        sink, shared = given.sink, self._shared
        head = format_head(given.status, shared.date, format_lines(given.headers)) + given.preamble
        transport = self._leave_to(sink)
        sink.attach(transport, head, given.on_end, partial(shared.open.discard, sink))
        if early and not sink.closed:
            sink.data_received(early)

    def _leave_to(self, successor: Any) -> asyncio.Transport:
        """Another one has the connection from here on."""
        transport, shared = self.transport, self._shared
        shared.open.discard(self)
        shared.open.add(successor)
        transport.set_protocol(successor)
        if not transport.is_closing():
            transport.resume_reading()
        self._let_go()
        return transport

    # --- reading ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._final_reply is not None:
            return
        self._begun = 0
        if self._unread is None and len(data) <= FEED_BYTES and not self._is_busy:
            taken = self._feed(data)
            if taken < len(data) and self._final_reply is None:
                self._unread = memoryview(data)[taken:]
            if self._queue:
                self._advance()
            whole = self._unread is None and self._incoming is None
            if whole and not (self._held or self._queue):
                return
        else:
            unread = memoryview(data if self._unread is None else bytes(self._unread) + data)
            if self._phase == _IDLE and self._unread is None and not self._is_busy:
                # A head by itself: then the parser can be given a body in one piece.
                taken = self._feed(unread[: data.find(_HEAD_END, 0, FEED_BYTES) + 4 or FEED_BYTES])
                unread = unread[taken:]
            if self._final_reply is None:
                self._unread = unread
        self._read_some()

    def _read_some(self) -> None:
        """Give the parser what came, until others are to have a turn."""
        self._reading_on = False
        chunks = 0
        while self._unread is not None and not self._is_busy:
            size = self._body_left if self._phase == _BODY else 0
            taken = self._feed(self._unread[: size or FEED_BYTES])
            if self._unread is None:
                break  # what came is no request
            self._unread = self._unread[taken:] if taken < len(self._unread) else None
            self._advance()
            chunks += self._chunks
            if (
                chunks >= CHUNKS_PER_TURN
                or self._begun >= REQUESTS_PER_TURN
                or self._phase == _HEAD
            ):
                break
        self._advance()
        self._regulate()

    @property
    def _is_busy(self) -> bool:
        """Whether what comes next has to wait."""
        if self._stopped or self._queue:
            return True
        incoming = self._incoming
        return (
            incoming is not None
            and len(incoming.body) >= incoming.read_max
            and not incoming.answered
        )

    def _regulate(self) -> None:
        """Read on in the next turn of the loop, or have the peer wait: whichever it is time for."""
        if self.gone or self._final_reply is not None:
            return
        busy = self._is_busy
        hold = busy or self._unread is not None
        if hold != self._held:
            self._held = hold
            if hold:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
        if self._unread is not None and not busy:
            self._go_on_later()

    def _read_on(self) -> None:
        self._begun = 0
        self._read_some()

    def _feed(self, data: bytes | memoryview) -> int:
        """Have the parser read this; returns how many bytes it took."""
        assert self._parser is not None
        self._chunks = 0
        taken = len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            taken = upgrade.args[0]
            self._upgrade()
        except httptools.HttpParserError as error:
            self._refuse(error, data)
        else:
            if self._phase:
                self._look(taken)
        return taken

    def take_body(self, request: Request) -> None:
        """The handler of a request wants its body, or more of it than it has."""
        if request.expects:
            request.expects = False
            self.transport.write(_CONTINUE)
        self._regulate()

    def _look(self, size: int) -> None:
        """Some of a request has come, and not all of it."""
        if self._phase == _HEAD:
            self._look_at_head(size)
            return
        incoming = self._incoming
        assert incoming is not None
        self._enqueue(incoming)  # its handler may refuse it before its body is there
        if self._chunked:
            self._framing_bytes = 0 if self._chunks else self._framing_bytes + size
            if self._framing_bytes > CHUNK_FRAMING_BYTES_MAX:
                most = f"{CHUNK_FRAMING_BYTES_MAX} bytes of extensions and trailers"
                text = f"there are at most {most} between and behind chunks"
                self._turn_away(Unacceptable(text, heads.TOO_LARGE, "head_too_large"))
                return
        if incoming.answered:
            return  # nobody wants what is left of this body: its time began with the answer
        if self._since is None or self._chunks or not self._chunked:
            self._wait(self._shared.body_s)

    def _look_at_head(self, size: int) -> None:
        shared = self._shared
        self._head_bytes += size
        self._charged_bytes += size
        shared.head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            text = f"the head of a request has at most {HEAD_BYTES_MAX} bytes"
            self._turn_away(Unacceptable(text, heads.TOO_LARGE, "head_too_large"))
        elif len(self._headers) > HEADERS_MAX:
            self._turn_away(heads.too_many())
        elif shared.head_bytes > HEADS_BYTES_MAX and self._head_bytes > HEAD_BYTES_FAIR:
            text = "too many requests with large heads are under way"
            self._turn_away(Unacceptable(text, heads.UNAVAILABLE, "throttled"))
        elif self._since is None:
            self._wait(shared.head_s)

    # --- what the parser finds --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._phase = _HEAD
        self._since = None
        self._head_bytes = self._body_left = 0
        self._chunked = False
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url = self._url + url if self._url else url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == _HEAD:  # a trailer is no header, whatever it says
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser, headers, target = self._parser, self._headers, self._url
        assert parser is not None
        fields = dict(headers)
        if len(fields) != len(headers):
            heads.check_once(headers)
            fields = heads.join(headers)
        version = parser.get_http_version()
        if version != "1.1" or b"host" not in fields:
            heads.check_version(version, fields)
        if len(headers) > HEADERS_MAX:
            raise heads.too_many()
        if (length := fields.get(b"content-length")) is not None:
            self._body_left = heads.parse_length(length)
        if (coding := fields.get(b"transfer-encoding")) is not None:
            heads.check_coding(coding)
            self._chunked, self._framing_bytes = True, 0
        if parser.should_upgrade():
            if version == "1.0" or not self._is_for_us:
                return  # it is read once more, without the offer
            if self._body_left or self._chunked:
                raise Unacceptable("a request for a WebSocket has no body")
        if target[:1] != b"/":
            target = heads.parse_target(target, fields.get(b"host"))
        method = parser.get_method()
        request = Request(self, _METHODS.get(method) or method.decode("ascii"), target, fields)
        if version == "1.0":
            request.is_http10, request.keep_alive = True, False
        else:
            if not parser.should_keep_alive():
                request.keep_alive = False
            if b"expect" in fields:
                request.expects = heads.expects(fields[b"expect"])
        self._incoming = request
        self._phase = _BODY
        self._is_new = False

    def on_body(self, body: bytes) -> None:
        incoming = self._incoming
        assert incoming is not None
        if self._chunked:
            self._chunks += 1
        else:
            self._body_left -= len(body)
        if not incoming.answered:
            incoming.add(body)

    def on_message_complete(self) -> None:
        declined = self._phase == _HEAD
        self._phase = _IDLE
        if declined:
            return
        request, self._incoming = self._incoming, None
        assert request is not None
        if request.answered:
            self._rest()
            return
        self._since = None
        request.end()
        self._enqueue(request)

    def _enqueue(self, request: Request) -> None:
        """A request is to be answered in its turn, unless it is already."""
        queue = self._queue
        is_last = queue and queue[-1] is request
        if not (is_last or request is self.under_way or request.answered):
            queue.append(request)

    # --- answering --------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Begin what waits, one after the other; where nothing does, wait for the peer."""
        self._advancing = True
        while self.under_way is None and self._queue and not self._is_full:
            if self._begun >= REQUESTS_PER_TURN:
                self._go_on_later()
                break
            self._begun += 1
            self.under_way = request = self._queue.popleft()
            task = self._respond(request, self._finish)
            if task is not None:
                self._shared.tasks[request] = task
        self._advancing = False

    def _go_on_later(self) -> None:
        """Begin what waits in the next turn of the loop, and read on."""
        if not self._reading_on:
            self._reading_on = True
            self.loop.call_soon(self._read_on)

    def _finish(self, request: Request, answer: Answer | Handover | None) -> None:
        """Send the answer of a request, if there is still somebody to hear it."""
        self._shared.tasks.pop(request, None)
        if self.under_way is not request:
            if isinstance(answer, Handover):
                answer.on_end()
            return
        if type(answer) is Answer:
            self._send(request, answer)
        elif isinstance(answer, Handover) and not self.gone:
            answer.headers.append(("x-request-id", request.id))
            self._hand_over(answer)
        else:
            if isinstance(answer, Handover):
                answer.on_end()
            self.transport.abort()

    def _send(self, request: Request, answer: Answer) -> None:
        shared = self._shared
        body, status = answer.body, answer.status
        if shared.stopping and not self._queue:
            request.keep_alive = False
        if request.expects and not request.complete:
            request.keep_alive = False  # the peer may leave the body out: what is next is unknown
        size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        lines = f"{answer.lines}x-request-id: {request.id}\r\n"
        if answer.headers:
            lines += format_lines(answer.headers)
        if status not in NO_BODY:
            lines = f"{lines}content-length: {size}\r\n"
        if not request.keep_alive:
            lines += "connection: close\r\n"
        pieces = [format_head(status, shared.date, lines)]
        request.answered = True  # not before: an answer that cannot be written is none
        self.under_way = None
        if request.method != "HEAD" and status not in NO_BODY:
            pieces += (body,) if isinstance(body, bytes) else body
        if not (request.keep_alive or request.complete):
            # The peer still sends: closed at once, the connection would take the answer back.
            self._end_with(LingeringClose(b"".join(pieces)))
            return
        transport = self.transport
        if size > _JOINED_BYTES_MAX and len(pieces) > 1:
            transport.writelines(pieces)
        else:
            transport.write(b"".join(pieces))
        if self._is_full:
            shared.unsent.hold(transport, size)
        if self._charged_bytes:
            self._release_heads(self._head_bytes if self._phase == _HEAD else 0)
        if not request.keep_alive:
            self._queue.clear()
            transport.close()
        elif not self._queue:
            self._become_idle()
        elif not (self._is_full or self._advancing):
            self._go_on_later()

    def _become_idle(self) -> None:
        """All that came is answered."""
        if self._final_reply is not None:
            self._end_with(LingeringClose(self._final_reply))
            return
        if self._phase == _IDLE:
            self._rest()
        else:
            self._wait(self._shared.head_s if self._phase == _HEAD else self._shared.body_s)
        if self._upgrading:  # that was the request, and it was refused
            self._stopped = self._upgrading = False
        if self._held:
            self._regulate()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._shared.unsent.free(self.transport)
        if self._queue and self.under_way is None:
            self._go_on_later()

    # --- other protocols --------------------------------------------------------------------------

    @property
    def _is_for_us(self) -> bool:
        """Whether an upgrade that is offered is to a WebSocket."""
        fields = dict(self._headers)
        tokens = [token.strip().lower() for token in fields.get(b"connection", b"").split(b",")]
        return b"upgrade" in tokens and fields.get(b"upgrade", b"").lower() == b"websocket"

    def _upgrade(self) -> None:
        """The parser ends with an offer to upgrade."""
        assert self._parser is not None
        if self._parser.get_method() == b"CONNECT":
            self._turn_away(Unacceptable("this is not a proxy"))
        elif self._parser.get_http_version() != "1.0" and self._is_for_us:
            self._stopped = self._upgrading = True  # a handler answers; see web/sockets.py
        else:
            self._decline()

    def _decline(self) -> None:
        """Have the request read once more, without the offer; what follows it comes after that."""
        assert self._parser is not None
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, version)]
        lines += [b"%b: %b" % pair for pair in self._headers if pair[0] not in _OFFER]
        closes = (b"close" in value.lower() for name, value in self._headers if name == _OFFER[2])
        if any(closes):
            lines.append(b"connection: close")
        self._parser = _new_parser(self)
        self._feed(b"\r\n".join(lines) + _HEAD_END)

    # --- turning away -----------------------------------------------------------------------------

    def _refuse(self, error: httptools.HttpParserError, data: bytes | memoryview) -> None:
        """The parser cannot go on."""
        if isinstance(error.__context__, Unacceptable):
            self._turn_away(error.__context__)
        elif error.args == _PREFACE_CAME and self._is_new:
            refusal = Http2Refusal(heads.wrong_version().body)
            self._end_with(refusal)
            refusal.data_received(behind_preface(bytes(data)))
        else:
            self._turn_away(Unacceptable("this is not HTTP/1.1"))

    def _turn_away(self, refused: Unacceptable) -> None:
        """Refuse what comes now once what came before it is answered, and close."""
        self._final_reply = refused.format(self._shared.date)
        self._stopped, self._unread = True, None
        broken = self._incoming if self._phase == _BODY else None
        if broken is not None and self._queue and self._queue[-1] is broken:
            self._queue.pop()  # it did not come to its turn
        elif broken is not None and broken.answered:
            self._final_reply = b""
        elif broken is not None and broken is self.under_way:
            self.under_way = None
        if self.under_way is None and not self._queue:
            self._end_with(LingeringClose(self._final_reply))
        else:
            self.transport.pause_reading()

    def _end_with(self, closing: LingeringClose) -> None:
        self._stopped, self._final_reply = True, b""
        transport = self._leave_to(closing)
        closing.attach(transport, partial(self._shared.open.discard, closing))

    # --- silence ----------------------------------------------------------------------------------

    def _wait(self, patience_s: float) -> None:
        """It is the peer's turn, for so long."""
        self._since = self.loop.time()
        self._patience_s = patience_s

    def _watch(self, wait_s: float) -> None:
        self._timer = self.loop.call_later(wait_s, self._look_at_clock)

    def _look_at_clock(self) -> None:
        """Close a connection that made us wait for too long; else look again when it could have."""
        shared = self._shared
        left_s = min(shared.head_s, shared.body_s)
        if self._is_our_turn:
            self._since = None if self._phase != _BODY else self.loop.time()
        elif self._since is not None:
            left_s = min(left_s, self._since + self._patience_s - self.loop.time())
        if left_s > 0:
            self._watch(left_s)
        elif self._phase == _IDLE:
            self.transport.close()
        else:
            text = "the request did not come in time"
            self._turn_away(Unacceptable(text, heads.TIMEOUT, "request_timeout"))

    @property
    def _is_our_turn(self) -> bool:
        """Whether somebody waits for an answer of ours, and nothing of the request is missing."""
        if self.under_way is None and not self._queue:
            return False
        return self._phase != _BODY or self._is_busy


def _new_parser(connection: Connection) -> httptools.HttpRequestParser | None:
    parser = httptools.HttpRequestParser(connection)
    # What a peer sends behind its last request is dropped, not refused.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _give_up_on_stuck_peers(transport: asyncio.Transport) -> None:
    """A peer that vanished, or reads no more, takes nothing of what we say: the system notices.

    Without this, what it does not take would keep the connection open, also behind a close.
    """
    peer = transport.get_extra_info("socket")
    if peer is not None and peer.family in (socket.AF_INET, socket.AF_INET6):
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(PEER_TIMEOUT_S * 1000))
