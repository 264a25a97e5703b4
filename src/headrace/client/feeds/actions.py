"""What a session wants done, by whoever has sockets and a clock; and what comes of it."""

from __future__ import annotations

import msgspec

from headrace.client.feeds.items import FeedEvent


class PageWanted(msgspec.Struct, frozen=True):
    """Ask for events behind a number; with `wait_s`, wait for them."""

    number: int
    after: int
    wait_s: int


class PageCancelled(msgspec.Struct, frozen=True):
    """Give up that request; nothing more is heard of it."""

    number: int


class HintsWanted(msgspec.Struct, frozen=True):
    """Connect and subscribe."""

    number: int


class HintsCancelled(msgspec.Struct, frozen=True):
    """Give up those hints; nothing more is heard of them."""

    number: int


class BeatWanted(msgspec.Struct, frozen=True):
    """Tell the server of the hints that we live."""

    number: int


FeedAction = PageWanted | PageCancelled | HintsWanted | HintsCancelled | BeatWanted


class PageFetched(msgspec.Struct, frozen=True):
    """The server answered with a page."""

    events: tuple[FeedEvent, ...]
    cursor: int
    has_more: bool


class PageRefused(msgspec.Struct, frozen=True):
    """The server answered with something else, or could not be reached: then the status is 0."""

    status: int
    code: str = ""
    message: str = ""
    earliest: int = 0
    retry_after_s: float = 0.0

    @property
    def problem(self) -> str:
        """In one line, for people."""
        status = f"{self.status} {self.code}".strip() if self.status else ""
        return ": ".join(part for part in (status, self.message) if part)
