"""Keys that sign the URLs of closures: in a log of the system, so that they outlive a restart.

A record is a key and when it was made. The newest one signs; the one before it holds for as long
as tokens last that it has signed. A key signs nothing before it is on stable storage: no token is
known to a client whose key a crash can take.
"""

from __future__ import annotations

import asyncio
import secrets

import msgspec

from headrace.core.config import Durability, LogConfig
from headrace.core.limits import CLOSURE_TOKEN_S, COMMAND_BYTES_MAX
from headrace.core.owners import SYSTEM
from headrace.core.record import draft
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog

SIGNING_LOG = "__flags/signing"
_KEY_BYTES = 32
_KEPT = 2
"""The one that signs, and the one before it."""
_CONFIG = LogConfig(durability=Durability.FSYNC, cap_records=_KEPT, auto_create=False)


class SigningKey(msgspec.Struct, frozen=True):
    """One key, as a record holds it."""

    key: bytes
    created_at_ms: int

    def __repr__(self) -> str:
        return f"<SigningKey of {self.created_at_ms}>"


_decoder = msgspec.json.Decoder(SigningKey)


class SigningKeys:
    """The signing keys of one engine. Made when somebody first needs one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turn = asyncio.Lock()
        """Held by who makes a key: of two who need the first one, one makes it."""
        self._known: list[SigningKey] = []
        """Oldest first."""
        self._upto = 0
        """The record up to which they are known."""

    async def newest(self) -> bytes:
        """The key that signs."""
        if not await self._load():
            async with self._turn:
                if not await self._load():
                    await self._make()
        return self._known[-1].key

    async def accepted(self) -> tuple[bytes, ...]:
        """Keys whose signatures hold now."""
        known = await self._load()
        if len(known) < _KEPT:
            return tuple(each.key for each in known)
        before, newest = known[-_KEPT:]
        is_over = self._engine.clock.now_ms() > newest.created_at_ms + CLOSURE_TOKEN_S * 1000
        return (newest.key,) if is_over else (newest.key, before.key)

    async def rotate(self) -> int:
        """Sign with a new key from now on; says when it was made."""
        async with self._turn:
            await self._make()
            return self._known[-1].created_at_ms

    async def _make(self) -> None:
        made = SigningKey(secrets.token_bytes(_KEY_BYTES), self._engine.clock.now_ms())
        await self._engine.appender.append(
            SIGNING_LOG, draft([msgspec.json.encode(made)]), owner=SYSTEM, create=_CONFIG
        )
        await self._load()

    async def _load(self) -> list[SigningKey]:
        """All there are, as the log has them now: whoever appended may not be waiting any more."""
        live = self._live
        if live is None or live.visible == self._upto:
            return self._known
        upto = live.visible
        page = await self._engine.reader.read(
            live,
            max(upto - _KEPT, 0),
            records_max=_KEPT,
            bytes_max=COMMAND_BYTES_MAX,
            upto=upto,
        )
        if upto > self._upto:  # another may have read further meanwhile
            self._known = [
                _decoder.decode(piece.block.data_at(at))
                for piece in page.slices
                for at in piece.picks
            ]
            self._upto = upto
        return self._known

    @property
    def _live(self) -> OpenLog | None:
        log = self._engine.state.by_name.get(SIGNING_LOG)
        return None if log is None else self._engine.open_logs[log.id]
