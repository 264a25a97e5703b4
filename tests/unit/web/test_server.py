"""The HTTP server: what signals do while it stops."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable

import pytest
import uvloop

from headrace.web.connection import Connections
from headrace.web.server import HttpServer


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_second_sigterm_does_not_break_off_what_is_done_last(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def stop_by_a_call() -> None:
        server = HttpServer(_respond, Connections(count_max=1, head_s=1, body_s=1), drain_s=1)
        server.stop()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await server.serve(listener, 1, lambda: None)
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(stop_by_a_call())
    finally:
        signal.signal(signal.SIGTERM, before)


def _respond(*_: object) -> None:
    raise AssertionError("nobody asked")
