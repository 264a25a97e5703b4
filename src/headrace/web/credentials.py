"""Who is asking, and what they may do: bearer keys, their scopes and their name prefixes."""

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
_VISIBLE = re.compile(r"[\x21-\x7e]+")

# Enough to tell keys apart in logs and counters, too little to be worth attacking.
_ID_DIGITS = 12

_BEARER = "bearer "


class KeyringError(ValueError):
    """A key list that cannot be understood exactly; the message never quotes any of it."""


class Principal(msgspec.Struct, frozen=True):
    """Someone known: an id that is safe to log, scopes, and the name prefixes they may touch."""

    id: str
    scopes: Scope
    prefixes: tuple[str, ...] = ()

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


LOCAL = Principal("local", ALL_SCOPES)
"""Everyone, while no key is configured."""

NOBODY = Principal("nobody", NO_SCOPE)
"""Who did not say who they are."""


class Keyring:
    """The configured keys, as digests. An empty one means development mode: everyone is `LOCAL`."""

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

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<Keyring of {len(self)}>"

    @property
    def principals(self) -> tuple[Principal, ...]:
        """What the keys grant, in the order they were written."""
        return tuple(principal for _, principal in self._keys)

    def is_gone(self, id: str) -> bool:
        """Whether nobody can show a key of this id any more."""
        known = self.principals or (LOCAL,)
        return all(principal.id != id for principal in known)

    def authenticate(self, authorization_header: str | None) -> Principal:
        """Say whose header this is, or refuse."""
        if not self._keys:
            return LOCAL
        header = authorization_header or ""
        if header[: len(_BEARER)].lower() != _BEARER:
            raise Refused(Code.UNAUTHENTICATED, "send a key: Authorization: Bearer <key>")
        return self.identify(header[len(_BEARER) :].strip())

    def identify(self, token: str) -> Principal:
        """Say whose token this is, or refuse; for tokens that travel without a header."""
        if not self._keys:
            return LOCAL
        # A lone surrogate can come out of a query string and must be an unknown key, not a crash.
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        found = None
        # No early exit: the time taken must not tell which key matched.
        for known, principal in self._keys:
            if compare_digest(known, digest):
                found = principal
        if found is None:
            raise Refused(Code.UNAUTHENTICATED, "unknown key")
        return found


def _parse_entry(entry: str) -> tuple[bytes, Principal]:
    # Prefixes contain colons themselves, so only the first two are delimiters.
    secret, scopes, prefixes, *_ = (*entry.split(":", 2), "", "")
    if not secret:
        raise KeyringError("the secret before the first ':' is empty")
    if not _VISIBLE.fullmatch(secret):
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
    if not all(map(_VISIBLE.fullmatch, prefixes)):
        raise KeyringError(
            "an empty or unusable prefix; prefixes are visible ASCII, joined by '|', none empty"
        )
    return prefixes
