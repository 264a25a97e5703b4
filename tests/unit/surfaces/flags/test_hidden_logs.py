"""What flags keep beside their namespaces is shown by no surface."""

from __future__ import annotations

import pytest

from headrace.core.owners import FLAGS_PREFIX
from support.flags_server import FlagsServer, run

NAME = f"{FLAGS_PREFIX}tenants/acme"
ENCODED = NAME.replace("/", "%2F")
LISTS = ["/v0/topics", "/v1/streams", f"/v1/streams?prefix={FLAGS_PREFIX}", "/v1/streams?prefix=__",
         "/v0/logs", f"/v0/logs?prefix={FLAGS_PREFIX}"]  # fmt: skip
READS = [
    ("POST", f"/v0/topics/{ENCODED}/diff", {}),
    ("GET", f"/v1/stream/{NAME}", None),
    ("GET", f"/v1/stream/{ENCODED}", None),
    ("GET", f"/v1/stream/{NAME}/_details", None),
    ("GET", f"/v0/logs?name={ENCODED}", None),
    ("GET", f"/v0/logs/records?name={ENCODED}&after=0&upto=1&epoch=1", None),
    ("GET", f"/v0/topics/{ENCODED}", None),
    ("DELETE", f"/v0/topics/{ENCODED}", None),
    ("DELETE", f"/v1/stream/{NAME}", None),
    ("PUT", f"/v1/stream/{NAME}", None),
    ("POST", f"/v0/topics/{ENCODED}/records", {"records": [{"data": 1}]}),
    ("POST", "/v0/watch", {"topics": {NAME: {}}}),
]


@pytest.mark.parametrize("target", LISTS)
def test_no_list_has_them(target: str) -> None:
    async def story(server: FlagsServer) -> None:
        assert NAME in server.engine.state.by_name
        reply = await server.send("GET", target)
        assert reply.status == 200, reply
        assert FLAGS_PREFIX.encode() not in reply.body

    run(story)


@pytest.mark.parametrize(("method", "target", "body"), READS, ids=lambda each: str(each)[:40])
def test_they_are_not_to_be_had_by_name(method: str, target: str, body: object) -> None:
    async def story(server: FlagsServer) -> None:
        reply = await server.send(method, target, body)
        assert reply.status in (400, 404), reply
        assert NAME in server.engine.state.by_name

    run(story)
