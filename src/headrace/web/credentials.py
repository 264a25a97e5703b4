"""Principals: who is asking and what they may do; and the keys that a setting holds."""

from __future__ import annotations

import re
from enum import Flag, auto
from hashlib import sha256
from hmac import compare_digest

import msgspec

from headrace.core.errors import Code, Refused


class Scope(Flag):
    """What a key may do; combine with `|` where a route needs several."""

    READ = auto()
    WRITE = auto()
    DELETE = auto()
    ADMIN = auto()


NO_SCOPE = Scope(0)
ALL_SCOPES = Scope.READ | Scope.WRITE | Scope.DELETE | Scope.ADMIN

SCOPE_WORDS = {
    "read": Scope.READ,
    "write": Scope.WRITE,
    "delete": Scope.DELETE,
    "admin": Scope.ADMIN,
    "r": Scope.READ,
    "w": Scope.WRITE,
    "d": Scope.DELETE,
    "a": Scope.ADMIN,
    "rw": Scope.READ | Scope.WRITE,
}

# What a header carries unchanged; anything else could never be presented, so it is a mistake.
VISIBLE = re.compile(r"[\x21-\x7e]+")

# Enough to tell keys apart in logs and counters, too little to be worth attacking.
_ID_DIGITS = 12


class KeyringError(ValueError):
    """A key list that cannot be understood exactly; the message never quotes any of it."""


class Principal(msgspec.Struct, frozen=True):
    """Someone known. A surface asks for what it needs; what is not granted is refused."""

    id: str
    """Safe to log, and another one for each credential."""
    scopes: Scope
    prefixes: tuple[str, ...] = ()
    """Of names of logs; without any, all names may be touched."""
    tenants: tuple[str, ...] = ()
    """Which tenants may be entered; `*` for all."""
    namespaces: tuple[str, ...] = ()
    """As tenant/namespace; without any, all namespaces of the tenants."""
    roles: tuple[str, ...] = ()
    realm: str = ""
    superadmin: bool = False
    """Whether nothing of the installation is closed to it."""
    environment: str = ""
    """The one environment in which it may evaluate flags; nothing: it is not bound to one."""
    expires_at_ms: int = 0
    """When the credential ends, and what was opened with it; 0: never by itself."""

    def may_see(self, name: str) -> bool:
        """Whether the name lies inside the prefixes; without prefixes every name does."""
        return not self.prefixes or name.startswith(self.prefixes)

    def require(self, scope: Scope, *names: str) -> None:
        """Refuse unless every scope is held and every name may be touched."""
        if scope._value_ & ~self.scopes._value_:  # (`in` of a Flag costs every request a µs)
            missing = [str(each.name).lower() for each in scope & ~self.scopes]
            raise Refused(
                Code.FORBIDDEN,
                f"this key lacks the scope {' and '.join(missing)}",
                missing_scopes=missing,
            )
        for name in names:
            if not self.may_see(name):
                raise Refused(
                    Code.FORBIDDEN, f'"{name}" is outside the prefixes of this key', name=name
                )

    def may_enter(self, tenant: str) -> bool:
        """Whether this tenant is one of its own."""
        return self.superadmin or tenant in self.tenants or "*" in self.tenants

    def may_use(self, tenant: str, namespace: str) -> bool:
        """Whether this namespace of a tenant is one of its own."""
        if self.superadmin or not self.namespaces:
            return self.may_enter(tenant)
        return f"{tenant}/{namespace}" in self.namespaces

    def has_role(self, *roles: str) -> bool:
        """Whether it has one of these roles."""
        return self.superadmin or not set(roles).isdisjoint(self.roles)

    def require_tenant(self, tenant: str) -> None:
        """Refuse who may not enter a tenant."""
        if not self.may_enter(tenant):
            raise Refused(Code.FORBIDDEN, f'"{tenant}" is not a tenant of this credential')

    def require_namespace(self, tenant: str, namespace: str) -> None:
        """Refuse who may not use a namespace."""
        if not self.may_use(tenant, namespace):
            message = f'"{tenant}/{namespace}" is not a namespace of this credential'
            raise Refused(Code.FORBIDDEN, message)

    def require_role(self, *roles: str) -> None:
        """Refuse who has none of these roles."""
        if not self.has_role(*roles):
            raise Refused(Code.FORBIDDEN, f"this needs the role {' or '.join(roles)}")


