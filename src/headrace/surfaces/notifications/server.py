"""The parts of the surface, chosen and joined over one configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from headrace.core.errors import Refused
from headrace.core.owners import NOTIFICATIONS
from headrace.engine.engine import Engine
from headrace.observe import log_line
from headrace.surfaces.notifications import mount
from headrace.surfaces.notifications.access import AccessRules
from headrace.surfaces.notifications.admin import AdminRoutes
from headrace.surfaces.notifications.auth_service import AuthService
from headrace.surfaces.notifications.authentication import Authentication
from headrace.surfaces.notifications.catalog import EventTypeCatalog
from headrace.surfaces.notifications.configuration import (
    NotificationsConfiguration,
    default_configuration,
)
from headrace.surfaces.notifications.metrics import NotificationMetrics
from headrace.surfaces.notifications.routes import NotificationRoutes, StreamRules
from headrace.web.surface import Surface


class NotificationLimits(msgspec.Struct, frozen=True):
    """What one request may carry, and what there may be."""

    body_bytes: int
    types: int


class Notifications:
    """Notifications as a server has them."""

    def __init__(
        self,
        configuration: NotificationsConfiguration,
        limits: NotificationLimits,
        *,
        public_url: str | None,
        takes_passwords: bool,
        time: Callable[[], float],
    ) -> None:
        self._warnings = configuration.warnings
        self._catalog = catalog = EventTypeCatalog(configuration, limits.types)
        metrics = NotificationMetrics(configuration.event_types)
        auth, service = configuration.auth, None
        if auth is not None and auth.mode == "direct":
            assert auth.auth_url is not None
            assert auth.verifier is not None
            service = AuthService(auth.auth_url, auth.timeout_ms, auth.verifier, time)
        authentication = Authentication(
            "none" if auth is None else auth.mode,
            metrics,
            service,
            None if auth is None else auth.admin_roles,
        )
        rules = StreamRules(configuration.watch, public_url or configuration.base_url)
        routes = NotificationRoutes(catalog, authentication, metrics, rules, limits.body_bytes)
        self.surface: Surface = mount.surface(
            routes,
            AdminRoutes(catalog, authentication),
            authentication,
            metrics,
            takes_passwords=takes_passwords or (auth is not None and auth.mode != "trusted_proxy"),
        )

    async def open(self, engine: Engine) -> None:
        """The engine is there: logs behave as the configuration says from now on."""
        for warning in self._warnings:
            log_line("warning", warning)
        for name, config in self._catalog.log_configs(engine.state).items():
            with _told(name):
                await engine.logs.put(name, NOTIFICATIONS, config)
        for name, search in self._catalog.search_configs(engine.state).items():
            with _told(name):
                await engine.search_configs.put(name, NOTIFICATIONS, search)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """What cannot be had of a log is told, and the server starts all the same."""
    try:
        yield
    except Refused as refused:
        log_line("error", "a log cannot be configured", log=name, problem=refused.message)


def configuration_without_file(*, guarded: bool) -> NotificationsConfiguration:
    """What counts where there is no file; `guarded` where credentials are configured: then nobody
    opens a door to who has none.
    """
    usual = default_configuration()
    if not guarded:
        return usual
    rules = AccessRules(required=True)
    types = {
        name: msgspec.structs.replace(each, access=rules)
        for name, each in usual.event_types.items()
    }
    return msgspec.structs.replace(usual, event_types=types)
