"""Subscribe and publish over one WebSocket, in JSON."""

from __future__ import annotations

from collections import deque
from functools import partial
from time import perf_counter

import msgspec
from msgspec import UNSET, Raw, UnsetType

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    COMMAND_BYTES_MAX,
    COMMANDS_MAX,
    HEARTBEAT_MS_DEFAULT,
    INLINE_BYTES_MAX,
    PUBLISHES_BYTES_MAX,
    PUBLISHES_MAX,
)
from headrace.core.record import Drafts
from headrace.delivery.cohort import Follower
from headrace.delivery.endings import Ending, ShuttingDown, SlowConsumer, StreamFailed, describe
from headrace.delivery.events import CaughtUp, Ended, Event, Gone, Held, Lost, Records
from headrace.delivery.hub import Hub, Note
from headrace.delivery.websocket import PartialMessages, Socket, frame
from headrace.engine.open_log import OpenLog
from headrace.engine.timings import Timings
from headrace.surfaces.topics import wire
from headrace.surfaces.topics.appending import format_appended, write
from headrace.surfaces.topics.drafts import AppendLimits, parse_drafts, parse_plain_drafts
from headrace.surfaces.topics.errors import REFUSALS
from headrace.surfaces.topics.events import TopicView, render_event
from headrace.surfaces.topics.following import (
    ANY,
    FollowLimits,
    StartPosition,
    find,
    format_place,
    may_follow,
    parse_follow,
    parse_view,
)
from headrace.surfaces.topics.names import parse_topic
from headrace.web.calls import decode, format_times
from headrace.web.credentials import Principal, Scope

Publishing = wire.Publish | wire.PlainPublish
_Others = wire.Subscribe | wire.Unsubscribe | wire.Ping

_plain: msgspec.json.Decoder[wire.PlainPublish | _Others]
_plain = msgspec.json.Decoder(wire.PlainPublish | _Others)
_full: msgspec.json.Decoder[wire.Publish | _Others]
_full = msgspec.json.Decoder(wire.Publish | _Others)
_plain_publish = msgspec.json.Decoder(wire.PlainPublish)
_full_publish = msgspec.json.Decoder(wire.Publish)

_OPS: dict[type, bytes] = {
    Records: b'{"op":"record",',
    Lost: b'{"op":"tombstone",',
    CaughtUp: b'{"op":"caught_up",',
    Gone: b'{"op":"topic_deleted",',
    Held: b'{"op":"error","code":"throttled","message":"the server is hard pressed",',
}


class MessageView(TopicView, frozen=True):
    """A view of a topic as messages."""

    heartbeat_s: float = 0.0
    """Progress that brings no record need not be told: nobody resumes a socket."""

    def encode(self, name: str, event: Event, position: int) -> bytes:
        if isinstance(event, Ended):
            return b""
        return frame(b"%b%b}" % (_OPS[type(event)], render_event(name, event, self)))


class SocketLimits(msgspec.Struct, frozen=True):
    """What a client may say and ask for."""

    append: AppendLimits
    follow: FollowLimits
    message_bytes: int
    partial: PartialMessages = msgspec.field(default_factory=PartialMessages)
    """What all sockets hold of messages that are not whole."""


