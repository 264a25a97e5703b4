"""Consumers that are sent hints, over a whole engine and in virtual time."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    FEED_CONSUMER_REPLIES_MAX,
    FEED_CONSUMER_SILENCE_S,
    FEED_CONSUMER_TENANTS_MAX,
    FEED_HEARTBEAT_S,
    WHEEL_TICK_S,
)
from headrace.core.owners import FEEDS
from headrace.delivery.endings import Expired, ShuttingDown
from headrace.surfaces.feeds import hint_stream
from headrace.surfaces.feeds.consumers import Consumers
from headrace.surfaces.feeds.hint_stream import (
    HintStream,
    ServerBeat,
    Silent,
    TenantConfirmed,
    TenantHinted,
)
from headrace.surfaces.feeds.hints import FeedHint
from headrace.surfaces.feeds.names import log_of
from headrace.surfaces.feeds.records import parse_events, writer
from headrace.surfaces.feeds.routes import FeedLimits
from headrace.web.credentials import LOCAL, NO_SCOPE, Principal
from headrace.web.live_connections import REVOKED
from support.serving import House, live

CONFIG = FeedLimits(retention_ms=10**9, id_window_ms=60_000, event_bytes=10_000).log_config


async def store(house: House, tenant: str, *types: str) -> None:
    """Events about resources of these types."""
    for type in types:
        body = b'{"type":"a.b","id":"%b","resourceRef":{"resourceType":"%b","resourceId":"1"}}' % (
            str(uuid4()).encode(),
            type.encode(),
        )
        events = parse_events(body, tenant, 10_000)
        await house.engine.identified_appender.append(
            log_of(tenant), [events[0].id.bytes], writer(events), owner=FEEDS, create=CONFIG
        )
    await settle()


async def settle() -> None:
    """Let what was committed come to its followers: callbacks only, no time."""
    for _ in range(5):
        await asyncio.sleep(0)


class Scene:
    """A stream, and how often it has woken who sends."""

    def __init__(self, house: House, principal: Principal = LOCAL) -> None:
        self.consumers = Consumers()
        self.wakes = 0
        self.stream = HintStream(house.hub, self.consumers, principal, "node", self._wake)
        self.stream.open()

    def _wake(self) -> None:
        self.wakes += 1


def hint(tenant: str, latest: int, *types: str) -> TenantHinted:
    return TenantHinted(tenant, FeedHint(latest, frozenset(types)))


def test_a_subscription_is_confirmed_with_the_latest_number_and_hints_follow() -> None:
    async def story(house: House) -> None:
        await store(house, "acme", "theme", "theme")
        scene = Scene(house)
        scene.stream.subscribe("acme", ())
        assert scene.stream.take() == [TenantConfirmed("acme", 2)]
        wakes = scene.wakes
        await store(house, "acme", "version")
        assert scene.wakes > wakes
        assert scene.stream.take() == [hint("acme", 3, "version")]
        assert scene.stream.take() == []

    live(story)


def test_hints_that_wait_are_joined_by_tenant() -> None:
    async def story(house: House) -> None:
        for tenant in ("acme", "other"):
            await store(house, tenant, "theme")
        scene = Scene(house)
        for tenant in ("acme", "other"):
            scene.stream.subscribe(tenant, ())
        scene.stream.take()
        await store(house, "acme", "version", "theme", "version")
        await store(house, "other", "variant")
        assert scene.stream.take() == [
            hint("acme", 4, "version", "theme"),
            hint("other", 2, "variant"),
        ]

    live(story)


def test_a_filter_keeps_hints_back_and_their_number_is_the_tenants() -> None:
    async def story(house: House) -> None:
        await store(house, "acme", "theme")
        scene = Scene(house)
        scene.stream.subscribe("acme", ("version", "activation"))
        scene.stream.take()
        await store(house, "acme", "theme")
        assert scene.stream.take() == []
        await store(house, "acme", "version")
        assert scene.stream.take() == [hint("acme", 3, "version")]

    live(story)


def test_a_repeated_subscription_replaces_the_filter_and_is_confirmed_each_time() -> None:
    async def story(house: House) -> None:
        await store(house, "acme", "theme")
        scene = Scene(house)
        scene.stream.subscribe("acme", ("version",))
        await store(house, "acme", "version")
        scene.stream.subscribe("acme", ("theme",))
        # The second confirmation says all that the hint in between would have said.
        assert scene.stream.take() == [TenantConfirmed("acme", 1), TenantConfirmed("acme", 2)]
        await store(house, "acme", "version", "theme")
        assert scene.stream.take() == [hint("acme", 4, "theme")]
        assert [each.tenants["acme"].resource_types for each in scene.consumers.of("acme")] == [
            frozenset({"theme"})
        ]

    live(story)


def test_nothing_is_told_of_a_tenant_behind_unsubscribe() -> None:
    async def story(house: House) -> None:
        await store(house, "acme", "theme")
        scene = Scene(house)
        scene.stream.subscribe("acme", ())
        scene.stream.take()
        await store(house, "acme", "theme")
        scene.stream.unsubscribe("acme")
        scene.stream.unsubscribe("acme")
        scene.stream.unsubscribe("unknown-tenant")
        await store(house, "acme", "theme")
        assert scene.stream.take() == []
        assert list(scene.consumers.of("acme")) == []
        assert len(scene.consumers) == 1
        assert len(house.hub) == 0, "nobody follows the log any more"

    live(story)


def test_the_server_says_every_15_s_that_it_lives_however_much_else_it_says() -> None:
    async def story(house: House) -> None:
        await store(house, "acme", "theme")
        scene = Scene(house)
        scene.stream.subscribe("acme", ())
        for beat in (1, 2, 3):
            scene.stream.take()
            scene.stream.hear()
            await asyncio.sleep(FEED_HEARTBEAT_S - 2)
            assert scene.stream.take() == []
            await store(house, "acme", "theme")
            await asyncio.sleep(2 + WHEEL_TICK_S)
            assert scene.stream.take() == [hint("acme", beat + 1, "theme"), ServerBeat()]

    live(story)


def test_a_consumer_that_is_silent_for_60_s_is_dropped_and_one_that_speaks_is_not() -> None:
    async def story(house: House) -> None:
        await store(house, "acme", "theme")
        scene = Scene(house)
        scene.stream.subscribe("acme", ())
        for _ in range(5):
            await asyncio.sleep(FEED_CONSUMER_SILENCE_S - 1)
            assert scene.stream.ending is None
            scene.stream.hear()
        await asyncio.sleep(FEED_CONSUMER_SILENCE_S - 1)
        assert scene.stream.ending is None
        await asyncio.sleep(1 + WHEEL_TICK_S)
        assert scene.stream.ending == Silent()
        assert len(scene.consumers) == 0
        assert len(house.hub) == 0
        assert len(house.wheel) == 0, "nothing waits for it any more"

    live(story)


def test_a_stream_ends_when_its_credential_expires() -> None:
    async def story(house: House) -> None:
        expires_at_ms = house.engine.clock.now_ms() + 20_000
        principal = Principal("jane", NO_SCOPE, superadmin=True, expires_at_ms=expires_at_ms)
        scene = Scene(house, principal)
        await asyncio.sleep(19)
        assert scene.stream.ending is None
        await asyncio.sleep(1 + WHEEL_TICK_S)
        assert scene.stream.ending == Expired()

    live(story)


@pytest.mark.parametrize(
    ("tenant", "types", "code"),
    [
        ("acme", ("nonsense",), Code.INVALID),
        ("Acme", (), Code.FORBIDDEN),  # whoever may not enter is not told what a tenant looks like
        ("other", (), Code.FORBIDDEN),
        ("gone", (), Code.NOT_FOUND),
    ],
)
def test_what_cannot_be_subscribed_to_is_refused(
    tenant: str, types: tuple[str, ...], code: Code
) -> None:
    async def story(house: House) -> None:
        for each in ("acme", "other"):
            await store(house, each, "theme")
        jane = Principal("jane", NO_SCOPE, tenants=("acme", "gone"), roles=("reader",))
        scene = Scene(house, jane)
        with pytest.raises(Refused) as refused:
            scene.stream.subscribe(tenant, types)
        assert refused.value.code is code
        assert scene.stream.take() == []

    live(story)


def test_a_name_that_is_none_and_roles_that_open_nothing_are_refused() -> None:
    async def story(house: House) -> None:
        await store(house, "acme", "theme")
        with pytest.raises(Refused) as refused:
            Scene(house).stream.subscribe("Acme", ())
        assert refused.value.code is Code.INVALID
        control = Principal("c", NO_SCOPE, tenants=("*",), roles=("tenant_control",))
        with pytest.raises(Refused) as refused:
            Scene(house, control).stream.subscribe("acme", ())
        assert refused.value.code is Code.FORBIDDEN

    live(story)


def test_tenants_of_a_stream_are_bounded_but_not_those_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert FEED_CONSUMER_TENANTS_MAX == 1000
    monkeypatch.setattr(hint_stream, "FEED_CONSUMER_TENANTS_MAX", 2)

    async def story(house: House) -> None:
        for each in ("one", "two", "three"):
            await store(house, each, "theme")
        scene = Scene(house)
        for each in ("one", "two", "two"):
            scene.stream.subscribe(each, ())
        with pytest.raises(Refused) as refused:
            scene.stream.subscribe("three", ())
        assert refused.value.code is Code.THROTTLED
        scene.stream.unsubscribe("one")
        scene.stream.subscribe("three", ())

    live(story)


def test_a_stream_is_full_of_confirmations_until_they_are_taken() -> None:
    async def story(house: House) -> None:
        await store(house, "acme", "theme")
        scene = Scene(house)
        for _ in range(FEED_CONSUMER_REPLIES_MAX):
            assert not scene.stream.is_full
            scene.stream.subscribe("acme", ())
        assert scene.stream.is_full
        assert len(scene.stream.take()) == FEED_CONSUMER_REPLIES_MAX
        assert not scene.stream.is_full

    live(story)


def test_the_first_ending_counts_and_what_was_to_be_said_is_still_said() -> None:
    async def story(house: House) -> None:
        await store(house, "acme", "theme")
        scene = Scene(house)
        scene.stream.subscribe("acme", ())
        scene.consumers.shutdown()
        scene.stream.end(REVOKED)
        assert scene.stream.ending == ShuttingDown()
        assert scene.stream.take() == [TenantConfirmed("acme", 1)]
        await store(house, "acme", "theme")
        assert scene.stream.take() == []

    live(story)


def test_consumers_tell_who_is_there() -> None:
    async def story(house: House) -> None:
        await store(house, "acme", "theme")
        scene = Scene(house)
        began_ms = house.engine.clock.now_ms()
        await asyncio.sleep(1)
        scene.stream.subscribe("acme", ("theme",))
        await asyncio.sleep(1)
        scene.stream.hear()
        (found,) = scene.consumers.of("acme")
        assert (found.principal_id, found.node, found.connected_at_ms) == (
            "local",
            "node",
            began_ms,
        )
        assert found.tenants["acme"].since_ms == began_ms + 1000
        assert found.heard_at_ms == began_ms + 2000

    live(story)


def test_thousands_of_consumers_of_one_tenant_share_one_reading() -> None:
    async def story(house: House) -> None:
        await store(house, "acme", "theme")
        scenes = [Scene(house) for _ in range(2000)]
        for scene in scenes:
            scene.stream.subscribe("acme", ())
        await settle()
        await store(house, "acme", "version")
        await asyncio.sleep(1)
        for scene in scenes:
            assert scene.stream.take()[-1] == hint("acme", 2, "version")

    live(story)
