"""A reader that catches up on a whole log, page by page over one connection."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from headrace_bench.errors import BenchError
from headrace_bench.jobs import CatchUp, Http, Offsets, Reading, Resp
from headrace_bench.link import connect
from headrace_bench.replies import HttpPage, Page, RespPage, StreamPage, format_excerpt
from headrace_bench.wire import format_diff, format_from_offset, format_xrange

RECEIVE_BYTES = 256 * 1024

FormatPage = Callable[[str, str, int], bytes]


def catch_up(job: CatchUp) -> Reading:
    """Take every page whole and look only at its cursor."""
    format_page, page = make_page(job.speaks)
    cursor, pages, size_bytes = "", 0, 0
    with connect(job.port) as link:
        start = perf_counter()
        while True:
            page.clear()
            link.sendall(format_page(job.log, cursor, job.page_records))
            while not page.feed(chunk := link.recv(RECEIVE_BYTES)):
                if not chunk:
                    raise BenchError(f"the server closed the connection; {format_excerpt(page)}")
            if not page.succeeded():
                raise BenchError(f"a page failed; {format_excerpt(page)}")
            following = page.cursor()
            # Where a page does not say that it is the last, the end costs one more, empty page.
            if following in ("", cursor):
                break
            cursor = following
            pages += 1
            size_bytes += page.body_bytes
            if page.is_last():
                break
        elapsed_s = perf_counter() - start
    return Reading(pages=pages, size_bytes=size_bytes, elapsed_s=elapsed_s, cursor=cursor)


def make_page(speaks: Http | Resp | Offsets) -> tuple[FormatPage, Page]:
    match speaks:
        case Http():
            return format_diff, HttpPage()
        case Resp():
            return format_xrange, RespPage()
        case Offsets():
            return lambda path, after, _: format_from_offset(path, after), StreamPage()
