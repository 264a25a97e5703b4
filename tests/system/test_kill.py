"""Load a real server, SIGKILL it, start it on the same data, and compare with what it had promised.

`HEADRACE_KILL_ROUNDS` asks for more rounds than the few of `make test`, `HEADRACE_KILL_SEED`
repeats a failed plan (what the threads make of it still differs from run to run).
"""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from headrace_bench.process import ServerProcess

from .kill_history import Clock, Walk
from .kill_load import Load, PayloadSource
from .kill_oracle import Oracle
from .kill_spans import covered
from .launching import Servers, manifest_of, run_headrace, wait_until
from .topics_wire import (
    Connection,
    LostError,
    UnexpectedError,
    format_write,
    read_pages,
    read_state,
)

pytestmark = pytest.mark.system

ROUNDS = int(os.environ.get("HEADRACE_KILL_ROUNDS", "12"))
ROUNDS_ON_ONE_DIRECTORY = 6
SEED = os.environ.get("HEADRACE_KILL_SEED")

SETTINGS = {
    "HEADRACE_SEAL_BYTES": ("128KiB", "256KiB"),
    "HEADRACE_TAIL_BYTES": ("384KiB", "1MiB"),
    "HEADRACE_BLOCK_CACHE_BYTES": ("0", "64KiB", "1MiB"),
}
"""Small enough that journals rotate, segments are sealed and memory is left many times a round."""
SEALED_BYTES = 512 << 10

ENDINGS = {
    "killed": 6,
    "killed, killed again while recovering": 3,
    "killed, and restarted once more": 3,
    "stopped": 2,
    "killed while stopping": 2,
}


