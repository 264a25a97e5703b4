"""The parts of the surface, chosen and joined."""

from __future__ import annotations

from headrace.core.errors import Refused
from headrace.core.owners import FEEDS
from headrace.engine.engine import Engine
from headrace.observe import log_line
from headrace.surfaces.feeds import mount
from headrace.surfaces.feeds.api_keys import ApiKeyRoutes
from headrace.surfaces.feeds.consumer_routes import ConsumerRoutes
from headrace.surfaces.feeds.consumers import Consumers
from headrace.surfaces.feeds.indexing import SEARCH
from headrace.surfaces.feeds.metrics import FeedMetrics
from headrace.surfaces.feeds.names import PREFIX
from headrace.surfaces.feeds.routes import FeedLimits, FeedRoutes
from headrace.surfaces.feeds.subscriptions import FeedSubscriptionRoutes
from headrace.surfaces.feeds.trackers import FeedTrackerRoutes
from headrace.web.surface import Surface


class Feeds:
    """Feeds as a server has them."""

    def __init__(self, limits: FeedLimits) -> None:
        self._limits = limits
        self.consumers = Consumers()
        self.metrics = FeedMetrics(self.consumers)
        self.surface: Surface = mount.surface(
            FeedRoutes(limits, self.metrics),
            FeedSubscriptionRoutes(),
            FeedTrackerRoutes(),
            ApiKeyRoutes(),
            ConsumerRoutes(self.consumers),
            self.metrics,
        )

    async def open(self, engine: Engine) -> None:
        """The engine is there: logs behave as the settings say from now on."""
        self.metrics.open(engine.webhooks.count_by_status)
        if self._limits.id_window_ms > self._limits.retention_ms:
            problem = "FEEDS_ID_WINDOW_MS is over FEEDS_RETENTION_MS: ids go with their events"
            log_line("warning", problem)
        for name in list(engine.state.names("", PREFIX, FEEDS)):
            try:
                await engine.logs.put(name, FEEDS, self._limits.log_config)
                await engine.search_configs.put(name, FEEDS, SEARCH)
            except Refused as refused:
                log_line("error", "a log cannot be configured", log=name, problem=refused.message)
