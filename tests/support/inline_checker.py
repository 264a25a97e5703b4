"""Manifests taken apart where they are asked about, for tests whose loop knows no processes."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from headrace.processes.manifest_messages import Reply, Request, decode_reply, encode
from headrace.processes.manifest_process import GiveWay, ManifestProcessCounts, Talk, open_reply
from headrace.processes.manifest_worker import ManifestWorker

R = TypeVar("R", bound=Reply)
T = TypeVar("T")


class InlineChecker:
    """Holds conversations like the manifest process, in the process of the test.

    Answers are written and read as if they had come over a pipe.
    """

    def __init__(self) -> None:
        self._worker = ManifestWorker()
        self._turn = asyncio.Lock()
        self.requests: list[Request] = []
        self.counts = ManifestProcessCounts()

    async def converse(self, tenant: str, talk: Talk[T]) -> T:
        while True:
            async with self._turn:
                try:
                    return await talk(self)
                except GiveWay:
                    pass

    async def ask(self, request: Request, kind: type[R]) -> R:
        self.requests.append(request)
        await asyncio.sleep(0)
        return open_reply(decode_reply(encode(self._worker.answer(request))), kind)

    async def run(self) -> None:
        pass

    async def close(self) -> None:
        pass
