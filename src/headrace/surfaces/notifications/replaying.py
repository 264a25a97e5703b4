"""Notifications of the past, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator

from headrace.core.limits import READ_BYTES_DEFAULT
from headrace.core.read import Page
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.surfaces.notifications.identifiers import NotificationFilter
from headrace.surfaces.notifications.selector import NotificationSelector


async def read_pages(
    engine: Engine,
    live: OpenLog,
    wanted: NotificationFilter,
    after: int,
    upto: int,
    *,
    records_max: int,
) -> AsyncIterator[Page]:
    """The wanted notifications behind `after`, up to `upto`, in order.

    What retention or a deletion took is passed over. Pages may be empty: whoever asks gets a turn
    after so many records were looked at.
    """
    selector = NotificationSelector(wanted)
    while after < upto:
        page = await engine.reader.read(
            live,
            after,
            records_max=records_max,
            bytes_max=READ_BYTES_DEFAULT,
            selector=selector,
            upto=upto,
        )
        if page.gap is not None:
            after = page.gap.last  # a page that tells of a gap ends before it
            continue
        after = page.next
        yield page
