"""Plans: how the records of a log can be searched, as its search configuration says.

The configuration is kept as it was sent. Upkeep publishes all of them for the pipeline, which makes
the companions that they ask for.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from headrace.core.entry import Plan
from headrace.core.errors import Code, Refused
from headrace.core.limits import SEARCH_BYTES_MAX
from headrace.core.log import Log, check_owner
from headrace.engine.kernel import Kernel
from headrace.engine.logs.lookup import LogLookup
from headrace.formats import index_plans
from headrace.schemas.registry import versions_of
from headrace.search.config import Search, parse_search

_PARSED_MAX = 1024
"""Configurations that are kept ready for use."""


def checked(raw: bytes) -> bytes:
    """A search configuration as it is kept; refuses what is none."""
    if len(raw) > SEARCH_BYTES_MAX:
        raise Refused(
            Code.INVALID,
            f"a search configuration has at most {SEARCH_BYTES_MAX} bytes",
            max=SEARCH_BYTES_MAX,
        )
    try:
        parse_search(msgspec.json.decode(raw))
    except RecursionError:
        raise Refused(Code.INVALID, "the JSON is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refused(Code.INVALID, f"a search configuration is a JSON object: {error}") from None
    return raw.strip()


class Searchable(msgspec.Struct, frozen=True):
    """A log's search configuration, ready for use."""

    search: Search
    plan: index_plans.IndexPlan
    """What the pipeline is asked to build for it."""


def searchable(log: Log) -> Searchable:
    """How a log can be searched; refuses one that cannot."""
    if log.search is None:
        raise Refused(Code.INVALID, "search is not configured for this stream")
    return Searchable(_parsed(log.search), plan_of(log))


def plan_of(log: Log) -> index_plans.IndexPlan:
    """The plan of a log that can be searched."""
    assert log.search is not None
    registry = None if log.stream is None else log.stream.registry
    return _planned(log.id, log.name, log.search, registry)


@lru_cache(maxsize=_PARSED_MAX)
def _planned(log: int, name: str, search: bytes, registry: bytes | None) -> index_plans.IndexPlan:
    return index_plans.plan(log, name, search, versions_of(registry))


@lru_cache(maxsize=_PARSED_MAX)
def _parsed(raw: bytes) -> Search:
    return parse_search(msgspec.json.decode(raw))


class SearchConfigs:
    """The search configurations of one engine's logs."""

    def __init__(self, kernel: Kernel, lookup: LogLookup) -> None:
        self._kernel = kernel
        self._lookup = lookup

    def get(self, name: str) -> bytes | None:
        """The configuration of a log that has one."""
        return self._lookup.live(name).log.search

    async def put(self, name: str, owner: str, raw: bytes) -> Log:
        """Let the log's records be searched like this."""
        log = self._owned(name, owner)
        await self._plan(log, checked(raw))
        return log

    async def clear(self, name: str, owner: str) -> bool:
        """Let the log's records not be searched any more; says whether they could be."""
        log = self._owned(name, owner)
        planned = log.search is not None
        await self._plan(log, None)
        return planned

    def _owned(self, name: str, owner: str) -> Log:
        log = self._lookup.live(name).log
        check_owner(log, owner)
        return log

    async def _plan(self, log: Log, search: bytes | None) -> None:
        journal = self._kernel.journal
        position = journal.tail
        if search != log.search:
            self._kernel.check_writable()
            position = self._kernel.commit([Plan(log.id, search)], sync=True)
        # Also when it was so already: who asked before may still wait for that to be durable.
        await journal.wait_synced(position)
