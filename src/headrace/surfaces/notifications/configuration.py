"""The configuration file of notifications: event types, who may use them, and how streams behave.

The keys are those of the server that this protocol comes from. Those that say something about a
part which is not here are accepted, and said to have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from headrace.core.limits import (
    CONFIGURATION_BYTES_MAX,
    HISTORY_CEILING,
    KEEP_PER_KEY_MAX,
    KEYS_MAX,
    READ_SCANNED_MAX,
)
from headrace.surfaces.notifications.auth_configuration import AuthRules, parse_auth
from headrace.surfaces.notifications.handlers import (
    EnumHandler,
    IntHandler,
    PolygonHandler,
)
from headrace.surfaces.notifications.schema import POLYGON, EventType, IdentifierField
from headrace.surfaces.notifications.schema_configuration import (
    NoEffect,
    parse_schema,
)
from headrace.surfaces.notifications.shapes import PolygonForm
from headrace.surfaces.notifications.yaml_nodes import (
    ConfigurationError,
    ConfigurationNode,
    parse_yaml,
)

_BASE_URL = "http://localhost"
_DAY_S = 86_400


class WatchRules(msgspec.Struct, frozen=True, kw_only=True):
    """How streams of watch and replay behave."""

    heartbeat_s: int = 30
    duration_max_s: int = 3600
    """After so long, a watch is closed; a client comes again."""
    batch_size: int = 100
    """Notifications that are read at a time in a replay."""
    batch_delay_ms: int = 0
    history_max: int = 10_000
    """Notifications that one replay delivers at most."""
    polygon_form: PolygonForm = "text"
    """In which form polygons are emitted, whichever way they came."""


class MemoryRules(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept where nothing is durable."""

    per_subject_max: int = 1
    """Notifications of each subject: the newest."""
    subjects_max: int = 10_000


class NotificationsConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the file says."""

    event_types: Mapping[str, EventType]
    strict: bool
    """Whether only types of the schema are known; else others are taken as they come."""
    base_url: str = _BASE_URL
    watch: WatchRules = WatchRules()
    memory: MemoryRules | None = None
    """None: notifications are durable."""
    auth: AuthRules | None = None
    """None: who calls is not asked."""
    warnings: tuple[str, ...] = ()
    """What the file says to no effect, a line each."""


def read_configuration(path: Path) -> NotificationsConfiguration:
    """What a file says; raises `ConfigurationError`."""
    try:
        with path.open("rb") as file:
            raw = file.read(CONFIGURATION_BYTES_MAX + 1)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise ConfigurationError(str(path), None, "", problem) from None
    return parse_configuration(raw, str(path))


def parse_configuration(raw: bytes, file: str) -> NotificationsConfiguration:
    """What the text of a file says; raises `ConfigurationError`, which names the file."""
    warnings: list[str] = []

    def no_effect(node: ConfigurationNode) -> None:
        warnings.append(f"{file}:{node.line}: {node.key} has no effect")

    root = parse_yaml(raw, file)
    given = root.members(
        "application",
        "watch_endpoint",
        "notification_backend",
        "auth",
        "notification_schema",
        "notification_schema_strict",
        "logging",
        "metrics",
    )
    for name in ("logging", "metrics"):
        if name in given:
            no_effect(given[name])
    absent = ConfigurationNode(file, 1, "", {})
    base_url = _parse_application(given.get("application", absent), no_effect)
    watch = _parse_watch(given.get("watch_endpoint", absent), no_effect)
    memory = _parse_backend(given.get("notification_backend", absent), no_effect)
    auth = parse_auth(given.get("auth", absent), no_effect)
    schema = given.get("notification_schema", absent)
    event_types = parse_schema(schema, no_effect)
    _check_types(schema, event_types, durable=memory is None, known=auth is not None)
    strict = given.get("notification_schema_strict")
    return NotificationsConfiguration(
        event_types=event_types,
        strict=bool(event_types) if strict is None else strict.switch(),
        base_url=base_url,
        watch=watch,
        memory=memory,
        auth=auth,
        warnings=tuple(warnings),
    )


def _check_types(
    schema: ConfigurationNode, event_types: Mapping[str, EventType], *, durable: bool, known: bool
) -> None:
    """Refuse what a type asks for and the rest of the file does not give."""
    for name, event_type in event_types.items():
        given = schema.members()[name].members()
        if event_type.storage is not None and not durable:
            given["storage_policy"].fail("needs a durable backend, and kind is in_memory")
        rules = event_type.access
        if (
            rules is not None
            and not known
            and (rules.required or rules.read_roles or rules.write_roles)
        ):
            given["auth"].fail("needs auth.enabled: true, which is not there")


def _parse_application(node: ConfigurationNode, no_effect: NoEffect) -> str:
    given = node.members("base_url", "host", "port", "static_files_path")
    for name in ("host", "port", "static_files_path"):
        if name in given:
            no_effect(given[name])
    return given["base_url"].url() if "base_url" in given else _BASE_URL


def _parse_watch(node: ConfigurationNode, no_effect: NoEffect) -> WatchRules:
    given = node.members(
        "sse_heartbeat_interval_sec",
        "connection_max_duration_sec",
        "replay_batch_size",
        "replay_batch_delay_ms",
        "max_historical_notifications",
        "concurrent_notification_processing",
        "polygon_form",
    )
    if "concurrent_notification_processing" in given:
        no_effect(given["concurrent_notification_processing"])

    def whole(name: str, least: int, most: int, default: int) -> int:
        return given[name].whole(least, most) if name in given else default

    usual = WatchRules()
    form = given.get("polygon_form")
    return WatchRules(
        heartbeat_s=whole("sse_heartbeat_interval_sec", 1, _DAY_S, usual.heartbeat_s),
        duration_max_s=whole("connection_max_duration_sec", 1, 365 * _DAY_S, usual.duration_max_s),
        batch_size=whole("replay_batch_size", 1, READ_SCANNED_MAX, usual.batch_size),
        batch_delay_ms=whole("replay_batch_delay_ms", 0, 60_000, usual.batch_delay_ms),
        history_max=whole("max_historical_notifications", 1, HISTORY_CEILING, usual.history_max),
        polygon_form=usual.polygon_form if form is None else form.choice("text", "array"),
    )


def _parse_backend(node: ConfigurationNode, no_effect: NoEffect) -> MemoryRules | None:
    given = node.members("kind", "jetstream", "in_memory")
    kind = given["kind"].choice("jetstream", "in_memory") if "kind" in given else "jetstream"
    if "jetstream" in given:
        no_effect(given["jetstream"])
    memory = given.get("in_memory", ConfigurationNode(node.file, node.line, node.key, {}))
    rules = memory.members("max_history_per_topic", "max_topics", "enable_metrics")
    if "enable_metrics" in rules:
        no_effect(rules["enable_metrics"])
    usual = MemoryRules()
    parsed = MemoryRules(
        per_subject_max=(
            rules["max_history_per_topic"].whole(1, KEEP_PER_KEY_MAX)
            if "max_history_per_topic" in rules
            else usual.per_subject_max
        ),
        subjects_max=(
            rules["max_topics"].whole(1, KEYS_MAX) if "max_topics" in rules else usual.subjects_max
        ),
    )
    if kind == "in_memory":
        return parsed
    if "in_memory" in given:
        no_effect(given["in_memory"])
    return None


def default_configuration() -> NotificationsConfiguration:
    """What counts without a file: one type to try things with."""
    fields = (
        IdentifierField(
            "region",
            EnumHandler(("north", "south", "east", "west")),
            required=True,
            description="part of the country",
        ),
        IdentifierField(
            "severity", IntHandler((1, 7)), required=False, description="from 1, light, to 7"
        ),
        IdentifierField(
            POLYGON, PolygonHandler(), required=False, description="area, as lat,lon,lat,lon,…"
        ),
    )
    storm = EventType(
        name="storm",
        base="storm",
        key_order=("region", "severity"),
        fields={field.name: field for field in fields},
    )
    return NotificationsConfiguration(event_types={storm.name: storm}, strict=True)
