"""The endpoints of routers: parse, authorise, call the engine, encode."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from headrace.core.cursor import encode_cursor
from headrace.core.errors import Code, Refused
from headrace.core.inbound_route import Rule
from headrace.core.match import format_match, parse_match
from headrace.core.owners import TOPICS
from headrace.engine.routers.control import RouterPlan, check_ends
from headrace.engine.routers.steps import Router
from headrace.surfaces.topics import wire
from headrace.surfaces.topics.names import parse_router, parse_topic
from headrace.web.answers import Reply
from headrace.web.calls import Call, decode, parse_listing
from headrace.web.credentials import NO_SCOPE, Scope

_put = msgspec.json.Decoder(wire.RouterRequest)


async def put(call: Call) -> Reply:
    name = _authorise(call, Scope.ADMIN)
    request = wire.checked(decode(_put, await call.command() or b"{}"))
    plan = _parse_plan(request)
    # Both may be created for the caller, and records will flow between them.
    call.principal.require(NO_SCOPE, plan.source, plan.dest)
    may_see, key = call.principal.may_see, call.principal.id
    created = await call.engine.routers.put(name, plan, TOPICS, may_see, key)
    rule = _rule(plan.source, plan.dest, plan.rule)
    reply = wire.RouterReply(router=name, created=created, **rule)
    return Reply([wire.open_object(reply)], 201 if created else 200)


async def get(call: Call) -> Reply:
    name = _authorise(call, Scope.READ)
    engine = call.engine
    await engine.routers.catch_up(engine.routers.get(name).dest)
    router = engine.routers.get(name)
    check_ends(router, call.principal.may_see)
    source, dest = router.source.log.name, router.dest.log.name
    inbound = router.inbound
    reply = wire.RouterStateReply(
        router=name,
        **_rule(source, dest, inbound.rule),
        forwarded_total=inbound.forwarded,
        cursor_seq=inbound.cursor,
        lag=max(0, router.source.visible - inbound.cursor),
    )
    await engine.settle_all(router.dest)
    return Reply([wire.open_object(reply)])


async def list_all(call: Call) -> Reply:
    call.principal.require(Scope.READ)
    req, engine = call.req, call.engine
    after, prefix, size = parse_listing(req)
    source, dest = req.get_param("source"), req.get_param("dest")
    may_see = call.principal.may_see

    def is_wanted(router: Router) -> bool:
        ends = router.source.log.name, router.dest.log.name
        asked = source in (None, ends[0]) and dest in (None, ends[1])
        return asked and all(map(may_see, (router.name, *ends)))

    found, more = engine.routers.page(after, prefix, size, is_wanted)
    await engine.routers.catch_up(*dict.fromkeys(router.dest for router in found))
    reply = wire.RouterListReply(
        routers=[_summary(router) for router in found if not router.ended],
        next_cursor=encode_cursor(found[-1].name) if more else UNSET,
    )
    await engine.settle_control()
    await engine.settle_all(*dict.fromkeys(router.dest for router in found))
    return Reply([wire.open_object(reply)])


async def delete(call: Call) -> Reply:
    name = _authorise(call, Scope.DELETE)
    deleted = await call.engine.routers.delete(name, call.principal.may_see)
    reply = wire.RouterDropReply(router=name, deleted=deleted)
    return Reply([wire.open_object(reply)])


def _authorise(call: Call, scope: Scope) -> str:
    """The router of the path, if the caller may do this with it."""
    name = parse_router(call.name)
    call.principal.require(scope, name)
    return name


def _parse_plan(request: wire.RouterRequest) -> RouterPlan:
    for field in ("source", "dest"):
        try:
            parse_topic(getattr(request, field))
        except Refused as refused:
            raise Refused(Code.INVALID, f"{field}: {refused.message}", field=field) from None
    rule = Rule(
        request.preserve_node,
        request.preserve_tag,
        None if request.filter is None else parse_match(request.filter),
        request.allow_cycle,
        request.guarantee == "exactly_once",
    )
    return RouterPlan(request.source, request.dest, rule, request.create_dest, request.from_seq)


def _guarantee(rule: Rule) -> str:
    return "exactly_once" if rule.exactly_once else "at_least_once"


def _rule(source: str, dest: str, rule: Rule) -> dict[str, Any]:
    return {
        "source": source,
        "dest": dest,
        "preserve_node": rule.keep_node,
        "preserve_tag": rule.keep_tag,
        "filter": None if rule.match is None else format_match(rule.match),
        "allow_cycle": rule.allow_cycle,
        "guarantee": _guarantee(rule),
    }


def _summary(router: Router) -> wire.RouterSummary:
    return wire.RouterSummary(
        router=router.name,
        source=router.source.log.name,
        dest=router.dest.log.name,
        guarantee=_guarantee(router.inbound.rule),
        forwarded_total=router.inbound.forwarded,
    )
