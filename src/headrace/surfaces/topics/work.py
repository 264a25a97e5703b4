"""Jobs pushed to a worker: a stream of events that keeps so many of them under way."""

from __future__ import annotations

from headrace.core.entry import Claim
from headrace.core.errors import Refused
from headrace.core.limits import HEARTBEAT_MS_DEFAULT
from headrace.core.read import Slice
from headrace.delivery.endings import StreamFailed
from headrace.delivery.hub import Hub
from headrace.delivery.sse import EventStream, error, event
from headrace.engine.open_log import OpenLog
from headrace.engine.queues.dispatcher import JobDispatcher
from headrace.surfaces.topics.errors import REFUSALS
from headrace.surfaces.topics.events import HELD_RETRY_MS, render_jobs
from headrace.surfaces.topics.names import parse_topic
from headrace.surfaces.topics.queues import QueueLimits
from headrace.web.answers import Handover
from headrace.web.calls import Call, parse_whole
from headrace.web.credentials import Scope
from headrace.web.event_streams import check_accepts, open_events
from headrace.web.request import Request

_LEASE_MS_MAX = (1 << 63) - 1


class WorkRoutes:
    """Opens the streams of workers."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits

    async def open(self, call: Call) -> Handover:
        check_accepts(call, leases=True)
        topic = parse_topic(call.name)
        call.principal.require(Scope.READ | Scope.WRITE, topic)
        node = self._limits.check_node(call.req.get_param("node") or "")
        depth = parse_whole(call.req, "max", 1, self._limits.claim)
        lease_ms = _parse_lease(call.req)
        queues = call.engine.queues
        live = queues.find(topic)
        await call.engine.settle(live)
        live.last_read_at_ms = call.engine.clock.now_ms()
        stream = JobStream(call.hub, queues.dispatcher(live), topic)
        stream.node, stream.depth, stream.lease_ms = node, depth, lease_ms
        return open_events(call, stream)


def _parse_lease(req: Request) -> int | None:
    if req.get_param("lease_ms") == "0":
        return 0  # as in a claim: the least there is
    return parse_whole(req, "lease_ms", 0, _LEASE_MS_MAX) or None


class JobStream(EventStream):
    """The connection of one worker."""

    __slots__ = ("_dispatcher", "_topic", "depth", "held", "lease_ms", "node")

    def __init__(self, hub: Hub, dispatcher: JobDispatcher, topic: str) -> None:
        super().__init__(hub, HEARTBEAT_MS_DEFAULT / 1000)
        self._dispatcher = dispatcher
        self._topic = topic
        self.node = ""
        self.depth = 1
        self.lease_ms: int | None = None
        self.held: dict[int, int] = {}

    def on_open(self) -> None:
        self._dispatcher.join(self)

    def on_writable(self) -> None:
        self._dispatcher.schedule()

    def on_end(self) -> None:
        self._dispatcher.leave(self)

    def give(self, live: OpenLog, claim: Claim, jobs: list[Slice]) -> None:
        head = b'{"topic":"%b",' % self._topic.encode()
        lines = render_jobs(claim, live.log.jobs, jobs)
        if not lines:
            return  # lost before they could be sent
        self.send(b"".join([event(b"job", head + line, b"%d" % seq) for seq, line in lines]))

    def on_throttled(self) -> None:
        message = "the server is hard pressed: this topic has to wait"
        self.send(error(429, message, topics=[self._topic], retry_after_ms=HELD_RETRY_MS))

    def close(self, refused: Refused) -> None:
        self.end(StreamFailed(REFUSALS[refused.code].status, refused.message))
