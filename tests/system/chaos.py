"""Fifty workers on the queues of a real server: they ask or stay, ack, give back, linger and die.

All of them run on one event loop and tell an oracle what they do and see. The server is killed
under them and comes back on the same data.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from random import Random
from typing import Any, Self
from urllib.parse import urlencode

import msgspec

from support.job_oracle import Being, Hold, Oracle

ASKERS = 40
STAYERS = 10
LEASE_MS = 1000
ASK_S = 120.0


class LostError(Exception):
    """The connection broke: the outcome is unknown."""


class Peer:
    """One connection to the server of the day; made anew after it was lost."""

    def __init__(self, chaos: Chaos) -> None:
        self._chaos = chaos
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.life = 0

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """JSON both ways."""
        try:
            async with asyncio.timeout(ASK_S):
                return await self._ask(method, path, body)
        except (OSError, EOFError) as error:
            self.hang_up()
            raise LostError(f"{method} {path}: {error!r}") from error

    async def _ask(self, method: str, path: str, body: object) -> Any:
        reader, writer = await self._connect()
        raw = b"" if body is None else msgspec.json.encode(body)
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + raw)
        status, headers = await _read_head(reader)
        answer = await reader.readexactly(int(headers[b"content-length"]))
        if status == 429:  # sealing does not keep up on this machine; nothing was done
            return await self._ask(method, path, body)
        assert status in (200, 201), f"{method} {path}: {status} {answer[:300]!r}"
        return msgspec.json.decode(answer)

    async def follow(self, path: str) -> asyncio.StreamReader:
        """Open a stream; HTTP/1.0 asks for one without chunks."""
        try:
            reader, writer = await self._connect()
            writer.write(f"GET {path} HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n".encode())
            status, _ = await _read_head(reader)
        except (OSError, EOFError) as error:
            self.hang_up()
            raise LostError(f"{path}: {error!r}") from error
        assert status == 200, f"{path}: {status}"
        return reader

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            await self._chaos.alive.wait()
            self.life = self._chaos.life
            port = self._chaos.port
            self._streams = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        return self._streams

    def hang_up(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
    pairs = (line.split(b": ", 1) for line in lines)
    return int(first.split()[1]), {name.lower(): value for name, value in pairs}


class Task(msgspec.Struct):
    """A job in somebody's hands, as the server says it."""

    seq: int = msgspec.field(name="$seq")
    lease_id: str
    deadline: int
    deliveries: int
    data: int

    @property
    def key(self) -> bytes:
        return b"%d" % self.data

    @property
    def fence(self) -> int:
        return int(self.lease_id.removeprefix("lease_"), 16)


class Claimed(msgspec.Struct):
    claimed: list[Task]


