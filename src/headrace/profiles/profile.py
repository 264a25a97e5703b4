"""What every profile can do. The engine and the surfaces ask a profile, never what kind it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import msgspec

from headrace.profiles.touchconfig import TouchConfig


class Installed(msgspec.Struct, frozen=True):
    """What comes with a profile: the body of a schema update."""

    schema: bytes
    routing_key: bytes | None = None
    search: bytes | None = None


class Profile(Protocol):
    """The profile of one stream."""

    kind: ClassVar[str]

    @property
    def config(self) -> bytes:
        """What is kept of it and told of it: a JSON object with every default filled in."""

    @property
    def touch(self) -> TouchConfig | None:
        """How whoever waits for changes is told of them; None where nobody can."""

    def check(self, *, is_json: bool, empty: bool) -> None:
        """Refuse a stream that cannot have this profile."""

    def installs(self) -> Installed | None:
        """The schema that comes with it."""

    def normalise(self, raws: Sequence[bytes], now_ms: int) -> Sequence[bytes]:
        """Documents as the stream is to hold them; the same sequence when nothing changes.

        They are valid under the schema that comes with the profile.
        """

    def key_of(self, raw: bytes) -> str | None:
        """The routing key of a normalised document, where the schema does not say what it is."""
