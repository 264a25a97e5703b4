"""What admins do: delete a notification, empty an event type, empty all of them."""

from __future__ import annotations

import msgspec

from headrace.core.errors import Refused
from headrace.core.limits import COMMAND_BYTES_MAX
from headrace.core.owners import NOTIFICATIONS
from headrace.surfaces.notifications.authentication import Authentication
from headrace.surfaces.notifications.catalog import EventTypeCatalog
from headrace.surfaces.notifications.errors import encode_admin
from headrace.surfaces.notifications.names import PREFIX, log_of, parse_id
from headrace.surfaces.notifications.wire import WipeRequest
from headrace.web.answers import Answer, json_answer
from headrace.web.calls import Call, decode

_wipe = msgspec.json.Decoder(WipeRequest)


class AdminRoutes:
    """The handlers for admins. Sequence numbers are never used again."""

    def __init__(self, catalog: EventTypeCatalog, authentication: Authentication) -> None:
        self._catalog = catalog
        self._authentication = authentication

    async def delete(self, call: Call) -> Answer:
        self._authentication.require_admin(call.principal)
        id = call.param("id")
        try:
            name, seq = parse_id(id)
        except Refused as refused:
            return _answer(call, 400, refused.message, id)
        log = log_of(self._catalog.resolve(name))
        engine = call.engine
        if log not in engine.state.by_name:
            return _answer(call, 404, f"there is no notification {id}", id)
        if not await engine.deleter.delete_seq(log, seq, owner=NOTIFICATIONS):
            return _answer(call, 404, f"there is no notification {id}", id)
        return _answer(call, 200, f"notification {id} is deleted", id)

    async def wipe_one(self, call: Call) -> Answer:
        self._authentication.require_admin(call.principal)
        body = await call.raw_body(COMMAND_BYTES_MAX)
        name = decode(_wipe, body).stream_name
        log = self._find(call, name)
        if log is None:
            return _answer(call, 404, f"there is no stream {name[:200]!r}")
        await self._wipe(call, log)
        return _answer(call, 200, f"stream {name} is empty")

    async def wipe_all(self, call: Call) -> Answer:
        self._authentication.require_admin(call.principal)
        for log in self._catalog.log_names(call.engine.state):
            await self._wipe(call, log)
        return _answer(call, 200, "all streams are empty")

    def _find(self, call: Call, name: str) -> str | None:
        """The log of a stream; None when there is neither a type nor a log of this name."""
        event_type = self._catalog.resolve(name)
        logs = call.engine.state.by_name
        if event_type in self._catalog.types or log_of(event_type) in logs:
            return log_of(event_type)
        wanted = log_of(name).lower()
        names = self._catalog.log_names(call.engine.state)
        return next((each for each in names if each.lower() == wanted), None)

    async def _wipe(self, call: Call, log: str) -> None:
        if log in call.engine.state.by_name:
            assert log.startswith(PREFIX)
            await call.engine.deleter.delete(log, None, None, owner=NOTIFICATIONS)


def _answer(call: Call, status: int, message: str, id: str | None = None) -> Answer:
    return json_answer(encode_admin(status == 200, message, call.req.id, id), status)
