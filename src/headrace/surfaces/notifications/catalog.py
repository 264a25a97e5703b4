"""Event types as a server has them: which there are, what is told of them, how logs behave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.core.cap import Cap
from headrace.core.config import Durability, LogConfig
from headrace.core.owners import NOTIFICATIONS
from headrace.core.state import State
from headrace.surfaces.notifications.configuration import MemoryRules, NotificationsConfiguration
from headrace.surfaces.notifications.errors import UNKNOWN_EVENT_TYPE, invalid
from headrace.surfaces.notifications.indexing import format_search
from headrace.surfaces.notifications.names import PREFIX
from headrace.surfaces.notifications.schema import EventType, IdentifierField, parse_event_type

_HIDDEN = frozenset(("words",))
"""What a handler keeps for itself."""


class EventTypeCatalog:
    """The event types of one server."""

    def __init__(self, configuration: NotificationsConfiguration, types_max: int) -> None:
        self._types = configuration.event_types
        self._strict = configuration.strict
        self._memory = configuration.memory
        self._cap = Cap("max_types", types_max)
        self._bases = {each.base.lower(): each.name for each in self._types.values()}

    @property
    def types(self) -> Mapping[str, EventType]:
        """Those of the configuration, by name."""
        return self._types

    def find(self, name: str) -> EventType | None:
        """The event type of this name, None for one without a schema; refuses others."""
        known = self._types.get(name)
        if known is None:
            if self._strict:
                raise invalid(
                    UNKNOWN_EVENT_TYPE,
                    f"unknown event type {name[:200]!r}",
                    configured_event_types=sorted(self._types),
                )
            parse_event_type(name)
        return known

    def resolve(self, name: str) -> str:
        """The event type that is called so, by its name or by its base in any case."""
        if name in self._types:
            return name
        return self._bases.get(name.lower(), name)

    # --- logs -------------------------------------------------------------------------------------

    def check_room(self, state: State, event_type: EventType | None) -> None:
        """Refuse one more type without a schema when there are too many."""
        if event_type is None:
            self._cap.check(state.count_of(NOTIFICATIONS))

    def log_config(self, event_type: EventType | None) -> LogConfig:
        """How the log of a type behaves."""
        if self._memory is not None:
            return _in_memory(self._memory)
        policy = event_type.storage if event_type is not None else None
        if policy is None:
            return LogConfig(durability=Durability.FSYNC)
        return LogConfig(
            durability=Durability.FSYNC,
            ttl_ms=policy.ttl_ms or 0,
            cap_records=policy.records_max or 0,
            cap_bytes=policy.bytes_max or 0,
            keep_per_key=1 if policy.newest_only else 0,
        )

    def search_config(self, event_type: EventType | None) -> bytes | None:
        """How the log of a type is searched; None where nothing of it is ever sealed, or known."""
        if event_type is None or self._memory is not None:
            return None
        return format_search(event_type)

    def search_configs(self, state: State) -> dict[str, bytes]:
        """How logs that are there are searched from now on, by name."""
        configs = {}
        for name in self.log_names(state):
            search = self.search_config(self._types.get(name.removeprefix(PREFIX)))
            if search is not None:
                configs[name] = search
        return configs

    def log_configs(self, state: State) -> dict[str, LogConfig]:
        """How logs that are there must behave from now on, by name; those of types that are gone
        stay as they are.
        """
        configs = {}
        for name in self.log_names(state):
            event_type = self._types.get(name.removeprefix(PREFIX))
            if event_type is not None or not self._strict:
                configs[name] = self.log_config(event_type)
        return configs

    def log_names(self, state: State) -> list[str]:
        """All logs there are."""
        return list(state.names("", PREFIX, NOTIFICATIONS))

    # --- what is told of them ---------------------------------------------------------------------

    def describe_all(self) -> dict[str, Any]:
        """What is public of all types."""
        return {name: self.describe(each) for name, each in sorted(self._types.items())}

    def describe(self, event_type: EventType) -> dict[str, Any]:
        """What is public of a type: its payload and its identifier."""
        fields = event_type.fields.items()
        return {
            "payload": {"required": event_type.payload_required},
            "identifier": {name: _describe_field(field) for name, field in fields},
        }


def _in_memory(rules: MemoryRules) -> LogConfig:
    return LogConfig(
        durability=Durability.EPHEMERAL,
        keep_per_key=rules.per_subject_max,
        keys_max=rules.subjects_max,
    )


def _describe_field(field: IdentifierField) -> dict[str, Any]:
    handler = msgspec.structs.asdict(field.handler)
    rules = {key: value for key, value in handler.items() if value is not None}
    shown = {key: value for key, value in rules.items() if key not in _HIDDEN}
    said = {"type": field.handler.TYPE, **shown, "required": field.required}
    return said if field.description is None else said | {"description": field.description}
