"""The client of flags beside a real server, which is killed, started again, and says no."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest

from headrace.client.flags import (
    FlagChange,
    FlagGroup,
    FlagState,
    FlagStateChange,
    RefreshPolicy,
    SyncFlagNamespace,
)
from headrace_bench.process import ServerProcess
from support.flag_history import Files, flag_file, pack, segment_file

pytestmark = pytest.mark.system

ADMIN = "exd_admin_of_this_test_0123456789abcdef"
WAIT_S = 60.0
"""Far longer than anything here takes."""
POLICY = RefreshPolicy(pause_s=0.05, pause_s_max=0.2, error_after_s=0.5, readmit_s=0.2)


def files_of(value: int) -> Files:
    """A manifest with two flags, one of which needs a segment."""
    return {
        "flags/checkout.toml": flag_file(("staff",), value),
        "flags/banner.toml": flag_file((), 100 + value),
        "segments/staff.toml": segment_file((), 7),
    }


class Installation:
    """A server with a tenant, and its administrator."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.post("/tenants", {"slug": "acme"})
        self.create("billing")

    def _send(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {ADMIN}"}
        url = f"{self.server.url}/api/v1{path}"
        reply = httpx.request(method, url, headers=headers, timeout=WAIT_S, **request)
        assert reply.status_code in (200, 201, 204), reply.text
        body: dict[str, Any] = reply.json() if reply.content else {}
        return body

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._send("POST", path, json=body)

    def create(self, slug: str) -> None:
        self.post("/tenants/acme/namespaces", {"slug": slug})

    def upload(self, value: int, slug: str = "billing") -> int:
        """A new version, in which flags have this value."""
        path = f"/tenants/acme/namespaces/{slug}/manifest"
        reply = self._send("PUT", path, files={"archive": ("m.tar.gz", pack(files_of(value)))})
        version: int = reply["version"]
        return version

    def token(self, type: str, namespace: str | None = None) -> tuple[str, str]:
        """Id and secret of a new one."""
        about = {"type": type, "name": "client"} | ({"namespace": namespace} if namespace else {})
        made = self.post("/tenants/acme/tokens", about)
        return made["token"]["id"], made["secret"]

    def revoke(self, id: str) -> None:
        self._send("DELETE", f"/tenants/acme/tokens/{id}")


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    with ServerProcess(tmp_path / "data", env={"HEADRACE_ADMIN_TOKEN": ADMIN}) as server:
        yield Installation(server)


class Listening:
    """What a namespace told of itself."""

    def __init__(self, namespace: SyncFlagNamespace) -> None:
        self._namespace = namespace
        self._changes: Queue[FlagChange] = Queue()
        self._states: Queue[FlagStateChange] = Queue()
        namespace.on_change(self._changes.put)
        namespace.on_state(self._states.put)

    def wait_version(self, version: int) -> None:
        while self._namespace.version != version:
            self._changes.get(timeout=WAIT_S)

    def wait_state(self, state: FlagState) -> FlagStateChange:
        while (change := self._states.get(timeout=WAIT_S)).state is not state:
            pass
        return change


def test_a_server_that_is_killed_comes_back_and_then_says_no(installation: Installation) -> None:
    server = installation.server
    installation.upload(1)
    id, secret = installation.token("namespace-read", "billing")
    follow = {"billing": "*"}
    with FlagGroup(server.url, token=secret, namespaces=follow, policy=POLICY) as group:
        billing = group.namespace("billing")
        heard = Listening(billing)
        billing.wait_ready(WAIT_S)
        heard.wait_state(FlagState.FRESH)
        assert billing.files == files_of(1)
        assert billing.eval("checkout", {"plan": 7}, default=0) == 1
        assert billing.eval("checkout", {"plan": 8}, default=0) == -1

        assert installation.upload(2) == 2
        heard.wait_version(2)
        assert billing.files == files_of(2)

        server.change_env({"TOPICS_PORT": str(server.port)})
        server.kill()
        heard.wait_state(FlagState.STALE)
        heard.wait_state(FlagState.ERROR)
        assert billing.evaluate("checkout", {"plan": 7}).value == 2
        server.start()
        heard.wait_state(FlagState.FRESH)
        assert billing.last_refresh_error() is None
        assert installation.upload(3) == 3
        heard.wait_version(3)

        installation.revoke(id)
        lost = heard.wait_state(FlagState.ERROR)
        while lost.error is None or lost.error.status != 401:
            lost = heard.wait_state(FlagState.ERROR)
        installation.upload(4)
        assert billing.files == files_of(3)
        assert billing.eval("banner") == -103


def test_namespaces_that_come_later_and_flags_that_were_not_asked_for(
    installation: Installation,
) -> None:
    installation.upload(1)
    _, secret = installation.token("tenant-admin")
    follow = {"billing": ["banner", "missing"], "later": "*"}
    with FlagGroup(
        installation.server.url, token=secret, namespaces=follow, policy=POLICY
    ) as group:
        billing, later = group.namespace("billing"), group.namespace("later")
        billing.wait_ready(WAIT_S)
        assert set(billing.files) == {"flags/banner.toml"}
        assert billing.evaluate("checkout", default="?").reason == "flag_not_found"
        assert later.state is FlagState.NOT_READY
        installation.create("later")
        installation.upload(5, "later")
        later.wait_ready(WAIT_S)
        assert later.files == files_of(5)


def test_a_superadmin_names_the_tenant(installation: Installation) -> None:
    installation.upload(1)
    follow = {"acme/billing": "checkout"}
    with FlagGroup(installation.server.url, token=ADMIN, namespaces=follow, policy=POLICY) as group:
        billing = group.namespace("acme/billing")
        heard = Listening(billing)
        billing.wait_ready(WAIT_S)
        assert set(billing.files) == {"flags/checkout.toml", "segments/staff.toml"}
        installation.upload(2)
        heard.wait_version(2)
        assert billing.eval("checkout", {"plan": 7}) == 2
