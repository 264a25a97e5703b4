"""Tokens in operation: issued, found by the digests of their secrets, revoked."""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.cap import Cap
from headrace.core.entry import Entry, Issue, Revoke
from headrace.core.limits import TOKENS_MAX
from headrace.core.token import Grants, Token
from headrace.engine.kernel import Kernel
from headrace.engine.ports import Ids

_CAP = Cap("max_tokens", TOKENS_MAX)


class Tokens:
    """The tokens of the catalog. What is revoked opens nothing from that moment on."""

    def __init__(self, kernel: Kernel, ids: Ids) -> None:
        self._kernel = kernel
        self._ids = ids
        self._on_revoked: list[Callable[[str], None]] = []

    def __len__(self) -> int:
        return len(self._kernel.state.tokens)

    def observe_revoked(self, observer: Callable[[str], None]) -> None:
        """Have this called with the id of every token that is revoked."""
        self._on_revoked.append(observer)

    def find(self, digest: bytes) -> Token | None:
        """The token whose secret has this digest, if it is still valid."""
        token = self._kernel.state.tokens_by_digest.get(digest)
        if token is None or not token.is_valid(self._kernel.clock.now_ms()):
            return None
        return token

    def is_valid(self, id: str) -> bool:
        """Whether there is a token of this id, and its time is not up."""
        token = self._kernel.state.tokens.get(id)
        return token is not None and token.is_valid(self._kernel.clock.now_ms())

    async def list(self, tenant: str | None = None) -> list[Token]:
        """All tokens, or those that are bound to a tenant; expired ones too, oldest first."""
        kernel = self._kernel
        state = kernel.state
        known = state.tokens if tenant is None else state.tokens_by_tenant.get(tenant, {})
        tokens = list(known.values())
        await kernel.journal.wait_to_tell(kernel.journal.tail, sync=True)
        return tokens

    async def issue(
        self,
        digest: bytes,
        grants: Grants,
        *,
        label: str = "",
        created_by: str = "",
        expires_at_ms: int = 0,
    ) -> Token:
        """Make a token for a secret of this digest; valid when this returns."""
        kernel = self._kernel
        kernel.check_open()
        now_ms, state = kernel.clock.now_ms(), kernel.state
        assert digest not in state.tokens_by_digest, "a secret is never used twice"
        entries: list[Entry] = []
        if len(state.tokens) >= TOKENS_MAX:
            expired = [each for each in state.tokens.values() if not each.is_valid(now_ms)]
            entries += [Revoke(each.id) for each in expired]
        _CAP.check(len(state.tokens) - len(entries))
        id = f"tok_{self._ids.token()}"
        while id in state.tokens:
            id = f"tok_{self._ids.token()}"
        token = Token(id, digest, grants, label, created_by, now_ms, expires_at_ms)
        await kernel.commit_synced([*entries, Issue(token)], together=bool(entries))
        return token

    async def revoke(self, id: str) -> bool:
        """End a token and what was opened with it, at once; false when there is none.

        It stays revoked, whatever happens, when this returns.
        """
        kernel = self._kernel
        kernel.check_writable()
        if id not in kernel.state.tokens:
            await kernel.journal.wait_to_tell(kernel.journal.tail, sync=True)
            return False
        position = kernel.commit([Revoke(id)], sync=True)
        for observer in self._on_revoked:
            observer(id)
        await kernel.journal.wait_synced(position)
        return True
