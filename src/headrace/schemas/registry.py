"""The registry of a stream: its schemas by version, the lenses between them, from which record on
each counts, and where routing keys are found.

It is kept as one JSON document. Offsets in it count records from 0: that of the record with seq
`s` is `s - 1`. The search configuration is told with it but kept by the log.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import REGISTRY_BYTES_MAX

API_VERSION = "durable.streams/schema-registry/v1"


class Boundary(msgspec.Struct, frozen=True, gc=False):
    """From this record on, records are of this version."""

    offset: int
    version: int


class RoutingKey(msgspec.Struct, frozen=True, rename="camel"):
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


class RegistryView(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """The registry as it is told."""

    api_version: str
    schema: str
    """The name of the stream."""
    current_version: int
    routing_key: RoutingKey | None = None
    search: msgspec.Raw | None = None
    boundaries: tuple[Boundary, ...]
    schemas: dict[str, msgspec.Raw]
    lenses: dict[str, dict[str, Any]]


NOTHING = Registry()
_decoder = msgspec.json.Decoder(Registry)
_routing = msgspec.json.Decoder(RoutingKey)


def decode_registry(kept: bytes | None) -> Registry:
    return NOTHING if kept is None else _decoder.decode(kept)


def encode_registry(registry: Registry) -> bytes | None:
    """What a stream keeps of it; None for a registry that says nothing."""
    if registry == NOTHING:
        return None
    kept = msgspec.json.encode(registry)
    if len(kept) > REGISTRY_BYTES_MAX:
        raise Refused(
            Code.INVALID,
            f"the schemas and lenses of a stream have at most {REGISTRY_BYTES_MAX} bytes",
            max=REGISTRY_BYTES_MAX,
        )
    return kept


def first_registry(schema: bytes, routing_key: bytes | None, next_offset: int = 0) -> Registry:
    """The registry of a stream with so many records whose first schema this is."""
    return Registry(
        current_version=1,
        routing_key=None if routing_key is None else _routing.decode(routing_key),
        boundaries=(Boundary(next_offset, 1),),
        schemas={"1": msgspec.Raw(schema)},
    )


def clip(kept: bytes | None, count: int) -> bytes | None:
    """The registry of a stream that takes over the first `count` records of another."""
    registry = decode_registry(kept)
    boundaries = tuple(Boundary(min(b.offset, count), b.version) for b in registry.boundaries)
    return encode_registry(msgspec.structs.replace(registry, boundaries=boundaries))


def versions_of(kept: bytes | None) -> bytes | None:
    """What of a registry says how older documents become current ones; None: they are current."""
    registry = decode_registry(kept)
    if registry.current_version < 2:
        return None
    return msgspec.json.encode(
        Registry(
            current_version=registry.current_version,
            boundaries=registry.boundaries,
            lenses=registry.lenses,
        )
    )


def view(name: str, registry: Registry, search: bytes | None) -> RegistryView:
    return RegistryView(
        api_version=API_VERSION,
        schema=name,
        current_version=registry.current_version,
        routing_key=registry.routing_key,
        search=None if search is None else msgspec.Raw(search),
        boundaries=registry.boundaries,
        schemas=registry.schemas,
        lenses=registry.lenses,
    )
