"""What a tenant has of the server is its own share, however many keys its managers make."""

from __future__ import annotations

from random import Random

import pytest

from headrace.core.cap import Cap
from headrace.surfaces.feeds import api_keys
from headrace.surfaces.feeds.delivery_format import FeedDeliveryFormat
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.searchworld import Meddler, World
from support.virtual import VirtualClock, VirtualLoop

ACME, OTHER = "/tenants/acme", "/tenants/other"
RESOURCE = {"resourceType": "theme", "resourceId": "a"}
KEY = {"name": "a", "roles": ["reader"]}
PASSING = {**KEY, "expiresInSeconds": 60}


async def begin(loop: VirtualLoop) -> World:
    disk, pool = HostileDisk(), Meddler()
    formats = {"feeds": FeedDeliveryFormat()}
    started = await boot(disk, VirtualClock(loop), pool=pool, webhook_formats=formats)
    return World(started, disk, pool, Random(0))


def test_subscriptions_and_trackers_count_for_the_tenant(loop: VirtualLoop) -> None:
    async def story() -> None:
        world = await begin(loop)
        event = {"type": "theme.created", "resourceRef": RESOURCE}
        await world.right("POST", f"{ACME}/events", event)
        await world.right(
            "POST", f"{ACME}/event-subscriptions", {"callbackUrl": "https://example.com/"}
        )
        await world.right("PUT", f"{ACME}/trackers/cache", {})
        [active] = world.engine.webhooks.delivery
        assert active.key == "feed:acme"
        assert world.engine.trackers.find("feeds/acme/cache").live.log.created_by == "feed:acme"

    loop.run(story())


def test_a_tenant_has_so_many_keys_and_no_more(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "_CAP", Cap("max_api_keys_per_tenant", 2))

    async def story() -> None:
        world = await begin(loop)
        for key in (KEY, PASSING):
            await world.right("POST", f"{ACME}/api-keys", key)
        refused = await world.ask("POST", f"{ACME}/api-keys", KEY)
        assert (refused.status, refused.json["code"]) == (429, "RATE_LIMITED")
        await world.right("POST", f"{OTHER}/api-keys", KEY)
        loop.now_s += 60
        await world.right("POST", f"{ACME}/api-keys", KEY)

    loop.run(story())
