"""The parts of the surface, chosen and joined."""

from __future__ import annotations

import msgspec

from headrace.surfaces.flags import mount
from headrace.surfaces.flags.metrics import FlagsMetrics
from headrace.surfaces.flags.tenants import TenantRoutes
from headrace.web.surface import Surface


class FlagsLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What there may be, what is kept, and how changes are delivered."""

    tenants: int
    namespaces_per_tenant: int
    tokens_per_tenant: int
    archive_bytes: int
    manifest_bytes: int
    retention_versions: int
    retention_ms: int
    connections_per_token: int
    keepalive_ms: int
    idle_close_ms: int
    inline_files: int


class Flags:
    """Flags as a server has them."""

    def __init__(self, limits: FlagsLimits) -> None:
        self.metrics = FlagsMetrics()
        self.surface: Surface = mount.surface(
            TenantRoutes(limits.tenants, limits.namespaces_per_tenant),
            self.metrics,
        )
