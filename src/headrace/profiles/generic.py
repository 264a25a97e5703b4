"""A stream like any other: it holds what is appended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from headrace.profiles.profile import Installed


class Generic:
    """No semantics at all."""

    kind: ClassVar[str] = "generic"
    config: ClassVar[bytes] = b'{"kind":"generic"}'

    def check(self, *, is_json: bool, empty: bool) -> None:
        pass

    def installs(self, name: str) -> Installed | None:
        return None

    def normalise(self, raws: Sequence[bytes], now_ms: int) -> Sequence[bytes]:
        return raws

    def key_of(self, raw: bytes) -> str | None:
        return None


GENERIC = Generic()
