"""The endpoints of topics as queues: claim, ack, nack, extend, and dead letters sent back."""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET

from headrace.core.errors import Code, Refused
from headrace.core.limits import LISTING_BYTES_MAX, REDRIVE_MAX
from headrace.core.owners import TOPICS
from headrace.surfaces.topics import wire
from headrace.surfaces.topics.events import render_jobs
from headrace.surfaces.topics.names import parse_topic
from headrace.surfaces.topics.routes import authorise
from headrace.web.answers import Reply
from headrace.web.calls import Call, decode
from headrace.web.credentials import Scope

_claim = msgspec.json.Decoder(wire.ClaimRequest)
_ack = msgspec.json.Decoder(wire.AckRequest)
_nack = msgspec.json.Decoder(wire.NackRequest)
_extend = msgspec.json.Decoder(wire.ExtendRequest)
_redrive = msgspec.json.Decoder(wire.RedriveRequest)

_LEASE = re.compile(r"lease_([0-9a-f]{1,16})")
_NO_FENCE = -1
"""Of a token that was never given out."""


class QueueLimits(msgspec.Struct, frozen=True):
    """What one call may name."""

    claim: int
    node_bytes: int

    def check_node(self, node: str) -> str:
        if not 0 < len(node.encode()) <= self.node_bytes:
            raise Refused(Code.INVALID, f"a node has 1 to {self.node_bytes} bytes", field="node")
        return node


class QueueRoutes:
    """The handlers of one server."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits

    async def claim(self, call: Call) -> Reply:
        topic = authorise(call, Scope.READ | Scope.WRITE)
        request = wire.checked(decode(_claim, await call.command() or b"{}"))
        node = self._limits.check_node(request.node)
        lease_ms = None if request.lease_ms is UNSET else request.lease_ms
        wanted = min(request.max, self._limits.claim)
        done = await call.engine.queues.claim(topic, node, wanted, lease_ms, call.timings)
        jobs: list[tuple[int, bytes]] = []
        if done.claim is not None:
            jobs = render_jobs(done.claim, done.live.log.jobs, done.jobs)
        inside = b"{" + b",{".join([line for _, line in jobs]) if jobs else b""
        tail = b'],"count":%d,"ready":%d' % (len(jobs), done.counters.ready)
        return Reply([b'{"topic":"', topic.encode(), b'","claimed":[', inside, tail])

    async def ack(self, call: Call) -> Reply:
        topic = authorise(call, Scope.WRITE)
        request = decode(_ack, await call.command(LISTING_BYTES_MAX) or b"{}")
        node, fences = self._parse(request)
        done = await call.engine.queues.ack(topic, node, request.seqs, fences, call.timings)
        reply = wire.AckReply(
            topic=topic,
            acked=len(done.held),
            skipped=done.skipped,
            ready=done.counters.ready,
            in_flight=done.counters.in_flight,
        )
        return Reply([wire.open_object(reply)])

    async def nack(self, call: Call) -> Reply:
        topic = authorise(call, Scope.WRITE)
        request = wire.checked(decode(_nack, await call.command(LISTING_BYTES_MAX) or b"{}"))
        node, fences = self._parse(request)
        done = await call.engine.queues.nack(topic, node, request.seqs, fences, request.delay_ms)
        reply = wire.NackReply(
            topic=topic,
            nacked=len(done.held),
            skipped=done.skipped,
            ready=done.counters.ready,
            in_flight=done.counters.in_flight,
        )
        return Reply([wire.open_object(reply)])

    async def extend(self, call: Call) -> Reply:
        topic = authorise(call, Scope.WRITE)
        request = wire.checked(decode(_extend, await call.command(LISTING_BYTES_MAX) or b"{}"))
        node, fences = self._parse(request)
        done = await call.engine.queues.extend(topic, node, request.seqs, fences, request.lease_ms)
        reply = wire.ExtendReply(
            topic=topic,
            extended=len(done.held),
            skipped=done.skipped,
            deadlines=dict.fromkeys(done.held, done.deadline_ms),
        )
        return Reply([wire.open_object(reply)])

    async def redrive(self, call: Call) -> Reply:
        topic = authorise(call, Scope.READ | Scope.WRITE)
        request = wire.checked(decode(_redrive, await call.command() or b"{}"))
        to = None
        if request.to is not None:
            to = parse_topic(request.to)
            call.principal.require(Scope.WRITE, to)
            if to == topic:
                raise Refused(Code.INVALID, "to must name another topic", field="to")
        done = await call.engine.queues.redrive(
            topic,
            min(request.limit, REDRIVE_MAX),
            to,
            lambda target: call.principal.require(Scope.WRITE, target),
            owner=TOPICS,
        )
        reply = wire.RedriveReply(
            topic=topic, redriven=done.redriven, skipped=done.skipped, left=done.left
        )
        return Reply([wire.open_object(reply)])

    def _parse(self, request: wire.AckRequest) -> tuple[str, list[int | None] | None]:
        """The node and the fences, once the seqs are known to make sense."""
        node, count = self._limits.check_node(request.node), len(request.seqs)
        if not count:
            raise Refused(Code.INVALID, "seqs must name at least one job", field="seqs")
        if count > self._limits.claim:
            raise Refused(
                Code.BATCH_TOO_LARGE,
                f"{count} seqs in one call; the limit is {self._limits.claim}",
                max=self._limits.claim,
            )
        if request.lease_ids is None:
            return node, None
        if len(request.lease_ids) != count:
            raise Refused(
                Code.INVALID, "lease_ids has one entry for each of seqs", field="lease_ids"
            )
        return node, [parse_fence(lease_id) for lease_id in request.lease_ids]


def parse_fence(lease_id: str | None) -> int | None:
    """The fence in a token; nothing when there is no token, and one nobody has when it is bad."""
    if not lease_id:
        return None
    found = _LEASE.fullmatch(lease_id)
    return int(found[1], 16) if found else _NO_FENCE
