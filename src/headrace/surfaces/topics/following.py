"""Which topics to follow, from where, and what of them: asked by watch and WebSocket alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import READ_BYTES_DEFAULT, READ_BYTES_MAX, READ_RECORDS_DEFAULT
from headrace.core.log import Log
from headrace.core.match import TagMatch, parse_match
from headrace.core.owners import TOPICS
from headrace.core.selector import ColumnSelector
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.surfaces.topics import wire
from headrace.surfaces.topics.events import TopicView
from headrace.surfaces.topics.names import parse_topic
from headrace.web.credentials import Principal, Scope

ANY = "*"


class StartPosition(msgspec.Struct, frozen=True):
    """Where to start in a topic."""

    after: int
    tail: bool
    epoch: int | None
    match: TagMatch | None


class FollowRequest(msgspec.Struct, frozen=True):
    """The topics asked for, by name and by prefix."""

    topics: dict[str, StartPosition]
    prefixes: dict[str, StartPosition]


class FollowLimits(msgspec.Struct, frozen=True):
    """What one reader may ask for."""

    topics: int
    records: int


def parse_follow(
    topics: Mapping[str, wire.WatchTopic | None], principal: Principal, limits: FollowLimits
) -> FollowRequest:
    """Names and starts, if the caller may read them all."""
    principal.require(Scope.READ)
    if not topics:
        raise Refused(Code.INVALID, "topics must name at least one topic", field="topics")
    if len(topics) > limits.topics:
        raise _too_many(limits.topics)
    names: dict[str, StartPosition] = {}
    prefixes: dict[str, StartPosition] = {}
    for name, asked in topics.items():
        start = _parse_start(asked)
        if name.endswith(ANY):
            prefixes[_parse_prefix(name[: -len(ANY)], principal)] = start
        else:
            names[parse_topic(name)] = start
    principal.require(Scope.READ, *names)
    return FollowRequest(names, prefixes)


def _parse_start(asked: wire.WatchTopic | None) -> StartPosition:
    asked = wire.checked(asked or wire.WatchTopic())
    match = None if asked.match is None else parse_match(asked.match)
    return StartPosition(asked.from_seq, asked.tail, asked.epoch, match)


def _parse_prefix(prefix: str, principal: Principal) -> str:
    if prefix:
        parse_topic(prefix)
    allowed = principal.prefixes
    if allowed and not any(prefix.startswith(each) or each.startswith(prefix) for each in allowed):
        raise Refused(
            Code.FORBIDDEN, f'"{prefix}*" is outside the prefixes of this key', name=prefix + ANY
        )
    return prefix


def parse_view(
    request: wire.FollowOptions, match: TagMatch | None, limits: FollowLimits
) -> TopicView:
    """What to see of a topic; its own filter comes before the one for all."""
    selector = parse_selector(request.node, request.match)
    return TopicView(
        selector=selector if match is None else ColumnSelector(selector.exclude, match),
        records_max=min(request.limit or READ_RECORDS_DEFAULT, limits.records),
        bytes_max=min(request.max_batch_bytes or READ_BYTES_DEFAULT, READ_BYTES_MAX),
        strong=request.consistency == "strong",
        tags=request.include_tags,
        meta=request.include_meta,
        data=request.include_data,
    )


def parse_selector(node: str | list[str] | None, match: object) -> ColumnSelector:
    """Which records a reader with these node ids and this tag filter is to get."""
    nodes = () if node is None else (node,) if isinstance(node, str) else node
    return ColumnSelector(frozenset(nodes), None if match is None else parse_match(match))


def find(
    engine: Engine,
    wanted: FollowRequest,
    principal: Principal,
    limits: FollowLimits,
    *,
    lenient: bool,
) -> dict[str, tuple[OpenLog, StartPosition]]:
    """The topics that are there; unknown names are refused, or left out if that is wanted."""
    found: dict[str, tuple[OpenLog, StartPosition]] = {}
    for name, start in wanted.topics.items():
        if not lenient or name in engine.state.by_name:
            found[name] = (engine.state_of(name), start)
    if not found and not wanted.prefixes:
        raise Refused(Code.LOG_NOT_FOUND, "none of the topics exists")
    for prefix, start in wanted.prefixes.items():
        for live in matching(engine, prefix, principal):
            found.setdefault(live.log.name, (live, start))
            if len(found) > limits.topics:
                raise _too_many(limits.topics)
    return found


def matching(engine: Engine, prefix: str, principal: Principal) -> Iterator[OpenLog]:
    """The topics whose names begin like this and that the caller may see."""
    for name in engine.state.names("", prefix, TOPICS):
        if principal.may_see(name):
            yield engine.state_of(name)


def may_follow(log: Log, principal: Principal) -> bool:
    """Whether a new log is a topic that the caller may see."""
    return log.owner == TOPICS and principal.may_see(log.name)


def format_place(live: OpenLog, after: int) -> wire.WatchPlace:
    """Where a follower starts, and where the topic stands."""
    earliest, head = wire.head_of(live.log, live.visible)
    return wire.WatchPlace(from_seq=after, head_seq=head, earliest_seq=earliest, epoch=live.log.id)


def _too_many(topics_max: int) -> Refused:
    return Refused(
        Code.INVALID, f"one watch has at most {topics_max} topics", field="topics", max=topics_max
    )
