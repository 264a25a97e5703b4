"""Clients that load a server until it dies, and write down everything they did and saw."""

from __future__ import annotations

import itertools
import random
import threading
from collections import defaultdict
from collections.abc import Callable

import msgspec

from .kill_history import (
    Answer,
    Append,
    Being,
    Clock,
    Delete,
    Existence,
    Page,
    Payload,
    Round,
    Terms,
    Walk,
)
from .kill_oracle import Oracle
from .topics_wire import (
    Connection,
    LostError,
    UnexpectedError,
    WireWrite,
    format_write,
    read_page,
    read_pages,
    read_state,
)

WRITERS = 5
READERS = 2
CLASSES = ("fsync", "disk", "memory", "ephemeral")
SHARED = {
    **{f"shared-{durability}": Terms(durability) for durability in CLASSES},
    **{f"capped-{durability}": Terms(durability, cap_records=150) for durability in CLASSES},
}
REACH_TIMEOUT_S = 300.0


class Load:
    """All clients of one campaign, over every life of the server."""

    def __init__(self, seed: int, oracle: Oracle) -> None:
        self.oracle = oracle
        self.clock = Clock()
        self.run = 0
        self.round = Round()
        self.heads: dict[str, int] = defaultdict(int)
        self.dying = threading.Event()
        self.beings = {name: Being(name, 1, Existence.PRESENT) for name in SHARED}
        self.terms = dict(SHARED)
        self.stock: dict[str, list[Append]] = defaultdict(list)
        self._payloads = PayloadSource(seed)
        self._progress = threading.Condition()
        self._acknowledged = 0
        self._alive = 0
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._writers = [Writer(self, number) for number in range(WRITERS)]
        self._readers = [Reader(self) for _ in range(READERS)]

    def create_topics(self, connection: Connection) -> None:
        """Make the topics that all clients share."""
        for name, terms in SHARED.items():
            self.oracle.open(name, 1, terms, self.run)
            connection.ask("PUT", f"/v0/topics/{name}", format_config(terms))

    # --- one round ---

    def start(self, port: int, rng: random.Random) -> None:
        """Let every client loose on a server that is ready."""
        self.dying.clear()
        self._acknowledged = 0
        self._errors = []
        for durability in CLASSES:
            if durability == "ephemeral":
                self.stock[f"shared-{durability}"].clear()
                self.stock[f"capped-{durability}"].clear()
        clients = [*self._writers, *self._readers]
        self._alive = len(clients)
        self._threads = []
        for client in clients:
            seed = rng.getrandbits(64)
            thread = threading.Thread(target=self._live, args=(client.live, port, seed))
            self._threads.append(thread)
            thread.start()

    def wait_for(self, operations: int) -> None:
        """Wait until that many operations were acknowledged since the start of the round."""

        def done() -> bool:
            return self._acknowledged >= operations or bool(self._errors) or not self._alive

        with self._progress:
            reached = self._progress.wait_for(done, REACH_TIMEOUT_S)
        if not reached:
            raise UnexpectedError(f"{self._acknowledged} of {operations} operations were answered")

    def join(self) -> None:
        """Wait for every client to notice that the server is dead."""
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def acknowledged(self) -> None:
        with self._progress:
            self._acknowledged += 1
            self._progress.notify_all()

    def make_payloads(self, rng: random.Random, count: int) -> tuple[Payload, ...]:
        return tuple(self._payloads.make(rng) for _ in range(count))

    def _live(
        self, live: Callable[[Connection, random.Random], None], port: int, seed: int
    ) -> None:
        try:
            with Connection(port) as connection:
                live(connection, random.Random(seed))
        except LostError as lost:
            if not self.dying.is_set():
                self._errors.append(UnexpectedError(f"a living server went silent: {lost}"))
        except (UnexpectedError, msgspec.MsgspecError, AssertionError) as error:
            self._errors.append(error)
        finally:
            with self._progress:
                self._alive -= 1
                self._progress.notify_all()

    # --- between rounds ---

    def walk_all(self, connection: Connection, rng: random.Random) -> list[Walk]:
        """Read every topic from end to end while nobody writes; settle which topics exist."""
        walks = []
        for topic in list(self.beings):
            walk = self._walk(connection, topic, rng)
            if walk is not None:
                walks.append(walk)
        self._check_list(connection)
        self.round.walks.extend(walks)
        return walks

    def judge(self) -> None:
        """Hand the round to the oracle and begin a new one."""
        self.oracle.judge(self.round)
        self.round = Round()

    def _walk(self, connection: Connection, topic: str, rng: random.Random) -> Walk | None:
        being = self.beings[topic]
        state = read_state(connection, topic)
        self.oracle.judge_existence(being, found=state is not None)
        existence = Existence.ABSENT if state is None else Existence.PRESENT
        self.beings[topic] = Being(topic, being.instance, existence)
        if state is None:
            return None
        limit = rng.choice((1000, 1000, 256, 97))
        pages = read_pages(connection, self.clock, topic, limit=limit)
        self.heads[topic] = state.head
        return Walk(topic, being.instance, self.run, pages, state)

    def _check_list(self, connection: Connection) -> None:
        listed = {
            entry["topic"] for entry in connection.ask("GET", "/v0/topics?page_size=1000")["topics"]
        }
        present = {t for t, being in self.beings.items() if being.existence is Existence.PRESENT}
        if listed != present:
            self.oracle.complaints.append(f"the list is {listed}, should be {present}")


