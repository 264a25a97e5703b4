"""Events of a server that is killed while they come: every id is stored once, however often it is
sent, under the number that was acknowledged; and numbers have no gaps.
"""

from __future__ import annotations

import http.client
import json
import random
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import UUID

from headrace_bench.process import ServerProcess

from .launching import Servers, run_headrace, wait_until

TIMEOUT_S = 30.0
TENANTS = ("acme", "beta")
WRITERS = 3
ROUNDS = 3
STORED_MIN = 300
BATCH_MAX = 5


class Writer:
    """Sends batches that overlap, its own and those of others, and notes what was acknowledged."""

    def __init__(self, number: int) -> None:
        self._rng = random.Random(number)
        self._next = number * 1_000_000
        self.acknowledged: dict[tuple[str, str], int] = {}
        """Tenant and id → number."""
        self.problems: list[str] = []

    def live(self, port: int, ended: Event) -> None:
        """Until the server is gone."""
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as line:
            while not ended.is_set():
                tenant = self._rng.choice(TENANTS)
                try:
                    status, reply = post(line, tenant, self._batch())
                except (OSError, http.client.HTTPException):
                    return
                if status != 201:
                    self.problems.append(f"{status}: {reply}")
                    return
                for event in reply["events"]:
                    self._note(tenant, event["id"], event["sequenceNumber"])

    def _batch(self) -> list[str]:
        """Ids: some new, some that were sent before, perhaps without an answer."""
        ids = []
        for _ in range(self._rng.randint(1, BATCH_MAX)):
            self._next += 1
            ids.append(self._next)
        known = self._rng.randint(0, BATCH_MAX)
        ids += [max(1, self._next - self._rng.randrange(1, 20)) for _ in range(known)]
        self._rng.shuffle(ids)
        return [str(UUID(int=id)) for id in ids]

    def _note(self, tenant: str, id: str, number: int) -> None:
        if self.acknowledged.setdefault((tenant, id), number) != number:
            self.problems.append(f"{id} of {tenant} has two numbers")


def post(
    line: http.client.HTTPConnection, tenant: str, ids: list[str]
) -> tuple[int, dict[str, Any]]:
    resource = {"resourceType": "theme", "resourceId": "a"}
    events = [{"id": id, "type": "theme.updated", "resourceRef": resource} for id in ids]
    headers = {"Content-Type": "application/json"}
    line.request("POST", f"/tenants/{tenant}/events", json.dumps({"events": events}), headers)
    answer = line.getresponse()
    return answer.status, json.loads(answer.read())


def stored(port: int, tenant: str) -> dict[str, int]:
    """Id → number, of all events there are."""
    found: dict[str, int] = {}
    after, more = 0, True
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as line:
        while more:
            line.request("GET", f"/tenants/{tenant}/events?limit=1000&after={after}")
            page = json.loads(line.getresponse().read())
            for event in page["events"]:
                assert event["id"] not in found, "stored twice"
                found[event["id"]] = event["sequenceNumber"]
            after, more = page["cursor"]["sequenceNumber"], page["cursor"]["hasMore"]
    assert list(found.values()) == list(range(1, len(found) + 1)), "no gaps"
    return found


def live_round(server: ServerProcess, writers: list[Writer]) -> None:
    """Write for a while, and kill the server in the middle of it."""

    def count() -> int:
        return sum(len(writer.acknowledged) for writer in writers)

    ended, before = Event(), count()
    threads = [Thread(target=writer.live, args=(server.port, ended)) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: count() >= before + STORED_MIN, "events to be acknowledged")
        server.kill()
    finally:
        ended.set()
        for thread in threads:
            thread.join(TIMEOUT_S)
    assert not [problem for writer in writers for problem in writer.problems]


def test_a_killed_server_stores_every_id_once(data_dir: Path, new_server: Servers) -> None:
    # Small journal files: ids are read from segments and from the journal.
    server = new_server(HEADRACE_SEAL_BYTES="65536", HEADRACE_PIPELINE="off").start()
    writers = [Writer(number) for number in range(1, WRITERS + 1)]
    for _ in range(ROUNDS):
        live_round(server, writers)
        server.start()
        found = {tenant: stored(server.port, tenant) for tenant in TENANTS}
        for writer in writers:
            for (tenant, id), number in writer.acknowledged.items():
                assert found[tenant][id] == number
    server.kill()
    checked = run_headrace("verify", "--data-dir", str(data_dir))
    assert checked.returncode == 0, checked.stdout
