"""Streams of bytes that are nearly HTTP: requests of every kind in a row, and damage."""

from __future__ import annotations

from random import Random

TARGETS = (
    b"/", b"/v0/health", b"/v0/topics/t", b"/v0/topics/t/diff", b"/v1/stream/s",
    b"/ds/v1/stream/s", b"/v0/ws", b"/v0/watch", b"*", b"http://here/v0/health", b"/%",
    b"/%ff%00", b"//", b"/v0/topics/t?a=%zz&a", b"/v0/topics/t/work", b"/" + b"a" * 300,
)  # fmt: skip
METHODS = (b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"CONNECT", b"PRI",
           b"TRACE", b"SOURCE", b"M-SEARCH", b"get", b"X")  # fmt: skip
VERSIONS = (
    *(b" HTTP/1.1",) * 8, b" HTTP/1.0", b" HTTP/0.9", b" HTTP/2.0", b" HTTP/9.9", b" HTTP/1.", b"",
)  # fmt: skip
HEADERS = (
    b"Host: here", b"host: here", b"Host : here", b"Host:", b"Authorization: Bearer a",
    b"authorization: Basic b", b"Content-Type: application/json", b"Content-Type: text/plain",
    b"Content-Encoding: gzip", b"Connection: close", b"Connection: keep-alive",
    b"Connection: Upgrade, HTTP2-Settings", b"Connection: upgrade", b"Upgrade: h2c",
    b"Upgrade: websocket", b"HTTP2-Settings: AAMAAABkAAQAAP__", b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"Expect: 100-continue", b"Expect: nothing",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: identity", b"TE: gzip",
    b"Trailer: x", b"Accept: text/event-stream", b"Origin: http://elsewhere", b"Cookie: a=b",
    b"X-Long: " + b"x" * 500, b"X: \xff\xfe", b"X:\ty ", b" folded", b"no colon", b": no name",
    b"Content-Length: -1", b"Content-Length: 1e3", b"Content-Length: 0x10",
    b"Content-Length: " + b"0" * 5000 + b"1", b"Content-Length: 99999999999999999999999",
)  # fmt: skip
BODIES = (
    b"",
    b"a",
    b"{}",
    b'{"records":[{"data":1}]}',
    b"\x1f\x8b\x08\x00",
    b"x" * 600,
    b"\r\n\r\n",
)
TRAILERS = (b"", b"", b"Authorization: Bearer a\r\n", b"x: y\r\n" * 20, b"x" * 400 + b": y\r\n")


def make_stream(random: Random) -> bytes:
    """What one peer sends: a few requests, and now and then a slip."""
    raw = b"".join(_request(random) for _ in range(random.randint(1, 4)))
    for _ in range(random.choice((0, 0, 0, 1, 1, 3))):
        raw = _damage(random, raw)
    return raw


def cut(random: Random, raw: bytes) -> list[bytes]:
    """The same bytes as they may come: in few pieces, or in many."""
    most = random.choice((1, 3, 20, 200, 5000))
    pieces = []
    while raw:
        size = random.randint(1, most)
        pieces.append(raw[:size])
        raw = raw[size:]
    return pieces


def _request(random: Random) -> bytes:
    if random.random() < 0.02:
        return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + random.randbytes(random.randint(0, 60))
    sane = random.random() < 0.5
    method = random.choice(METHODS[:4] if sane else METHODS)
    target = random.choice(TARGETS[:6] if sane else TARGETS)
    head = [method + b" " + target + (b" HTTP/1.1" if sane else random.choice(VERSIONS))]
    head += [b"Host: here"] * (1 if sane else random.choice((0, 1, 1, 1, 2)))
    if not sane:
        head += random.sample(HEADERS, random.randint(0, 5))
    body = random.choice(BODIES)
    if random.random() < 0.4:
        head.append(b"Transfer-Encoding: chunked")
        body = _in_chunks(random, body)
    elif body or random.random() < 0.3:
        length = len(body) if sane else max(len(body) + random.choice((0, 0, 0, -1, 1, 9)), 0)
        head.append(b"Content-Length: %d" % length)
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def _in_chunks(random: Random, body: bytes) -> bytes:
    out = b""
    while body:
        size = random.choice((1, 1, 7, 300))
        extension = random.choice((b"", b"", b"", b";a", b";a=b;c=" + b"d" * 50))
        out += b"%x%b\r\n%b\r\n" % (len(body[:size]), extension, body[:size])
        body = body[size:]
    return out + b"0\r\n" + random.choice(TRAILERS) + b"\r\n"


def _damage(random: Random, raw: bytes) -> bytes:
    at = random.randrange(len(raw) + 1)
    match random.randrange(5):
        case 0:
            return raw[:at] + random.randbytes(random.randint(1, 4)) + raw[at:]
        case 1:
            return raw[:at] + raw[at + random.randint(1, 5) :]
        case 2:
            return raw[:at]
        case 3:
            return raw[:at] + raw[at : at + 40] + raw[at:]
        case _:
            return raw[:at] + random.choice((b"\n", b"\r", b"\0", b" ", b":")) + raw[at + 1 :]
