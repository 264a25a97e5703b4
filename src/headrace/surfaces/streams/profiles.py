"""Profiles over HTTP: what a stream is for."""

from __future__ import annotations

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.json_values import refuse_others
from headrace.core.limits import COMMAND_BYTES_MAX
from headrace.profiles.catalogue import load_profile, parse_profile
from headrace.web.answers import Answer, json_answer
from headrace.web.calls import Call, decode
from headrace.web.credentials import Scope

API = "durable.streams/profile/v1"
_bodies = msgspec.json.Decoder(dict[str, object])


async def get(call: Call) -> Answer:
    call.principal.require(Scope.READ, call.name)
    streams = call.engine.streams
    stream = streams.find(call.name).log.stream
    answer = _show(None if stream is None else stream.profile)
    await streams.settle(call.name)
    return answer


async def post(call: Call) -> Answer:
    call.principal.require(Scope.ADMIN, call.name)
    body = decode(_bodies, await call.raw_body(COMMAND_BYTES_MAX))
    refuse_others(body, ("apiVersion", "profile"), "profileUpdate")
    if body.get("apiVersion", API) != API:
        raise Refused(Code.INVALID, f"apiVersion must be {API}")
    profile = parse_profile(body.get("profile"))
    engine = call.engine
    live = engine.streams.own(call.name)
    await engine.ingest.install_profile(live, profile)
    return _show(profile.config)


def _show(kept: bytes | None) -> Answer:
    body = b'{"apiVersion":"%b","profile":%b}' % (API.encode(), load_profile(kept).config)
    return json_answer(body)