class TopicSocket(Socket):
    """One client. Commands are taken in order; publications do not wait for each other."""

    __slots__ = (
        "_busy",
        "_flying",
        "_flying_bytes",
        "_inbox",
        "_inbox_bytes",
        "_limits",
        "_prefixes",
        "_principal",
    )

    def __init__(self, hub: Hub, principal: Principal, limits: SocketLimits) -> None:
        super().__init__(hub, HEARTBEAT_MS_DEFAULT / 1000, limits.message_bytes, limits.partial)
        self._principal = principal
        self._limits = limits
        self._prefixes: dict[str, tuple[MessageView, Note]] = {}
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._busy = False
        """A subscription or a large publication is under way; what comes meanwhile waits."""
        self._flying = 0
        self._flying_bytes = 0

    # --- the connection ---------------------------------------------------------------------------

    def on_blocked(self) -> None:
        super().on_blocked()
        self._regulate()

    def on_writable(self) -> None:
        super().on_writable()
        self._regulate()

    def on_end(self) -> None:
        super().on_end()
        for prefix in tuple(self._prefixes):
            self._forget_prefix(prefix)
        self._inbox.clear()

    def closing_message(self, ending: Ending) -> bytes:
        said = describe(ending)
        if said is None:
            return b""
        return _format_error(_code(ending), said[1])

    def _regulate(self) -> None:
        """Read no more than can be worked off, and nothing while the answers are not taken."""
        if (
            self.blocked
            or self._flying > PUBLISHES_MAX
            or self._flying_bytes > PUBLISHES_BYTES_MAX
            or len(self._inbox) > COMMANDS_MAX
            or self._inbox_bytes > PUBLISHES_BYTES_MAX
        ):
            self.hold()
        else:
            self.release()

    # --- commands ---------------------------------------------------------------------------------

    def refuse_binary(self) -> None:
        self._refuse(Refused(Code.INVALID, "commands are text messages"))

    def refuse_large(self, bytes_max: int) -> None:
        message = f"a message has at most {bytes_max} bytes"
        self._refuse(Refused(Code.BODY_TOO_LARGE, message, max_body_bytes=bytes_max))

    def message(self, text: bytes) -> None:
        if self._busy:
            self._inbox.append(text)
            self._inbox_bytes += len(text)
            self._regulate()
        else:
            self._obey(text)

    def _obey(self, text: bytes) -> None:
        if len(text) > INLINE_BYTES_MAX:
            self._busy = True
            self._hub.tasks.start(self._obey_beside(text), self._fail)
            return
        request_id: Raw | UnsetType = UNSET
        try:
            command = _decode(text)
            request_id = command.request_id
            match command:
                case wire.Publish() | wire.PlainPublish():
                    topic = self._parse_topic(command)
                    drafts = _parse_drafts(command, len(text), self._limits.append)
                    self._publish(topic, command, drafts, len(text))
                case wire.Subscribe():
                    self._busy = True
                    self._hub.tasks.start(self._subscribe(command), self._fail)
                case wire.Unsubscribe():
                    self._unsubscribe(command)
                case wire.Ping():
                    self.say(_answer(b"pong", request_id) + b"}")
        except Refused as refused:
            self._refuse(refused, request_id if request_id is not UNSET else _find_id(text))

    async def _obey_beside(self, text: bytes) -> None:
        """A large command is parsed in the pool; what comes meanwhile waits, in its order."""
        pool = self._hub.engine.pool
        request_id: Raw | UnsetType = UNSET
        try:
            command = await pool.run(_decode, text)
            request_id = command.request_id
            match command:
                case wire.Publish() | wire.PlainPublish():
                    topic = self._parse_topic(command)
                    drafts = await pool.run(_parse_drafts, command, len(text), self._limits.append)
                    if not self.closed:
                        self._publish(topic, command, drafts, len(text))
                case wire.Subscribe():
                    await self._follow(command)
                case _:
                    raise Refused(Code.INVALID, f"it has at most {INLINE_BYTES_MAX} bytes")
        except Refused as refused:
            await self._hub.engine.settle_refusal(refused)
            if request_id is UNSET:
                request_id = await pool.run(_find_id, text)
            self._refuse(refused, request_id)
        self._obey_next()

    def _obey_next(self) -> None:
        """What had to wait comes next."""
        self._busy = False
        while self._inbox and not self._busy:
            text = self._inbox.popleft()
            self._inbox_bytes -= len(text)
            self._obey(text)
        self._regulate()

    def _refuse(self, refused: Refused, request_id: Raw | UnsetType = UNSET) -> None:
        code = REFUSALS[refused.code][1]
        self.say(_format_error(code, refused.message, request_id, refused.detail))

    def _fail(self) -> None:
        self.end(StreamFailed(500, "internal error"))

    # --- publishing -------------------------------------------------------------------------------

    def _parse_topic(self, command: Publishing) -> str:
        """Where to publish; refuses who may not."""
        topic = parse_topic(command.topic)
        scope = Scope.WRITE if command.config is None else Scope.WRITE | Scope.ADMIN
        self._principal.require(scope, topic)
        return topic

    def _publish(self, topic: str, command: Publishing, drafts: Drafts, size: int) -> None:
        self._flying += 1
        self._flying_bytes += size
        if self._flying > PUBLISHES_MAX or self._flying_bytes > PUBLISHES_BYTES_MAX:
            self._regulate()
        self._hub.tasks.start(self._append(topic, command, drafts, size), self._fail)

    async def _append(self, topic: str, command: Publishing, drafts: Drafts, size: int) -> None:
        started, timings = perf_counter(), Timings()
        try:
            done = await write(self._hub.engine, self._principal, topic, command, drafts, timings)
        except Refused as refused:
            refused = await self._hub.engine.settle_refusal(refused)
            self._refuse(refused, command.request_id)
        else:
            if command.return_seqs:
                said = msgspec.json.encode(format_appended(topic, done, seqs=True))[1:-1]
            else:
                said = b'"topic":"%b","last_seq":%d,"head_seq":%d' % (
                    topic.encode(), done.last, done.head,
                )  # fmt: skip
            ack = _answer(b"ack", command.request_id)
            self.say(b'%b,%b,"performance":{%b}}' % (ack, said, format_times(started, timings)))
        finally:
            self._flying -= 1
            self._flying_bytes -= size
            if self._held:
                self._regulate()

    # --- subscribing ------------------------------------------------------------------------------

    async def _subscribe(self, command: wire.Subscribe) -> None:
        try:
            await self._follow(command)
        except Refused as refused:
            refused = await self._hub.engine.settle_refusal(refused)
            self._refuse(refused, command.request_id)
        self._obey_next()

    async def _follow(self, command: wire.Subscribe) -> None:
        wire.checked(command)
        engine, limits = self._hub.engine, self._limits.follow
        wanted = parse_follow(_asked(command), self._principal, limits)
        views = {
            match: _view(parse_view(command, match, limits))
            for match in {
                start.match for start in (*wanted.topics.values(), *wanted.prefixes.values())
            }
        }
        found = find(engine, wanted, self._principal, limits, lenient=command.lenient)
        lives = [live for live, _ in found.values()]
        topics = len(self.followers) + sum(live not in self.followers for live in lives)
        prefixes = len(self._prefixes.keys() | wanted.prefixes.keys())
        if max(topics, prefixes) > limits.topics:
            raise Refused(
                Code.INVALID, f"one socket follows at most {limits.topics} topics and prefixes"
            )
        await engine.routers.catch_up(*lives)
        starts = {name: _start(live, start) for name, (live, start) in found.items()}
        places = {name: format_place(live, starts[name][0]) for name, (live, _) in found.items()}
        await engine.settle(*lives)
        if self.closed:
            return
        answer = _answer(b"subscribed", command.request_id)
        self.say_now(b'%b,"topics":%b}' % (answer, msgspec.json.encode(places)))
        for name, (live, start) in found.items():
            self._add(live, views[start.match], *starts[name])
        for prefix, start in wanted.prefixes.items():
            self._watch_prefix(prefix, views[start.match])

    def _deliver(self, frames: bytes) -> None:
        """What a followed topic brings; an ack of what caused it is said in this round, before."""
        if self._flying:
            self.push(frames)
        else:
            self._flush()
            self.transport.write(frames)

    def _add(self, live: OpenLog, view: MessageView, after: int, epoch: int | None) -> None:
        self.followers.add(Follower(self, live, view, after, self._deliver, epoch=epoch))

    def _watch_prefix(self, prefix: str, view: MessageView) -> None:
        self._forget_prefix(prefix)
        note = partial(self._note_new, view)
        self._prefixes[prefix] = (view, note)
        self._hub.watch_names(prefix, note)

    def _forget_prefix(self, prefix: str) -> None:
        if known := self._prefixes.pop(prefix, None):
            self._hub.unwatch_names(prefix, known[1])

    def _note_new(self, view: MessageView, live: OpenLog) -> None:
        """A topic came into being: it is followed from its first record on."""
        topic = live.log.name
        if not may_follow(live.log, self._principal) or self.followers.named(topic):
            return
        most = self._limits.follow.topics
        if len(self.followers) >= most:
            message = f"one socket follows at most {most} topics: this one is left out"
            self._refuse(Refused(Code.THROTTLED, message, topics=[topic]))
            return
        follower = Follower(self, live, view, 0, self._deliver, owes_caught_up=False)
        self.followers.add(follower)

    def _unsubscribe(self, command: wire.Unsubscribe) -> None:
        topic = command.topic
        if topic.endswith(ANY):
            prefix = topic[: -len(ANY)]
            self._forget_prefix(prefix)
            gone = [f for f in self.followers if f.live.log.name.startswith(prefix)]
        else:
            gone = self.followers.named(parse_topic(topic))
        for follower in gone:
            self.followers.remove(follower)
        answer = _answer(b"unsubscribed", command.request_id)
        self.say_now(b'%b,"topic":%b}' % (answer, msgspec.json.encode(topic)))

    def on_log_gone(self, follower: Follower) -> None:
        self.followers.remove(follower)
        topic = follower.live.log.name
        if again := self._hub.engine.state.by_name.get(topic):
            for prefix, (view, _) in self._prefixes.items():
                if topic.startswith(prefix):
                    self._note_new(view, self._hub.engine.open_logs[again.id])


