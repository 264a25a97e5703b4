"""Notifications of the past, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial

from headrace.core.limits import READ_BYTES_DEFAULT
from headrace.core.read import Page
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.engine.search.selecting import SelectedReads
from headrace.surfaces.notifications.identifiers import NotificationFilter
from headrace.surfaces.notifications.indexing import make_query
from headrace.surfaces.notifications.selector import NotificationSelector


async def read_pages(
    engine: Engine,
    live: OpenLog,
    wanted: NotificationFilter,
    after: int,
    upto: int,
    turn: asyncio.Lock,
    *,
    records_max: int,
) -> AsyncGenerator[Page]:
    """The wanted notifications behind `after`, up to `upto`, in order.

    Of sealed history, companions say which records are worth a look. What retention or a deletion
    took is passed over. Pages may be empty: whoever asks gets a turn after some time, or after so
    many bytes were looked at.
    """
    selector = NotificationSelector(wanted)
    read: Callable[..., Awaitable[Page]] = partial(engine.reader.read, live, selector=selector)
    if selector.conditions:  # else all of it is wanted, and there is nothing to look for
        query = partial(make_query, wanted)
        read = SelectedReads(engine, live, selector, query, selector.subject).read
    while after < upto:
        async with turn:  # one read begins at a time: what is in memory is read at once
            await asyncio.sleep(0)
        page = await read(after, upto=upto, records_max=records_max, bytes_max=READ_BYTES_DEFAULT)
        if page.gap is not None:
            after = page.gap.last  # a page that tells of a gap ends before it
            continue
        after = page.next
        yield page
