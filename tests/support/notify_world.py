"""A server with a log of notifications whose segments are sealed and indexed when told to."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.core.config import LogConfig
from headrace.core.owners import NOTIFICATIONS
from headrace.core.record import draft
from headrace.storage.object_store_stats import Artifact
from headrace.surfaces.notifications.identifiers import parse_notified, parse_wanted
from headrace.surfaces.notifications.indexing import format_search
from headrace.surfaces.notifications.replaying import read_pages
from support.fake_indexer import Reading
from support.notices import PAYLOADS, STORM, store

NAME = "notify:storm"


class NotifyWorld:
    """Notifications of the type `storm`."""

    def __init__(self, scene: Reading) -> None:
        self.scene = scene
        scene.name = NAME

    async def append(self, sent: dict[str, Any]) -> int:
        parsed = parse_notified(STORM, STORM.name, sent)
        live = self.scene.engine.state.by_name.get(NAME)
        seq = 1 if live is None else live.head + 1
        drafts = draft(
            [store(parsed, PAYLOADS[seq % len(PAYLOADS)])],
            tags=[parsed.subject],
            keys=[parsed.subject],
        )
        await self.scene.engine.appender.append(
            NAME, drafts, owner=NOTIFICATIONS, create=LogConfig()
        )
        return seq

    async def plan(self) -> None:
        """Have the schema be the search configuration of the log."""
        raw = format_search(STORM)
        assert raw is not None
        await self.scene.engine.search_configs.put(NAME, NOTIFICATIONS, raw)
        await self.scene.upkeep._publisher.publish_plans()

    async def index(self, *numbers: int) -> None:
        """Companions for these segments, or for all."""
        self.scene.fake_indexer.index(numbers or None)
        await self.scene.take_over()

    async def replay(
        self, asked: dict[str, Any], after: int = 0, upto: int = 1 << 40, *, records_max: int = 100
    ) -> list[int]:
        """The seqs that a replay finds."""
        engine, live = self.scene.engine, self.scene.live
        wanted = parse_wanted(STORM, STORM.name, asked)
        upto = min(upto, live.visible)
        found: list[int] = []
        async for page in read_pages(
            engine, live, wanted, after, upto, asyncio.Lock(), records_max=records_max
        ):
            assert after < page.next <= upto
            assert page.count <= records_max
            found += [piece.block.seq_at(at) for piece in page.slices for at in piece.picks]
            after = page.next
        return found

    def segment_reads(self) -> int:
        """How often segments were asked so far: for their ends, and for row groups."""
        counts = self.scene.engine.segments.requests.of(self.scene.live.log.id)
        return counts[Artifact.SEGMENT].gets if Artifact.SEGMENT in counts else 0
