"""Which profiles there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from headrace.core.errors import Code, Refused
from headrace.profiles.evlog import Evlog
from headrace.profiles.generic import GENERIC, Generic
from headrace.profiles.metrics import Metrics
from headrace.profiles.profile import Profile
from headrace.profiles.state import StateProtocol

KINDS: dict[str, Callable[[Mapping[str, Any]], Profile]] = {
    Evlog.kind: Evlog.parse,
    Generic.kind: Generic.parse,
    Metrics.kind: Metrics.parse,
    StateProtocol.kind: StateProtocol.parse,
}
"""How the configuration of each kind is read."""


def parse_profile(config: object) -> Profile:
    """The profile that this configuration describes."""
    if not isinstance(config, dict):
        raise Refused(Code.INVALID, "profile must be an object")
    kind = config.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise Refused(Code.INVALID, f"profile.kind must be one of {', '.join(sorted(KINDS))}")
    return KINDS[kind](config)


def load_profile(kept: bytes | None) -> Profile:
    """The profile of a stream that keeps this configuration, or none."""
    return GENERIC if kept is None else parse_profile(msgspec.json.decode(kept))
