"""Tools that others wrote, given the OpenAPI document of feeds.

Schemathesis asks what it allows and what it forbids; a client is made of it, and used.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_bench.process import ServerProcess

pytestmark = pytest.mark.system

ADMIN = "the-superadmin"
TOOLS = Path(sys.executable).parent
TOOL_S = 300.0
EXAMPLES = 10
OPERATIONS = 21


@pytest.fixture(scope="module")
def feeds_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    env = {"HEADRACE_ADMIN_TOKEN": ADMIN, "HEADRACE_PIPELINE": "off"}
    with ServerProcess(tmp_path_factory.mktemp("feeds") / "data", env=env) as server:
        yield server


def run_tool(*command: str, cwd: Path, **env: str) -> str:
    """What a tool says; it has found nothing wrong."""
    path = os.pathsep.join((str(TOOLS), os.environ["PATH"]))
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": path, "NO_PROXY": "127.0.0.1", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TOOL_S,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    return done.stdout


def test_schemathesis_finds_nothing(feeds_server: ServerProcess, tmp_path: Path) -> None:
    tests = Path(__file__).parent.parent
    said = run_tool(
        str(TOOLS / "schemathesis"),
        "run",
        f"{feeds_server.url}/openapi/feeds.json",
        f"--url={feeds_server.url}",
        f"--header=Authorization: Bearer {ADMIN}",
        f"--max-examples={EXAMPLES}",
        "--seed=1",
        "--workers=1",
        cwd=tmp_path,
        SCHEMATHESIS_HOOKS="clients.schemathesis_hooks",
        PYTHONPATH=str(tests),
    )
    assert "Failures:" not in said
    assert f"Tested: {OPERATIONS}\n" in said


def test_a_client_made_of_the_document_polls(
    feeds_server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tool(
        str(TOOLS / "openapi-python-client"),
        "generate",
        f"--url={feeds_server.url}/openapi/feeds.json",
        "--meta=none",
        f"--output-path={tmp_path / 'feeds_made_client'}",
        "--fail-on-warning",
        cwd=tmp_path,
    )
    monkeypatch.syspath_prepend(tmp_path)
    made = importlib.import_module("feeds_made_client")
    models = importlib.import_module("feeds_made_client.models")
    store_events = importlib.import_module("feeds_made_client.api.events.store_events")
    list_events = importlib.import_module("feeds_made_client.api.events.list_events")
    tenant = "made-client"
    with made.AuthenticatedClient(
        base_url=feeds_server.url, token=ADMIN, httpx_args={"trust_env": False}
    ) as client:
        missing = list_events.sync(tenant, client=client)
        assert isinstance(missing, models.FeedError)
        assert missing.code == "NOT_FOUND"
        for number in range(5):
            resource = models.ResourceRef(models.ResourceType.VERSION, str(number))
            event = models.EventInput("version.published", resource)
            receipt = store_events.sync(tenant, client=client, body=event)
            assert isinstance(receipt, models.EventReceipt)
            assert [each.sequence_number for each in receipt.events] == [number + 1]
        found, after, has_more = [], 0, True
        while has_more:
            page = list_events.sync(
                tenant,
                client=client,
                after=after,
                limit=2,
                resource_type=[models.ResourceType.VERSION],
            )
            assert isinstance(page, models.EventFeedResponse)
            found += page.events
            after, has_more = page.cursor.sequence_number, page.cursor.has_more
        assert [each.sequence_number for each in found] == [1, 2, 3, 4, 5]
        assert {each.resource_ref.resource_id for each in found} == {"0", "1", "2", "3", "4"}
        assert {each.tenant_id for each in found} == {tenant}
