"""Requests of the writers and readers of feeds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence

from headrace_bench.wire import format_get, format_post

FIRST = "1"
"""The number of a tenant's first event."""
POLL_S = 20
"""How long a request waits at the server for an event."""


def new_tenants() -> Iterator[str]:
    """Names of tenants, none of them twice."""
    return (f"tenant-{number}" for number in itertools.count())


def make_event(payload: str = "") -> dict[str, object]:
    """An event that has the payload among its data."""
    resource = {"resourceType": "theme", "resourceId": "dark"}
    event: dict[str, object] = {"type": "theme.updated", "resourceRef": resource}
    return event | ({"data": {"payload": payload}} if payload else {})


def format_event(tenant: str, payload: str = "") -> bytes:
    """One POST that stores an event."""
    return format_post(_path(tenant), json.dumps(make_event(payload)).encode())


def format_events(tenant: str, payloads: Sequence[str]) -> bytes:
    """One POST that stores an event for each payload."""
    body = {"events": [make_event(payload) for payload in payloads]}
    return format_post(_path(tenant), json.dumps(body).encode())


def format_follow(tenant: str) -> bytes:
    """Server-sent events, from now on."""
    return format_get(f"{_path(tenant)}/stream", "text/event-stream")


def poll_path(tenant: str) -> str:
    """Where to wait for what is behind a number, which is put at the end."""
    return f"{_path(tenant)}?timeout={POLL_S}&after="


def _path(tenant: str) -> str:
    return f"/tenants/{tenant}/events"
