"""Evolution: what an update makes of a registry."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from headrace.core.errors import Code, Refused, refuse_invalid
from headrace.core.json_values import need_bool, need_object, refuse_others
from headrace.formats.nesting import is_too_deep
from headrace.schemas.lens import Lens, parse_lens
from headrace.schemas.proof import prove
from headrace.schemas.proof_budget import ProofBudget
from headrace.schemas.registry import API_VERSION, Boundary, Registry, RoutingKey
from headrace.schemas.validation import check_schema
from headrace.search.config import Search
from headrace.search.pointers import need_pointer

_KEYS = ("apiVersion", "schema", "lens", "routingKey", "search")
_update = msgspec.json.Decoder(dict[str, Raw])


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to change."""

    schema: Raw | None = None
    lens: Lens | None = None
    routing_key: RoutingKey | UnsetType | None = UNSET
    """None: routing keys are not taken from documents any more."""
    search: Raw | UnsetType | None = UNSET
    """None: the stream cannot be searched any more."""


def parse_update(raw: bytes, budget: ProofBudget | None = None) -> Update:
    """Check the body of an update, as far as that goes without the registry."""
    if is_too_deep(raw):
        refuse_invalid("the JSON is nested too deeply")
    try:
        update = _update.decode(raw)
        refuse_others(update, _KEYS, "schemaUpdate")
        return _parse(update, budget or ProofBudget())
    except RecursionError:
        refuse_invalid("the JSON is nested too deeply")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        refuse_invalid(f"schemaUpdate must be a JSON object: {error}")


def _parse(update: dict[str, Raw], budget: ProofBudget) -> Update:
    if "apiVersion" in update and msgspec.json.decode(update["apiVersion"]) != API_VERSION:
        refuse_invalid(f"schemaUpdate.apiVersion must be {API_VERSION}")
    if update.keys().isdisjoint(("schema", "routingKey", "search")):
        refuse_invalid("schemaUpdate must have a schema, a routingKey or a search")
    if "lens" in update and "schema" not in update:
        refuse_invalid("schemaUpdate.lens requires a schema")
    routing_key: RoutingKey | UnsetType | None = UNSET
    if "routingKey" in update:
        routing_key = _parse_routing(msgspec.json.decode(update["routingKey"]))
        if routing_key is None and "schema" in update:
            refuse_invalid("schemaUpdate.routingKey cannot be null together with a schema")
    if "schema" in update:
        schema = need_object(msgspec.json.decode(update["schema"]), "schemaUpdate.schema")
        check_schema(schema, "schemaUpdate.schema", budget)
    lens = parse_lens(msgspec.json.decode(update["lens"]), budget) if "lens" in update else None
    search: Raw | UnsetType | None = update.get("search", UNSET)
    if isinstance(search, Raw) and bytes(search) == b"null":
        search = None
    return Update(schema=update.get("schema"), lens=lens, routing_key=routing_key, search=search)


def _parse_routing(raw: Any) -> RoutingKey | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        refuse_invalid("schemaUpdate.routingKey must be an object or null")
    where = "schemaUpdate.routingKey"
    refuse_others(raw, ("jsonPointer", "required"), where)
    need_pointer(raw.get("jsonPointer"), f"{where}.jsonPointer")
    required = need_bool(raw.get("required", False), f"{where}.required")
    return RoutingKey(raw["jsonPointer"], required)


def prove_update(registry: Registry, update: Update, budget: ProofBudget) -> None:
    """Refuse an update that `evolve` takes and whose lens cannot be proven."""
    if update.schema is not None and update.lens is not None:
        held = registry.schemas[str(registry.current_version)]
        prove(msgspec.json.decode(held), msgspec.json.decode(update.schema), update.lens, budget)


def evolve(registry: Registry, update: Update, name: str, next_offset: int) -> Registry:
    """The registry behind this update of a stream that has so many records; proves nothing."""
    evolved = registry
    if update.schema is not None:
        evolved = _with_schema(registry, update.schema, update.lens, name, next_offset)
    if isinstance(update.search, Raw) and not evolved.current_version:
        refuse_invalid("search config requires an installed schema version")
    if update.routing_key is not UNSET:
        evolved = msgspec.structs.replace(evolved, routing_key=update.routing_key)
    return evolved


def _with_schema(
    registry: Registry, schema: Raw, lens: Lens | None, name: str, next_offset: int
) -> Registry:
    version = registry.current_version
    if lens is not None and lens.schema != name:
        refuse_invalid(f'lens.schema must be "{name}"')
    if lens is not None and (lens.source, lens.to) != (version, version + 1):
        raise Refused(Code.CONFLICT, "lens version mismatch")
    if lens is None and version == 1 and _same(schema, registry.schemas["1"]):
        return registry  # said again
    if not version and next_offset:
        refuse_invalid("first schema requires empty stream")
    if version and lens is None:
        refuse_invalid("lens required")
    lenses = registry.lenses
    if lens is not None:
        lenses = {**lenses, str(version): lens.kept}
    return msgspec.structs.replace(
        registry,
        current_version=version + 1,
        boundaries=(*registry.boundaries, Boundary(next_offset, version + 1)),
        schemas={**registry.schemas, str(version + 1): schema},
        lenses=lenses,
    )


def check_bindings(search: Search, version: int) -> None:
    """Refuse fields that are bound to versions that are not there."""
    for field in search.fields.values():
        if field.bindings[-1].version > max(1, version):
            refuse_invalid(
                f"search.fields.{field.name}.bindings has version {field.bindings[-1].version}, "
                f"and the current one is {version}"
            )


def _same(one: Raw, other: Raw) -> bool:
    return _canonical(one) == _canonical(other)


def _canonical(raw: Raw) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(raw), order="sorted")
