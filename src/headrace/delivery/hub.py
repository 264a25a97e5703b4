"""Where connections follow logs: one channel for each log that is followed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from headrace.core.entry import Create
from headrace.delivery.channel import Channel, is_gone, when_durable
from headrace.delivery.cohort import Follower
from headrace.delivery.events import Gone
from headrace.delivery.tasks import Tasks
from headrace.delivery.timer_wheel import TimerWheel
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog

Note = Callable[[OpenLog], None]


class Hub:
    """All followers of one engine."""

    def __init__(self, engine: Engine, wheel: TimerWheel) -> None:
        self.engine = engine
        self.wheel = wheel
        self.tasks = Tasks()
        """Work that connections start."""
        self.turn = asyncio.Lock()
        """Held by the one connection that makes a page of the past, and for a round of the loop
        behind it: whoever asks for anything else waits for one page, not for those of all.
        """
        self._channels: dict[int, Channel] = {}
        self._prefixes: dict[str, dict[Note, None]] = {}
        engine.observe(lambda live, _: self._note_new(live), Create)

    def __len__(self) -> int:
        """How many logs are followed."""
        return len(self._channels)

    def follow(self, follower: Follower) -> None:
        """Deliver from the follower's position on, until it leaves."""
        live = follower.live
        if is_gone(self.engine, live):
            when_durable(self.engine, partial(self._say_gone, follower))
            return
        channel = self._channels.get(live.log.id)
        if channel is None:
            channel = Channel(self.engine, self.wheel, self.tasks, live, self._forget)
            self._channels[live.log.id] = channel
        channel.join(follower)

    def _forget(self, channel: Channel) -> None:
        del self._channels[channel.live.log.id]

    def _say_gone(self, follower: Follower) -> None:
        if follower.over:
            return
        log = follower.live.log
        follower.write(follower.view.encode(log.name, Gone(log.head), follower.position))
        follower.owner.on_log_gone(follower)

    # --- names to come ----------------------------------------------------------------------------

    def watch_names(self, prefix: str, note: Note) -> None:
        """Call `note` for every log created from now on whose name begins like this."""
        self._prefixes.setdefault(prefix, {})[note] = None

    def unwatch_names(self, prefix: str, note: Note) -> None:
        notes = self._prefixes.get(prefix, {})
        notes.pop(note, None)
        if not notes:
            self._prefixes.pop(prefix, None)

    def _note_new(self, live: OpenLog) -> None:
        if self._prefixes:
            name = live.log.name
            for stop in range(len(name) + 1):
                for note in tuple(self._prefixes.get(name[:stop], ())):
                    note(live)
