"""The servers of the fan-out as writers and watchers see them: how to append, how to subscribe."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from headrace_bench.control import create_feed, create_topic, open_sessions
from headrace_bench.feed_requests import format_event, format_follow
from headrace_bench.jobs import Opening, Step
from headrace_bench.peers.nchan import EVENTS_PATH, PUBLISH_PATH, SOCKET_PATH, NchanProcess
from headrace_bench.process import ServerProcess
from headrace_bench.scenarios.streamhosts import TEXT, StreamDaemon, StreamHost
from headrace_bench.scenarios.workload import RECORD_BYTES
from headrace_bench.wire import (
    format_append,
    format_get,
    format_post,
    format_text_frame,
    format_upgrade,
    make_stamped_payload,
)

# Every round opens as many sessions as there are watchers, and idle ones stay for minutes.
SERVER_ENV = {"TOPICS_MAX_WATCH_SESSIONS": "0"}

EVENT_STREAM = "text/event-stream"
HEAD_END = b"\r\n\r\n"
PAYLOAD = make_stamped_payload(RECORD_BYTES)


class Scene(NamedTuple):
    """A log of its own: what appends a record to it, and how each watcher subscribes."""

    request: bytes
    openings: tuple[Opening, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A server, and how to set a scene of so many watchers on it."""

    daemon: ServerProcess | NchanProcess | StreamDaemon
    set_scene: Callable[[int], Scene]


def headrace_events(server: ServerProcess) -> Stage:
    names = _topic_names()

    def set_scene(watchers: int) -> Scene:
        topic = next(names)
        create_topic(server.url, topic, "fsync")
        paths = open_sessions(server.port, topic, watchers)
        openings = tuple(
            (Step(format_get(path, EVENT_STREAM), b"event: caught-up"),) for path in paths
        )
        return Scene(format_append(topic, [PAYLOAD]), openings)

    return Stage(server, set_scene)


def feed_events(server: ServerProcess, tenants: Iterator[str]) -> Stage:
    def set_scene(watchers: int) -> Scene:
        tenant = next(tenants)
        create_feed(server.url, tenant)
        opening = (Step(format_follow(tenant), b": heartbeat"),)
        return Scene(format_event(tenant, PAYLOAD), (opening,) * watchers)

    return Stage(server, set_scene)


def headrace_messages(server: ServerProcess) -> Stage:
    names = _topic_names()

    def set_scene(watchers: int) -> Scene:
        topic = next(names)
        create_topic(server.url, topic, "fsync")
        subscribe = json.dumps({"op": "subscribe", "topic": topic, "tail": True}).encode()
        opening = (
            Step(format_upgrade("/v0/ws"), HEAD_END),
            Step(format_text_frame(subscribe), b"subscribed"),
        )
        return Scene(format_append(topic, [PAYLOAD]), (opening,) * watchers)

    return Stage(server, set_scene)


def nchan_events(nchan: NchanProcess) -> Stage:
    return _nchan(nchan, (Step(format_get(EVENTS_PATH, EVENT_STREAM), b": hi"),))


def nchan_messages(nchan: NchanProcess) -> Stage:
    return _nchan(nchan, (Step(format_upgrade(SOCKET_PATH), HEAD_END),))


def stream_events(host: StreamHost) -> Stage:
    """Streams of plain text, which cost the other servers less to deliver than JSON."""

    def set_scene(watchers: int) -> Scene:
        # Not the last one's stream: the Node server reads a stream from its start for each
        # delivery.
        path = host.create(TEXT)
        events = format_get(f"{path}?offset=now&live=sse", EVENT_STREAM)
        opening = (Step(events, b'"upToDate":true'),)
        return Scene(format_post(path, PAYLOAD.encode(), TEXT), (opening,) * watchers)

    return Stage(host.daemon, set_scene)


def _nchan(nchan: NchanProcess, opening: Opening) -> Stage:
    request = format_post(PUBLISH_PATH, PAYLOAD.encode(), "text/plain")
    return Stage(nchan, lambda watchers: Scene(request, (opening,) * watchers))


def _topic_names() -> Iterator[str]:
    return (f"fanout-{number}" for number in itertools.count())
