"""Who hears of changes of a log, without its writers waiting for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.engine.consumers.active_webhook import ActiveWebhook
from headrace.engine.open_log import OpenLog


class SourceWatch:
    """The webhooks of one log: a commit costs one call, however many there are; they are told of it
    when the current round of the loop is over, once for all that was committed in it.
    """

    __slots__ = ("_notice", "_queued", "_webhooks", "live")

    def __init__(self, live: OpenLog, notice: Callable[[ActiveWebhook], None]) -> None:
        self.live = live
        self._notice = notice
        self._webhooks: dict[ActiveWebhook, None] = {}
        self._queued = False

    def add(self, active: ActiveWebhook) -> None:
        if not self._webhooks:
            self.live.listen(self._changed)
        self._webhooks[active] = None

    def remove(self, active: ActiveWebhook) -> bool:
        """Tell it of nothing more; says whether nobody is left."""
        del self._webhooks[active]
        if not self._webhooks:
            self.live.unlisten(self._changed)
        return not self._webhooks

    def _changed(self) -> None:
        if not self._queued:
            self._queued = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._queued = False
        for active in tuple(self._webhooks):
            self._notice(active)
