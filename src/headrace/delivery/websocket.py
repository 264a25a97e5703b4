"""WebSocket frames (RFC 6455), and a sink that speaks and listens in them.

Only what a server needs, without extensions: a frame for many connections is made once, and a
message that is too large is passed over instead of ending the connection.
"""

from __future__ import annotations

import asyncio
import struct

from headrace.delivery.endings import Ending, Failed, ShuttingDown, SlowConsumer
from headrace.delivery.sink import Sink
from headrace.delivery.wheel import Wheel

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

NORMAL, GOING_AWAY, PROTOCOL_ERROR, NOT_TEXT = 1000, 1001, 1002, 1007
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


class Socket(Sink):
    """A connection on which both sides speak. A surface fills in what happens with a message."""

    __slots__ = (
        "_buffer",
        "_bytes_max",
        "_close_code",
        "_held",
        "_large",
        "_opcode",
        "_out",
        "_parts",
        "_size",
        "_skip",
        "_skip_last",
        "_soon",
    )

    def __init__(self, wheel: Wheel, beat_s: float, bytes_max: int) -> None:
        super().__init__(wheel, beat_s)
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._held = False
        self._close_code = _NO_CODE
        """What a violation asks for."""
        self._opcode = 0
        """Of the message under way; 0 when there is none."""
        self._parts: list[bytes] = []
        self._size = 0
        self._large = False
        """Whether that message is too large: what comes of it is passed over."""
        self._skip = 0
        """Bytes to come of a frame that is too large to be taken in, and whether it is the last."""
        self._skip_last = False
        self._out: list[bytes] = []
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

    def words(self, ending: Ending) -> bytes:
        """A message to end with, if any."""
        return b""

    # --- speaking ---------------------------------------------------------------------------------

    def say(self, text: bytes) -> None:
        """Send a message soon, together with others of this round of the loop."""
        if self.closed:
            return
        if not self._out:
            self._soon(self._flush)
        self._out.append(frame(text))

    def say_now(self, text: bytes) -> None:
        """Send a message before anything else that is written from here on."""
        self._flush()
        self.write(frame(text))

    def _flush(self) -> None:
        if self._out:
            out, self._out = self._out, []
            self.write(b"".join(out))

    def beat(self) -> bytes:
        return _PING_FRAME

    def farewell(self, ending: Ending) -> bytes:
        said = self.words(ending)
        out, self._out = self._out, []
        if said:
            out.append(frame(said))
        code = _close_code(ending) if self._close_code == _NO_CODE else self._close_code
        return b"".join((*out, close_frame(code)))

    def hang_up(self) -> None:
        """Our side is over; the peer says goodbye, too, and closes."""
        self.transport.write_eof()

    # --- listening --------------------------------------------------------------------------------

    def hold(self) -> None:
        """Take nothing more in for now."""
        if not self._held:
            self._held = True
            self.transport.pause_reading()

    def release(self) -> None:
        if self._held and not self.closed:
            self._held = False
            self.transport.resume_reading()
            self._soon(self._listen)

    def data_received(self, data: bytes) -> None:
        if not self.closed:
            self._buffer += data
            self._listen()

    def _listen(self) -> None:
        try:
            self._take_frames()
        except Violation as violation:
            self._close_code = violation.code
            self.end(Failed(400, str(violation)))

    def _take_frames(self) -> None:
        """Take in every frame that is all there."""
        buffer, at = self._buffer, 0
        while not (self._held or self.closed):
            if self._skip:
                passed = min(self._skip, len(buffer) - at)
                at += passed
                self._skip -= passed
                if self._skip:
                    break
                self._end_part(last=self._skip_last)
                continue
            start, size = _read_head(buffer, at)
            if not start:
                break
            first = buffer[at]
            if size > self._bytes_max and not first & _CONTROL:
                self._begin_part(first & _OPCODE, size)
                self._skip, self._skip_last = size, bool(first & _LAST)
                at = start
                continue
            stop = start + size
            if len(buffer) < stop:
                break
            payload = unmask(buffer[start:stop], buffer[start - _MASK_BYTES : start])
            at = stop
            self._take(first & _OPCODE, bool(first & _LAST), payload)
        del buffer[:at]

    def _take(self, opcode: int, last: bool, payload: bytes) -> None:
        if opcode == _TEXT and last and not self._opcode:
            self.message(_check_text(payload))
        elif opcode & _CONTROL:
            self._take_control(opcode, last, payload)
        else:
            self._begin_part(opcode, len(payload))
            if not self._large:
                self._parts.append(payload)
            self._end_part(last=last)

    def _begin_part(self, opcode: int, size: int) -> None:
        """A part of a message: the first has its opcode, the others have none."""
        if (opcode == _CONTINUATION) != bool(self._opcode):
            raise Violation("a message is not where it should be")
        self._opcode = self._opcode or opcode
        self._size += size
        if self._size > self._bytes_max:
            self._large = True
            self._parts.clear()

    def _end_part(self, *, last: bool) -> None:
        if not last:
            return
        opcode, large, parts = self._opcode, self._large, self._parts
        self._opcode, self._size, self._large, self._parts = 0, 0, False, []
        if large:
            self.refuse_large(self._bytes_max)
        elif opcode == _BINARY:
            self.refuse_binary()
        else:
            self.message(_check_text(b"".join(parts)))

    def _take_control(self, opcode: int, last: bool, payload: bytes) -> None:
        if not last or len(payload) > _CONTROL_BYTES_MAX:
            raise Violation("a control frame is not like this")
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
        case Failed(status):
            return PROTOCOL_ERROR if status < 500 else INTERNAL
        case _:
            return NORMAL
