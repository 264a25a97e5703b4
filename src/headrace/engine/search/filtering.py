"""Filtered reads: pages with only the records that a query finds."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from headrace.core.errors import Code, Refused
from headrace.core.read import Page
from headrace.core.record import Block
from headrace.core.selector import ColumnSelector
from headrace.engine.open_log import OpenLog
from headrace.engine.search.scope import ScanBatch
from headrace.engine.search.search_configs import searchable
from headrace.engine.search.sieve import PageCriteria, read_page
from headrace.search.config import Search
from headrace.search.evaluate import Matcher
from headrace.search.query import Query, Rules, parse_query

if TYPE_CHECKING:
    from headrace.engine.engine import Engine


def parse_filter(live: OpenLog, text: str) -> Query:
    """The query of a filter; refuses what cannot be asked of this log."""
    if live.log.search is None:
        raise Refused(Code.INVALID, "filter needs a schema with search fields")
    return parse_query(text, searchable(live.log).search, Rules.FILTER)


class Filter:
    """Reads the records of a log that a query finds."""

    def __init__(self, engine: Engine, text: str) -> None:
        self._engine = engine
        self._text = text
        self.plan: str | None = None
        """The hash of the plan by which it found what the last page has."""

    async def read(
        self,
        live: OpenLog,
        after: int,
        *,
        records_max: int,
        bytes_max: int,
        selector: ColumnSelector,
        epoch: int | None = None,
    ) -> Page:
        """One page of records after `after`."""

        def ask() -> PageCriteria:
            query, asked = parse_filter(live, self._text), searchable(live.log)
            self.plan = asked.plan.hash
            test = _QueryTest(query, asked.search, selector.key)
            return PageCriteria(test, asked.search, self.plan, query, selector.key)

        return await read_page(
            self._engine,
            live,
            after,
            ask,
            records_max=records_max,
            bytes_max=bytes_max,
            epoch=epoch,
        )


class _QueryTest:
    """Passes records that match a query and belong to a key, if there is one."""

    def __init__(self, query: Query, search: Search, key: str | None) -> None:
        self._matcher = Matcher(query, search)
        self._key = key

    def examine(self, batch: ScanBatch) -> Iterator[tuple[Block, Container[int]]]:
        good = iter(self._matcher.match(batch.raws))
        for block in batch.blocks:
            matching = [at for at in range(block.count) if next(good)]
            yield block, set(self.confirm(block, matching))

    def confirm(self, block: Block, picks: list[int]) -> list[int]:
        key, keys = self._key, block.keys
        if key is None:
            return picks
        return [] if keys is None else [at for at in picks if keys[at] == key]
