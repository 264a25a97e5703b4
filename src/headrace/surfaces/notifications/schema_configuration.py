"""The section `notification_schema` of the configuration file: event types and their fields."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from headrace.core.errors import Refused
from headrace.core.limits import (
    ENUM_VALUES_MAX,
    EVENT_TYPES_MAX,
    HISTORY_CEILING,
    I64_MAX,
    IDENTIFIER_FIELDS_MAX,
    IDENTIFIER_VALUE_BYTES_MAX,
    ROLES_MAX,
    STREAM_TTL_MS_MAX,
)
from headrace.search.pointers import Path, parse_pointer
from headrace.surfaces.notifications.access import AccessRules, Roles
from headrace.surfaces.notifications.handlers import (
    DateHandler,
    EnumHandler,
    ExpverHandler,
    FieldHandler,
    FloatHandler,
    IntHandler,
    PolygonHandler,
    StringHandler,
    TimeHandler,
)
from headrace.surfaces.notifications.quantities import parse_duration_ms, parse_size_bytes
from headrace.surfaces.notifications.schema import (
    POINT,
    POLYGON,
    EventType,
    IdentifierField,
    StoragePolicy,
    parse_event_type,
)
from headrace.surfaces.notifications.subjects import WILDCARD
from headrace.surfaces.notifications.yaml_nodes import ConfigurationNode

_BASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")
_FIELD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")
_FIELD_KEYS = ("type", "required", "description")

T = TypeVar("T", bound=float)

NoEffect = Callable[[ConfigurationNode], None]
"""Is told of keys that are accepted and change nothing."""


def parse_schema(section: ConfigurationNode, no_effect: NoEffect) -> dict[str, EventType]:
    """The event types of the section, by name; raises `ConfigurationError`."""
    types: dict[str, EventType] = {}
    bases: dict[str, str] = {}
    if len(section.members()) > EVENT_TYPES_MAX:
        section.fail(f"has more than {EVENT_TYPES_MAX} event types")
    for name, node in section.members().items():
        event_type = _parse_type(name, node, no_effect)
        other = bases.setdefault(event_type.base.lower(), name)
        if other != name:
            base = node.need("topic").need("base")
            base.fail(f"is the base of {other}, too; in any case, each type has its own")
        types[name] = event_type
    return types


def _parse_type(name: str, node: ConfigurationNode, no_effect: NoEffect) -> EventType:
    try:
        parse_event_type(name)
    except Refused as refused:
        node.fail(refused.message)
    given = node.members(
        "topic",
        "identifier",
        "payload",
        "auth",
        "storage_policy",
        "max_historical_notifications",
        "wis2",
    )
    fields = _parse_fields(node.need("identifier"))
    base, key_order = _parse_topic(node.need("topic"), fields)
    payload = given["payload"].members("required") if "payload" in given else {}
    history = given.get("max_historical_notifications")
    return EventType(
        name=name,
        base=base,
        key_order=key_order,
        fields=fields,
        payload_required=payload["required"].switch() if "required" in payload else False,
        access=_parse_access(given["auth"]) if "auth" in given else None,
        storage=(
            _parse_storage(given["storage_policy"], no_effect)
            if "storage_policy" in given
            else None
        ),
        history_max=None if history is None else history.whole(1, HISTORY_CEILING),
        wis2=_parse_wis2(given["wis2"], fields) if "wis2" in given else None,
    )


def _parse_topic(
    node: ConfigurationNode, fields: dict[str, IdentifierField]
) -> tuple[str, tuple[str, ...]]:
    given = node.members("base", "key_order")
    base = node.need("base")
    if _BASE.fullmatch(base.text()) is None:
        base.fail("is not 1 to 200 characters of A-Z a-z 0-9 _ - that start with a letter or digit")
    order: list[str] = []
    if "key_order" not in given:
        node.fail("has no key_order")
    for item in given["key_order"].items(IDENTIFIER_FIELDS_MAX):
        key = item.text()
        if key == POLYGON:
            item.fail("polygon is no part of a topic")
        if key not in fields:
            item.fail(f"{key[:50]!a} is not a field of identifier")
        if key in order:
            item.fail(f"{key} is there twice")
        order.append(key)
    for key in fields:
        if key != POLYGON and key not in order:
            given["key_order"].fail(f"lacks {key}: each field but polygon is part of the topic")
    return base.text(), tuple(order)


def _parse_fields(node: ConfigurationNode) -> dict[str, IdentifierField]:
    members = node.members()
    if len(members) > IDENTIFIER_FIELDS_MAX:
        node.fail(f"has more than {IDENTIFIER_FIELDS_MAX} fields")
    return {name: _parse_field(name, field) for name, field in members.items()}


def _parse_field(name: str, node: ConfigurationNode) -> IdentifierField:
    if _FIELD.fullmatch(name) is None:
        node.fail("is not 1 to 128 characters of A-Z a-z 0-9 _ - that start with none of -")
    if name == POINT:
        node.fail("is a key of watch and replay, and cannot be a field")
    kind = node.need("type")
    handler = _parse_handler(kind.text(), kind, node)
    if (name == POLYGON) != isinstance(handler, PolygonHandler):
        kind.fail("PolygonHandler is for the field polygon, and that field for no other handler")
    description = node.members().get("description")
    return IdentifierField(
        name,
        handler,
        node.need("required").switch(),
        None if description is None or description.empty else description.text(),
    )


def _parse_handler(kind: str, at: ConfigurationNode, node: ConfigurationNode) -> FieldHandler:
    match kind:
        case "StringHandler":
            given = node.members(*_FIELD_KEYS, "max_length")
            if "max_length" not in given:
                return StringHandler()
            return StringHandler(given["max_length"].whole(1, IDENTIFIER_VALUE_BYTES_MAX))
        case "DateHandler":
            given = node.members(*_FIELD_KEYS, "canonical_format")
            if "canonical_format" not in given:
                return DateHandler()
            return DateHandler(given["canonical_format"].choice(*DateHandler.FORMATS))
        case "TimeHandler":
            node.members(*_FIELD_KEYS)
            return TimeHandler()
        case "EnumHandler":
            node.members(*_FIELD_KEYS, "values")
            return _parse_enum(node.need("values"))
        case "ExpverHandler":
            given = node.members(*_FIELD_KEYS, "default")
            if "default" not in given or given["default"].empty:
                return ExpverHandler()
            return ExpverHandler(_parse_value(given["default"]))
        case "IntHandler":
            node.members(*_FIELD_KEYS, "range")
            low, high = _parse_range(node, lambda end: end.whole(-I64_MAX - 1, I64_MAX))
            return IntHandler(None if low is None or high is None else (low, high))
        case "FloatHandler":
            node.members(*_FIELD_KEYS, "range")
            floor, ceiling = _parse_range(node, ConfigurationNode.number)
            return FloatHandler(None if floor is None or ceiling is None else (floor, ceiling))
        case "PolygonHandler":
            node.members(*_FIELD_KEYS)
            return PolygonHandler()
        case "PointCloudHandler":
            raise at.error("point clouds are not supported; there are polygons (PolygonHandler)")
        case _:
            known = ["String", "Date", "Time", "Enum", "Expver", "Int", "Float", "Polygon"]
            at.fail(f"is not one of {', '.join(f'{each}Handler' for each in known)}")
    raise AssertionError(kind)


def _parse_enum(node: ConfigurationNode) -> EnumHandler:
    words: dict[str, str] = {}
    items = node.items(ENUM_VALUES_MAX)
    if not items:
        node.fail("has no value")
    for item in items:
        value = _parse_value(item)
        if value.lower() in words:
            item.fail(f"{value[:50]!a} is there twice; case does not count")
        words[value.lower()] = value
    return EnumHandler(tuple(words.values()))


def _parse_value(node: ConfigurationNode) -> str:
    """A value that a field can have."""
    value = node.text(IDENTIFIER_VALUE_BYTES_MAX)
    if len(value.encode()) > IDENTIFIER_VALUE_BYTES_MAX:
        node.fail(f"has more than {IDENTIFIER_VALUE_BYTES_MAX} bytes")
    if value == WILDCARD:
        node.fail("is the wildcard of watch and replay")
    return value


def _parse_range(
    node: ConfigurationNode, end: Callable[[ConfigurationNode], T]
) -> tuple[T, T] | tuple[None, None]:
    given = node.members().get("range")
    if given is None or given.empty:
        return None, None
    ends = given.items(2)
    if len(ends) != 2:
        given.fail("is not two numbers [min, max]")
    low, high = map(end, ends)
    if low > high:
        given.fail("has a min above its max")
    return low, high


def _parse_access(node: ConfigurationNode) -> AccessRules:
    given = node.members("required", "read_roles", "write_roles")
    return AccessRules(
        required=node.need("required").switch(),
        read_roles=parse_roles(given["read_roles"]) if "read_roles" in given else None,
        write_roles=parse_roles(given["write_roles"]) if "write_roles" in given else None,
    )


def parse_roles(node: ConfigurationNode) -> Roles:
    """Roles by realm."""
    realms = node.members()
    if len(realms) > ROLES_MAX:
        node.fail(f"has more than {ROLES_MAX} realms")
    if "" in realms:
        node.fail("has a realm without a name")
    return {
        realm: tuple(item.text() for item in roles.items(ROLES_MAX))
        for realm, roles in realms.items()
    }


def _parse_storage(node: ConfigurationNode, no_effect: NoEffect) -> StoragePolicy:
    given = node.members(
        "retention_time", "max_messages", "max_size", "allow_duplicates", "compression"
    )
    ttl_ms = bytes_max = None
    if "retention_time" in given:
        ttl_ms = parse_duration_ms(given["retention_time"].text())
        if ttl_ms is None or not 1 <= ttl_ms <= STREAM_TTL_MS_MAX:
            given["retention_time"].fail("is not a duration from 1s to 1000 years, as 30s, 12h, 7d")
    if "max_size" in given:
        bytes_max = parse_size_bytes(given["max_size"].text())
        if bytes_max is None or not 1 <= bytes_max <= I64_MAX:
            given["max_size"].fail("is not a size as 65536, 500M or 2Gi")
    if "compression" in given:
        given["compression"].switch()
        no_effect(given["compression"])
    records = given.get("max_messages")
    duplicates = given.get("allow_duplicates")
    return StoragePolicy(
        ttl_ms=ttl_ms,
        records_max=None if records is None else records.whole(1, I64_MAX),
        bytes_max=bytes_max,
        newest_only=duplicates is not None and not duplicates.switch(),
    )


def _parse_wis2(node: ConfigurationNode, fields: dict[str, IdentifierField]) -> dict[str, Path]:
    pointers: dict[str, Path] = {}
    for name, pointer in node.members().items():
        if name == POLYGON:
            pointer.fail("comes from the geometry of a message")
        if name not in fields:
            pointer.fail("is not a field of identifier")
        path = parse_pointer(pointer.text())
        if path is None:
            pointer.fail("is not a JSON pointer, as /properties/data_id")
        pointers[name] = path
    for name in fields:
        if name != POLYGON and name not in pointers:
            node.fail(f"lacks {name}: each field but polygon needs a JSON pointer")
    return pointers