class Chaos:
    """The workers, their jobs and what they saw."""

    def __init__(self, seed: int, queues: dict[str, dict[str, Any]]) -> None:
        self.random = Random(seed)
        self.queues = queues
        self.port = 0
        self.life = 0
        self.alive = asyncio.Event()
        self.done = asyncio.Event()
        self.seen: Counter[str] = Counter()
        """How often what happened."""
        self._delivered = asyncio.Event()
        self._sent = 0
        self.oracles = {
            name: Oracle(name, config.get("leases_durable", False), config["max_deliveries"])
            for name, config in queues.items()
        }

    # --- the server's lives ----------------------------------------------------------------------

    def server_up(self, port: int) -> None:
        self.port = port
        self.alive.set()

    def server_down(self) -> None:
        """It was killed: whatever it had handed out counts no more."""
        self.alive.clear()
        self.life += 1
        for oracle in self.oracles.values():
            oracle.restart()

    async def wait_for(self, deliveries: int) -> None:
        """Deliveries, not acks: on a slow machine many a lease is over before its job is acked."""
        while self.seen["delivered"] < deliveries:
            self._delivered.clear()
            await self._delivered.wait()

    # --- producing -------------------------------------------------------------------------------

    async def produce(self, jobs: int) -> None:
        """Write so many jobs, each once, whatever happens to the server meanwhile."""
        with Peer(self) as peer:
            while self._sent < jobs:
                await self._produce_some(peer, jobs - self._sent)

    async def _produce_some(self, peer: Peer, jobs_max: int) -> None:
        random = self.random
        name = random.choice([*self.queues])
        records = []
        for _ in range(min(random.choice((1, 5, 20)), jobs_max)):
            self._sent += 1
            group = random.choice((None, None, None, f"g{random.randrange(5)}"))
            delay_ms = random.choice((0, 0, 0, 200))
            due_ms = _now_ms() + delay_ms if delay_ms else 0
            self.oracles[name].offer(b"%d" % self._sent, group, due_ms)
            records.append({"data": self._sent, "group": group, "delay_ms": delay_ms})
        body = {"records": records, "idempotency_key": f"batch-{self._sent}"}
        answer = await self._persist(peer, f"/v0/topics/{name}", body)
        for seq, record in zip(answer["seqs"], records, strict=True):
            self.oracles[name].appended(b"%d" % record["data"], seq)

    async def _persist(self, peer: Peer, path: str, body: object) -> Any:
        while True:
            try:
                return await peer.ask("POST", path, body)
            except LostError:
                self.seen["write asked again"] += 1

    # --- working ---------------------------------------------------------------------------------

    async def work(self, number: int) -> None:
        """One worker, until there is nothing more to do."""
        run = self._ask_for_jobs if number < ASKERS else self._have_jobs_pushed
        while not self.done.is_set():
            try:
                await run(f"worker-{number}")
            except LostError:
                self.seen["server lost"] += 1

    async def _ask_for_jobs(self, node: str) -> None:
        random = self.random
        with Peer(self) as peer:
            while not self.done.is_set():
                name = random.choice([*self.queues])
                wanted = random.choice((1, 4, 8))
                body = {"node": node, "max": wanted, "lease_ms": LEASE_MS}
                answer = await peer.ask("POST", f"/v0/topics/{name}/claim", body)
                tasks = msgspec.convert(answer, Claimed).claimed
                for task in tasks:
                    self._note(name, node, peer.life, task)
                if tasks:
                    await self._handle(peer, name, node, tasks)
                else:
                    await asyncio.sleep(0.02)  # (no synchronisation: a poll must have a pace)

    async def _have_jobs_pushed(self, node: str) -> None:
        random = self.random
        name = random.choice([*self.queues])
        query = urlencode({"node": node, "max": 4, "lease_ms": LEASE_MS})
        held: list[Task] = []
        with Peer(self) as stream, Peer(self) as peer:
            try:
                reader = await stream.follow(f"/v0/topics/{name}/work?{query}")
                for _ in range(random.choice((5, 50))):
                    task = await self._next_job(reader)
                    if task is None:
                        return
                    held.append(task)
                    self._note(name, node, stream.life, task)
                    await self._handle(peer, name, node, [task])
                self.seen["stream left"] += 1
            finally:
                for task in held:
                    self.oracles[name].give_back(task.key, task.fence)

    async def _next_job(self, reader: asyncio.StreamReader) -> Task | None:
        try:
            async with asyncio.timeout(2):
                while line := await reader.readline():
                    if line.startswith(b"data: "):
                        return msgspec.json.decode(line[6:], type=Task)
        except TimeoutError:
            return None
        except OSError as error:
            raise LostError(str(error)) from error
        raise LostError("the stream ended")

    def _note(self, name: str, node: str, life: int, task: Task) -> None:
        # What a server that is dead by now had handed out is nobody's.
        hold = Hold(node, task.fence, task.deadline, _now_ms(), void=life != self.life)
        self.seen["delivered"] += 1
        self._delivered.set()
        self.seen["delivered again"] += task.deliveries > 1
        self.oracles[name].deliver(task.key, hold, number=task.seq, deliveries=task.deliveries)

    async def _handle(self, peer: Peer, name: str, node: str, tasks: list[Task]) -> None:
        what = self.random.choices(
            ("ack", "some", "nack", "keep", "linger", "die"), (70, 8, 8, 5, 3, 3)
        )[0]
        self.seen[what] += 1
        match what:
            case "ack":
                await self._ack(peer, name, node, tasks)
            case "some":
                await self._ack(peer, name, node, tasks[::2])
            case "nack":
                await self._nack(peer, name, node, tasks)
            case "keep":
                await self._extend(peer, name, node, tasks)
                await self._ack(peer, name, node, tasks)
            case "linger":
                await asyncio.sleep(LEASE_MS / 1000 * 1.2)
                await self._ack(peer, name, node, tasks)
            case "die":
                raise LostError("the worker died")

    async def _ack(self, peer: Peer, name: str, node: str, tasks: list[Task]) -> None:
        oracle, life = self.oracles[name], self.life
        for task in tasks:
            oracle.acking(task.key)
        answer = await peer.ask("POST", f"/v0/topics/{name}/ack", _named(node, tasks))
        for task in tasks:
            if life != self.life:
                continue  # answered by the next server, or about to be forgotten with this one
            if task.seq in answer["skipped"]:
                self.seen["skipped"] += 1
                oracle.skipped(task.key, task.fence, _now_ms())
            else:
                oracle.acked(task.key)

    async def _nack(self, peer: Peer, name: str, node: str, tasks: list[Task]) -> None:
        for task in tasks:
            self.oracles[name].give_back(task.key, task.fence)
        body = _named(node, tasks) | {"delay_ms": self.random.choice((0, 100))}
        await peer.ask("POST", f"/v0/topics/{name}/nack", body)

    async def _extend(self, peer: Peer, name: str, node: str, tasks: list[Task]) -> None:
        body = _named(node, tasks) | {"lease_ms": 2 * LEASE_MS}
        answer = await peer.ask("POST", f"/v0/topics/{name}/extend", body)
        by_seq = {task.seq: task for task in tasks}
        for seq, deadline_ms in answer["deadlines"].items():
            task = by_seq[int(seq)]
            self.oracles[name].extended(task.key, task.fence, deadline_ms)

    # --- the end ---------------------------------------------------------------------------------

    async def wait_until_empty(self) -> None:
        """Until every queue is."""
        with Peer(self) as peer:
            while True:
                if not any([await self._count(peer, name) for name in self.queues]):
                    break
                await asyncio.sleep(0.05)  # (a poll with a pace)
        self.done.set()

    async def _count(self, peer: Peer, name: str) -> int:
        while True:
            try:
                return int((await peer.ask("GET", f"/v0/topics/{name}"))["count"])
            except LostError:
                pass

    async def find_all(self) -> None:
        """What is left must account for every job."""
        with Peer(self) as peer:
            for name, config in self.queues.items():
                present = await self._read(peer, name)
                dead = await self._read(peer, config["dead_letter"])
                self.oracles[name].find(present, {*dead})

    async def _read(self, peer: Peer, name: str) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        after = 0
        while True:
            body = {"from_seq": after, "limit": 1000}
            page = await peer.ask("POST", f"/v0/topics/{name}/diff", body)
            for record in page["records"]:
                data = b"%d" % record["data"]
                assert data not in found, f"{name}: {data!r} is there twice"
                found[data] = record["$seq"]
            after = page["next_from_seq"]
            if page["caught_up"]:
                return found

    @property
    def complaints(self) -> list[str]:
        left = [
            f"{name}: {data!r} is still {job.being.value}"
            for name, oracle in self.oracles.items()
            for data, job in oracle.jobs.items()
            if job.being not in (Being.DONE, Being.DEAD)
        ]
        return [what for oracle in self.oracles.values() for what in oracle.complaints] + left


def _named(node: str, tasks: list[Task]) -> dict[str, Any]:
    lease_ids = [task.lease_id for task in tasks]
    return {"node": node, "seqs": [task.seq for task in tasks], "lease_ids": lease_ids}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
