"""uvicorn's HTTP protocol, with what every request pays for done once or not at all.

- What one step of the loop writes leaves in one system call: uvicorn hands head and body of a reply
  to the transport one after the other, and uvloop would send each at once.
- One timer a connection watches for silence, instead of a new one after every reply.
- A body that comes in one piece is not copied.
- A connection can be handed over to a sink, which then writes to the transport itself. A request
  for a WebSocket is a request like any other until then.
- An offer of another protocol that we do not speak, as Java clients make one with their first
  request, does not cost the request its body.

The first three are a fifth of the cost of a small request (docs/PERFORMANCE.md). What a connection
may cost is bounded, whoever is at the other end (decision 25):

- The parser is given a little at a time, and no more while requests wait or when a turn was long.
- The head of a request, what is between the chunks of a body, and how long we wait for either.
- What is refused here is refused as everywhere else, in its turn, and so that the peer can read it.
- A connection that waits for its next request keeps nothing of the last.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import urllib.parse
from collections.abc import Callable
from functools import partial
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from headrace.core.limits import (
    CHUNK_FRAMING_BYTES_MAX,
    CHUNKS_PER_TURN,
    FEED_BYTES,
    HEAD_BYTES_FAIR,
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    HEADS_BYTES_MAX,
    PEER_TIMEOUT_S,
)
from headrace.delivery.sink import Sink
from headrace.web import heads
from headrace.web.heads import FIELDS, Unacceptable
from headrace.web.http2_refusal import Http2Refusal, behind_preface
from headrace.web.lingering_close import LingeringClose
from headrace.web.transport import OneWrite, ReadFlow

CONNECTION = "headrace.connection"
"""Where a request's scope names the connection it came on."""
_OFFER = (b"upgrade", b"http2-settings", b"connection")
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_PREFACE_CAME = ("Pause on PRI/Upgrade",)
"""What the parser says when a client speaks HTTP/2."""
_HEAD_END = b"\r\n\r\n"
_IDLE, _HEAD, _BODY = 0, 1, 2
"""What the parser is in the middle of."""