class Campaign:
    """Rounds of load and crash on one data directory."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.server = server
        self.rng = random.Random(seed)
        self.oracle = Oracle()
        self.load = Load(seed, self.oracle)

    def begin(self) -> None:
        self.server.start()
        with Connection(self.server.port) as connection:
            self.load.create_topics(connection)

    def live_round(self, ending: str) -> None:
        """One life of the server under load, its end, and what the next life says about it."""
        operations = self.rng.choice((self.rng.randrange(1, 40), self.rng.randrange(150, 700)))
        self.load.start(self.server.port, self.rng)
        try:
            self.load.wait_for(operations)
        finally:
            self.load.dying.set()
            self._end(ending)
            self.load.join()
        self._restart(ending)
        once = self._walk_all()
        self.load.judge()
        if ending == "killed, and restarted once more":
            self._end(self.rng.choice(("killed", "stopped")))
            self._restart("killed")
            again = self._walk_all()
            self.load.judge()
            for one, two in zip(once, again, strict=True):
                self.oracle.judge_twice(one, two)

    def _end(self, ending: str) -> None:
        if ending == "stopped":
            status = self.server.stop()
            if status != 0:
                raise UnexpectedError(f"a graceful stop ended with status {status}")
        elif ending == "killed while stopping":
            os.kill(self.server.pid, signal.SIGTERM)
            self._knock(self.rng.randrange(3))
            self.server.kill()
        else:
            self.server.kill()

    def _restart(self, ending: str) -> None:
        if ending == "killed, killed again while recovering":
            for _ in range(self.rng.randrange(1, 3)):
                self._start(wait_ready=False)
                self._knock(self.rng.randrange(4))
                self.server.kill()
        self._start(wait_ready=True)

    def _start(self, *, wait_ready: bool) -> None:
        self.load.run += 1
        self.server.start(wait_ready=wait_ready)

    def _knock(self, times: int) -> None:
        """Let the server do a little work, measured in answers and not in time."""
        with Connection(self.server.port) as connection, suppress(LostError):
            for _ in range(times):
                connection.call("GET", "/v0/ready")

    def _walk_all(self) -> list[Walk]:
        with Connection(self.server.port) as connection:
            return self.load.walk_all(connection, self.rng)


def seal_something(server: ServerProcess, data_dir: Path) -> None:
    """What a few short rounds wrote may be too little for a segment, or none was ready in time."""
    body = msgspec.json.encode({"records": [{"data": "x" * SEALED_BYTES}]})
    with Connection(server.port) as connection:
        wait_until(
            lambda: connection.call("POST", "/v0/topics/more", body)[0] in (200, 201), "room"
        )
    wait_until(lambda: manifest_of(data_dir) > 0, "a sealed segment")


def leftovers_of(data_dir: Path) -> set[Path]:
    """What a server that runs no more left for the next to remove: half-written files, and objects
    that are on none of the lists that are kept.
    """
    published = "".join(path.read_text() for path in data_dir.glob("objects/manifests/*.json"))
    folders = ("segments", "companions")
    objects = [path for folder in folders for path in data_dir.glob(f"objects/{folder}/*")]
    unlisted = {path for path in objects if path.name not in published}
    return unlisted | set(data_dir.rglob("*.tmp"))


def choose_settings(seed: int) -> dict[str, str]:
    rng = random.Random(seed)
    return {name: rng.choice(values) for name, values in SETTINGS.items()}


@pytest.mark.parametrize("campaign", range(-(-ROUNDS // ROUNDS_ON_ONE_DIRECTORY)))
def test_a_killed_server_keeps_its_word(campaign: int, data_dir: Path, new_server: Servers) -> None:
    seed = random.randrange(1 << 32) if SEED is None else int(SEED) + campaign
    rounds = min(ROUNDS_ON_ONE_DIRECTORY, ROUNDS - campaign * ROUNDS_ON_ONE_DIRECTORY)
    settings = choose_settings(seed)
    server = new_server(**settings)
    play = Campaign(server, seed)
    play.begin()
    for number in range(rounds):
        (ending,) = play.rng.choices(list(ENDINGS), list(ENDINGS.values()))
        plot = f"HEADRACE_KILL_SEED={seed}, round {number} of {rounds} ({ending}), {settings}"
        try:
            play.live_round(ending)
        except (UnexpectedError, RuntimeError, TimeoutError) as error:
            pytest.fail(f"{plot}: {error}\n{server.output()[-5000:]}")
        if play.oracle.complaints:
            complaints = "\n  ".join(play.oracle.complaints)
            pytest.fail(f"{plot}:\n  {complaints}\nThe server said:\n{server.output()[-2000:]}")
    seal_something(server, data_dir)
    assert server.stop() == 0
    left = leftovers_of(data_dir)
    server.start()
    wait_until(
        lambda: not any(path.exists() for path in left),
        lambda: f"no more {left}, seed {seed}:\n{server.output()[-5000:]}",
    )
    assert server.stop() == 0
    assert "Traceback" not in server.output(), f"seed {seed}:\n{server.output()[-5000:]}"
    verified = run_headrace("verify", "--data-dir", str(data_dir))
    assert verified.returncode == 0, f"HEADRACE_KILL_SEED={seed}: {verified.stdout}"


def test_a_class_that_changes_loses_only_what_was_ephemeral(new_server: Servers) -> None:
    """Durable records on both sides of an ephemeral time: the loss is a gap between them."""
    server = new_server().start()
    with Connection(server.port) as connection:
        for durability in ("disk", "ephemeral"):
            connection.ask("PUT", "/v0/topics/mixed", {"durability": durability})
            records = [{"data": f"{durability} {number}"} for number in range(10)]
            connection.ask("POST", "/v0/topics/mixed", {"records": records})
    server.kill()
    server.start()
    with Connection(server.port) as connection:
        connection.ask("PUT", "/v0/topics/mixed", {"durability": "fsync"})
        answer = connection.ask("POST", "/v0/topics/mixed", {"records": [{"data": "after"}]})
    after = answer["first_seq"]
    assert after > 20
    check_mixed(server.port, after)
    server.kill()
    server.start()
    check_mixed(server.port, after)


def check_mixed(port: int, after: int) -> None:
    with Connection(port) as connection:
        pages = read_pages(connection, Clock(), "mixed")
    records = [seen for page in pages for seen in page.records]
    gaps = [page.gap for page in pages if page.gap is not None]
    assert [seen.seq for seen in records] == [*range(1, 11), after]
    assert [seen.payload.data for seen in records[:10]] == [b'"disk %d"' % n for n in range(10)]
    assert covered(gaps) == [(11, after - 1, "restart")]


@pytest.mark.parametrize("durability", ["fsync", "disk", "memory"])
def test_a_key_is_known_after_a_crash(durability: str, new_server: Servers) -> None:
    """The retry of a write whose answer got lost in the crash appends nothing."""
    server = new_server().start()
    body = {
        "records": [{"data": 1}, {"data": 2}],
        "idempotency_key": "once",
        "config": {"durability": durability},
    }
    with Connection(server.port) as connection:
        first = connection.ask("POST", "/v0/topics/keyed", body)
    assert (first["seqs"], first["deduped"]) == ([1, 2], False)
    for end in (server.kill, server.stop):
        end()
        server.start()
        with Connection(server.port) as connection:
            again = connection.ask("POST", "/v0/topics/keyed", body)
            state = read_state(connection, "keyed")
        assert (again["seqs"], again["deduped"]) == ([1, 2], True)
        assert state is not None
        assert state.count == 2


def test_a_topic_made_anew_does_not_inherit_anything(new_server: Servers) -> None:
    """Records, floor, keys and epoch of a dropped topic stay dropped across a crash."""
    server = new_server().start()
    keyed = {"records": [{"data": "old"}] * 5, "idempotency_key": "k"}
    with Connection(server.port) as connection:
        connection.ask("POST", "/v0/topics/phoenix", keyed)
        before = read_state(connection, "phoenix")
        connection.ask("DELETE", "/v0/topics/phoenix")
    server.kill()
    server.start()
    with Connection(server.port) as connection:
        assert read_state(connection, "phoenix") is None
        answer = connection.ask("POST", "/v0/topics/phoenix", keyed)
    assert (answer["first_seq"], answer["created"], answer["deduped"]) == (1, True, False)
    server.kill()
    server.start()
    with Connection(server.port) as connection:
        after = read_state(connection, "phoenix")
    assert before is not None
    assert after is not None
    assert after.epoch != before.epoch
    assert (after.head, after.count) == (5, 5)


def test_a_big_batch_is_all_there_or_not_at_all(new_server: Servers) -> None:
    """A write larger than a journal file, acknowledged or in flight when the server dies."""
    server = new_server(**choose_settings(1)).start()
    source, rng = PayloadSource(1), random.Random(1)
    batches = [tuple(source.make(rng) for _ in range(2000)) for _ in range(4)]
    with Connection(server.port) as connection:
        for batch in batches[:2]:
            status, _ = connection.call("POST", "/v0/topics/big", format_write(batch))
            assert status in (200, 201)
        for batch in batches[2:]:
            connection.leave("POST", "/v0/topics/big", format_write(batch))
    server.kill()
    server.start()
    with Connection(server.port) as connection:
        pages = read_pages(connection, Clock(), "big")
    found = [seen.payload for page in pages for seen in page.records]
    assert found[:4000] == [payload for batch in batches[:2] for payload in batch]
    assert len(found) % 2000 == 0
    assert set(found[4000:]) <= {payload for batch in batches[2:] for payload in batch}
