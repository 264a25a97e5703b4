"""Trackers, in virtual time: leases of nodes, and what those get that take over."""

from __future__ import annotations

import asyncio
from typing import Any

from support.asking import Reply
from support.feeds_server import FeedsServer, run

PATH = "/trackers/shop-cache"
LEASE_S = 60


async def poll(server: FeedsServer, node: str, **body: Any) -> Reply:
    return await server.send("POST", f"{PATH}/poll", body, x_ep_node_id=node)


def numbers(reply: Reply) -> list[int]:
    assert reply.status == 200, reply
    return [event["sequenceNumber"] for event in reply.json["events"]]


def test_another_node_takes_over_when_the_lease_is_over() -> None:
    async def story(server: FeedsServer) -> None:
        await server.store(4)
        assert (await server.send("PUT", PATH)).status == 201
        assert numbers(await poll(server, "a", limit=2)) == [1, 2]
        await asyncio.sleep(LEASE_S - 1)
        assert numbers(await poll(server, "a", limit=2, acknowledgeUpTo=1)) == [2, 3]
        await asyncio.sleep(LEASE_S - 1)
        leased = await poll(server, "b")
        assert (leased.status, leased.json["code"]) == (409, "TRACKER_LEASED")
        assert leased.json["activeNode"] == "a"
        shown = await server.get(PATH)
        assert shown["leaseExpiresAt"] == leased.json["leaseExpiresAt"]
        await asyncio.sleep(2)
        assert "activeNode" not in await server.get(PATH)
        assert numbers(await poll(server, "b")) == [2, 3, 4, 5], "all that is not acknowledged"
        late = await poll(server, "a", acknowledgeUpTo=3)
        assert (late.status, late.json["activeNode"]) == (409, "b")
        assert (await server.get(PATH))["cursor"] == {"sequenceNumber": 1, "hasMore": True}
        assert numbers(await poll(server, "b", acknowledgeUpTo=5)) == []

    run(story)


def test_a_tracker_that_is_put_again_stays_where_it_is() -> None:
    async def story(server: FeedsServer) -> None:
        await server.store(2)
        made = await server.send("PUT", PATH, {"startFrom": "earliest"})
        assert numbers(await poll(server, "a")) == [1, 2, 3]
        assert numbers(await poll(server, "a", acknowledgeUpTo=2)) == [3]
        found = await server.send("PUT", PATH, {"startFrom": "latest"})
        assert (made.status, found.status) == (201, 200)
        assert found.json["cursor"] == {"sequenceNumber": 2, "hasMore": True}
        assert found.json["createdAt"] == made.json["createdAt"]

    run(story)
