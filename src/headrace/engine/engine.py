"""The engine: the kernel with all its parts, as surfaces reach them.

Parts are chosen and joined here, each given the kernel and the parts it works with. What can be
done with logs is in their modules; nothing is done here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from headrace.engine.callbacks.sender import CallbackSender, NoReceivers, Receivers
from headrace.engine.caps import Caps
from headrace.engine.consumers.delivering import WebhookDelivery
from headrace.engine.consumers.sources import Sources
from headrace.engine.consumers.trackers import Trackers
from headrace.engine.consumers.webhook_format import WebhookFormat
from headrace.engine.consumers.webhooks import LogWebhooks
from headrace.engine.contents import ContentStore
from headrace.engine.flow.priority_scheduler import PriorityScheduler
from headrace.engine.kernel import Kernel
from headrace.engine.logs.appender import Appender
from headrace.engine.logs.commit_barrier import CommitBarrier
from headrace.engine.logs.control import Logs
from headrace.engine.logs.deleter import Deleter
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.logs.identified_appends import IdentifiedAppender
from headrace.engine.logs.key_rules import KeyRules
from headrace.engine.logs.lookup import LogLookup
from headrace.engine.logs.reader import Reader
from headrace.engine.logs.transactions import Transactions
from headrace.engine.ports import Clock, Ids, Pool, Sealer
from headrace.engine.queues.jobs import Queues
from headrace.engine.routers.control import Routers
from headrace.engine.search.index_status import IndexStatus
from headrace.engine.search.search_configs import SearchConfigs
from headrace.engine.streams.active_subscriptions import ActiveSubscriptions
from headrace.engine.streams.expiry import StreamExpiry
from headrace.engine.streams.ingest_rules import StreamIngest
from headrace.engine.streams.lifecycle import APPEND_TIMEOUT_S, Streams
from headrace.engine.streams.metering import Meter, Metering
from headrace.engine.streams.subscriptions import Deliver, Subscriptions, no_delivery
from headrace.engine.streams.top_streams import TopStreams
from headrace.engine.streams.touch_notifiers import TouchNotifiers
from headrace.engine.tokens import Tokens
from headrace.engine.upkeep.cycle import Upkeep, UpkeepPace
from headrace.engine.upkeep.manifest_follower import ManifestFollower
from headrace.storage.disk import Disk
from headrace.storage.journal import Journal, Writer
from headrace.storage.objects import Objects
from headrace.storage.ownership import Ownership
from headrace.storage.recovery import Recovered
from headrace.storage.segments import Segments
from headrace.storage.staging import Staging


class EngineParts(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is made of."""

    disk: Disk
    objects: Objects
    clock: Clock
    pool: Pool
    sealer: Sealer
    ids: Ids
    writer: Callable[[Journal, asyncio.AbstractEventLoop], Writer]
    caps: Caps
    pace: UpkeepPace
    block_cache_bytes: int = 64 << 20
    append_timeout_s: float = APPEND_TIMEOUT_S
    """How long a writer to a stream waits."""
    metrics_ms: int = 0
    """How often to write down what is done with streams; 0: never."""
    deliver: Deliver = no_delivery
    receivers: Receivers = NoReceivers()
    """Whoever webhooks of logs lead to."""
    webhook_formats: Mapping[str, WebhookFormat] = {}
    """How deliveries look, by the surface that made a webhook."""
    is_gone: Callable[[str], bool] = lambda key: False
    """Whether a key is not configured any more."""


class Engine(Kernel):
    """All logs of one data directory, in operation."""

    def __init__(
        self,
        parts: EngineParts,
        recovered: Recovered,
        journal: Journal,
        segments: Segments,
        staging: Staging,
        ownership: Ownership,
    ) -> None:
        objects, clock, pool = parts.objects, parts.clock, parts.pool
        super().__init__(recovered.state, journal, clock, pool, parts.caps)
        self.segments = segments
        self.scheduler = scheduler = PriorityScheduler(clock, pool, self.admission)
        manifests = ManifestFollower(self, segments, objects, pool, recovered.manifest, ownership)
        self.fetcher = fetcher = Fetcher(self, segments, manifests)
        barrier = CommitBarrier()
        followed = ActiveSubscriptions(self)
        expiry = StreamExpiry(self, followed)
        lookup = LogLookup(self, expiry)
        self.live, self.state_of = lookup.live, lookup.state_of
        self.ingest = ingest = StreamIngest(self, barrier)
        self.routers = routers = Routers(self, fetcher, scheduler)
        self.reader = reader = Reader(self, fetcher, routers, expiry)
        self.appender = appender = Appender(self)
        self.identified_appender = IdentifiedAppender(self, appender, fetcher)
        self.deleter = deleter = Deleter(self, lookup, fetcher, routers)
        self.key_rules = key_rules = KeyRules(self, fetcher)
        self.logs = logs = Logs(self, lookup, fetcher, routers, barrier, key_rules)
        self.streams = streams = Streams(
            self, fetcher, expiry, ingest, followed, barrier, parts.append_timeout_s
        )
        self.touch_notifiers = TouchNotifiers(self, ingest, streams)
        self.sender = sender = CallbackSender(self)
        self.subscriptions = Subscriptions(self, streams, followed, sender, parts.deliver)
        self.transactions = Transactions(
            self, staging, logs, appender, streams, barrier, parts.is_gone
        )
        self.queues = Queues(self, lookup, fetcher, reader, appender, deleter, routers, scheduler)
        self.search_configs = SearchConfigs(self, lookup)
        self.tokens = Tokens(self, parts.ids)
        self.contents = ContentStore(self, fetcher, logs)
        sources = Sources(self, lookup, expiry)
        self.trackers = Trackers(self, sources, reader)
        delivery = WebhookDelivery(
            self, sources, reader, sender, parts.receivers, parts.webhook_formats
        )
        self.webhooks = LogWebhooks(self, sources, reader, deleter, delivery)
        self.index_status = IndexStatus(self, fetcher, manifests)
        self.top_streams = TopStreams(self)
        self.meter = Meter() if parts.metrics_ms else None
        """Measures what is done with streams, if anybody writes it down."""
        self.metering = Metering(self, self.meter, parts.metrics_ms) if self.meter else None
        self.upkeep = Upkeep(
            self,
            parts.disk,
            objects,
            parts.sealer,
            pool,
            parts.ids,
            parts.pace,
            manifests,
            segments.requests,
        )
        self.seal, self.backlog = self.upkeep.seal, self.upkeep.backlog
