"""Requests for pages of events, and what replies say. Without I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from headrace.client.feeds.actions import PageFetched, PageRefused, PageWanted
from headrace.client.feeds.items import FeedEvent
from headrace.client.http_address import HttpAddress
from headrace.client.kept_connection import ClientReply
from headrace.core.digits import parse_digits
from headrace.core.limits import FEED_CLIENT_PAUSE_S_MAX

MEDIA_TYPE = "application/vnd.epistola.v1+json"
_VISIBLE = re.compile(r"[!-~]+\Z")


class FeedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which events of which tenant, and who asks."""

    server: HttpAddress
    tenant: str
    key: str | None = None
    resource_types: tuple[str, ...] = ()
    event_types: tuple[str, ...] = ()
    template_id: str | None = None
    environment_id: str | None = None
    limit: int = 500

    def __post_init__(self) -> None:
        if self.key is not None and _VISIBLE.match(self.key) is None:
            raise ValueError("a key is written in visible ASCII characters")

    @property
    def credential(self) -> Mapping[str, str]:
        """Who asks, as a header and as metadata."""
        return {} if self.key is None else {"authorization": f"Bearer {self.key}"}

    @property
    def headers(self) -> Mapping[str, str]:
        return {"accept": MEDIA_TYPE, **self.credential}

    def target(self, wanted: PageWanted) -> str:
        """What to ask for to get a page."""
        query: list[tuple[str, Any]] = [("after", wanted.after), ("limit", self.limit)]
        if wanted.wait_s:
            query.append(("timeout", wanted.wait_s))
        query += [("resourceType", each) for each in self.resource_types]
        query += [("eventType", each) for each in self.event_types]
        if self.template_id is not None:
            query.append(("templateId", self.template_id))
        if self.environment_id is not None:
            query.append(("environmentId", self.environment_id))
        path = f"{self.server.path}/tenants/{quote(self.tenant, safe='')}/events"
        return f"{path}?{urlencode(query)}"


def listed(values: Iterable[str]) -> tuple[str, ...]:
    """Values of a filter; ValueError for a text, whose letters nobody means."""
    if isinstance(values, str):
        raise ValueError(f"{values!r} is one value: give a list")
    return tuple(values)


class _Cursor(msgspec.Struct, rename="camel"):
    sequence_number: int
    has_more: bool


class _Page(msgspec.Struct):
    events: tuple[FeedEvent, ...]
    cursor: _Cursor


class _Error(msgspec.Struct, rename="camel"):
    code: str = ""
    message: str = ""
    earliest_available: int = 0


_page = msgspec.json.Decoder(_Page)
_error = msgspec.json.Decoder(_Error)


def parse_reply(reply: ClientReply) -> PageFetched | PageRefused:
    """What a reply says; one that cannot be read is as good as none."""
    if reply.status == 200:
        try:
            page = _page.decode(reply.body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            return PageRefused(0, message=f"the server answered with no page: {error}")
        return PageFetched(page.events, page.cursor.sequence_number, page.cursor.has_more)
    said = _Error()
    try:
        said = _error.decode(reply.body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass  # the status says enough
    pause = parse_digits(reply.headers.get("retry-after", ""), FEED_CLIENT_PAUSE_S_MAX)
    return PageRefused(reply.status, said.code, said.message, said.earliest_available, pause or 0)
