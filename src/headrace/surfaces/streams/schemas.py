"""Schemas over HTTP: what the records of a stream are."""

from __future__ import annotations

import msgspec

from headrace.core.limits import SCHEMA_UPDATE_BYTES_MAX
from headrace.core.log import Log
from headrace.schemas.evolution import parse_update
from headrace.schemas.registry import decode_registry, view
from headrace.web.answers import Answer, json_answer
from headrace.web.calls import Call
from headrace.web.credentials import Scope


async def get(call: Call) -> Answer:
    call.principal.require(Scope.READ, call.name)
    streams = call.engine.streams
    answer = _show(streams.find(call.name).log)
    await streams.settle(call.name)
    return answer


async def post(call: Call) -> Answer:
    call.principal.require(Scope.ADMIN, call.name)
    raw, engine = await call.raw_body(SCHEMA_UPDATE_BYTES_MAX), call.engine
    update = await engine.pool.run(parse_update, raw, engine.ingest.proof_budget())
    live = engine.streams.own(call.name)
    await engine.ingest.install_schema(live, update)
    answer = _show(live.log)
    await engine.streams.settle(call.name)  # somebody may have changed it again since
    return answer


def _show(log: Log) -> Answer:
    registry = decode_registry(log.stream.registry if log.stream is not None else None)
    body = msgspec.json.encode(view(log.name, registry, log.search))
    return json_answer(body)
