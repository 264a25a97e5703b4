"""Notifications and their watchers: a thousand different ones, ten of which want each of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace_bench.wire import format_post

EVENT_TYPE = "storm"
LOG = f"notify:{EVENT_TYPE}"
NOTIFY_PATH = "/api/v1/notification"
WATCH_PATH = "/api/v1/watch"
REPLAY_PATH = "/api/v1/replay"
PLACES = 100
"""Kinds of notifications: each has a region, a severity and a place of its own."""
REGIONS = 10
BAND = 10
"""How many severities belong to a place."""
COLUMNS = 40
"""Places in a row, from west to east."""
SPACING = 4
"""Degrees between two places."""
PLACES_MAX = 25 * COLUMNS

CONSTRAINED, SHAPED = 6, 4
"""Watchers of each place, by a constraint and by a shape."""

Identifier = dict[str, Any]


def write_config(folder: Path) -> Path:
    """The configuration of a server for these notifications; replays have no end and no pauses."""
    regions = ", ".join(f"r{region}" for region in range(REGIONS))
    path = folder / "notifications.yaml"
    path.write_text(
        f"""\
watch_endpoint:
  max_historical_notifications: 10000000
  replay_batch_delay_ms: 0
notification_schema:
  {EVENT_TYPE}:
    topic: {{base: {EVENT_TYPE}, key_order: [region, severity]}}
    identifier:
      region: {{type: EnumHandler, values: [{regions}], required: false}}
      severity: {{type: IntHandler, range: [0, {PLACES_MAX * BAND}], required: false}}
      polygon: {{type: PolygonHandler, required: false}}
    payload: {{required: false}}
"""
    )
    return path


def notified(place: int) -> Identifier:
    """The identifier of a notification from a place."""
    return {
        "region": f"r{place % REGIONS}",
        "severity": place * BAND + BAND // 2,
        "polygon": square(*middle(place), 0.5),
    }


def format_notify(place: int, payload: object) -> bytes:
    body = {"event_type": EVENT_TYPE, "identifier": notified(place), "payload": payload}
    return format_post(NOTIFY_PATH, json.dumps(body, separators=(",", ":")).encode())


def format_watch(identifier: Identifier) -> bytes:
    body = {"event_type": EVENT_TYPE, "identifier": identifier}
    return format_post(WATCH_PATH, json.dumps(body).encode())


def format_replay(identifier: Identifier) -> bytes:
    body = {"event_type": EVENT_TYPE, "identifier": identifier, "from_id": "1"}
    return format_post(REPLAY_PATH, json.dumps(body).encode())


def watchers(place: int) -> Iterator[Identifier]:
    """Those who want what comes from a place: all different, and nothing from elsewhere."""
    low, high = place * BAND, place * BAND + BAND - 1
    severity = low + BAND // 2
    yield {"severity": {"between": [low, high]}}
    yield {"severity": {"between": [low + 1, high]}}
    yield {"severity": {"in": [severity, severity + 1]}}
    yield {"severity": {"eq": severity}}
    yield {"region": f"r{place % REGIONS}", "severity": {"between": [low + 2, high]}}
    yield {"region": {"in": [f"r{place % REGIONS}"]}, "severity": {"between": [low, high - 1]}}
    lat, lon = middle(place)
    yield {"polygon": square(lat, lon, 1.0)}
    yield {"region": f"r{place % REGIONS}", "polygon": square(lat, lon, 0.75)}
    yield {"point": f"{lat},{lon}"}
    yield {"point": f"{lat + 0.25},{lon + 0.25}"}


def all_watchers() -> list[Identifier]:
    """A thousand different watchers."""
    return [identifier for place in range(PLACES) for identifier in watchers(place)]


def square(lat: float, lon: float, half: float) -> str:
    """A square around a point, as text."""
    corners = [(-half, -half), (-half, half), (half, half), (half, -half), (-half, -half)]
    return ",".join(f"{lat + up:g},{lon + right:g}" for up, right in corners)


def middle(place: int) -> tuple[float, float]:
    row, column = divmod(place, COLUMNS)
    return -48.0 + SPACING * row, -78.0 + SPACING * column