class Writer:
    """Writes to the shared topics and to one of its own, which it also drops and makes anew."""

    def __init__(self, load: Load, number: int) -> None:
        self._load = load
        self._number = number
        self._own = f"own-{number}"
        self._retries: list[Append] = []
        self._connection: Connection
        self._rng: random.Random
        load.beings[self._own] = Being(self._own, 0, Existence.ABSENT)

    def live(self, connection: Connection, rng: random.Random) -> None:
        """First ask again for what nobody answered, then work until the server is gone."""
        self._connection = connection
        self._rng = rng
        while self._retries:
            append = self._retries.pop(0)
            append.attempts += 1
            self._send(append)
        steps = (self._append, self._append_own, self._repeat, self._delete, self._hang_up)
        weights = (60, 18, 6, 12, 4)
        while True:
            (step,) = rng.choices(steps, weights)
            step()

    # --- steps ---

    def _append(self) -> None:
        topic = self._rng.choice(list(SHARED))
        self._send(self._offer(topic, keyed=self._rng.random() < 0.5))

    def _hang_up(self) -> None:
        """Leave a write in flight; half of the time ask for it again at once, by its key."""
        topic = self._rng.choice(list(SHARED))
        again = self._rng.random() < 0.5
        append = self._offer(topic, keyed=again)
        body = format_write(append.payloads, key=append.key)
        self._connection.leave("POST", f"/v0/topics/{topic}", body)
        if again:
            append.attempts += 1
            self._send(append)

    def _repeat(self) -> None:
        """Ask again for what was acknowledged long ago, perhaps by another life of the server."""
        topic = self._rng.choice(list(SHARED))
        stock = self._load.stock[topic]
        if stock:
            append = self._rng.choice(stock)
            append.attempts += 1
            self._send(append)

    def _delete(self) -> None:
        self._delete_from(self._rng.choice(list(SHARED)))

    def _append_own(self) -> None:
        being = self._load.beings[self._own]
        if being.existence is Existence.ABSENT:
            self._create_own(being.instance + 1)
        elif self._rng.random() < 0.1:
            self._drop_own(being)
        elif self._rng.random() < 0.1:
            self._delete_from(self._own)
        else:
            self._send(self._offer(self._own, keyed=False))

    def _create_own(self, instance: int) -> None:
        terms = Terms(self._rng.choice(CLASSES), self._rng.choice((0, 0, 20)))
        self._load.terms[self._own] = terms
        self._load.oracle.open(self._own, instance, terms, self._load.run)
        self._load.heads[self._own] = 0
        self._set_own(instance, Existence.UNKNOWN)
        if self._rng.random() < 0.5:
            answer = self._ask("PUT", f"/v0/topics/{self._own}", format_config(terms))
            if not answer["created"]:
                raise UnexpectedError(f"{self._own} was there before it was created: {answer}")
        else:
            self._send(self._offer(self._own, keyed=False), config=format_config(terms))
        self._set_own(instance, Existence.PRESENT)

    def _drop_own(self, being: Being) -> None:
        self._set_own(being.instance, Existence.UNKNOWN)
        answer = self._ask("DELETE", f"/v0/topics/{self._own}")
        if not answer["deleted"]:
            raise UnexpectedError(f"{self._own} was gone before it was deleted: {answer}")
        self._set_own(being.instance, Existence.ABSENT)

    # --- parts of steps ---

    def _set_own(self, instance: int, existence: Existence) -> None:
        self._load.beings[self._own] = Being(self._own, instance, existence)

    def _offer(self, topic: str, *, keyed: bool) -> Append:
        count = self._rng.choice((1, 1, 1, 2, 5, 20, 60))
        append = Append(
            topic,
            self._load.beings[topic].instance,
            self._load.make_payloads(self._rng, count),
            self._load.clock(),
            self._load.run,
        )
        if keyed:
            append.key = f"{self._number}-{append.started}"
        self._load.round.appends.append(append)
        return append

    def _send(self, append: Append, *, config: object = None) -> None:
        load = self._load
        body = format_write(append.payloads, key=append.key, config=config)
        started = load.clock()
        try:
            raw = self._call("POST", f"/v0/topics/{append.topic}", body)
        except LostError:
            if append.key is not None and load.terms[append.topic].durability != "ephemeral":
                self._retries.append(append)
            raise
        ended = load.clock()
        wire = msgspec.json.decode(raw, type=WireWrite)
        seqs = list(range(wire.first_seq, wire.first_seq + len(append.payloads)))
        if (wire.seqs, wire.last_seq, wire.count) != (seqs, seqs[-1], len(seqs)):
            raise UnexpectedError(f"{append}: {wire}")
        answer = Answer(started, ended, load.run, wire.first_seq, wire.deduped)
        append.answers.append(answer)
        load.round.answers.append((append, answer))
        load.heads[append.topic] = max(load.heads[append.topic], wire.head_seq)
        if append.key is not None and len(append.answers) == 1:
            load.stock[append.topic].append(append)
        load.acknowledged()

    def _delete_from(self, topic: str) -> None:
        rng = self._rng
        head = self._load.heads[topic]
        before_seq = tag = prefix = None
        kind = rng.random()
        if kind < 0.3:
            before_seq = max(1, head + rng.choice((-200, -100, -50, -5, 1, 40)))
        elif kind < 0.8:
            tag = make_tag(rng)
        else:
            prefix = make_tag(rng)[:-1]
        if before_seq is None and rng.random() < 0.2:
            before_seq = max(1, head - 30)
        self._send_delete(topic, before_seq, tag, prefix)

    def _send_delete(
        self, topic: str, before_seq: int | None, tag: str | None, prefix: str | None
    ) -> None:
        load = self._load
        body: dict[str, object] = {}
        if before_seq is not None:
            body["before_seq"] = before_seq
        if tag is not None:
            body["match"] = ["tag", "Eq", tag]
        if prefix is not None:
            body["match"] = ["tag", "Glob", f"{prefix}*"]
        started = load.clock()
        acked = False
        try:
            self._ask("POST", f"/v0/topics/{topic}/delete", body)
            acked = True
        finally:
            delete = Delete(
                topic,
                load.beings[topic].instance,
                started,
                load.clock(),
                load.run,
                acked,
                before_seq,
                tag,
                prefix,
            )
            load.round.deletes.append(delete)

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        raw = self._call(method, path, None if body is None else msgspec.json.encode(body))
        self._load.acknowledged()
        answer: dict[str, object] = msgspec.json.decode(raw)
        return answer

    def _call(self, method: str, path: str, body: bytes | None) -> bytes:
        status, raw = self._connection.call(method, path, body)
        while status == 429:  # sealing does not keep up on this machine; nothing was done
            status, raw = self._connection.call(method, path, body)
        if status == 503 and self._load.dying.is_set():
            raise LostError(f"{method} {path}: {raw[:200]!r}")
        if status not in (200, 201):
            raise UnexpectedError(f"{method} {path}: {status} {raw[:500]!r}")
        return raw


