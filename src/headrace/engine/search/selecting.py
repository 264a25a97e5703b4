"""Selected reads: pages of what a selector picks, however little of the past that is.

A surface that has its logs indexed says how a query is made of a selector; builds then name the
records that are worth a look. What they name is verified by the selector itself.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import TYPE_CHECKING

from headrace.core.read import Page
from headrace.core.record import Block
from headrace.core.selector import Selector
from headrace.engine.open_log import OpenLog
from headrace.engine.search.scope import ScanBatch
from headrace.engine.search.search_configs import searchable
from headrace.engine.search.sieve import Candidates, PageCriteria, read_page
from headrace.search.config import Search
from headrace.search.query import Query

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

MakeQuery = Callable[[Search], Query | None]
"""A selector as a query: every record that it picks matches. None, if there is no such query."""


class SelectedReads:
    """Reads what one selector picks of one log, page after page."""

    def __init__(
        self,
        engine: Engine,
        live: OpenLog,
        selector: Selector,
        make_query: MakeQuery,
        key: str | None = None,
    ) -> None:
        """`key`: what all the records belong to, if that is known."""
        self._engine = engine
        self._live = live
        self._selector = selector
        self._make_query = make_query
        self._key = key
        self._candidates = Candidates()

    async def read(self, after: int, *, upto: int, records_max: int, bytes_max: int) -> Page:
        """One page of records after `after`, not beyond `upto`.

        It looks at a bounded number of bytes for a bounded time, off the loop; then the page ends,
        perhaps without a record.
        """
        return await read_page(
            self._engine,
            self._live,
            after,
            self._ask,
            records_max=records_max,
            bytes_max=bytes_max,
            upto=upto,
            candidates=self._candidates,
        )

    def _ask(self) -> PageCriteria:
        log = self._live.log
        test = _SelectorTest(self._selector.bind(log.config))
        if log.search is not None:
            asked = searchable(log)
            query = self._make_query(asked.search)
            if query is not None:
                return PageCriteria(test, asked.search, asked.plan.hash, query, self._key)
        return PageCriteria(test, key=self._key)


class _SelectorTest:
    """Passes what a selector picks."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector

    def examine(self, batch: ScanBatch) -> Iterator[tuple[Block, Container[int]]]:
        for block in batch.blocks:
            yield block, set(self._selector.pick(block, range(block.count)))

    def confirm(self, block: Block, picks: list[int]) -> Container[int]:
        return set(self._selector.pick(block, picks))
