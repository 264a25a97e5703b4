"""Shapes: what streams make of what is appended to them, by their profile and their registry.

What is appended goes through the profile, must be valid under the current schema, and gets its
routing key, in this order. A stream with neither profile nor registry has no shape and pays for
none of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from headrace.core.entry import Adopt, Entry, Plan, Register
from headrace.core.errors import Code, Refused
from headrace.core.limits import SHAPES_MAX, STREAM_KEY_BYTES_MAX
from headrace.core.log import Log
from headrace.core.record import Drafts, draft, payloads
from headrace.core.stream import Stream, not_json
from headrace.core.streaming import stream_of
from headrace.profiles.catalogue import load_profile
from headrace.profiles.profile import Profile
from headrace.schemas.registry import (
    RoutingKey,
    clip,
    decode_registry,
    encode_registry,
    first_registry,
)
from headrace.schemas.validation import Validator
from headrace.search.pointers import parse_pointer, resolve

if TYPE_CHECKING:
    from headrace.engine.engine import Engine
    from headrace.engine.live import Live


class Shape:
    """The profile and the registry of one stream, ready for use."""

    def __init__(self, stream: Stream) -> None:
        self._source = (stream.registry, stream.profile)
        self.profile = load_profile(stream.profile)
        self.registry = decode_registry(stream.registry)
        schema = self.registry.schema
        self._validator = None if schema is None else Validator(schema)
        self._routing = self.registry.routing_key
        self._pointer = parse_pointer(self._routing.json_pointer) if self._routing else None

    def is_of(self, stream: Stream) -> bool:
        registry, profile = self._source
        return stream.registry is registry and stream.profile is profile

    def form(self, drafts: Drafts, now_ms: int) -> Drafts:
        """The records that a stream is to hold of these drafts; refuses what it must not hold."""
        if drafts.media is not None:
            if self._source[0] is not None:
                raise not_json()
            return drafts
        if self._routing is not None and drafts.keys is not None:
            raise Refused(Code.INVALID, "Stream-Key is not allowed: the schema has a routingKey")
        sent = payloads(drafts)
        held = self.profile.normalise(sent, now_ms)
        keys = self._check(held)
        if keys is None:
            keys = drafts.keys or _keys_by(self.profile, held)
        if held is not sent:
            drafts = draft(held)
        drafts.keys = keys
        return drafts

    def _check(self, raws: Sequence[bytes]) -> list[str | None] | None:
        """Refuse what is not valid; returns the routing keys, if the registry says what they are.

        Nothing is taken apart for a registry that asks for nothing.
        """
        if self._validator is None and self._routing is None:
            return None
        keys: list[str | None] = []
        for raw in raws:
            document = _decode(raw)
            if self._validator is not None:
                self._validator.check(document)
            if self._routing is not None and self._pointer is not None:
                keys.append(_key(resolve(document, self._pointer), self._routing))
        return keys if self._routing is not None else None


def _decode(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refused(Code.INVALID, f"the document cannot be checked: {error}") from None


def _key(found: object, routing: RoutingKey) -> str | None:
    if found is None:
        if routing.required:
            raise Refused(Code.INVALID, f"routing key is missing at {routing.json_pointer}")
        return None
    if not isinstance(found, str):
        raise Refused(Code.INVALID, f"routing key at {routing.json_pointer} must be a string")
    if len(found) > STREAM_KEY_BYTES_MAX // 4 and len(found.encode()) > STREAM_KEY_BYTES_MAX:
        raise Refused(Code.INVALID, f"a routing key has at most {STREAM_KEY_BYTES_MAX} bytes")
    return found


def _keys_by(profile: Profile, raws: Sequence[bytes]) -> list[str | None] | None:
    keys = [profile.key_of(raw) for raw in raws]
    return keys if any(key is not None for key in keys) else None


class Shapes:
    """The shapes of one engine's streams."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._shapes: dict[int, Shape] = {}
        """By log, those used last at the end."""

    def of(self, log: Log) -> Shape:
        """The shape of a stream as it is now."""
        stream = stream_of(log)
        shape = self._shapes.pop(log.id, None)
        if shape is None or not shape.is_of(stream):
            shape = Shape(stream)
        self._shapes[log.id] = shape
        if len(self._shapes) > SHAPES_MAX:
            del self._shapes[next(iter(self._shapes))]
        return shape

    def form(self, log: Log, drafts: Drafts) -> Drafts:
        """The records that this stream is to hold of these drafts; refuses what it must not."""
        stream = stream_of(log)
        if stream.registry is None and stream.profile is None:
            return drafts
        return self.of(log).form(drafts, self._engine.clock.now_ms())

    def inherit(self, source: Log, fork: int, count: int) -> list[Entry]:
        """What a fork takes over with the first `count` records of its source."""
        stream = stream_of(source)
        entries: list[Entry] = []
        if stream.registry is not None:
            entries.append(Register(fork, clip(stream.registry, count)))
        if stream.profile is not None:
            entries.append(Adopt(fork, stream.profile))
        if source.search is not None:
            entries.append(Plan(fork, source.search))
        return entries

    async def install_profile(self, live: Live, profile: Profile) -> None:
        """Let the stream have this profile.

        The schema that comes with it is for a stream without records; one that has a schema of its
        own keeps it.
        """
        engine, log = self._engine, live.log
        engine.check_open()
        stream = stream_of(log)
        again = load_profile(stream.profile).kind == profile.kind
        profile.check(is_json=stream.is_json, empty=log.head == 0 or again)
        kept = None if profile.config == load_profile(None).config else profile.config
        entries: list[Entry] = [] if kept == stream.profile else [Adopt(log.id, kept)]
        if entries and not again and log.head == 0:
            entries += _bring(log, profile)
        if entries:
            live.config_position = engine.commit(entries, sync=True, together=True)
        await engine.journal.wait_synced(live.config_position)


def _bring(log: Log, profile: Profile) -> list[Entry]:
    """The schema that comes with a profile, for a stream that has none."""
    installed = profile.installs(log.name)
    registry = decode_registry(stream_of(log).registry)
    if installed is None or registry.schema is not None:
        return []
    brought = first_registry(installed.schema, installed.routing_key)
    entries: list[Entry] = [Register(log.id, encode_registry(brought))]
    if installed.search is not None:
        entries.append(Plan(log.id, installed.search))
    return entries
