"""A stream like any other: it holds what is appended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from headrace.profiles.configs import parse_config
from headrace.profiles.profile import Installed


class GenericConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str


class Generic:
    """No semantics at all."""

    kind: ClassVar[str] = "generic"
    config: ClassVar[bytes] = b'{"kind":"generic"}'
    touch: ClassVar[None] = None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Generic:
        parse_config(raw, GenericConfig)
        return GENERIC

    def check(self, *, is_json: bool, empty: bool) -> None:
        pass

    def installs(self) -> Installed | None:
        return None

    def normalise(self, raws: Sequence[bytes], now_ms: int) -> Sequence[bytes]:
        return raws

    def key_of(self, raw: bytes) -> str | None:
        return None


GENERIC = Generic()