class Reader:
    """Follows some of the shared topics while they are written."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def live(self, connection: Connection, rng: random.Random) -> None:
        load = self._load
        topics = rng.sample(list(SHARED), 3)
        cursors = {topic: rng.choice((0, load.heads[topic])) for topic in topics}
        pages: dict[str, list[Page]] = defaultdict(list)
        try:
            for topic in itertools.cycle(topics):
                limit = rng.choice((1, 10, 100, 1000))
                wait_ms = rng.choice((0, 0, 20))
                after = cursors[topic]
                page = read_page(connection, load.clock, topic, after, limit=limit, wait_ms=wait_ms)
                cursors[topic] = page.next
                pages[topic].append(page)
        finally:
            for topic, read in pages.items():
                instance = load.beings[topic].instance
                load.round.walks.append(Walk(topic, instance, load.run, tuple(read)))


class PayloadSource:
    """Makes JSON texts of many shapes, none of them twice."""

    SHAPES = (
        b'{"id":"%s","n":1.50,"pad":"%s"}',
        b'{ "id" : "%s" , "list":[1,2.0,1E3,-0], "pad":"%s" }',
        b'["%s",null,true,"\xc3\xa9","\\u00e9\\u2028","%s"]',
        b'"%s %s"',
        b'{\n  "id": "%s",\n  "id": "a key may repeat",\n  "pad": "%s"\n}',
    )

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._numbers = itertools.count(1)

    def make(self, rng: random.Random) -> Payload:
        name = b"%d-%d" % (self._seed, next(self._numbers))
        (longest,) = rng.choices((300, 2_000, 20_000), (80, 18, 2))
        pad = rng.randbytes(rng.randrange(longest) // 2).hex().encode()
        data = rng.choice(self.SHAPES) % (name, pad)
        tag = make_tag(rng) if rng.random() < 0.7 else None
        meta = b'{"trace": "%s", "w":1.0}' % name if rng.random() < 0.2 else None
        return Payload(data, tag, meta)


def make_tag(rng: random.Random) -> str:
    return f"g{rng.randrange(6)}:{rng.randrange(10, 30)}"


def format_config(terms: Terms) -> dict[str, object]:
    return {
        "durability": terms.durability,
        "cap_records": terms.cap_records,
        "idempotency_window_ms": 3_600_000,
    }
