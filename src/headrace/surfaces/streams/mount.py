"""The streams surface, joined: which path takes which handler, and what its documentation says."""

from __future__ import annotations

import re
from typing import Any

import falcon.asgi

from headrace.surfaces.streams import aggregating, inspection, profiles, schemas, searching
from headrace.surfaces.streams.control import Control
from headrace.surfaces.streams.dialect import BASE, DIALECTS
from headrace.surfaces.streams.routes import Resources, StreamLimits, StreamRoutes
from headrace.surfaces.streams.server import ServerRoutes
from headrace.surfaces.streams.touch import TouchRoutes
from headrace.web.calls import Gate
from headrace.web.direct import Respond

NATIVE_PREFIX = "/v1/stream/"
BASE_PREFIX = "/ds/v1/stream/"


def mount(
    app: falcon.asgi.App[Any, Any],
    gate: Gate,
    dialect: str,
    limits: StreamLimits,
    control: Control,
    server: ServerRoutes,
) -> dict[str, Respond]:
    """Put the surface's routes into the application; returns what answers below which path."""
    chosen = DIALECTS[dialect]
    below: Resources = {
        **schemas.resources(),
        **profiles.resources(),
        **TouchRoutes(limits).resources(),
        **inspection.resources(limits),
        **searching.resources(),
        **aggregating.resources(),
    }
    native_control = control if chosen.subscriptions else None
    native = StreamRoutes(
        gate, chosen, NATIVE_PREFIX.encode(), limits, native_control, resources=below
    )
    base = StreamRoutes(gate, BASE, BASE_PREFIX.encode(), limits, control, resources=below)
    for routes, prefix in ((native, NATIVE_PREFIX), (base, BASE_PREFIX)):
        app.add_sink(routes.respond_elsewhere, prefix.removesuffix("stream/"))
        app.add_sink(routes.respond_list, re.compile(prefix.removesuffix("/") + "s$"))
        app.add_sink(routes.respond_with(server.handle), prefix.removesuffix("stream/") + "server/")
        app.add_sink(routes.respond, prefix)
    return {NATIVE_PREFIX: native.respond, BASE_PREFIX: base.respond}