class Connections(msgspec.Struct):
    """What all connections share: what each may do, and what they hold together."""

    count_max: int = sys.maxsize
    head_s: float = 30.0
    """How long a connection may take for the head of a request, or for its first byte."""
    body_s: float = 30.0
    """How long a body may stand still, and how long one that nobody wants may take."""
    head_bytes: int = 0
    """Of heads that did not come at once, until their requests are answered."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    flow: ReadFlow
    _phase = _IDLE
    _unread: memoryview | None = None
    """What came and was not given to the parser yet."""
    _held = False
    """Whether nothing more is read because of that."""
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
    under_way: RequestResponseCycle | None = None
    """The request that is being answered, or was last; others may wait behind it."""
    gone = False
    """Whether the peer has hung up, or we have."""
    on_gone: Callable[[], None] | None = None
    """Called when that happens; set while somebody waits for something to tell the peer."""

    def __init__(self, *args: Any, shared: Connections | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shared = Connections() if shared is None else shared

    # --- coming and going -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(OneWrite(transport, self.loop))  # type: ignore[arg-type]
        self.flow = ReadFlow(self.transport, self)
        if len(self.connections) > self._shared.count_max:
            # Close at once, without a wait for the peer: it holds a descriptor.
            busy = Unacceptable("there are too many connections", heads.UNAVAILABLE, "throttled")
            self.transport.write(busy.format(self.server_state.default_headers))
            self.transport.close()
        else:
            _give_up_on_stuck_peers(transport)
            self._wait(self._shared.head_s)
            self._watch(self._shared.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        if self.under_way is not None and not self.under_way.response_complete:
            self.under_way.disconnected = True
            self.under_way.message_event.set()
        self._let_go()

    def _let_go(self) -> None:
        """The connection is no longer ours.

        Every ring is broken: memory is free at once, and not when the collector comes.
        """
        self._rest()
        self._unread = None
        self.pipeline.clear()
        self.parser = None  # type: ignore[assignment]
        self.flow.protocol = None
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()

    def _rest(self) -> None:
        """All is said; there may be another request, for which nothing of the last is needed."""
        self.scope = self.headers = self.cycle = self.under_way = None  # type: ignore[assignment]
        self.url = b""
        if self._charged_bytes:
            self._shared.head_bytes -= self._charged_bytes
            self._charged_bytes = 0
        self._since, self._patience_s = self.loop.time(), self.timeout_keep_alive

    def hand_over(self, sink: Sink, head: bytes, on_end: Callable[[], None]) -> None:
        """Give the connection of the request under way to a sink; HTTP is over on it.

        Whatever the application still sends for this request is dropped, and requests behind it
        are. What the peer of a WebSocket said before it heard of us is not.
        """
        if self.under_way is not None:
            self.under_way.disconnected = True
        self.on_gone = None
        early = bytes(self._unread or b"") if self._upgrading else b""
        transport = self._leave_to(sink)
        sink.attach(transport, head, on_end, partial(self.connections.discard, sink))
        if early and not sink.closed:
            sink.data_received(early)

    def _leave_to(self, successor: Any) -> asyncio.Transport:
        """Another one has the connection from here on."""
        wrapped: OneWrite = self.transport  # type: ignore[assignment]
        transport = wrapped.release()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        self.connections.add(successor)
        transport.set_protocol(successor)
        if not transport.is_closing():
            transport.resume_reading()
        self._let_go()
        return transport

    # --- reading ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._unread is None and len(data) <= FEED_BYTES and not self._stopped:
            taken = self._feed(data)
            if taken < len(data) and self._final_reply is None:
                self._unread = memoryview(data)[taken:]
                self._read_some()
        elif self._final_reply is None:
            unread = memoryview(data if self._unread is None else bytes(self._unread) + data)
            if self._phase == _IDLE and self._unread is None and not self._stopped:
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
        while self._unread is not None and not (self._stopped or self.flow.read_paused):
            size = self._body_left if self._phase == _BODY else 0
            taken = self._feed(self._unread[: size or FEED_BYTES])
            if self._final_reply is not None:
                return
            self._unread = self._unread[taken:] if taken < len(self._unread) else None
            chunks += self._chunks
            if chunks >= CHUNKS_PER_TURN or self._phase == _HEAD:
                break
        if (self._held or self._unread is not None) and not self.flow.read_paused:
            self.read_on()

    def read_on(self) -> None:
        """Go on with what came, in the next turn of the loop; or else with what comes."""
        if self._final_reply is not None:
            return
        if self._unread is None:
            self._held = False
            self.transport.resume_reading()
            return
        if not self._held:
            self._held = True
            self.transport.pause_reading()
        if not (self._reading_on or self._stopped or self.flow.read_paused):
            self._reading_on = True
            self.loop.call_soon(self._read_some)

    def _feed(self, data: bytes | memoryview) -> int:
        """Have the parser read this; returns how many bytes it took."""
        self._chunks = 0
        taken = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            taken = upgrade.args[0]
            self._upgrade()
        except httptools.HttpParserError as error:
            self._refuse(error, data)
        else:
            if self._phase:
                self._look(taken)
        return taken

    def _look(self, size: int) -> None:
        """Some of a request has come, and not all of it."""
        if self._phase == _HEAD:
            self._look_at_head(size)
            return
        if self._chunked:
            self._framing_bytes = 0 if self._chunks else self._framing_bytes + size
            if self._framing_bytes > CHUNK_FRAMING_BYTES_MAX:
                most = f"{CHUNK_FRAMING_BYTES_MAX} bytes of extensions and trailers"
                text = f"there are at most {most} between and behind chunks"
                self._turn_away(Unacceptable(text, heads.TOO_LARGE, "head_too_large"))
                return
        if self.cycle.response_complete:
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
        elif len(self.headers) > HEADERS_MAX:
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
        self.url = b""
        self.headers = []
        self.scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": self.headers,
            CONNECTION: self,  # type: ignore[misc]
        }

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == _HEAD:  # a trailer is no header, whatever it says
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser, scope, headers = self.parser, self.scope, self.headers
        fields = scope[FIELDS] = dict(headers)  # type: ignore[literal-required]
        if len(fields) != len(headers):
            heads.check_once(headers)
        version = parser.get_http_version()
        if version != "1.1" or b"host" not in fields:
            heads.check_version(version, fields)
            scope["http_version"] = version
        if len(headers) > HEADERS_MAX:
            raise heads.too_many()
        if (length := fields.get(b"content-length")) is not None:
            self._body_left = heads.parse_length(length)
        if (coding := fields.get(b"transfer-encoding")) is not None:
            heads.check_coding(coding)
            self._chunked, self._framing_bytes = True, 0
        if parser.should_upgrade():
            if not self._is_for_us:
                return  # it is read once more, without the offer
            if self._body_left or self._chunked:
                raise Unacceptable("a request for a WebSocket has no body")
        url = httptools.parse_url(self.url)
        if url.host is not None:
            heads.check_target(self.url, fields.get(b"host"))
        raw_path: bytes = url.path
        path = raw_path.decode("ascii")
        scope["method"] = parser.get_method().decode("ascii")
        scope["path"] = urllib.parse.unquote(path) if "%" in path else path
        scope["raw_path"] = raw_path
        scope["query_string"] = url.query or b""
        before = self.cycle
        self.cycle = cycle = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=b"expect" in fields and heads.expects(fields[b"expect"]),
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        self._phase = _BODY
        self._since = None
        self._is_new = False
        if before is None or before.response_complete:
            self.under_way = cycle
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if self._chunked:
            self._chunks += 1
        else:
            self._body_left -= len(body)
        if cycle.response_complete:
            return
        if not cycle.body:
            cycle.body = body  # type: ignore[assignment]  # bytes of bytes are the same object
        else:
            if isinstance(cycle.body, bytes):
                cycle.body = bytearray(cycle.body)
            cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        declined = self._phase == _HEAD
        self._phase = _IDLE
        if declined:
            return
        cycle = self.cycle
        cycle.more_body = False
        if cycle.response_complete:
            self._rest()
        else:
            self._since = None
            cycle.message_event.set()

    # --- other protocols --------------------------------------------------------------------------

    @property
    def _is_for_us(self) -> bool:
        """Whether an upgrade that is offered is to a WebSocket."""
        return self._get_upgrade() == b"websocket"

    def _upgrade(self) -> None:
        """The parser ends with an offer to upgrade."""
        if self.parser.get_method() == b"CONNECT":
            self._turn_away(Unacceptable("this is not a proxy"))
        elif self._is_for_us:
            self._stopped = self._upgrading = True  # the application answers; see web/sockets.py
        else:
            self._decline()

    def _decline(self) -> None:
        """Have the request read once more, without the offer; what follows it comes after that."""
        lines = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
        lines += [b"%b: %b" % pair for pair in self.headers if pair[0] not in _OFFER]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
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
        self._final_reply = refused.format(self.server_state.default_headers)
        self._stopped, self._unread = True, None
        waiting, phase = self.under_way, self._phase
        if phase == _BODY and self.pipeline:
            self.pipeline.popleft()  # it did not come to its turn
        elif phase == _BODY:
            cycle = self.cycle
            if cycle.response_started:
                self._final_reply = b""
            cycle.disconnected = True
            cycle.message_event.set()
            waiting = None
        if waiting is None or waiting.response_complete:
            self._end_with(LingeringClose(self._final_reply))
        else:
            self.transport.pause_reading()

    def _end_with(self, closing: LingeringClose) -> None:
        self._stopped, self._final_reply = True, b""
        transport = self._leave_to(closing)
        closing.attach(transport, partial(self.connections.discard, closing))

    # --- answers and silence ----------------------------------------------------------------------

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self.under_way = cycle
            self._start_asgi_task(cycle, app)
        elif self._final_reply is not None:
            self._end_with(LingeringClose(self._final_reply))
            return
        else:
            if self._phase == _IDLE:
                self._rest()
            else:
                self._wait(self._shared.head_s if self._phase == _HEAD else self._shared.body_s)
            if self._upgrading:  # that was the request, and it was refused
                self._stopped = self._upgrading = False
                self.read_on()
        self.flow.resume_reading()

    def _wait(self, patience_s: float) -> None:
        """It is the peer's turn, for so long."""
        self._since = self.loop.time()
        self._patience_s = patience_s

    def _watch(self, wait_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(wait_s, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
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
        if self.under_way is None or self.under_way.response_complete:
            return False
        return self._phase != _BODY or self.flow.read_paused


def _give_up_on_stuck_peers(transport: asyncio.Transport) -> None:
    """A peer that vanished, or reads no more, takes nothing of what we say: the system notices.

    Without this, what it does not take would keep the connection open, also behind a close.
    """
    peer = transport.get_extra_info("socket")
    if peer is not None and peer.family in (socket.AF_INET, socket.AF_INET6):
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(PEER_TIMEOUT_S * 1000))
