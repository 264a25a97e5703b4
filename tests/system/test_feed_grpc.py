"""Hints of feeds over gRPC, by a real client to a real process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from headrace.formats import feed_notifications as messages
from headrace_bench.process import ServerProcess
from support.feed_grpc import connected, event, grpc_server

from .launching import Servers, serve_to_the_end, wait_until

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("feed-grpc")]
METRIC = "headrace_feed_consumers"
ADMIN = {"authorization": "Bearer the-superadmin"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, str]]:
    with grpc_server(tmp_path_factory.mktemp("grpc")) as found:
        store(found[0], "acme", "theme")
        yield found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, str]]:
    settings = {
        "HEADRACE_ADMIN_TOKEN": "the-superadmin",
        "HEADRACE_MAX_SSE_CONNECTIONS_PER_KEY": "2",
    }
    with grpc_server(tmp_path_factory.mktemp("guarded"), **settings) as found:
        for tenant in ("acme", "other"):
            store(found[0], tenant, "theme")
        yield found


def store(server: ServerProcess, tenant: str, *types: str) -> int:
    """Store events in one batch; the number of the last."""
    body = {"events": [event(type) for type in types]}
    answer = httpx.post(f"{server.url}/tenants/{tenant}/events", json=body, headers=ADMIN)
    assert answer.status_code == 201, answer.text
    number: int = answer.json()["events"][-1]["sequenceNumber"]
    return number


def ask(server: ServerProcess, path: str) -> Any:
    answer = httpx.get(f"{server.url}/tenants/{path}", headers=ADMIN)
    assert answer.status_code == 200, answer.text
    return answer.json()


def read_metric(server: ServerProcess) -> float:
    text = httpx.get(f"{server.url}/v0/metrics", headers=ADMIN).text
    (line,) = [line for line in text.splitlines() if line.startswith(f"{METRIC} ")]
    return float(line.split()[1])


def test_subscribe_hear_fetch_and_leave(shared: tuple[ServerProcess, str]) -> None:
    server, target = shared

    async def run() -> None:
        async with connected(target) as peers:
            peer = peers.call(x_ep_node_id="node-1")
            confirmed = await peer.subscribe("acme", "version")
            assert confirmed.tenant_id == "acme"
            latest = confirmed.latest_sequence_number
            assert ask(server, "acme/events")["cursor"]["sequenceNumber"] == latest
            last = store(server, "acme", "version", "theme")
            assert await peer.hint() == ("acme", last, ["version"])
            fetched = ask(server, f"acme/events?after={latest}&resourceType=version")
            assert [each["type"] for each in fetched["events"]] == ["version.updated"]
            (consumer,) = ask(server, "acme/consumers")["consumers"]
            assert consumer["nodeId"] == "node-1"
            assert consumer["resourceTypes"] == ["version"]
            assert consumer["connectedAt"] <= consumer["subscribedAt"]
            assert read_metric(server) == 1
            again = await peer.subscribe("acme")
            assert again.latest_sequence_number == last
            await peer.send(heartbeat=messages.Heartbeat())
            last = store(server, "acme", "theme", "variant")
            assert await peer.hint() == ("acme", last, ["theme", "variant"])
            peer.cancel()
            wait_until(lambda: read_metric(server) == 0, "the consumer to be gone")
            assert ask(server, "acme/consumers") == {"consumers": []}

    asyncio.run(run())


def test_one_stream_has_many_tenants(shared: tuple[ServerProcess, str]) -> None:
    server, target = shared
    tenants = [f"tenant-{n}" for n in range(20)]
    for tenant in tenants:
        store(server, tenant, "theme")

    async def run() -> None:
        async with connected(target) as peers:
            peer = peers.call()
            for tenant in tenants:
                assert (await peer.subscribe(tenant)).latest_sequence_number == 1
            for tenant in tenants:
                store(server, tenant, "version")
                assert await peer.hint() == (tenant, 2, ["version"])
            await peer.send(unsubscribe=messages.Unsubscribe(tenant_id=tenants[0]))
            # In order: what is confirmed behind it says that it was heard.
            await peer.subscribe(tenants[1])
            store(server, tenants[0], "version")
            store(server, tenants[1], "theme")
            assert await peer.hint() == (tenants[1], 3, ["theme"])

    asyncio.run(run())


def test_who_says_that_it_is_done_goes_on_to_hear(shared: tuple[ServerProcess, str]) -> None:
    server, target = shared

    async def run() -> None:
        async with connected(target) as peers:
            peer = peers.call()
            await peer.subscribe("acme")
            await peer.finish()
            last = store(server, "acme", "theme")
            assert await peer.hint() == ("acme", last, ["theme"])

    asyncio.run(run())


def subscribe(tenant: str, *types: str) -> bytes:
    wanted = messages.Subscribe(tenant_id=tenant, resource_types=types)
    return messages.ClientMessage(subscribe=wanted).SerializeToString()


@pytest.mark.parametrize(
    ("message", "status"),
    [
        pytest.param(b"", StatusCode.INVALID_ARGUMENT, id="without a oneof"),
        pytest.param(b"\xff\xff", StatusCode.INVALID_ARGUMENT, id="no message"),
        pytest.param(subscribe("nobody"), StatusCode.NOT_FOUND, id="unknown tenant"),
        pytest.param(subscribe("Not a slug"), StatusCode.INVALID_ARGUMENT, id="no tenant"),
        pytest.param(subscribe("acme", "book"), StatusCode.INVALID_ARGUMENT, id="unknown type"),
        pytest.param(
            subscribe("acme", *["version"] * 3000), StatusCode.RESOURCE_EXHAUSTED, id="too large"
        ),
    ],
)
def test_what_is_refused_ends_the_stream(
    shared: tuple[ServerProcess, str], message: bytes, status: StatusCode
) -> None:
    async def run() -> None:
        async with connected(shared[1]) as peers:
            peer = peers.call()
            await peer.subscribe("acme")
            await peer.send_bytes(message)
            assert (await peer.status())[0] is status

    asyncio.run(run())
    wait_until(lambda: read_metric(shared[0]) == 0, "the consumer to be gone")


def make_key(server: ServerProcess, tenant: str, role: str) -> dict[str, str]:
    body = {"name": "test", "roles": [role]}
    answer = httpx.post(f"{server.url}/tenants/{tenant}/api-keys", json=body, headers=ADMIN)
    found: dict[str, str] = answer.json()
    return found


def revoke_key(server: ServerProcess, tenant: str, id: str) -> None:
    path = f"{server.url}/tenants/{tenant}/api-keys/{id}"
    assert httpx.delete(path, headers=ADMIN).status_code == 204


def test_credentials_are_checked_when_a_stream_begins(guarded: tuple[ServerProcess, str]) -> None:
    server, target = guarded
    key = make_key(server, "acme", "reader")["key"]

    async def run() -> None:
        async with connected(target) as peers:
            for metadata in ({}, {"authorization": "Bearer nonsense"}, {"x_api_key": "nonsense"}):
                found = await peers.call(**metadata).status()
                assert found[0] is StatusCode.UNAUTHENTICATED
            for metadata in (
                {"authorization": f"Bearer {key}"},
                {"authorization": f"ApiKey {key}"},
                {"x_api_key": key},
            ):
                peer = peers.call(**metadata)
                await peer.subscribe("acme")
                await peer.send_bytes(subscribe("other"))
                assert (await peer.status())[0] is StatusCode.PERMISSION_DENIED
            # Whether a tenant is there is not told to who may not enter it.
            peer = peers.call(x_api_key=key)
            await peer.send_bytes(subscribe("nobody"))
            assert (await peer.status())[0] is StatusCode.PERMISSION_DENIED

    asyncio.run(run())


def test_a_revoked_key_ends_its_streams_and_streams_of_a_key_are_bounded(
    guarded: tuple[ServerProcess, str],
) -> None:
    server, target = guarded
    made = make_key(server, "acme", "manager")

    async def run() -> None:
        async with connected(target) as peers:
            held = [peers.call(x_api_key=made["key"]) for _ in range(2)]
            for peer in held:
                await peer.subscribe("acme")
            found = await peers.call(x_api_key=made["key"]).status()
            assert found[0] is StatusCode.RESOURCE_EXHAUSTED
            revoke_key(server, "acme", made["id"])
            for peer in held:
                assert (await peer.status())[0] is StatusCode.UNAUTHENTICATED

    asyncio.run(run())


def test_health_and_reflection(shared: tuple[ServerProcess, str]) -> None:
    async def run() -> None:
        async with connected(shared[1]) as peers:
            health = health_pb2_grpc.HealthStub(peers.channel)
            for name in ("", messages.SERVICE):
                found = await health.Check(health_pb2.HealthCheckRequest(service=name))
                assert found.status == health_pb2.HealthCheckResponse.SERVING
            reflection = reflection_pb2_grpc.ServerReflectionStub(peers.channel)
            asked = reflection_pb2.ServerReflectionRequest
            call = reflection.ServerReflectionInfo(
                iter([asked(list_services=""), asked(file_containing_symbol=messages.SERVICE)])
            )
            services = [each.name for each in (await call.read()).list_services_response.service]
            assert messages.SERVICE in services
            (file,) = (await call.read()).file_descriptor_response.file_descriptor_proto
            described = FileDescriptorProto.FromString(file)
            assert described.name == "epistola/notifications/v1/notifications.proto"
            assert described.options.java_package == "com.epistola.notifications.v1"

    asyncio.run(run())


def test_streams_are_told_that_the_server_stops_and_do_not_hold_it_up(tmp_path: Path) -> None:
    async def run() -> None:
        with grpc_server(tmp_path) as (server, target):
            store(server, "acme", "theme")
            async with connected(target) as peers:
                held = [peers.call() for _ in range(50)]
                for peer in held:
                    await peer.subscribe("acme")
                began = time.monotonic()
                stopping = asyncio.create_task(asyncio.to_thread(server.stop))
                for peer in held:
                    assert (await peer.status())[0] is StatusCode.UNAVAILABLE
                assert await stopping == 0, server.output()
                assert time.monotonic() - began < 60
            assert "Traceback" not in server.output()

    asyncio.run(run())


def test_a_port_that_is_taken_is_said(shared: tuple[ServerProcess, str], tmp_path: Path) -> None:
    port = shared[1].rpartition(":")[2]
    ended = serve_to_the_end(tmp_path / "data", FEEDS_GRPC_PORT=port)
    assert ended.returncode != 0
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stdout
    assert "choose another FEEDS_GRPC_PORT" in ended.stdout


def test_without_a_port_nobody_listens(new_server: Servers) -> None:
    server = new_server().start()
    store(server, "acme", "theme")
    assert "grpc://" not in server.output()
    assert ask(server, "acme/consumers") == {"consumers": []}
    assert httpx.get(f"{server.url}/tenants/nobody/consumers").status_code == 404


def test_without_its_library_the_server_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "grpc.py").write_text("raise ImportError('there is none')\n")
    ended = serve_to_the_end(tmp_path / "data", FEEDS_GRPC_PORT="0", PYTHONPATH=str(tmp_path))
    assert ended.returncode != 0
    assert "pip install 'headrace[grpc]'" in ended.stdout
    assert "Traceback" not in ended.stdout
