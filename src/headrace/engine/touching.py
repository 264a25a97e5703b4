"""Touches in operation: which streams have a board, and for how long."""

from __future__ import annotations

import asyncio
from heapq import nlargest
from typing import TYPE_CHECKING

from headrace.core.entry import Adopt, Drop
from headrace.core.errors import Code, Refused
from headrace.core.limits import RANKED_TOP, TOUCH_IDLE_MS
from headrace.engine.board import Board
from headrace.engine.kernel import Kernel
from headrace.engine.shapes import Shapes
from headrace.engine.streams import Streams

if TYPE_CHECKING:
    from headrace.engine.open_log import OpenLog

_SWEEP_S = 60.0


class Touching:
    """The boards of one engine."""

    def __init__(self, kernel: Kernel, shapes: Shapes, streams: Streams) -> None:
        self._kernel = kernel
        self._shapes = shapes
        self._boards: dict[int, Board] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        kernel.observe(lambda live, _: self.changed(live.log.id), Adopt)
        kernel.observe(lambda live, _: self.dropped(live.log.id), Drop)
        streams.observe_shown(self._notice)

    def __len__(self) -> int:
        return len(self._boards)

    def largest(self) -> list[tuple[int, str]]:
        """The boards that remember most: bytes, about, and the name of the stream."""
        sizes = ((board.size_bytes, board.live.log.name) for board in self._boards.values())
        return nlargest(RANKED_TOP, sizes)

    def board(self, live: OpenLog) -> Board:
        """The board of a stream; refuses where there is none."""
        log = live.log
        board = self._boards.get(log.id)
        if board is None:
            config = None if log.stream is None else self._shapes.of(log).profile.touch
            if config is None:
                raise not_enabled()
            board = self._boards[log.id] = Board(self._kernel, live, config)
            self._sweep_later()
        board.used_at_ms = self._kernel.clock.now_ms()
        return board

    def _notice(self, live: OpenLog) -> None:
        """Records of this stream became visible."""
        board = self._boards.get(live.log.id)
        if board is not None:
            board.notice()

    def changed(self, log: int) -> None:
        """The stream has another profile: whoever waits has to ask again."""
        board = self._boards.pop(log, None)
        if board is not None:
            board.close(not_enabled())

    def dropped(self, log: int) -> None:
        board = self._boards.pop(log, None)
        if board is not None:
            name = board.live.log.name
            board.close(Refused(Code.LOG_NOT_FOUND, f'stream "{name}" was deleted'))

    def _sweep_later(self) -> None:
        if self._sweeping is None and self._boards:
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Forget what nobody asked for in a long time."""
        self._sweeping = None
        now_ms = self._kernel.clock.now_ms()
        for log, board in list(self._boards.items()):
            board.templates.expire(now_ms)
            if not board.waiting and now_ms - board.used_at_ms > TOUCH_IDLE_MS:
                self.changed(log)
        self._sweep_later()


def not_enabled() -> Refused:
    return Refused(Code.NOT_FOUND, "touch not enabled")
