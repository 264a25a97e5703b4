"""A session and its server, step by step, with a line between them that can do anything to bytes.

There is no time but what the session asks to wait for, and no order but the one that chance makes:
events, snapshots and verifications end when it is their turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from urllib.parse import parse_qs, urlsplit

from headrace.client.flags.actions import (
    FetchCancelled,
    FetchWanted,
    SnapshotReply,
    StateChanged,
    StreamCancelled,
    StreamRefusal,
    StreamWanted,
    TreePublished,
    VerificationWanted,
)
from headrace.client.flags.addresses import ServerAddress
from headrace.client.flags.mirror import NamespaceSubscription
from headrace.client.flags.policy import RefreshPolicy
from headrace.client.flags.problems import FlagState, RefreshCheck, RefreshError
from headrace.client.flags.session import GroupSession
from headrace.core.digits import parse_digits
from headrace.core.limits import I64_MAX
from headrace.flags.subscription import FlagSet
from support.flag_history import (
    closure_hash,
    closure_path,
    etag,
    format_event,
    inline_event,
    pack,
    resync_event,
    snapshot_event,
)
from support.flag_trees import Files, naive_closure

STEPS_MAX = 3_000
BASE = "http://flags.test"
CLOSURE = re.compile(r"/api/v1/tenants/[a-z0-9-]+/namespaces/billing/closure\?[!-~]*\Z")


class StreamWorld:
    """What happened, what is about to happen, and what may be served."""

    def __init__(self, history: list[Files], flags: FlagSet, random: Random) -> None:
        self.random = random
        self.closures: dict[int, Files] = {
            version: {path: files[path] for path in naive_closure(files, flags)}
            for version, files in enumerate(history, 1)
        }
        self.head = 1
        self.now = 0.0
        self.faulty = True
        self.served: list[int] = []
        self.session = GroupSession(
            ServerAddress.parse(BASE),
            [NamespaceSubscription("billing", flags)],
            RefreshPolicy(),
            random.random,
            {"authorization": "Bearer secret"},
        )
        self.mirror = self.session.mirrors["billing"]
        self._events: list[bytes] = []
        """On their way over the stream that is open."""
        self._stream: int | None = None
        self._sent: tuple[int, Files] | None = None
        """What the server said last on it."""
        self._replayable: list[bytes] = []
        self._works: dict[object, Callable[[], None]] = {}
        """What is under way beside the stream, and how it ends."""
        self.session.start(self.now)
        self._act()

    # --- what is true -----------------------------------------------------------------------------

    def check(self) -> None:
        """Never anything but a closure that there was."""
        tree = self.mirror.tree
        if tree is None:
            assert self.mirror.state is FlagState.NOT_READY
            return
        assert dict(tree.files) in self.closures.values()
        assert tree.closure_hash == closure_hash(tree.files)
        keys = {path[6:-5] for path in tree.files if path.startswith("flags/")}
        assert tree.definitions.flags.keys() == keys

    @property
    def is_up_to_date(self) -> bool:
        tree = self.mirror.tree
        return (
            tree is not None
            and dict(tree.files) == self.closures[self.head]
            and self.mirror.state is FlagState.FRESH
        )

    # --- steps ------------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing happens, by chance."""
        steps: list[Callable[[], None]] = [*self._works.values()] * 3
        if self._events:
            steps += [self._deliver] * 4
        if self.faulty and self.head < len(self.closures):
            steps.append(self.commit)
        if self.faulty and self._stream is not None:
            steps.append(self._disturb)
        if self._stream is None and not self._works:
            steps += [self._wait] * 8
        elif not steps or self.random.random() < 0.1:
            steps.append(self._wait)
        self.random.choice(steps)()
        self._act()
        self.check()

    def commit(self) -> None:
        """A new version; the stream hears of it if that makes a difference."""
        self.head += 1
        self._announce()

    def finish(self) -> None:
        """From now on everything is right; there is one more version, or one more stream."""
        while self.head < len(self.closures):
            self.head += 1
        self.faulty = False
        said = None if self._sent is None else self._sent[1]
        if self._stream is None or said == self.closures[self.head]:
            self.cut()
        else:
            self._announce()
        self._act()
        self.settle()

    def settle(self) -> None:
        """Until the client is up to date and nothing is under way."""
        for _ in range(STEPS_MAX):
            if self.is_up_to_date and not self._events and not self._works:
                return
            self.step()
        raise AssertionError(f"not up to date: {self.mirror.state} {self.mirror.error}")

    def cut(self) -> None:
        if self._stream is not None:
            number, self._stream = self._stream, None
            self._events.clear()
            self.session.stream_ended(number, "cut", self.now)

    def _wait(self) -> None:
        """Until something is due; the server says that it lives meanwhile."""
        wake_at = self.session.wake_at
        if wake_at is None:
            return
        if self._stream is not None and wake_at > self.now + 30:
            self.now += 30
            self.session.stream_received(self._stream, b":keepalive\n\n", self.now)
        else:
            self.now = max(self.now, wake_at)
            self.session.tick(self.now)

    # --- the server -------------------------------------------------------------------------------

    def _announce(self) -> None:
        if self._stream is None:
            return
        version, files = self.head, self.closures[self.head]
        if self._sent is not None and self._sent[1] == files:
            return
        kind = self.random.choice(["inline", "inline", "snapshot", "resync"])
        if self._sent is None or kind == "snapshot":
            before = {} if self._sent is None else _previous(*self._sent)
            event = "version", snapshot_event(version, files, BASE, **before, **_signed(version))
        elif kind == "resync":
            event = "resync", resync_event(version, **_signed(version))
        else:
            last, old = self._sent
            event = "version", inline_event(version, old, files, prev_version=last)
        self._sent = version, files
        self._events.append(format_event(*event))

    def _open(self, wanted: StreamWanted) -> None:
        query = parse_qs(urlsplit(wanted.target).query)
        assert [each.partition(":")[0] for each in query["ns"]] == ["billing"]
        if self._chance(0.1):
            if self._chance(0.5):
                self.session.stream_ended(wanted.number, "refused", self.now)
            else:
                refusal = StreamRefusal(self.random.choice([401, 429, 503]))
                self.session.stream_refused(wanted.number, refusal, self.now)
            return
        self._stream, self._sent = wanted.number, None
        self._events.clear()
        self.session.stream_began(wanted.number, self.now)
        self._announce()

    def _answer(self, wanted: FetchWanted) -> SnapshotReply | RefreshError:
        """What the server says, and what becomes of it on the way."""
        path, _, rest = wanted.target.partition("?")
        query = parse_qs(rest)
        version = parse_digits(query.get("version", [""])[0], I64_MAX)
        if version is None:
            return SnapshotReply(400)
        if "token" in query and query["token"][0] != f"t{version}":
            return SnapshotReply(401, code="closure_token_invalid")
        assert wanted.headers["authorization"] == "Bearer secret"
        if path != closure_path("billing") or not 1 <= version <= self.head:
            return SnapshotReply(404)
        files = self.closures[version]
        label, body = etag(version, files), pack(files)
        if wanted.headers.get("if-none-match") == label:
            return SnapshotReply(304)
        if self.faulty and version < self.head and self._chance(0.2):
            return SnapshotReply(410, code="closure_unavailable")
        if self._chance(0.3):
            return self._spoil_reply(body, label)
        return SnapshotReply(200, body, label)

    # --- the line ---------------------------------------------------------------------------------

    def _chance(self, part: float) -> bool:
        return self.faulty and self.random.random() < part

    def _deliver(self) -> None:
        """The next event comes, whole or in pieces, or something like it."""
        event = self._events.pop(0)
        if self._chance(0.25):
            match self.random.choice(
                ["drop", "late", "damage", "damage", "cut", "replay", "twice"]
            ):
                case "drop":
                    return
                case "late":
                    self._events.insert(min(1, len(self._events)), event)
                    event = self._events.pop(0)
                case "damage":
                    event = self._damage(event)
                case "cut":
                    self._receive(event[: self.random.randrange(len(event))])
                    self.cut()
                    return
                case "replay":
                    event = self.random.choice([*self._replayable, event])
                case "twice":
                    event += event
        self._replayable = [*self._replayable[-8:], event]
        self._receive(event)

    def _receive(self, data: bytes) -> None:
        while data and self._stream is not None:
            size = self.random.choice([len(data), self.random.randint(1, len(data))])
            self.session.stream_received(self._stream, data[:size], self.now)
            data = data[size:]
            self._act()

    def _damage(self, data: bytes) -> bytes:
        """The same with a few bytes that are others, missing, or too many."""
        damaged = bytearray(data)
        for _ in range(self.random.choice([1, 1, 3])):
            at = self.random.randrange(len(damaged))
            match self.random.randrange(3):
                case 0:
                    damaged[at] = self.random.randrange(256)
                case 1:
                    damaged[at] = self.random.choice(b"0123456789abcdef")
                case _:
                    del damaged[at : at + self.random.randint(1, 20)]
        return bytes(damaged)

    def _spoil_reply(self, body: bytes, label: str) -> SnapshotReply | RefreshError:
        match self.random.randrange(6):
            case 0:
                return RefreshError(RefreshCheck.FETCH, "reset")
            case 1:
                return SnapshotReply(self.random.choice([206, 302, 304, 401, 500, 503]))
            case 2:
                return SnapshotReply(200, body[: self.random.randrange(len(body))], label)
            case 3:
                other = self.random.choice(list(self.closures.values()))
                return SnapshotReply(200, pack(other), label)
            case 4:
                return SnapshotReply(200, body, self._damage(label.encode()).decode("latin-1"))
            case _:
                return SnapshotReply(200, self._damage(body), label)

    def _disturb(self) -> None:
        if self._chance(0.05):
            self.cut()

    # --- what the session wants -------------------------------------------------------------------

    def _act(self) -> None:
        for action in self.session.take_actions():
            match action:
                case StreamWanted():
                    self._works["stream"] = partial(self._end_work, "stream", self._open, action)
                case StreamCancelled():
                    self._works.pop("stream", None)
                    self._stream = None
                    self._events.clear()
                case FetchWanted(number=number):
                    assert CLOSURE.match(action.target), action.target
                    self._works[number] = partial(self._end_work, number, self._fetched, action)
                case FetchCancelled(number=number):
                    self._works.pop(number, None)
                case VerificationWanted(number=number):
                    self._works["v", number] = partial(
                        self._end_work, ("v", number), self._verified, action
                    )
                case TreePublished(tree=tree):
                    self.served.append(tree.version)
                case StateChanged():
                    pass

    def _end_work(self, key: object, end: Callable[..., None], action: object) -> None:
        del self._works[key]
        end(action)

    def _fetched(self, wanted: FetchWanted) -> None:
        if self._chance(0.05):
            return  # no answer at all
        self.session.fetched(wanted.namespace, wanted.number, self._answer(wanted), self.now)

    def _verified(self, wanted: VerificationWanted) -> None:
        self.session.verified(wanted.namespace, wanted.number, wanted.work(), self.now)


def _signed(version: int) -> dict[str, str]:
    return {"snapshot_url": f"{BASE}{closure_path('billing')}?version={version}&token=t{version}"}


def _previous(version: int, files: Mapping[str, bytes]) -> dict[str, object]:
    return {"prev_version": version, "prev_closure_hash": closure_hash(files)}