LOCAL = Principal("local", ALL_SCOPES, superadmin=True)
"""Everyone, while no credential is configured."""

ADMIN = Principal("admin", ALL_SCOPES, superadmin=True)
"""The superadmin of the installation."""

NOBODY = Principal("nobody", NO_SCOPE)
"""Who did not say who they are."""


class Keyring:
    """Configured secrets, as digests, and the principals that they stand for."""

    __slots__ = ("_keys",)

    def __init__(self, keys: tuple[tuple[bytes, Principal], ...] = ()) -> None:
        self._keys = keys

    @classmethod
    def parse(cls, text: str) -> Keyring:
        """Read `secret[:scopes[:prefixes]],…`; raise `KeyringError` on anything else."""
        entries = [entry for entry in map(str.strip, text.split(",")) if entry]
        if not entries:
            raise KeyringError("holds no key; unset it to run without keys")
        keys: dict[str, tuple[bytes, Principal]] = {}
        for number, entry in enumerate(entries, start=1):
            try:
                digest, principal = _parse_entry(entry)
            except KeyringError as problem:
                raise KeyringError(f"key {number} of {len(entries)}: {problem}") from None
            if principal.id in keys:
                raise KeyringError(f"key {number} of {len(entries)} has the secret of another")
            keys[principal.id] = (digest, principal)
        return cls(tuple(keys.values()))

    @classmethod
    def parse_admin(cls, text: str) -> Keyring:
        """Read the token of the superadmin."""
        if not VISIBLE.fullmatch(text):
            raise KeyringError("a token is made of visible ASCII characters")
        return cls(((sha256(text.encode()).digest(), ADMIN),))

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<Keyring of {len(self)}>"

    @property
    def principals(self) -> tuple[Principal, ...]:
        """What the keys grant, in the order they were written."""
        return tuple(principal for _, principal in self._keys)

    def find(self, digest: bytes) -> Principal | None:
        """Whose secret has this digest, if it is one of these."""
        found = None
        # No early exit: the time taken must not tell which key matched.
        for known, principal in self._keys:
            if compare_digest(known, digest):
                found = principal
        return found

    def __add__(self, other: Keyring) -> Keyring:
        """The keys of both."""
        return Keyring(self._keys + other._keys)

    def shares(self, other: Keyring) -> bool:
        """Whether a secret is in both."""
        return any(other.find(digest) is not None for digest, _ in self._keys)


def _parse_entry(entry: str) -> tuple[bytes, Principal]:
    # Prefixes contain colons themselves, so only the first two are delimiters.
    secret, scopes, prefixes, *_ = (*entry.split(":", 2), "", "")
    if not secret:
        raise KeyringError("the secret before the first ':' is empty")
    if not VISIBLE.fullmatch(secret):
        raise KeyringError("a secret is made of visible ASCII characters")
    digest = sha256(secret.encode()).digest()
    principal = Principal(
        digest.hex()[:_ID_DIGITS], _parse_scopes(scopes), _parse_prefixes(prefixes)
    )
    return digest, principal


def _parse_scopes(text: str) -> Scope:
    if not text:
        return ALL_SCOPES
    granted = NO_SCOPE
    for word in text.split("+"):
        # The word is not quoted: it may be half of a secret that was written with a ':' in it.
        if word not in SCOPE_WORDS:
            raise KeyringError(
                f"unknown scope after the first ':'; accepted are {', '.join(SCOPE_WORDS)}, "
                "joined by '+'"
            )
        granted |= SCOPE_WORDS[word]
    return granted


def _parse_prefixes(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    prefixes = tuple(text.split("|"))
    # An empty alternative would match every name: more than anyone meant to write.
    if not all(map(VISIBLE.fullmatch, prefixes)):
        raise KeyringError(
            "an empty or unusable prefix; prefixes are visible ASCII, joined by '|', none empty"
        )
    return prefixes
