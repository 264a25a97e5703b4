"""WebSocket frames (RFC 6455), and a sink that speaks and listens in them.

Only what a server needs, without extensions: a frame for many connections is made once, and a
message that is too large is passed over instead of ending the connection. What comes is taken in by
turns, and unmasked as it comes: no frame, however it is cut, makes others wait.
"""

from __future__ import annotations

import asyncio
import struct

from headrace.core.limits import (
    FRAMES_PER_TURN,
    MESSAGE_BYTES_FAIR,
    MESSAGE_PARTS_MAX,
    MESSAGE_STILL_S,
    MESSAGES_BYTES_MAX,
)
from headrace.delivery.endings import Ending, ShuttingDown, SlowConsumer, StreamFailed
from headrace.delivery.hub import Hub
from headrace.delivery.sink import Sink

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_LAST = 0x80
_RESERVED = 0x70
_MASKED = 0x80
_OPCODE = 0x0F
_OPCODES = (_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG)
_CONTROL = 8
_CONTROL_BYTES_MAX = 125
_SHORT, _LONG = 126, 127
_MASK_BYTES = 4

NORMAL, GOING_AWAY, PROTOCOL_ERROR, NOT_TEXT, POLICY = 1000, 1001, 1002, 1007, 1008
INTERNAL, TRY_AGAIN = 1011, 1013
_NO_CODE = 1005
_PING_FRAME = bytes((_LAST | _PING, 0))


def frame(payload: bytes, opcode: int = _TEXT) -> bytes:
    """A whole message as one frame, as a server sends it."""
    size = len(payload)
    if size < _SHORT:
        return bytes((_LAST | opcode, size)) + payload
    if size < 1 << 16:
        return struct.pack("!BBH", _LAST | opcode, _SHORT, size) + payload
    return struct.pack("!BBQ", _LAST | opcode, _LONG, size) + payload


def close_frame(code: int) -> bytes:
    return frame(b"" if code == _NO_CODE else struct.pack("!H", code), _CLOSE)


