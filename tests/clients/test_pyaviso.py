"""pyaviso, the official client of notifications, and its command line against a real server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyaviso
import pytest

from headrace_bench.process import ServerProcess

pytestmark = pytest.mark.system

WATCH_S = 2
"""How long a watch lasts: a client that listens for longer has to come again."""
ADMIN_TOKEN = "token-of-the-superadmin"
PATIENCE_S = 60.0
CONFIG = f"""\
application: {{base_url: "http://aviso.example"}}
watch_endpoint: {{connection_max_duration_sec: {WATCH_S}, sse_heartbeat_interval_sec: 1}}
auth:
  enabled: true
  mode: static
  admin_roles: {{localrealm: [admin]}}
  users:
    - {{username: admin-user, password: admin-pass, realm: localrealm, roles: [admin]}}
    - {{username: reader-user, password: reader-pass, realm: localrealm, roles: [reader]}}
    - {{username: producer-user, password: producer-pass, realm: localrealm, roles: [producer]}}
notification_schema:
  storm:
    topic: {{base: storm, key_order: [region, severity]}}
    identifier:
      region: {{type: EnumHandler, values: [north, south], required: true}}
      severity: {{type: IntHandler, range: [1, 7], required: false}}
    auth:
      required: true
      read_roles: {{localrealm: ["*"]}}
      write_roles: {{localrealm: [producer]}}
  flood:
    topic: {{base: flood, key_order: [river]}}
    identifier:
      river: {{type: StringHandler, required: true}}
      polygon: {{type: PolygonHandler, required: false}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("aviso")
    (folder / "notifications.yaml").write_text(CONFIG)
    env = {
        "NOTIFICATIONS_CONFIG": str(folder / "notifications.yaml"),
        "HEADRACE_ADMIN_TOKEN": ADMIN_TOKEN,
    }
    with ServerProcess(folder / "data", env=env) as server:
        yield server


def client(server: ServerProcess, user: str, **more: Any) -> pyaviso.AvisoClient:
    auth = pyaviso.Basic(f"{user}-user", f"{user}-pass")
    return pyaviso.AvisoClient(
        base_url=server.url, auth=auth, state_store=pyaviso.MemoryStore(), **more
    )


def notify(server: ServerProcess, severity: int, region: str = "north") -> None:
    identifier = {"region": region, "severity": severity}
    reply = client(server, "producer").notify(
        event_type="storm", identifier=identifier, payload={"severity": severity}
    )
    assert reply.status == "success"


def watches(server: ServerProcess) -> int:
    """How many watches there were."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Accept": "application/json"}
    reply = httpx.get(f"{server.url}/v0/metrics", headers=headers, trust_env=False)
    counts = reply.raise_for_status().json()["aviso_sse_connections_total"]
    return sum(each["value"] for each in counts if each["route"] == "/api/v1/watch")


def wait_for_watch(server: ServerProcess, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while watches(server) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def empty(server: ServerProcess) -> None:
    """Before each test nothing is stored; numbers go on."""
    client(server, "admin").wipe_all()


def test_schemas(server: ServerProcess) -> None:
    everybody = pyaviso.AvisoClient(base_url=server.url, auth=pyaviso.Anonymous())
    catalog = everybody.schema()
    assert catalog.event_types == ["flood", "storm"]
    assert catalog.total_schemas == 2
    storm = everybody.schema_for("storm").schema
    assert storm["identifier"]["severity"] == {
        "type": "IntHandler", "range": [1, 7], "required": False
    }  # fmt: skip


def test_what_is_refused(server: ServerProcess) -> None:
    with pytest.raises(pyaviso.HttpError, match="403"):
        client(server, "reader").notify(
            event_type="storm", identifier={"region": "north", "severity": 1}
        )
    with pytest.raises(pyaviso.HttpError, match="400"):
        notify(server, 9)
    with pytest.raises(pyaviso.AvisoError):
        client(server, "reader").wipe_all()


def test_listen_across_the_end_of_a_watch(server: ServerProcess) -> None:
    """A watch ends after a while; the client comes again and has missed nothing, twice nothing."""
    listening = client(server, "reader").listen("storm", filter={"region": "north"}, start_from=1)
    found = []
    with listening:
        for severity in range(1, 8):
            notify(server, severity)
            notify(server, severity, "south")
            found.append(next(listening))
            if severity in (3, 5):  # goes on in a watch that began later
                wait_for_watch(server, watches(server) + 1)
    assert [each.payload["severity"] for each in found] == list(range(1, 8))
    assert len({each.sequence for each in found}) == 7
    assert found[0].identifier == {"region": "north", "severity": "1"}
    assert found[0].cloudevent is not None
    assert found[0].cloudevent["source"] == "http://aviso.example"


def replay(server: ServerProcess, start_from: int | str, **more: Any) -> list[int]:
    found = client(server, "reader").listen(
        "storm", filter={"region": "north", "severity": {"gte": 2}}, start_from=start_from,
        mode="replay_only", **more,
    )  # fmt: skip
    with found:
        return [each.sequence for each in found]


def test_replay_by_number_and_by_date(server: ServerProcess) -> None:
    for severity in (1, 2, 3, 4):
        notify(server, severity)
    found = replay(server, "2020-01-01T00:00:00Z")
    assert len(found) == 3
    assert replay(server, found[0]) == found[1:]  # it asks for what follows
    assert replay(server, "2020-01-01T00:00:00Z", until=found[1]) == found[:2]
    client(server, "admin").delete_notification(f"storm@{found[1]}")
    assert replay(server, "2020-01-01T00:00:00Z") == [found[0], found[2]]
    client(server, "admin").wipe_stream("STORM")
    assert replay(server, "2020-01-01T00:00:00Z") == []


def aviso(server: ServerProcess, user: str, home: Path, *words: str) -> str:
    """What the command says."""
    environ = {
        "HOME": str(home),
        "AVISO_BASE_URL": server.url,
        "AVISO_USERNAME": f"{user}-user",
        "AVISO_PASSWORD": f"{user}-pass",
    }
    command = [str(Path(sys.executable).with_name("aviso")), "--json", *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line(server: ServerProcess, tmp_path: Path) -> None:
    assert "storm" in aviso(server, "reader", tmp_path, "schema", "list")
    aviso(server, "producer", tmp_path, "notify", "event=storm,region=south,severity:=6,data=[1]")
    said = aviso(
        server, "reader", tmp_path, "replay", "--event", "storm",
        "--identifiers", '{"region": "south"}', "--from", "2020-01-01T00:00:00Z",
    )  # fmt: skip
    (told,) = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert "south" in json.dumps(told)
    aviso(server, "admin", tmp_path, "admin", "wipe-stream", "storm", "--yes")
    assert replay(server, "2020-01-01T00:00:00Z") == []


def test_a_listener_file(server: ServerProcess, tmp_path: Path) -> None:
    for severity in (1, 2, 3, 4):
        notify(server, severity)
    listeners = tmp_path / "listeners.yaml"
    listeners.write_text(f"""\
listeners:
  - name: severe
    event: storm
    identifiers: {{region: {{in: [north, south]}}, severity: {{between: [2, 3]}}}}
    triggers: [{{type: log, path: "{tmp_path / "severe.log"}"}}]
""")
    aviso(server, "reader", tmp_path, "replay", str(listeners), "--from", "2020-01-01T00:00:00Z")
    logged = (tmp_path / "severe.log").read_text().splitlines()
    assert [json.loads(line)["payload"]["severity"] for line in logged] == [2, 3]


def test_several_at_once(server: ServerProcess) -> None:
    square = [[0, 0], [0, 1], [1, 1], [0, 0]]
    many = [
        {"event_type": "flood", "identifier": {"river": f"r{n}", "polygon": square}, "payload": n}
        for n in range(10)
    ]
    results = client(server, "producer").notify_many([*many, {"event_type": "hail"}], concurrency=4)
    assert [each.ok for each in results] == [True] * 10 + [False]
    listening = client(server, "reader").listen_many(
        {
            "one": {"event_type": "flood", "filter": {"river": "r3"}},
            "area": {"event_type": "flood", "filter": {"river": "*", "point": "0.2,0.8"}},
        },
        start_from="2020-01-01T00:00:00Z", mode="replay_only",
    )  # fmt: skip
    found: dict[str, set[int]] = {"one": set(), "area": set()}
    for name, notification in listening:
        found[name].add(notification.payload)
    assert found == {"one": {3}, "area": set(range(10))}
