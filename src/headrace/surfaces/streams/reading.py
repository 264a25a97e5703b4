"""Reading a stream: a page at once, or the first that comes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from random import randrange

import msgspec

from headrace.core import limits
from headrace.core.errors import Code, Refused
from headrace.core.limits import STREAM_PAGE_BYTES, STREAM_PAGE_RECORDS
from headrace.core.read import Page
from headrace.core.selector import ColumnSelector
from headrace.core.stream_state import JSON, media_type
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.engine.search.filtering import Filter, parse_filter
from headrace.surfaces.streams import fields
from headrace.surfaces.streams.dialect import Dialect
from headrace.surfaces.streams.events import (
    CURSOR_JITTER_S,
    format_tag,
    next_cursor,
    pieces_array,
    pieces_raw,
)
from headrace.surfaces.streams.offsets import Mark, Offset, parse_offset
from headrace.surfaces.streams.positions import (
    check_gap,
    content_type_of,
    format_position,
    resolve,
)
from headrace.web.answers import Answer, Headers
from headrace.web.calls import Call
from headrace.web.entity_tags import tag_matches
from headrace.web.request import split_query

LIVE_MODES = (None, "true", "long-poll", "sse")
_SANDBOX = ("content-security-policy", "sandbox")
_INERT = re.compile(
    r"application/(?:json|x-ndjson|octet-stream|pdf)|text/(?:plain|csv)|(?:image|audio|video|font)/[^+]+"
)
"""What a browser shows or keeps, but never runs."""


class Asked(msgspec.Struct, frozen=True):
    """What a reader wants."""

    after: int
    offset: Offset | Mark
    """How it said where to start."""
    selector: ColumnSelector
    format: str
    mode: str | None
    wait_ms: int
    cursor: str | None
    filter: str | None = None


def parse_query(text: str) -> dict[str, str]:
    """The parameters of a read; the one that says where must not be there twice."""
    query: dict[str, str] = {}
    for name, value in split_query(text) if text else ():
        if name == "offset" and name in query:
            raise Refused(Code.INVALID, "offset is given twice")
        query[name] = value
    return query


async def parse_read(
    engine: Engine,
    live: OpenLog,
    query: Mapping[str, str],
    key: str | None,
    dialect: Dialect,
    wait_ms_max: int,
) -> Asked:
    mode = query.get("live")
    if mode not in LIVE_MODES:
        raise Refused(Code.INVALID, "live is true, long-poll or sse")
    filter = query.get("filter")
    if filter is not None:
        _check_filter(live, filter, mode)
    if mode is not None and "offset" not in query and "since" not in query:
        raise Refused(Code.INVALID, "a live read needs an offset")
    format = _format(live, query.get("format"), dialect)
    timeout = query.get("timeout")
    wait_ms = wait_ms_max if timeout is None else fields.parse_timeout_ms(timeout)
    text = query.get("offset")
    offset = Mark.START if text is None else parse_offset(text)
    if text is None and "since" in query:
        after = await engine.reader.seek(live, fields.parse_time_ns(query["since"], "since"))
    else:
        after = resolve(live, offset)
    selector = ColumnSelector(key=query.get("key") if key is None else key)
    return Asked(
        after,
        offset,
        selector,
        format,
        mode,
        min(wait_ms, wait_ms_max),
        query.get("cursor"),
        filter,
    )


def _check_filter(live: OpenLog, text: str, mode: str | None) -> None:
    if mode == "sse":
        raise Refused(Code.INVALID, "filter is not supported with live=sse")
    if media_type(content_type_of(live.log)) != JSON:
        raise Refused(Code.INVALID, "filter is only supported on application/json streams")
    parse_filter(live, text)


def _format(live: OpenLog, asked: str | None, dialect: Dialect) -> str:
    content_type = content_type_of(live.log)
    is_json = media_type(content_type) == JSON
    if asked not in (None, "json", "raw"):
        raise Refused(Code.INVALID, "format is json or raw")
    if asked == "json" and not is_json:
        raise Refused(Code.INVALID, f"the stream holds {content_type}, not JSON")
    if asked is None:
        return "json" if is_json and dialect.json_by_default else "raw"
    return asked


async def catch_up(
    engine: Engine, live: OpenLog, asked: Asked, dialect: Dialect, known_tags: str | None
) -> Answer:
    """One page of what there is."""
    filter = None if asked.filter is None else Filter(engine, asked.filter)
    read = engine.reader.read if filter is None else filter.read
    page = await read(
        live,
        asked.after,
        records_max=STREAM_PAGE_RECORDS,
        bytes_max=STREAM_PAGE_BYTES,
        selector=asked.selector,
    )
    check_gap(live, page, asked.offset)
    version = engine.ingest.version(live.log)
    page = await engine.ingest.promote(live.log, page)
    closed = page.caught_up and engine.streams.is_closed(live)
    headers = _page_headers(live, page, closed=closed)
    if asked.offset is Mark.NOW:
        headers.append(("cache-control", "no-store"))
    else:
        tag = _tag(version, live, page, asked, filter, closed=closed)
        settled = _is_settled(live, page, asked, closed=closed)
        headers += tag
        headers.append(("cache-control", dialect.settled if settled else dialect.open))
        if tag and tag_matches(known_tags, tag[0][1]):
            return Answer(304, headers)
    return _with_body(live, page, asked, headers)


async def long_poll(call: Call, live: OpenLog, asked: Asked, dialect: Dialect) -> Answer:
    """A page, or nothing when nothing comes for a while, or the caller hung up."""
    engine = call.engine
    filter = None if asked.filter is None else Filter(engine, asked.filter)
    with call.unless_gone(live.wake):
        page = await engine.reader.read_or_wait(
            live,
            asked.after,
            wait_ms=asked.wait_ms,
            over=lambda live: call.gone or engine.streams.is_over(live),
            read=None if filter is None else filter.read,
            records_max=STREAM_PAGE_RECORDS,
            bytes_max=STREAM_PAGE_BYTES,
            selector=asked.selector,
        )
    engine.streams.expiry.use(live)  # all the while
    await engine.settle(live)
    engine.streams.find(live.log.name)
    check_gap(live, page, asked.offset)
    version = engine.ingest.version(live.log)
    page = await engine.ingest.promote(live.log, page)
    closed = page.caught_up and engine.streams.is_closed(live)
    headers = _page_headers(live, page, closed=closed)
    if not closed:
        headers.append(("stream-cursor", make_cursor(engine, asked.cursor)))
    if not page.slices:
        return Answer(204, [*headers, ("cache-control", "no-store")])
    headers += _tag(version, live, page, asked, filter, closed=closed)
    headers.append(("cache-control", dialect.arrived))
    return _with_body(live, page, asked, headers)


def make_cursor(engine: Engine, sent: str | None) -> str:
    """The cursor of an answer to a live reader who sent this one."""
    return next_cursor(sent, engine.clock.now_ms(), randrange(1, CURSOR_JITTER_S + 1))


def _page_headers(live: OpenLog, page: Page, *, closed: bool) -> Headers:
    headers: Headers = [
        ("stream-next-offset", format_position(live.log, page.next)),
        ("stream-end-offset", format_position(live.log, page.head)),
    ]
    if page.caught_up:
        headers.append(("stream-up-to-date", "true"))
    if closed:
        headers.append(("stream-closed", "true"))
    if page.limited:
        headers += [
            ("stream-filter-scan-limit-reached", "true"),
            ("stream-filter-scan-limit-bytes", str(limits.FILTER_SCANNED_BYTES_MAX)),
            ("stream-filter-scanned-bytes", str(page.scanned_bytes)),
        ]
    return headers


def _tag(
    version: int, live: OpenLog, page: Page, asked: Asked, filter: Filter | None, *, closed: bool
) -> Headers:
    """The tag of a page of a stream. A topic has none: some of its records may be deleted."""
    if live.log.stream is None:
        return []
    start, next = format_position(live.log, asked.after), format_position(live.log, page.next)
    tag = format_tag(
        start,
        next,
        asked.selector.key,
        asked.format,
        filter=asked.filter,
        plan=None if filter is None else filter.plan,
        closed=closed,
        version=version,
    )
    return [("etag", tag)]


def _is_settled(live: OpenLog, page: Page, asked: Asked, *, closed: bool) -> bool:
    """Whether the same request brings the same page for ever.

    It must name its instance of the stream, the page must have been full or the stream closed, and
    nothing may expire or get another schema. What a filter finds depends on how the stream can be
    searched.
    """
    stream = live.log.stream
    lasting = stream is not None and stream.expires_at_ms is None and stream.registry is None
    fixed = isinstance(asked.offset, Offset) and asked.filter is None
    return lasting and fixed and (closed or not page.caught_up)


@lru_cache(maxsize=1024)
def _may_run(content_type: str) -> bool:
    """Whether a browser could take it for a page with scripts, which would have our origin."""
    return _INERT.fullmatch(media_type(content_type)) is None


def _with_body(live: OpenLog, page: Page, asked: Asked, headers: Headers) -> Answer:
    content_type = content_type_of(live.log)
    headers.append(("content-type", content_type))
    if _may_run(content_type):
        headers.append(_SANDBOX)
    pieces = pieces_array(page) if asked.format == "json" else pieces_raw(page)
    return Answer(200, headers, pieces)
