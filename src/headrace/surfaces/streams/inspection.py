"""What can be seen of a stream beside its records: `_index_status` and `_details`.

Both have a tag, and whoever knows the tag can wait until something changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha1
from typing import Any, NamedTuple

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import RECORD_OVERHEAD_BYTES
from headrace.core.log import Log
from headrace.core.stream_rules import stream_of
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.engine.search.index_status import IndexProgress, PublishedManifest, Share, Survey
from headrace.engine.search.search_configs import searchable
from headrace.profiles.catalogue import load_profile
from headrace.profiles.profile import Profile
from headrace.schemas.registry import Registry, decode_registry, view
from headrace.search.config import FieldKind, Search
from headrace.search.values import format_date
from headrace.storage.object_store_stats import RequestCounts
from headrace.surfaces.streams import fields
from headrace.surfaces.streams.positions import content_type_of, epoch_of
from headrace.surfaces.streams.profiles import API as PROFILE_API
from headrace.surfaces.streams.reading import parse_query
from headrace.surfaces.streams.wire import summarise
from headrace.web.answers import Answer, Headers
from headrace.web.calls import Call
from headrace.web.credentials import Scope
from headrace.web.entity_tags import tag_matches

_WAIT_MS = 3000


class Description(NamedTuple):
    """A descriptor at one moment."""

    told: dict[str, Any]
    """What the tag covers."""
    beside: dict[str, Any]
    """What changes without the stream."""


Describe = Callable[[Engine, OpenLog], Awaitable[Description]]


class Inspector:
    """The handlers of one mount."""

    def __init__(self, wait_ms_max: int) -> None:
        self._wait_ms_max = wait_ms_max

    async def index_status(self, call: Call) -> Answer:
        """How far segments and companions have come."""
        return await self._show(call, "index_status", _describe_index_status)

    async def details(self, call: Call) -> Answer:
        """All there is to know of a stream."""
        return await self._show(call, "details", _describe_details)

    async def _show(self, call: Call, kind: str, describe: Describe) -> Answer:
        call.principal.require(Scope.READ, call.name)
        query = parse_query(call.req.query_string)
        wait_s = min(_parse_wait_ms(query), self._wait_ms_max) / 1000
        known = call.req.get_header("IF-NONE-MATCH")
        engine = call.engine
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            live = engine.streams.find(call.name)
            woken = engine.index_status.watch(live)
            try:
                described = await describe(engine, live)
                await engine.settle_all(live)
                body = msgspec.json.encode(described.told)
                tag = f'W/"{kind}:{sha1(body, usedforsecurity=False).hexdigest()}"'
                headers: Headers = [("etag", tag), ("cache-control", "no-cache")]
                if not tag_matches(known, tag):
                    headers.append(("content-type", "application/json"))
                    return Answer(200, headers, _joined(body, described.beside))
                if engine.draining or call.gone:
                    return Answer(304, headers)
                with call.unless_gone(live.wake):
                    async with asyncio.timeout_at(deadline):
                        await woken
            except TimeoutError:
                return Answer(304, headers)
            finally:
                engine.index_status.forget(live, woken)


def _parse_wait_ms(query: dict[str, str]) -> int:
    mode = query.get("live")
    if mode not in (None, "true", "long-poll"):
        raise Refused(Code.INVALID, "live is true or long-poll")
    text = query.get("timeout", query.get("timeout_ms"))
    wait_ms = _WAIT_MS if text is None else fields.parse_timeout_ms(text)
    return 0 if mode is None else wait_ms


def _joined(body: bytes, beside: dict[str, Any]) -> bytes:
    return body[:-1] + b"," + msgspec.json.encode(beside)[1:] if beside else body


async def _describe_index_status(engine: Engine, live: OpenLog) -> Description:
    survey = await engine.index_status.survey(live)
    published = await engine.index_status.published(live)
    return Description(_index_status(engine, live, survey, published), {})


async def _describe_details(engine: Engine, live: OpenLog) -> Description:
    stream_of(live.log)
    survey = await engine.index_status.survey(live)
    published = await engine.index_status.published(live)
    log = live.log
    told = {
        "stream": _summary(engine, live, survey),
        "profile": profile_of(log),
        "schema": view(log.name, _registry(log), log.search),
        "index_status": _index_status(engine, live, survey, published),
        "storage": _storage(live, survey, published),
    }
    return Description(told, {"object_store_requests": _requests(engine, live)})


def _profile(log: Log) -> Profile:
    return load_profile(None if log.stream is None else log.stream.profile)


def profile_of(log: Log) -> dict[str, Any]:
    config = msgspec.Raw(_profile(log).config)
    return {"apiVersion": PROFILE_API, "profile": config}


def _registry(log: Log) -> Registry:
    return decode_registry(None if log.stream is None else log.stream.registry)


# --- the stream -----------------------------------------------------------------------------------


def _summary(engine: Engine, live: OpenLog, survey: Survey) -> dict[str, Any]:
    log = live.log
    stream = stream_of(log)
    listed = summarise(engine, live)
    sealed_last = engine.index_status.sealed_last(live)
    total_bytes = log.size_bytes - RECORD_OVERHEAD_BYTES * log.count
    pending = str(log.head - sealed_last)
    pending_bytes = str(max(0, total_bytes - survey.own_payload_bytes))
    last_append = _time(log.last_ts_ms or None)
    return {
        "name": log.name,
        "content_type": content_type_of(log),
        "profile": listed.profile,
        "created_at": listed.created_at,
        "updated_at": last_append if log.head > log.inherited else listed.created_at,
        "expires_at": listed.expires_at,
        "ttl_seconds": None if stream.ttl_ms is None else stream.ttl_ms // 1000,
        "stream_seq": stream.seq,
        "closed": stream.closed,
        "epoch": epoch_of(log),
        "next_offset": str(log.head),
        "sealed_through": listed.sealed_through,
        "uploaded_through": listed.uploaded_through,
        "segment_count": len(survey.stretches),
        "uploaded_segment_count": len(survey.stretches),
        "pending_rows": pending,
        "pending_bytes": pending_bytes,
        "total_size_bytes": str(total_bytes),
        "wal_rows": pending,
        "wal_bytes": pending_bytes,
        "last_append_at": last_append,
        "last_segment_cut_at": _time(survey.cut_at_ms),
    }


def _time(ms: int | None) -> str | None:
    return None if ms is None else format_date(ms)


# --- how far companions have come -----------------------------------------------------------------


def _index_status(
    engine: Engine, live: OpenLog, survey: Survey, published: PublishedManifest
) -> dict[str, Any]:
    log = live.log
    search = None if log.search is None else searchable(log).search
    plans = engine.index_status.manifest.plans
    generation = plans.generation if plans is not None and search is not None else 0
    count = len(survey.stretches)
    planned = survey.by_plan()
    return {
        "stream": log.name,
        "profile": _profile(log).kind,
        "desired_index_plan_generation": generation,
        "segments": {"total_count": count, "uploaded_count": count},
        "manifest": {
            "generation": published.version,
            "uploaded_generation": published.version,
            "last_uploaded_at": _time(published.at_ms),
            "last_uploaded_etag": published.checksum,
            "last_uploaded_size_bytes": _text(published.size_bytes),
        },
        "routing_key_index": _keys(log, survey, survey.share("lex.hash")),
        "routing_key_lexicon": _keys(log, survey, survey.share("lex")),
        "exact_indexes": _exact_indexes(search, survey, planned),
        "bundled_companions": {
            "object_count": survey.builds,
            "bytes_at_rest": str(sum(survey.share(name).size_bytes for name in _BUNDLED.values())),
            "fully_indexed_uploaded_segments": planned.covered == planned.total,
        },
        "search_families": _families(search, survey, planned, generation),
    }


_BUNDLED = {"col": "typed", "fts": "text", "agg": "roll"}
"""What families of companions are called in answers, and in files."""


def _keys(log: Log, survey: Survey, share: Share) -> dict[str, Any]:
    indexed = survey.by_keys()
    return {
        "configured": _registry(log).routing_key is not None,
        **_counters(indexed, share, survey.keys_at_ms),
        "active_run_count": share.objects,
        "retired_run_count": 0,
    }


def _counters(indexed: IndexProgress, share: Share, at_ms: int | None) -> dict[str, Any]:
    return {
        "indexed_segment_count": indexed.covered,
        **_lag(indexed),
        "bytes_at_rest": str(share.size_bytes),
        "object_count": share.objects,
        "fully_indexed_uploaded_segments": indexed.covered == indexed.total,
        "updated_at": _time(at_ms),
    }


def _lag(indexed: IndexProgress) -> dict[str, Any]:
    return {
        "lag_segments": indexed.total - indexed.covered,
        "lag_ms": _text(indexed.lag_ms),
    }


def _exact_indexes(
    search: Search | None, survey: Survey, planned: IndexProgress
) -> list[dict[str, Any]]:
    exact = [field for field in search.fields.values() if field.exact] if search else []
    return [
        {
            "name": field.name,
            "kind": field.kind.value,
            **_counters(planned, survey.exact.get(field.name) or Share(), survey.plan_at_ms),
            "stale_configuration": planned.stale > 0,
        }
        for field in sorted(exact, key=lambda field: field.name)
    ]


def _families(
    search: Search | None, survey: Survey, planned: IndexProgress, generation: int
) -> list[dict[str, Any]]:
    if search is None:
        return []
    columns = [field.name for field in search.fields.values() if field.typed]
    texts = [field.name for field in search.fields.values() if field.kind is FieldKind.TEXT]
    wanted = {"col": columns, "fts": texts, "agg": list(search.rollups)}
    return [
        {
            "family": family,
            "fields": sorted(names),
            "plan_generation": generation,
            "covered_segment_count": planned.covered,
            "contiguous_covered_segment_count": planned.contiguous,
            **_lag(planned),
            "bytes_at_rest": str(survey.share(_BUNDLED[family]).size_bytes),
            "object_count": survey.share(_BUNDLED[family]).objects,
            "stale_segment_count": planned.stale,
            "fully_indexed_uploaded_segments": planned.covered == planned.total,
            "updated_at": _time(survey.plan_at_ms),
        }
        for family, names in wanted.items()
        if names
    ]


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


# --- where it is kept -----------------------------------------------------------------------------


def _storage(live: OpenLog, survey: Survey, published: PublishedManifest) -> dict[str, Any]:
    log = live.log
    indexes = sum(share.size_bytes for share in survey.shares.values())
    manifest = (published.size_bytes or 0) if survey.stretches else 0
    kept = None if log.stream is None else log.stream.registry
    registry = len(log.search or b"") + len(kept or b"")
    meta = manifest + registry
    pending = log.size_bytes - RECORD_OVERHEAD_BYTES * log.count - survey.own_payload_bytes
    pending = max(0, pending)
    return {
        "object_storage": {
            "total_bytes": str(survey.object_bytes + indexes + meta),
            "segments_bytes": str(survey.object_bytes),
            "indexes_bytes": str(indexes),
            "manifest_and_meta_bytes": str(meta),
            "manifest_bytes": str(manifest),
            "schema_registry_bytes": str(registry),
            "segment_object_count": len(survey.stretches),
            "routing_index_object_count": survey.share("lex.hash").objects,
            "routing_lexicon_object_count": survey.share("lex").objects,
            "exact_index_object_count": survey.share("exact").objects,
            "bundled_companion_object_count": survey.builds,
        },
        "local_storage": {
            "total_bytes": str(pending),
            "wal_retained_bytes": str(pending),
            "pending_tail_bytes": str(pending),
            **dict.fromkeys(_NOTHING, "0"),
        },
        "companion_families": {
            **{
                f"{name}_bytes": str(survey.share(family).size_bytes)
                for name, family in _BUNDLED.items()
            },
            "mblk_bytes": "0",
        },
    }


_NOTHING = (
    "pending_sealed_segment_bytes",
    "segment_cache_bytes",
    "routing_index_cache_bytes",
    "exact_index_cache_bytes",
    "lexicon_index_cache_bytes",
    "companion_cache_bytes",
    "sqlite_shared_total_bytes",
)
"""Caches are in memory here, and there is no SQLite."""


def _requests(engine: Engine, live: OpenLog) -> dict[str, Any]:
    counts = engine.index_status.requests(live)
    return {
        **_counted(sum(counts.values(), RequestCounts())),
        "by_artifact": [
            {"artifact": artifact.value, **_counted(counts[artifact])}
            for artifact in sorted(counts)
        ],
    }


def _counted(asked: RequestCounts) -> dict[str, str]:
    """Lists and removals are housekeeping for all streams at once."""
    return {
        "puts": str(asked.puts),
        "reads": str(asked.gets + asked.heads),
        "gets": str(asked.gets),
        "heads": str(asked.heads),
        "lists": "0",
        "deletes": "0",
    }
