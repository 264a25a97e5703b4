"""The event type that tests of notifications share."""

from __future__ import annotations

from headrace.surfaces.notifications.handlers import (
    EnumHandler,
    FieldHandler,
    FloatHandler,
    IntHandler,
    PolygonHandler,
    StringHandler,
)
from headrace.surfaces.notifications.schema import EventType, IdentifierField

HANDLERS: dict[str, tuple[FieldHandler, bool]] = {
    "region": (EnumHandler(("North", "south")), True),
    "severity": (IntHandler((1, 7)), False),
    "anomaly": (FloatHandler(), False),
    "name": (StringHandler(), False),
    "polygon": (PolygonHandler(), True),
}
STORM = EventType(
    name="storm",
    base="storms",
    key_order=("region", "severity", "anomaly", "name"),
    fields={
        name: IdentifierField(name, handler, required)
        for name, (handler, required) in HANDLERS.items()
    },
)
SQUARE = "50,10,50,12,52,12,52,10,50,10"
