"""Templates: by which fields of an entity somebody looks at its records.

A template is active from when it is asked for until nobody has used it for its time. Only active
ones are looked at when something changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from headrace.core.limits import TEMPLATE_FIELDS_MAX, TEMPLATE_NAME_BYTES_MAX
from headrace.profiles.touchconfig import TemplateLimits
from headrace.profiles.touchkeys import ENCODINGS, id_of, table_key, template_id, template_key

_MINUTE_MS = 60_000
BLUR = 1 << 32
"""Added to the id of a template's key: touched when nobody knows which of its keys would be. No key
of a client has such an id."""

RATE_LIMITED = "rate_limited"
INVALID = "invalid"


class Template(msgspec.Struct, gc=False):
    """One that is active."""

    id: int
    entity: str
    fields: tuple[tuple[str, str], ...]
    """(name, encoding), by the bytes of their names."""
    ttl_ms: int
    expires_at_ms: int
    active_from: int
    """The generation of touches in which it became active: before, none of its keys was touched."""

    @property
    def table_id(self) -> int:
        return id_of(table_key(self.entity))

    @property
    def key_id(self) -> int:
        return id_of(template_key(self.id))

    @property
    def blur_id(self) -> int:
        return self.key_id | BLUR


class Wanted(msgspec.Struct, frozen=True):
    """A template as somebody asks for it."""

    id: int
    entity: str
    fields: tuple[tuple[str, str], ...]
    valid: bool


def parse_wanted(entity: str, fields: Sequence[tuple[str, str]]) -> Wanted:
    """A template that is asked for; it has an id even if there can be none like it."""
    ordered = tuple(sorted(fields, key=lambda field: field[0].encode()))
    names = [name for name, _ in ordered]
    valid = (
        1 <= len(names) <= TEMPLATE_FIELDS_MAX
        and len(set(names)) == len(names)
        and all(0 < len(text.encode()) <= TEMPLATE_NAME_BYTES_MAX for text in (entity, *names))
        and not any("\0" in text for text in (entity, *names))
        and all(encoding in ENCODINGS for _, encoding in ordered)
    )
    return Wanted(template_id(entity, names), entity, ordered, valid)


class Templates:
    """The active templates of one stream."""

    def __init__(self, limits: TemplateLimits) -> None:
        self._limits = limits
        self._active: dict[int, Template] = {}
        """Those used last at the end."""
        self._entities: dict[str, dict[int, Template]] = {}
        self._minute = self._activations = 0
        self.dropped: list[Template] = []
        """Those that had to make room; whoever looks at this empties it."""

    def __len__(self) -> int:
        return len(self._active)

    def of(self, entity: str) -> Collection[Template]:
        """Those that look at this entity."""
        found = self._entities.get(entity)
        return () if found is None else found.values()

    def get(self, id: int) -> Template | None:
        return self._active.get(id)

    def activate(
        self, wanted: Wanted, ttl_ms: int | None, generation: int, now_ms: int
    ) -> Template | str:
        """Make a template active, or keep it so; else, why not."""
        if not wanted.valid:
            return INVALID
        ttl_ms = ttl_ms or self._limits.default_inactivity_ttl_ms
        template = self._active.get(wanted.id)
        if template is not None:
            if template.fields != wanted.fields:
                return INVALID  # the same names in another encoding: their keys would be others
            template.ttl_ms = max(template.ttl_ms, ttl_ms)
            self.use(template, now_ms)
            return template
        if not self._admit(now_ms):
            return RATE_LIMITED
        self._make_room(wanted.entity)
        template = Template(
            wanted.id, wanted.entity, wanted.fields, ttl_ms, now_ms + ttl_ms, generation
        )
        self._active[template.id] = template
        self._entities.setdefault(template.entity, {})[template.id] = template
        return template

    def use(self, template: Template, now_ms: int, for_ms: int = 0) -> None:
        """Somebody relies on it now, and for so long."""
        until = now_ms + for_ms + template.ttl_ms
        template.expires_at_ms = max(template.expires_at_ms, until)
        self._active[template.id] = self._active.pop(template.id)
        siblings = self._entities[template.entity]
        siblings[template.id] = siblings.pop(template.id)

    def expire(self, now_ms: int) -> None:
        """Let go of those that nobody used for their time."""
        for template in [t for t in self._active.values() if t.expires_at_ms <= now_ms]:
            self._drop(template)

    def _admit(self, now_ms: int) -> bool:
        minute = now_ms // _MINUTE_MS
        if minute != self._minute:
            self._minute, self._activations = minute, 0
        self._activations += 1
        return self._activations <= self._limits.activation_rate_limit_per_minute

    def _make_room(self, entity: str) -> None:
        """The least recently used go first."""
        siblings = self._entities.get(entity, {})
        if len(siblings) >= self._limits.max_active_templates_per_entity:
            self._evict(next(iter(siblings.values())))
        if len(self._active) >= self._limits.max_active_templates_per_stream:
            self._evict(next(iter(self._active.values())))

    def _evict(self, template: Template) -> None:
        self._drop(template)
        self.dropped.append(template)

    def _drop(self, template: Template) -> None:
        del self._active[template.id]
        siblings = self._entities[template.entity]
        del siblings[template.id]
        if not siblings:
            del self._entities[template.entity]


def field_values(row: dict[str, Any], template: Template) -> list[tuple[object, str]]:
    """The values of a record that a template looks at, with their encodings."""
    return [(row.get(name), encoding) for name, encoding in template.fields]
