"""Touches in operation: which streams have a notifier, and for how long."""

from __future__ import annotations

import asyncio
from heapq import nlargest
from typing import TYPE_CHECKING

from headrace.core.entry import Drop, SetProfile
from headrace.core.errors import Code, Refused
from headrace.core.limits import RANKED_TOP, TOUCH_IDLE_MS
from headrace.engine.kernel import Kernel
from headrace.engine.streams.ingest_rules import StreamIngest
from headrace.engine.streams.lifecycle import Streams
from headrace.engine.streams.touch_notifier import TouchNotifier

if TYPE_CHECKING:
    from headrace.engine.open_log import OpenLog

_SWEEP_S = 60.0


class TouchNotifiers:
    """The notifiers of one engine."""

    def __init__(self, kernel: Kernel, ingest: StreamIngest, streams: Streams) -> None:
        self._kernel = kernel
        self._ingest = ingest
        self._notifiers: dict[int, TouchNotifier] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        kernel.observe(lambda live, _: self.changed(live.log.id), SetProfile)
        kernel.observe(lambda live, _: self.dropped(live.log.id), Drop)
        streams.observe_shown(self._notice)

    def __len__(self) -> int:
        return len(self._notifiers)

    def largest(self) -> list[tuple[int, str]]:
        """The notifiers that remember most: bytes, about, and the name of the stream."""
        sizes = (
            (notifier.size_bytes, notifier.live.log.name) for notifier in self._notifiers.values()
        )
        return nlargest(RANKED_TOP, sizes)

    def notifier(self, live: OpenLog) -> TouchNotifier:
        """The notifier of a stream; refuses where there is none."""
        log = live.log
        notifier = self._notifiers.get(log.id)
        if notifier is None:
            config = None if log.stream is None else self._ingest.of(log).profile.touch
            if config is None:
                raise not_enabled()
            notifier = self._notifiers[log.id] = TouchNotifier(self._kernel, live, config)
            self._sweep_later()
        notifier.used_at_ms = self._kernel.clock.now_ms()
        return notifier

    def _notice(self, live: OpenLog) -> None:
        """Records of this stream became visible."""
        notifier = self._notifiers.get(live.log.id)
        if notifier is not None:
            notifier.notice()

    def changed(self, log: int) -> None:
        """The stream has another profile: whoever waits has to ask again."""
        notifier = self._notifiers.pop(log, None)
        if notifier is not None:
            notifier.close(not_enabled())

    def dropped(self, log: int) -> None:
        notifier = self._notifiers.pop(log, None)
        if notifier is not None:
            name = notifier.live.log.name
            notifier.close(Refused(Code.LOG_NOT_FOUND, f'stream "{name}" was deleted'))

    def _sweep_later(self) -> None:
        if self._sweeping is None and self._notifiers:
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Forget what nobody asked for in a long time."""
        self._sweeping = None
        now_ms = self._kernel.clock.now_ms()
        for log, notifier in list(self._notifiers.items()):
            notifier.templates.expire(now_ms)
            if not notifier.waiting and now_ms - notifier.used_at_ms > TOUCH_IDLE_MS:
                self.changed(log)
        self._sweep_later()


def not_enabled() -> Refused:
    return Refused(Code.NOT_FOUND, "touch not enabled")