def _decode(text: bytes) -> Publishing | _Others:
    if len(text) > COMMAND_BYTES_MAX:
        return _decode_publish(text)
    try:
        return _plain.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        # Records with more than data, or a mistake: the full type tells which.
        return decode(_full, text)


def _decode_publish(text: bytes) -> Publishing:
    """A command that is so large that it has to bring records."""
    try:
        return _plain_publish.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return decode(_full_publish, text)


def _parse_drafts(command: Publishing, size: int, limits: AppendLimits) -> Drafts:
    if isinstance(command, wire.PlainPublish):
        return parse_plain_drafts(command, size, limits)
    return parse_drafts(command, size, limits)


class _Identified(msgspec.Struct):
    request_id: Raw | UnsetType = UNSET


_identified = msgspec.json.Decoder(_Identified)


def _find_id(text: bytes) -> Raw | UnsetType:
    """The id of a command that makes no sense, if it has one."""
    try:
        return _identified.decode(text).request_id
    except (msgspec.MsgspecError, RecursionError):
        return UNSET


def _answer(op: bytes, request_id: Raw | UnsetType) -> bytes:
    """The beginning of an answer."""
    if request_id is UNSET:
        return b'{"op":"%b"' % op
    return b'{"op":"%b","request_id":%b' % (op, bytes(request_id))


def _format_error(
    code: str, message: str, request_id: Raw | UnsetType = UNSET, detail: object = None
) -> bytes:
    rest = {"code": code, "message": message} | ({"detail": detail} if detail else {})
    return b"%b,%b" % (_answer(b"error", request_id), msgspec.json.encode(rest)[1:])


def _code(ending: Ending) -> str:
    match ending:
        case ShuttingDown():
            return "shutting_down"
        case SlowConsumer():
            return "slow_consumer"
        case StreamFailed(status) if status < 500:
            return "invalid_request"
        case _:
            return "internal"


def _asked(command: wire.Subscribe) -> dict[str, wire.WatchTopic | None]:
    """What to follow, as a map in either case."""
    if (command.topic is None) == (command.topics is None):
        raise Refused(Code.INVALID, "say topic or topics", field="topic")
    if command.topic is None:
        return command.topics or {}
    place = wire.WatchTopic(from_seq=command.from_seq, tail=command.tail, epoch=command.epoch)
    return {command.topic: place}


def _view(view: TopicView) -> MessageView:
    return MessageView(**msgspec.structs.asdict(view))


def _start(live: OpenLog, start: StartPosition) -> tuple[int, int | None]:
    return (live.visible, None) if start.tail else (start.after, start.epoch)
