"""How a stream of state tells who waits for changes, with every default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
MissingBefore = Literal["coarse", "skipBefore", "error"]


class _Table(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Names as on the wire; what is unknown is refused."""


class Memory(_Table, frozen=True, kw_only=True):
    """Of how touches are remembered."""

    bucket_ms: Annotated[int, msgspec.Meta(ge=1, le=60_000)] = 100
    filter_pow2: Annotated[int, msgspec.Meta(ge=1, le=30)] = 22
    """So many keys are remembered, as a power of two, or as many as the server allows."""
    k: Annotated[int, msgspec.Meta(ge=1, le=16)] = 4
    pending_max_keys: Positive = 100_000
    key_index_max_keys: Positive = 32
    hot_key_ttl_ms: Positive = 10_000
    hot_template_ttl_ms: Positive = 10_000
    hot_max_keys: Positive = 1_000_000
    hot_max_templates: Positive = 4_096


class TemplateLimits(_Table, frozen=True, kw_only=True):
    """How many templates there may be, and for how long unless they are used."""

    default_inactivity_ttl_ms: Positive = 3_600_000
    last_seen_persist_interval_ms: Positive = 300_000
    gc_interval_ms: Positive = 60_000
    max_active_templates_per_entity: Positive = 256
    max_active_templates_per_stream: Positive = 2_048
    activation_rate_limit_per_minute: Count = 100


class TouchConfig(_Table, frozen=True, kw_only=True):
    """The `touch` table of a profile."""

    enabled: bool = False
    coarse_interval_ms: Positive = 100
    touch_coalesce_window_ms: Positive = 100
    on_missing_before: MissingBefore = "coarse"
    """What an update without the values before it touches: its templates as a whole, only what the
    values behind it do, or nothing, since it is refused."""
    lag_degrade_fine_touches_at_source_offsets: Count = 5_000
    lag_recover_fine_touches_at_source_offsets: Count = 1_000
    fine_touch_budget_per_batch: Count = 2_000
    fine_tokens_per_second: Count = 200_000
    fine_burst_tokens: Count = 400_000
    lag_reserved_fine_touch_budget_per_batch: Count = 200
    memory: Memory = Memory()
    templates: TemplateLimits = TemplateLimits()

    @property
    def window_ms(self) -> int:
        """Touches this close to each other wake only once."""
        return max(self.memory.bucket_ms, self.touch_coalesce_window_ms)

    def without_effect(self) -> Iterator[tuple[str, int]]:
        """Settings of the protocol that say nothing here, and what they are told to be.

        Keys are remembered in a map, so that there is no filter to tune and no keys that are hot;
        templates are not kept on disk.
        """
        for table, names in _WITHOUT_EFFECT.items():
            given, default = getattr(self, table), getattr(_DEFAULT, table)
            for name in names:
                if getattr(given, name) != getattr(default, name):
                    told = msgspec.structs.fields(given)
                    wire = next(field.encode_name for field in told if field.name == name)
                    yield f"{table}.{wire}", getattr(default, name)


_DEFAULT = TouchConfig()
_WITHOUT_EFFECT = {
    "memory": (
        "k",
        "key_index_max_keys",
        "hot_key_ttl_ms",
        "hot_template_ttl_ms",
        "hot_max_keys",
        "hot_max_templates",
    ),
    "templates": ("last_seen_persist_interval_ms",),
}
