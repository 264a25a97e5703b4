"""Whoever answers from state waits for that state.

Nobody is told of a change of control, and nothing is acknowledged on top of one, before it is on
stable storage.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any
from uuid import UUID

import pytest

from headrace.delivery.signing import Signer
from headrace.engine.consumers.webhook_format import WebhookFormat
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.surfaces.feeds.delivery_format import FeedDeliveryFormat
from headrace.surfaces.topics.webhook_format import TopicWebhookFormat
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.searchworld import NEVER, Meddler, World, web
from support.virtual import VirtualClock, VirtualLoop

SLOW_S = 0.5
FORMATS: dict[str, WebhookFormat] = {"topics": TopicWebhookFormat(), "feeds": FeedDeliveryFormat()}
T = "/v0/topics/a"
R = "/v0/routers/r"
S = "/v1/stream/s"
SUB = "/ds/v1/stream/__ds/subscriptions/x"
Request = tuple[Any, ...]
PUT: Request = ("PUT", T, {})
SYNCED: Request = ("PUT", T, {"durability": "fsync"})
DELETE: Request = ("DELETE", T)
POST: Request = ("POST", T, {"records": [{"data": 1, "tag": "x"}]})
GET: Request = ("GET", T)
LIST: Request = ("GET", "/v0/topics")
LOGS: Request = ("GET", "/v0/logs")
READ: Request = ("POST", f"{T}/diff", {})
CLEAR: Request = ("POST", f"{T}/delete", {"match": "x"})
WATCH: Request = ("POST", "/v0/watch", {"topics": {"a": {}}})
METRICS: Request = ("GET", "/v0/metrics")
ROUTE: Request = ("PUT", R, {"source": "a", "dest": "b"})
UNROUTE: Request = ("DELETE", R)
DATE = {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}]}
CONFIG = {"primaryTimestampField": "at", "fields": {"at": DATE}}
SEARCH: Request = ("PUT", f"{T}/search", CONFIG)
CREATE: Request = ("PUT", S)
WRITE: Request = ("POST", S, [1])
REMOVE: Request = ("DELETE", S)
SCHEMA: Request = ("POST", f"{S}/_schema", {"schema": {"type": "integer"}})
PROFILE: Request = ("POST", f"{S}/_profile", {"profile": {"kind": "metrics"}})
FOLLOW: Request = ("PUT", SUB, {"type": "pull-wake", "streams": ["s"], "wake_stream": "w"})
UNLINK: Request = ("DELETE", f"{SUB}/streams/s")
QUEUE: Request = ("PUT", T, {"type": "queue", "leases_durable": True})
CLAIM: Request = ("POST", f"{T}/claim", {"node": "n"})
NACK: Request = ("POST", f"{T}/nack", {"node": "n", "seqs": [1]})
TENANTS = "/api/v1/tenants"
TENANT: Request = ("POST", TENANTS, {"slug": "acme"})
SPACES = f"{TENANTS}/acme/namespaces"
SPACE: Request = ("POST", SPACES, {"slug": "billing"})
UNSPACE: Request = ("DELETE", f"{SPACES}/billing")
TOKENS = f"{TENANTS}/acme/tokens"
TOKEN: Request = ("POST", TOKENS, {"type": "namespace-read", "name": "a", "namespace": "billing"})
REVOKE: Request = ("DELETE", f"{TOKENS}/tok_1")
MANIFEST = f"{SPACES}/billing/manifest"
VERSIONS: Request = ("GET", f"{MANIFEST}/versions")
EVALUATE_ALL: Request = ("POST", f"{SPACES}/billing/evaluate/all", {"context": {}})
OFREP: Request = ("POST", f"{SPACES}/billing/ofrep/v1/evaluate/flags", {"context": {}})
CLOSURE: Request = ("GET", f"{SPACES}/billing/closure?version=1&subscription=Kg")
TRACKERS, HOOKS = "/v0/trackers", "/v0/webhooks"
TRACK: Request = ("PUT", f"{TRACKERS}/t", {"source": "a"})
UNTRACK: Request = ("DELETE", f"{TRACKERS}/t")
POLL: Request = ("POST", f"{TRACKERS}/t/poll", {"node": "n"})
POLL_ELSEWHERE: Request = ("POST", f"{TRACKERS}/t/poll", {"node": "m"})
HOOK: Request = ("PUT", f"{HOOKS}/h", {"source": "a", "url": "https://example.com/"})
UNHOOK: Request = ("DELETE", f"{HOOKS}/h")
FEED = "/tenants/acme"
EVENT: Request = (
    "POST",
    f"{FEED}/events",
    {"type": "theme.created", "resourceRef": {"resourceType": "theme", "resourceId": "a"}},
)
IDENTIFIED: Request = (*EVENT[:2], {**EVENT[2], "id": str(UUID(int=1))})
SUBSCRIBE: Request = (
    "POST",
    f"{FEED}/event-subscriptions",
    {"callbackUrl": "https://example.com/"},
)
FEED_TRACK: Request = ("PUT", f"{FEED}/trackers/abc")
API_KEY: Request = ("POST", f"{FEED}/api-keys", {"name": "a", "roles": ["reader"]})

CASES: list[tuple[list[Request], Request, Request]] = [
    # (what there is, what is being made durable, what is asked meanwhile)
    ([], PUT, PUT),
    ([], PUT, POST),
    ([], PUT, GET),
    ([], PUT, LIST),
    ([], PUT, LOGS),
    ([], PUT, READ),
    ([], PUT, CLEAR),
    ([], PUT, WATCH),
    ([], PUT, METRICS),
    ([], POST, PUT),
    ([], POST, POST),
    ([], POST, GET),
    ([PUT], SYNCED, SYNCED),
    ([PUT], SYNCED, GET),
    ([PUT], DELETE, DELETE),
    ([PUT], DELETE, GET),
    ([PUT], DELETE, LIST),
    ([PUT], DELETE, LOGS),
    ([PUT], DELETE, READ),
    ([PUT], DELETE, WATCH),
    ([PUT], DELETE, POST),
    ([SYNCED], POST, GET),
    ([SYNCED], POST, LIST),
    ([SYNCED], POST, LOGS),
    ([SYNCED], POST, METRICS),
    ([SYNCED], POST, ("DELETE", f"{T}?if_empty=true")),
    ([SYNCED, POST], CLEAR, CLEAR),
    ([PUT], ROUTE, ROUTE),
    ([PUT], ROUTE, ("GET", R)),
    ([PUT], ROUTE, ("GET", "/v0/routers")),
    ([PUT], ROUTE, ("GET", "/v0/topics/b")),
    ([ROUTE], UNROUTE, UNROUTE),
    ([ROUTE], UNROUTE, ("GET", R)),
    ([ROUTE], UNROUTE, ("GET", "/v0/routers")),
    ([PUT], SEARCH, SEARCH),
    ([PUT], SEARCH, ("GET", SEARCH[1])),
    ([PUT, SEARCH], ("DELETE", SEARCH[1]), ("DELETE", SEARCH[1])),
    ([PUT, SEARCH], ("DELETE", SEARCH[1]), ("GET", SEARCH[1])),
    ([], CREATE, CREATE),
    ([], CREATE, ("HEAD", S)),
    ([], CREATE, ("GET", S)),
    ([], CREATE, ("GET", "/v1/streams")),
    ([], CREATE, ("GET", f"{S}/_details")),
    ([CREATE], REMOVE, ("GET", "/v1/streams")),
    ([CREATE], REMOVE, REMOVE),
    ([CREATE], REMOVE, ("HEAD", S)),
    ([CREATE], REMOVE, CREATE),
    ([CREATE], SCHEMA, SCHEMA),
    ([CREATE], SCHEMA, ("GET", f"{S}/_schema")),
    ([CREATE], SCHEMA, ("POST", S, ["no integer"])),
    ([CREATE], SCHEMA, ("POST", SCHEMA[1], {"schema": {"type": "string"}})),
    ([CREATE], PROFILE, PROFILE),
    ([CREATE], PROFILE, ("GET", f"{S}/_profile")),
    ([CREATE], PROFILE, WRITE),
    ([CREATE], WRITE, ("GET", f"{S}/_details")),
    ([CREATE], FOLLOW, FOLLOW),
    ([CREATE], FOLLOW, ("GET", SUB)),
    ([CREATE], FOLLOW, ("PUT", SUB, {**FOLLOW[2], "description": "other"})),
    ([CREATE, FOLLOW], UNLINK, UNLINK),
    ([CREATE, FOLLOW], UNLINK, ("GET", SUB)),
    ([CREATE, FOLLOW], ("DELETE", SUB), ("GET", SUB)),
    ([CREATE, FOLLOW], ("DELETE", SUB), ("DELETE", SUB)),
    ([], QUEUE, CLAIM),
    ([QUEUE, POST, CLAIM], NACK, NACK),
    ([], TENANT, TENANT),
    ([], TENANT, ("GET", TENANTS)),
    ([], TENANT, ("GET", SPACES)),
    ([], TENANT, SPACE),
    ([TENANT], SPACE, SPACE),
    ([TENANT], SPACE, ("GET", SPACES)),
    ([TENANT], SPACE, TOKEN),
    ([TENANT], SPACE, VERSIONS),
    ([TENANT], SPACE, ("GET", MANIFEST)),
    ([TENANT], SPACE, ("GET", f"{MANIFEST}/versions/1")),
    ([TENANT], SPACE, EVALUATE_ALL),
    ([TENANT], SPACE, OFREP),
    ([TENANT], SPACE, CLOSURE),
    ([TENANT, SPACE], UNSPACE, UNSPACE),
    ([TENANT, SPACE], UNSPACE, ("GET", SPACES)),
    ([TENANT, SPACE], UNSPACE, SPACE),
    ([TENANT, SPACE], UNSPACE, TOKEN),
    ([TENANT, SPACE], UNSPACE, VERSIONS),
    ([TENANT, SPACE], UNSPACE, EVALUATE_ALL),
    ([TENANT, SPACE], UNSPACE, CLOSURE),
    ([TENANT, SPACE], UNSPACE, ("GET", "/api/v1/events?ns=acme/billing:*")),
    ([TENANT, SPACE], TOKEN, ("GET", TOKENS)),
    ([TENANT, SPACE, TOKEN], REVOKE, REVOKE),
    ([TENANT, SPACE, TOKEN], REVOKE, ("GET", TOKENS)),
    ([SYNCED], TRACK, TRACK),
    ([SYNCED], TRACK, POLL),
    ([SYNCED], TRACK, ("GET", f"{TRACKERS}/t")),
    ([SYNCED], TRACK, ("GET", TRACKERS)),
    ([SYNCED, TRACK], UNTRACK, UNTRACK),
    ([SYNCED, TRACK], UNTRACK, POLL),
    ([SYNCED, TRACK], UNTRACK, ("GET", TRACKERS)),
    ([SYNCED, TRACK], POLL, POLL),
    ([SYNCED, TRACK], POLL, POLL_ELSEWHERE),
    ([SYNCED, TRACK], POLL, ("GET", f"{TRACKERS}/t")),
    ([SYNCED, TRACK], POLL, ("GET", TRACKERS)),
    ([SYNCED], HOOK, HOOK),
    ([SYNCED], HOOK, ("GET", f"{HOOKS}/h")),
    ([SYNCED], HOOK, ("GET", HOOKS)),
    ([SYNCED, HOOK], UNHOOK, UNHOOK),
    ([SYNCED, HOOK], UNHOOK, ("GET", f"{HOOKS}/h")),
    ([SYNCED, HOOK], UNHOOK, ("GET", HOOKS)),
    ([], EVENT, EVENT),
    ([], EVENT, ("GET", f"{FEED}/trackers")),
    ([], EVENT, SUBSCRIBE),
    ([], EVENT, ("GET", f"{FEED}/events")),
    ([EVENT], IDENTIFIED, IDENTIFIED),
    ([EVENT], SUBSCRIBE, ("GET", f"{FEED}/event-subscriptions")),
    ([EVENT], FEED_TRACK, FEED_TRACK),
    ([EVENT], FEED_TRACK, ("GET", f"{FEED}/trackers")),
    ([EVENT], FEED_TRACK, ("GET", f"{FEED}/trackers/abc")),
    ([], API_KEY, ("GET", f"{FEED}/api-keys")),
]


@pytest.fixture(scope="module", autouse=True)
def _signed() -> None:
    web().control.open(Signer(bytes(32)))


def name(case: tuple[list[Request], Request, Request]) -> str:
    _, first, second = case
    return f"{first[0]} {first[1]} | {second[0]} {second[1]}"


@pytest.mark.parametrize("at_once", [False, True], ids=["later", "at once"])
@pytest.mark.parametrize("case", CASES, ids=name)
def test_an_answer_waits_for_what_it_tells(
    loop: VirtualLoop, case: tuple[list[Request], Request, Request], *, at_once: bool
) -> None:
    there, first, second = case

    async def story() -> None:
        slow_s = 0.0
        disk = HostileDisk()
        clock, pool = VirtualClock(loop), Meddler()
        pace = UpkeepPace(seal_bytes=NEVER)  # a rotation would sync at once
        started = await boot(
            disk, clock, pace=pace, pool=pool, delay_s=lambda: slow_s, webhook_formats=FORMATS
        )
        world = World(started, disk, pool, Random(0))
        for request in there:
            await world.right(*request)
        journal = started.engine.journal
        await journal.wait_synced(journal.tail)
        slow_s = SLOW_S
        making = asyncio.create_task(world.ask(*first))
        while journal.tail == journal.synced:
            assert not making.done(), making.result()
            await asyncio.sleep(0)
        if not at_once:
            await asyncio.sleep(SLOW_S / 10)
        # At once: what both enqueue is written together, and then synced.
        told = journal.tail
        assert told > journal.synced, "nothing is being made durable"
        reply = await world.ask(*second)
        assert journal.synced >= told, f"answered {reply.status} {reply.body!r}"
        assert (await making).status < 300

    loop.run(story())
