"""The topics protocol over one connection, with `data` and `meta` kept as the bytes they were."""

from __future__ import annotations

import http.client
from typing import Any, Self

import msgspec

from .kill_history import Clock, Gap, Page, Payload, Seen, State

TIMEOUT_S = 120.0


class LostError(Exception):
    """The connection broke before an answer was read: the outcome is unknown."""


class UnexpectedError(Exception):
    """The server answered what it never should."""


class Connection:
    """One HTTP connection to a server on this machine; opens again after it was lost."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)

    def call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Send one request and read its answer, or raise `LostError`."""
        try:
            self._send(method, path, body)
            response = self._http.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            raise LostError(f"{method} {path}: {error!r}") from error

    def leave(self, method: str, path: str, body: bytes | None = None) -> None:
        """Send one request and hang up without waiting for the answer."""
        try:
            self._send(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            raise LostError(f"{method} {path}: {error!r}") from error
        finally:
            self._http.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Like `call` with JSON both ways; anything but a success is unexpected."""
        raw = None if body is None else msgspec.json.encode(body)
        status, answer = self.call(method, path, raw)
        if status not in (200, 201):
            raise UnexpectedError(f"{method} {path}: {status} {answer[:500]!r}")
        return msgspec.json.decode(answer)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, method: str, path: str, body: bytes | None) -> None:
        headers = {} if body is None else {"Content-Type": "application/json"}
        self._http.request(method, path, body, headers)


class WireRecord(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: msgspec.Raw
    tag: str | None = msgspec.field(name="$tag", default=None)
    meta: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)

    def seen(self) -> Seen:
        payload = Payload(bytes(self.data), self.tag, bytes(self.meta) or None)
        return Seen(self.seq, self.ts, payload)


class WireTombstone(msgspec.Struct):
    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class WireDiff(msgspec.Struct):
    records: list[WireRecord]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: WireTombstone | None
    lag: int


class WireConfig(msgspec.Struct):
    durability: str


class WireState(msgspec.Struct):
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    epoch: int
    config: WireConfig


class WireWrite(msgspec.Struct):
    first_seq: int
    last_seq: int
    seqs: list[int]
    head_seq: int
    count: int
    created: bool
    deduped: bool


def read_page(
    connection: Connection,
    clock: Clock,
    topic: str,
    after: int,
    *,
    limit: int = 1000,
    wait_ms: int = 0,
) -> Page:
    """One diff, with tags; the topic must exist."""
    body = {"from_seq": after, "limit": limit, "include_tags": True, "wait_ms": wait_ms}
    started = clock()
    status, raw = connection.call("POST", f"/v0/topics/{topic}/diff", msgspec.json.encode(body))
    ended = clock()
    if status == 503:
        raise LostError(f"diff of {topic}: {raw[:200]!r}")
    if status != 200:
        raise UnexpectedError(f"diff of {topic}: {status} {raw[:500]!r}")
    diff = msgspec.json.decode(raw, type=WireDiff)
    stone = diff.tombstone
    return Page(
        started,
        ended,
        after,
        diff.next_from_seq,
        diff.head_seq,
        diff.earliest_seq,
        diff.caught_up,
        tuple(record.seen() for record in diff.records),
        Gap(stone.gap_from, stone.gap_to, stone.reason) if stone else None,
    )


def read_pages(
    connection: Connection, clock: Clock, topic: str, *, limit: int = 1000
) -> tuple[Page, ...]:
    """Every page from 0 to the head."""
    pages = [read_page(connection, clock, topic, 0, limit=limit)]
    while not pages[-1].caught_up:
        after = pages[-1].next
        if len(pages) > 1 and after <= pages[-1].after:
            raise UnexpectedError(f"diff of {topic} does not get past {after}")
        pages.append(read_page(connection, clock, topic, after, limit=limit))
    return tuple(pages)


def read_state(connection: Connection, topic: str) -> State | None:
    """The state of a topic, or nothing where there is no such topic."""
    status, raw = connection.call("GET", f"/v0/topics/{topic}?touch=false")
    if status == 404:
        return None
    if status != 200:
        raise UnexpectedError(f"state of {topic}: {status} {raw[:500]!r}")
    wire = msgspec.json.decode(raw, type=WireState)
    return State(
        wire.head_seq,
        wire.earliest_seq,
        wire.next_seq,
        wire.count,
        wire.bytes,
        wire.epoch,
        wire.config.durability,
    )


def format_write(
    payloads: tuple[Payload, ...], *, key: str | None = None, config: object = None
) -> bytes:
    """The body of a write, with every `data` and `meta` exactly as it is."""
    records = []
    for payload in payloads:
        record = b'{"data":' + payload.data
        if payload.tag is not None:
            record += b',"tag":' + msgspec.json.encode(payload.tag)
        if payload.meta is not None:
            record += b',"meta":' + payload.meta
        records.append(record + b"}")
    body = b'{"records":[' + b",".join(records) + b"]"
    if key is not None:
        body += b',"idempotency_key":' + msgspec.json.encode(key)
    if config is not None:
        body += b',"config":' + msgspec.json.encode(config)
    return body + b"}"
