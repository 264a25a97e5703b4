"""The endpoints of search configurations: parse, authorise, call the engine, encode."""

from __future__ import annotations

import msgspec

from headrace.surfaces.topics import wire
from headrace.surfaces.topics.names import OWNER
from headrace.surfaces.topics.routes import authorise
from headrace.web.calls import Call, Reply
from headrace.web.credentials import Scope


class Search:
    """The handlers of one server."""

    async def put(self, call: Call) -> Reply:
        topic = authorise(call, Scope.ADMIN)
        log = await call.engine.plans.put(topic, OWNER, await call.body())
        return _reply(topic, log.search)

    async def get(self, call: Call) -> Reply:
        topic = authorise(call, Scope.READ)
        return _reply(topic, call.engine.plans.get(topic))

    async def delete(self, call: Call) -> Reply:
        topic = authorise(call, Scope.ADMIN)
        deleted = await call.engine.plans.clear(topic, OWNER)
        return Reply([wire.open_object(wire.SearchDropReply(topic=topic, deleted=deleted))])


def _reply(topic: str, search: bytes | None) -> Reply:
    kept = None if search is None else msgspec.Raw(search)
    return Reply([wire.open_object(wire.SearchReply(topic=topic, search=kept))])
