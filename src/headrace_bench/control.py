"""The few requests around a measurement: set up a topic, see where it is, read a metric."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from contextlib import closing
from time import perf_counter
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from headrace_bench.errors import BenchError
from headrace_bench.feed_requests import make_event

TIMEOUT_S = 60.0

Durability = Literal["ephemeral", "memory", "disk", "fsync"]


class Listing(NamedTuple):
    """How many streams were listed, and how long each page took."""

    streams: int
    pages_ms: list[float]


def create_topic(url: str, topic: str, durability: Durability, *, cap_records: int = 0) -> None:
    config = {"durability": durability, "cap_records": cap_records}
    _call("PUT", f"{url}/v0/topics/{topic}", config)


def create_webhook(url: str, webhook: str, topic: str, receiver: str, batch_records: int) -> None:
    """A webhook that begins with what there is."""
    wanted = {
        "source": topic,
        "url": receiver,
        "batch": {"max_records": batch_records},
        "start_from": "earliest",
    }
    _call("PUT", f"{url}/v0/webhooks/{webhook}", wanted)


def delete_webhook(url: str, webhook: str) -> None:
    _call("DELETE", f"{url}/v0/webhooks/{webhook}")


def create_feed(url: str, tenant: str) -> None:
    """A tenant is there from its first event on."""
    _call("POST", f"{url}/tenants/{tenant}/events", make_event())


def create_subscription(url: str, tenant: str, receiver: str, batch_events: int) -> str:
    """Have events of a tenant sent to a receiver, from now on and at once; its path."""
    wanted = {
        "callbackUrl": receiver,
        "batchSettings": {"maxBatchSize": batch_events, "maxDelaySeconds": 0},
    }
    path = f"/tenants/{tenant}/event-subscriptions"
    return f"{path}/{_call('POST', url + path, wanted)['id']}"


def change_subscription(url: str, path: str, status: Literal["active", "paused"]) -> None:
    _call("PATCH", url + path, {"status": status})


def delete_subscription(url: str, path: str) -> None:
    _call("DELETE", url + path)


def create_namespace(url: str, tenant: str, namespace: str) -> None:
    """A namespace for flags, and its tenant."""
    _call("POST", f"{url}/api/v1/tenants", {"slug": tenant})
    _call("POST", f"{url}/api/v1/tenants/{tenant}/namespaces", {"slug": namespace})


def create_queue(url: str, queue: str, durability: Durability) -> None:
    _call("PUT", f"{url}/v0/topics/{queue}", {"type": "queue", "durability": durability})


def create_stream(port: int, path: str, content_type: str) -> None:
    """Every server of streams takes this, at a path of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as link:
        link.request("PUT", path, headers={"Content-Type": content_type})
        reply = link.getresponse()
        text = reply.read()
        if reply.status != http.HTTPStatus.CREATED:
            raise BenchError(f"PUT {path} answered {reply.status}: {text.decode()}")


def list_streams(port: int, page_streams: int) -> Listing:
    """Walk through the listing from its start to its end."""
    streams, pages_ms = 0, []
    path = f"/v1/streams?limit={page_streams}"
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as link:
        cursor: str | None = ""
        while cursor is not None:
            start = perf_counter()
            link.request("GET", path + (f"&cursor={quote(cursor)}" if cursor else ""))
            reply = link.getresponse()
            text = reply.read()
            pages_ms.append((perf_counter() - start) * 1000)
            if reply.status != http.HTTPStatus.OK:
                raise BenchError(f"GET {path} answered {reply.status}: {text.decode()}")
            streams += text.count(b'"name":')
            cursor = reply.getheader("stream-next-cursor")
    return Listing(streams, pages_ms)


def open_sessions(port: int, topic: str, count: int) -> list[str]:
    """Watch sessions at the head of a topic; the path of the stream of each."""
    body = json.dumps({"topics": {topic: {"tail": True}}})
    headers = {"Content-Type": "application/json"}
    paths = []
    # One connection for all of them: there are many.
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as link:
        for _ in range(count):
            link.request("POST", "/v0/watch", body, headers)
            reply = link.getresponse()
            text = reply.read()
            if reply.status != http.HTTPStatus.OK:
                raise BenchError(f"POST /v0/watch answered {reply.status}: {text.decode()}")
            paths.append(str(json.loads(text)["stream_url"]))
    return paths


def read_head_seq(url: str, topic: str) -> int:
    return int(_call("GET", f"{url}/v0/topics/{topic}")["head_seq"])


def read_metric(url: str, name: str) -> float:
    metrics = _call("GET", f"{url}/v0/metrics")
    if name not in metrics:
        raise BenchError(f"the server has no metric {name}")
    return float(metrics[name])


def seal_logs(url: str) -> None:
    """Have everything that was written until now in segments."""
    _call("POST", f"{url}/v0/logs/seal", {})


def put_search(url: str, topic: str, search: dict[str, Any]) -> None:
    _call("PUT", f"{url}/v0/topics/{topic}/search", search)


def install_schema(port: int, path: str, search: dict[str, Any]) -> None:
    """Let every object into a stream, and make it searchable."""
    update = {"schema": {"type": "object"}, "search": search}
    _call("POST", f"http://127.0.0.1:{port}{path}/_schema", update)


def read_details(port: int, path: str) -> dict[str, Any]:
    """What a server tells of a stream and its index."""
    return _call("GET", f"http://127.0.0.1:{port}{path}/_details")


def read_pipeline(url: str) -> dict[str, Any]:
    """How the pipeline beside a server is doing."""
    told: dict[str, Any] = _call("GET", f"{url}/v0/ready")["pipeline"]
    return told


def _call(method: str, url: str, body: object = None) -> dict[str, Any]:
    request = urllib.request.Request(
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Accept": "application/json", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            answer: dict[str, Any] = json.loads(reply.read() or b"{}")
            return answer
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode(errors="replace")
        raise BenchError(f"{method} {url} answered {error.code}: {text}") from error
