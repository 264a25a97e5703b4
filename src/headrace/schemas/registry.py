"""The registry of a stream: its schemas by version, the lenses between them, from which record on
each counts, and where routing keys are found.

It is kept as one JSON document. Offsets in it count records from 0: that of the record with seq
`s` is `s - 1`.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Boundary(msgspec.Struct, frozen=True, gc=False):
    """From this record on, records are of this version."""

    offset: int
    version: int


class RoutingKey(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Where in a document its routing key is."""

    json_pointer: str
    required: bool = False


class Registry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that is known of a stream's records. Version 0 is no schema at all."""

    current_version: int = 0
    routing_key: RoutingKey | None = None
    boundaries: tuple[Boundary, ...] = ()
    """Ascending, one for each version."""
    schemas: dict[str, msgspec.Raw] = {}
    """By version, as they were sent."""
    lenses: dict[str, dict[str, Any]] = {}
    """By the version they lead away from."""

    @property
    def schema(self) -> msgspec.Raw | None:
        """What records are now."""
        return self.schemas.get(str(self.current_version))


NOTHING = Registry()
_decoder = msgspec.json.Decoder(Registry)
_routing = msgspec.json.Decoder(RoutingKey)


def decode_registry(kept: bytes | None) -> Registry:
    return NOTHING if kept is None else _decoder.decode(kept)


def encode_registry(registry: Registry) -> bytes | None:
    """What a stream keeps of it; None for a registry that says nothing."""
    return None if registry == NOTHING else msgspec.json.encode(registry)


def first_registry(schema: bytes, routing_key: bytes | None) -> Registry:
    """The registry of a stream without records whose first schema this is."""
    return Registry(
        current_version=1,
        routing_key=None if routing_key is None else _routing.decode(routing_key),
        boundaries=(Boundary(0, 1),),
        schemas={"1": msgspec.Raw(schema)},
    )


def clip(kept: bytes | None, count: int) -> bytes | None:
    """The registry of a stream that takes over the first `count` records of another."""
    if kept is None:
        return None
    registry = decode_registry(kept)
    boundaries = tuple(Boundary(min(b.offset, count), b.version) for b in registry.boundaries)
    return encode_registry(msgspec.structs.replace(registry, boundaries=boundaries))
