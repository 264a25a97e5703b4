"""The credential store: every way to say who asks, for all surfaces.

Configured keys and the token of the superadmin, tokens of the catalog, JSON Web Tokens, and users
with passwords. A surface says which header it reads (`web.calls`) and what an action needs
(`Principal`); it does not know where a credential came from.
"""

from __future__ import annotations

import secrets
from hashlib import sha256

from headrace.core.errors import Code, Refused
from headrace.core.token import Token
from headrace.engine.tokens import Tokens
from headrace.web.credentials import LOCAL, Keyring, Principal, Scope
from headrace.web.json_web_tokens import Verifier
from headrace.web.users import UserTable, is_user

_BEARER, _BASIC = "bearer ", "basic "
_SECRET_BYTES = 32


class CredentialStore:
    """Knows principals by what they show. Without any configured credential, everyone is `LOCAL`.

    Tokens of the catalog are known once the engine is there.
    """

    __slots__ = ("_asks_elsewhere", "_jwt", "_keys", "_tokens", "_users", "development")

    def __init__(
        self,
        keys: Keyring = Keyring(),  # noqa: B008  (it never changes)
        *,
        users: UserTable = UserTable(),  # noqa: B008
        jwt: Verifier | None = None,
        asks_elsewhere: bool = False,
    ) -> None:
        self._keys = keys
        self._users = users
        self._jwt = jwt
        self._tokens: Tokens | None = None
        self._asks_elsewhere = asks_elsewhere
        """Whether a surface knows users from another server."""
        self.development = not (len(keys) or len(users) or jwt or asks_elsewhere)
        """Nothing is configured: whoever reaches the server may do everything."""

    def __repr__(self) -> str:
        return f"<CredentialStore with {self._keys!r}, {self._users!r}, {self._jwt!r}>"

    def open(self, tokens: Tokens) -> None:
        """From here on, tokens of the catalog are known."""
        self._tokens = tokens

    def is_gone(self, id: str) -> bool:
        """Whether nobody can show a credential of this id any more."""
        if self.development:
            return id != LOCAL.id
        if is_user(id):
            is_foreign = self._jwt is not None or self._asks_elsewhere
            return not is_foreign and not self._users.has(id)
        if self._tokens is not None and self._tokens.is_valid(id):
            return False
        return all(principal.id != id for principal in self._keys.principals)

    def authenticate(self, authorization_header: str | None) -> Principal:
        """Say whose header this is, or refuse."""
        if self.development:
            return LOCAL
        header = authorization_header or ""
        if header[: len(_BEARER)].lower() != _BEARER:
            raise Refused(Code.UNAUTHENTICATED, "send a key: Authorization: Bearer <key>")
        return self.identify(header[len(_BEARER) :].strip())

    def authenticate_user(self, authorization_header: str | None) -> Principal:
        """The same, where a name and a password are taken, too."""
        header = authorization_header or ""
        if not self.development and header[: len(_BASIC)].lower() == _BASIC:
            return self._users.identify(header[len(_BASIC) :])
        return self.authenticate(authorization_header)

    def identify(self, token: str) -> Principal:
        """Say whose token this is, or refuse; for tokens that travel without a header."""
        if self.development:
            return LOCAL
        digest = digest_of(token)
        if (found := self._keys.find(digest)) is not None:
            return found
        if self._jwt is not None and token.count(".") == 2:
            return self._jwt.verify(token)
        # (Who can choose what is looked up cannot choose its digest: the time tells nothing.)
        if self._tokens is not None and (stored := self._tokens.find(digest)) is not None:
            return principal_of(stored)
        # Where nobody issues tokens, an unknown one is no good later, either.
        if self._tokens is None and any(each.superadmin for each in self._keys.principals):
            raise Refused(Code.NOT_READY, "the server is still reading which tokens there are")
        raise unknown_key()


def unknown_key() -> Refused:
    """Nobody shows this key any more, or nobody ever did."""
    return Refused(Code.UNAUTHENTICATED, "unknown key")


def principal_of(token: Token) -> Principal:
    """Whom a token of the catalog stands for."""
    grants = token.grants
    return Principal(
        token.id,
        Scope(grants.scopes),
        grants.prefixes,
        tenants=grants.tenants,
        namespaces=grants.namespaces,
        roles=grants.roles,
        realm=grants.realm,
        superadmin=grants.superadmin,
        environment=grants.environment,
        expires_at_ms=token.expires_at_ms,
    )


def new_secret(prefix: str = "") -> tuple[str, bytes]:
    """A secret for a new token, to be shown once, and its digest, to be kept."""
    secret = prefix + secrets.token_urlsafe(_SECRET_BYTES)
    return secret, digest_of(secret)


def digest_of(secret: str) -> bytes:
    # A lone surrogate can come out of a query string and must be an unknown key, not a crash.
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
