"""Notifications of a server that is killed while they come: what was acknowledged is replayed, all
of it, or the newest of each subject where older ones are superseded.
"""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

from headrace_bench.process import ServerProcess
from support.eventtext import split_events

from .launching import Servers, run_headrace, wait_until

TIMEOUT_S = 30.0
TYPES = ("latest", "every")
WRITERS = 3
REGIONS = 4
"""Of each writer: nobody else sends to them."""
ROUNDS = 3
SENT_MIN = 150


def configure(*newest_only: str) -> str:
    """A configuration of both types, in which these keep only the newest of each subject."""
    policy = "    storage_policy: {allow_duplicates: false}\n"
    return "notification_schema:\n" + "".join(
        f"""\
  {name}:
    topic: {{base: {name}, key_order: [region]}}
    identifier:
      region: {{type: IntHandler, range: [0, 99], required: true}}
    payload: {{required: true}}
{policy if name in newest_only else ""}"""
        for name in TYPES
    )


class Writer:
    """Sends numbers that rise, to its own regions, and notes which were acknowledged."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self._regions = range(number * REGIONS, (number + 1) * REGIONS)
        self._rng = rng
        self._sent = 0
        self.offered: dict[tuple[str, int], list[int]] = {}
        self.acknowledged: dict[tuple[str, int], list[int]] = {}
        self.count = 0
        self.refused: list[bytes] = []

    def live(self, port: int, ended: Event) -> None:
        """Until the server is gone."""
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as line:
            while not ended.is_set():
                self._sent += 1
                place = self._rng.choice(TYPES), self._rng.choice(self._regions)
                self.offered.setdefault(place, []).append(self._sent)
                try:
                    status, body = ask(line, "notification", *place, payload=self._sent)
                except (OSError, http.client.HTTPException):
                    return
                if status != 200:
                    self.refused.append(body)
                    return
                self.acknowledged.setdefault(place, []).append(self._sent)
                self.count += 1


def ask(
    line: http.client.HTTPConnection, path: str, name: str, region: object, **more: object
) -> tuple[int, bytes]:
    body = {"event_type": name, "identifier": {"region": region}, **more}
    headers = {"Content-Type": "application/json"}
    line.request("POST", f"/api/v1/{path}", json.dumps(body), headers)
    answer = line.getresponse()
    return answer.status, answer.read()


def replay(port: int, name: str) -> Iterator[tuple[int, int, int]]:
    """(sequence, region, number) of each notification there is."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as line:
        status, body = ask(line, "replay", name, {"gte": 0}, from_id="1")
    assert status == 200, body
    events, _ = split_events(body)
    assert events[-1].data["reason"] == "end_of_stream"
    for event in events:
        if event.name == "replay":
            data: dict[str, Any] = event.data["data"]
            sequence = int(event.data["id"].rpartition("@")[2])
            yield sequence, int(data["identifier"]["region"]), data["payload"]


def live_round(server: ServerProcess, writers: list[Writer]) -> None:
    """Write for a while, and kill the server in the middle of it."""
    ended, before = Event(), sum(writer.count for writer in writers)
    threads = [Thread(target=writer.live, args=(server.port, ended)) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        wait_until(
            lambda: sum(writer.count for writer in writers) >= before + SENT_MIN,
            "notifications to be acknowledged",
        )
        server.kill()
    finally:
        ended.set()
        for thread in threads:
            thread.join(TIMEOUT_S)
    assert not [refusal for writer in writers for refusal in writer.refused]


def judge(writers: list[Writer], found: dict[str, list[tuple[int, int, int]]]) -> None:
    offered = {place: sent for writer in writers for place, sent in writer.offered.items()}
    acknowledged = {
        place: sent for writer in writers for place, sent in writer.acknowledged.items()
    }
    for name, notifications in found.items():
        sequences = [sequence for sequence, _, _ in notifications]
        assert sequences == sorted(set(sequences))
        by_region: dict[int, list[int]] = {}
        for _, region, number in notifications:
            by_region.setdefault(region, []).append(number)
        for region, numbers in by_region.items():
            assert set(numbers) <= set(offered[name, region])
            assert numbers == sorted(set(numbers)), "in the order they were sent"
            assert len(numbers) == 1 or name == "every"
        for (sent_as, region), sent in acknowledged.items():
            if sent_as != name:
                continue
            there = by_region[region]
            if name == "every":
                assert set(sent) <= set(there)
            else:
                assert there[0] >= sent[-1], "an older one is back"


def test_a_killed_server_has_every_notification_or_the_newest(
    data_dir: Path, tmp_path: Path, new_server: Servers
) -> None:
    file = tmp_path / "notifications.yaml"
    file.write_text(configure("latest"))
    # Small journal files: some of it is sealed, some is not, and snapshots are taken.
    settings = {"NOTIFICATIONS_CONFIG": str(file), "HEADRACE_SEAL_BYTES": "65536"}
    server = new_server(**settings).start()
    writers = [Writer(number, random.Random(number)) for number in range(WRITERS)]
    for _ in range(ROUNDS):
        live_round(server, writers)
        server.start()
        found = {name: list(replay(server.port, name)) for name in TYPES}
        judge(writers, found)
    server.kill()
    checked = run_headrace("verify", "--data-dir", str(data_dir))
    assert checked.returncode == 0, checked.stdout
    server.start()
    assert {name: list(replay(server.port, name)) for name in TYPES} == found
    # A rule that is new is true for what is there.
    server.kill()
    file.write_text(configure("latest", "every"))
    server.start()
    newest = {region: (sequence, region, number) for sequence, region, number in found["every"]}
    assert list(replay(server.port, "every")) == sorted(newest.values())
    assert list(replay(server.port, "latest")) == found["latest"]