def unmask(masked: bytes | bytearray, mask: bytes | bytearray) -> bytes:
    """What the client meant; all of it at once, as one large number."""
    size = len(masked)
    key = (mask * (size // _MASK_BYTES + 1))[:size]
    plain = int.from_bytes(masked, "little") ^ int.from_bytes(key, "little")
    return plain.to_bytes(size, "little")


class Violation(Exception):
    """The peer does not keep to the protocol; the code is the one to close with."""

    def __init__(self, message: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.code = code


class PartialMessages:
    """What messages under way hold, of all sockets that share it."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


class Socket(Sink):
    """A connection on which both sides speak. A surface fills in what happens with a message."""

    __slots__ = (
        "_behind",
        "_buffer",
        "_bytes_max",
        "_close_code",
        "_frame_last",
        "_frame_left",
        "_frame_mask",
        "_heard",
        "_held",
        "_large",
        "_message",
        "_opcode",
        "_out",
        "_partial",
        "_parts",
        "_pushed",
        "_size",
        "_soon",
        "_still_since",
    )

    def __init__(
        self,
        hub: Hub,
        heartbeat_s: float,
        bytes_max: int,
        partial: PartialMessages | None = None,
    ) -> None:
        super().__init__(hub, heartbeat_s)
        self._partial = PartialMessages() if partial is None else partial
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        """What came and was not taken in yet."""
        self._held = False
        """Whether the surface wants nothing more for now."""
        self._behind = False
        """Whether there are frames left for the next turn of the loop."""
        self._heard = False
        """Whether anything came since we last looked."""
        self._still_since = 0.0
        """When we last looked and something had come, or nothing was to come."""
        self._close_code = _NO_CODE
        """What a violation asks for."""
        self._opcode = 0
        """Of the message under way; 0 when there is none."""
        self._message = bytearray()
        self._parts = 0
        self._size = 0
        self._large = False
        """Whether that message is too large: what comes of it is passed over."""
        self._frame_left = 0
        """Bytes to come of a frame that is taken in as it comes."""
        self._frame_last = False
        self._frame_mask = b""
        """How the next of them are masked."""
        self._out: list[bytes] = []
        self._pushed: list[bytes] = []
        self._soon = asyncio.get_running_loop().call_soon

    # --- for surfaces to fill in ------------------------------------------------------------------

    def message(self, text: bytes) -> None:
        """A text message came."""
        raise NotImplementedError

    def refuse_binary(self) -> None:
        """A binary message came."""
        raise NotImplementedError

    def refuse_large(self, bytes_max: int) -> None:
        """A message came that is larger than this; it was passed over."""
        raise NotImplementedError

    def closing_message(self, ending: Ending) -> bytes:
        """A message to end with, if any."""
        return b""

    # --- speaking ---------------------------------------------------------------------------------

    def say(self, text: bytes) -> None:
        """Send a message soon, together with others of this round of the loop."""
        if self.closed:
            return
        if not (self._out or self._pushed):
            self._soon(self._flush)
        self._out.append(frame(text))

    def push(self, frames: bytes) -> None:
        """Send frames behind all messages of this round of the loop."""
        if not (self._out or self._pushed):
            self._soon(self._flush)
        self._pushed.append(frames)

    def say_now(self, text: bytes) -> None:
        """Send a message before anything else that is written from here on."""
        self._flush()
        self.write(frame(text))

    def _flush(self) -> None:
        if self._out or self._pushed:
            self.write(b"".join(self._take_out()))

    def _take_out(self) -> list[bytes]:
        out, self._out, self._pushed = [*self._out, *self._pushed], [], []
        return out

    def heartbeat(self) -> bytes:
        return _PING_FRAME

    def closing_frame(self, ending: Ending) -> bytes:
        said = self.closing_message(ending)
        out = self._take_out()
        if said:
            out.append(frame(said))
        code = _close_code(ending) if self._close_code == _NO_CODE else self._close_code
        return b"".join((*out, close_frame(code)))

    def hang_up(self) -> None:
        """Our side is over; the peer says goodbye, too, and closes."""
        self.transport.write_eof()

    def _leave(self) -> None:
        super()._leave()
        self._buffer = bytearray()
        self._drop_message()

    def on_timer(self, now: float) -> float:
        """Give up on a message that was begun and stands still."""
        if self._heard or self._held or not (self._opcode or self._buffer):
            self._heard, self._still_since = False, now
        elif now - self._still_since >= MESSAGE_STILL_S and not self.closed:
            self.end(StreamFailed(408, "a message was not said to its end"))
            return 0
        return super().on_timer(now)

    # --- listening --------------------------------------------------------------------------------

    def hold(self) -> None:
        """Take nothing more in for now."""
        if not (self._held or self.closed):
            self._held = True
            self.transport.pause_reading()

    def release(self) -> None:
        if self._held and not self.closed:
            self._held = False
            if not self._behind:
                self.transport.resume_reading()
                self._soon(self._listen)

    def data_received(self, data: bytes) -> None:
        if not self.closed:
            self._heard = True
            self._buffer += data
            if not self._behind:
                self._listen()

    def _listen(self) -> None:
        try:
            behind = self._take_frames()
        except Violation as violation:
            self._close_code = violation.code
            self.end(StreamFailed(400, str(violation)))
            return
        if behind and not self.closed:
            self._behind = True
            self.transport.pause_reading()
            self._soon(self._go_on)

    def _go_on(self) -> None:
        """Others had a turn: take in what is left."""
        if self.closed:
            return
        self._behind = False
        self._listen()
        if not (self._behind or self._held or self.closed):
            self.transport.resume_reading()

    def _take_frames(self) -> bool:
        """Take in what is there, for one turn; whether that was not all."""
        buffer, at, behind = self._buffer, 0, True
        for _ in range(FRAMES_PER_TURN):
            if self._held or self.closed:
                behind = False
                break
            if self._frame_left:
                at = self._take_piece(buffer, at)
                if self._frame_left:
                    behind = False
                    break
                continue
            start, size = _read_head(buffer, at)
            if not start:
                behind = False
                break
            first = buffer[at]
            if size <= self._bytes_max and len(buffer) >= start + size:
                payload = unmask(buffer[start : start + size], buffer[start - _MASK_BYTES : start])
                at = start + size
                self._take(first & _OPCODE, bool(first & _LAST), payload)
            elif first & _CONTROL:
                behind = False
                break
            else:
                self._begin_part(first & _OPCODE, size)
                self._frame_left, self._frame_last = size, bool(first & _LAST)
                self._frame_mask = bytes(buffer[start - _MASK_BYTES : start])
                at = start
        del buffer[:at]
        return behind

    def _take_piece(self, buffer: bytearray, at: int) -> int:
        """Take in what has come of a frame that has not come whole; returns where it stops."""
        stop = min(at + self._frame_left, len(buffer))
        if not self._large:
            self._keep(unmask(buffer[at:stop], self._frame_mask))
        turn = (stop - at) % _MASK_BYTES
        self._frame_mask = self._frame_mask[turn:] + self._frame_mask[:turn]
        self._frame_left -= stop - at
        if not self._frame_left:
            self._end_part(last=self._frame_last)
        return stop

    def _take(self, opcode: int, last: bool, payload: bytes) -> None:
        if opcode == _TEXT and last and not self._opcode:
            self.message(_check_text(payload))
        elif opcode & _CONTROL:
            self._take_control(opcode, payload)
        else:
            self._begin_part(opcode, len(payload))
            if not self._large:
                self._keep(payload)
            self._end_part(last=last)

    def _begin_part(self, opcode: int, size: int) -> None:
        """A part of a message: the first has its opcode, the others have none."""
        if (opcode == _CONTINUATION) != bool(self._opcode):
            raise Violation("a message is not where it should be")
        self._opcode = self._opcode or opcode
        self._parts += 1
        if self._parts > MESSAGE_PARTS_MAX:
            raise Violation(f"a message has at most {MESSAGE_PARTS_MAX} parts", POLICY)
        self._size += size
        if self._size > self._bytes_max:
            self._large = True
            self._drop_message()

    def _keep(self, piece: bytes) -> None:
        self._message += piece
        partial = self._partial
        partial.size_bytes += len(piece)
        if partial.size_bytes > MESSAGES_BYTES_MAX and len(self._message) > MESSAGE_BYTES_FAIR:
            raise Violation("too many large messages are under way", TRY_AGAIN)

    def _drop_message(self) -> None:
        self._partial.size_bytes -= len(self._message)
        self._message = bytearray()

    def _end_part(self, *, last: bool) -> None:
        if not last:
            return
        opcode, large, message = self._opcode, self._large, self._message
        self._opcode, self._size, self._parts, self._large = 0, 0, 0, False
        self._drop_message()
        if large:
            self.refuse_large(self._bytes_max)
        elif opcode == _BINARY:
            self.refuse_binary()
        else:
            self.message(_check_text(bytes(message)))

    def _take_control(self, opcode: int, payload: bytes) -> None:
        if opcode == _PING:
            self.write(frame(payload, _PONG))
        elif opcode == _CLOSE:
            self._answer_close(payload)

    def _answer_close(self, payload: bytes) -> None:
        """The peer goes: say the same, and go."""
        self._flush()
        self.write(close_frame(_parse_close(payload)))
        self.leave()


def _read_head(buffer: bytearray, at: int) -> tuple[int, int]:
    """Where the payload of the frame at `at` starts and how long it is; 0 when more must come."""
    if len(buffer) < at + 2:
        return 0, 0
    first, second = buffer[at], buffer[at + 1]
    if first & _RESERVED or (first & _OPCODE) not in _OPCODES:
        raise Violation("a frame has bits or an opcode that nobody agreed on")
    if not second & _MASKED:
        raise Violation("a frame is not masked")
    size, start = second & ~_MASKED, at + 2
    if size == _SHORT:
        size, start = int.from_bytes(buffer[start : start + 2], "big"), start + 2
    elif size == _LONG:
        if buffer[start : start + 1] >= b"\x80":
            raise Violation("a frame is longer than any can be")
        size, start = int.from_bytes(buffer[start : start + 8], "big"), start + 8
    if first & _CONTROL and (not first & _LAST or size > _CONTROL_BYTES_MAX):
        raise Violation("a control frame is not like this")
    start += _MASK_BYTES
    return (start, size) if len(buffer) >= start else (0, 0)


def _check_text(payload: bytes) -> bytes:
    """The payload, if it is UTF-8: anything else would be stored and shown to others as text."""
    if not payload.isascii():
        try:
            payload.decode()
        except UnicodeDecodeError:
            raise Violation("a text is not UTF-8", NOT_TEXT) from None
    return payload


def _parse_close(payload: bytes) -> int:
    """The code of a close frame, to be sent back."""
    if not payload:
        return _NO_CODE
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not _is_code(code):
        return PROTOCOL_ERROR
    try:
        _check_text(payload[2:])
    except Violation as violation:
        return violation.code
    return code


def _is_code(code: int) -> bool:
    return (1000 <= code <= 1014 and code not in (1004, 1005, 1006)) or 3000 <= code <= 4999


def _close_code(ending: Ending) -> int:
    match ending:
        case ShuttingDown():
            return GOING_AWAY
        case SlowConsumer():
            return TRY_AGAIN
        case StreamFailed(status):
            return PROTOCOL_ERROR if status < 500 else INTERNAL
        case _:
            return NORMAL
