"""JSON Web Tokens: verified with a shared secret or with public keys, and who they speak for.

A key verifies one algorithm, whatever a token says of itself. PyJWT is imported when a key is
configured: servers without one do not pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Any

import msgspec

from headrace.core.bounded_cache import BoundedCache
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    JWKS_BYTES_MAX,
    JWKS_KEYS_MAX,
    JWT_BYTES_MAX,
    JWTS_KNOWN_MAX,
    USER_NAME_MAX,
)
from headrace.core.names import check_printable
from headrace.web.credentials import NO_SCOPE, Principal
from headrace.web.users import REALM_END, user_id

SECRET_BYTES_MIN = 32
"""As long as the digests of HS256 (RFC 7518, 3.2): a shorter one can be guessed offline."""
RSA_BITS_MIN = 2048
"""Of a modulus (RFC 7518, 3.3)."""
_ALGORITHMS = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""What keys of a type may be used with; the first, unless the key says which."""


class JwtClaims(msgspec.Struct):
    """What is read of a token; all else in it is passed over."""

    exp: float
    sub: str = ""
    username: str = ""
    realm: str = ""
    roles: tuple[str, ...] = ()
    allowed_tenants: tuple[str, ...] = ()
    allowed_namespaces: tuple[str, ...] = ()


class Verifier:
    """Keys by id, each with its one algorithm; a shared secret has no id."""

    __slots__ = ("_keys", "_known")

    def __init__(self, keys: Mapping[str | None, tuple[Any, str]]) -> None:
        self._keys = keys
        self._known: BoundedCache[bytes, Principal] = BoundedCache(JWTS_KNOWN_MAX)
        """Whom tokens speak for that were verified before, by digest."""

    def __repr__(self) -> str:
        return f"<Verifier with {len(self._keys)} keys>"

    @classmethod
    def of_secret(cls, text: str) -> Verifier:
        """For tokens of HS256."""
        if len(text.encode()) < SECRET_BYTES_MIN:
            raise ValueError(f"a secret of at least {SECRET_BYTES_MIN} bytes")
        jwt = _load()
        try:
            jwt.get_algorithm_by_name("HS256").prepare_key(text)
        except jwt.InvalidKeyError:
            raise ValueError("a secret, not a public key or a key as JSON") from None
        return cls({None: (text.encode(), "HS256")})

    @classmethod
    def of_file(cls, text: str) -> Verifier:
        """For tokens that one of the public keys in a file (RFC 7517) has signed."""
        try:
            with Path(text).open("rb") as file:
                raw = file.read(JWKS_BYTES_MAX + 1)
        except (OSError, ValueError):
            raise ValueError("a file that can be read") from None
        try:
            if len(raw) > JWKS_BYTES_MAX:
                raise ValueError
            found = msgspec.json.decode(raw, type=dict[str, Any])["keys"]
            entries = msgspec.convert(found, list[dict[str, Any]])
        except (ValueError, KeyError):
            raise ValueError('a JSON object of at most 1 MiB with a list "keys"') from None
        if not 1 <= len(entries) <= JWKS_KEYS_MAX:
            raise ValueError(f"a file with 1 to {JWKS_KEYS_MAX} keys")
        keys: dict[str | None, tuple[Any, str]] = {}
        for number, entry in enumerate(entries, start=1):
            if entry.get("use") == "enc":
                continue  # who signs may have keys to encrypt with in the same set
            try:
                id, key = _read_key(entry)
            except ValueError as problem:
                raise ValueError(
                    f"usable keys, but number {number} in the file {problem}"
                ) from None
            if id in keys or (id is None and len(entries) > 1):
                raise ValueError(f'keys that can be told apart by "kid", unlike number {number}')
            keys[id] = key
        if not keys:
            raise ValueError("a file with keys that are for signatures")
        return cls(keys)

    def verify(self, token: str) -> Principal:
        """Say whom a token speaks for, or refuse."""
        if len(token) > JWT_BYTES_MAX:
            raise _refused()
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(digest)
        if known is None or known.expires_at_ms <= time() * 1000:
            known = self._verify(token)
            self._known.keep(digest, known)
        return known

    def _verify(self, token: str) -> Principal:
        jwt = _load()
        try:
            key, algorithm = self._key_of(jwt.get_unverified_header(token).get("kid"))
            payload = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                # When it was issued says nothing of when it may be used: clocks differ a little.
                options={"require": ["exp"], "verify_aud": False, "verify_iat": False},
            )
            return _principal(msgspec.convert(payload, JwtClaims))
        except jwt.ExpiredSignatureError:
            raise Refused(Code.UNAUTHENTICATED, "the token has expired") from None
        except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError):
            # (Nested far too deeply, a number beyond all others, text that is none.)
            raise _refused() from None

    def _key_of(self, id: object) -> tuple[Any, str]:
        """The key that a token names; the only one there is needs no name."""
        if len(self._keys) == 1:
            (known,) = self._keys
            if id is None or known is None or id == known:
                return self._keys[known]
        if not isinstance(id, str) or id not in self._keys:
            raise _refused()
        return self._keys[id]


def _principal(claims: JwtClaims) -> Principal:
    name = claims.username or claims.sub
    if not name or len(name) > USER_NAME_MAX or len(claims.realm) > USER_NAME_MAX:
        raise _refused()
    if REALM_END in claims.realm:
        raise _refused()  # the id of its users could be that of others
    granted = (*claims.roles, *claims.allowed_tenants, *claims.allowed_namespaces)
    "".join((name, claims.realm, *granted)).encode()  # half a character cannot be written anywhere
    try:
        check_printable(name + claims.realm, "the name of a user")
    except Refused:
        raise _refused() from None
    return Principal(
        user_id(claims.realm, name),
        NO_SCOPE,
        tenants=claims.allowed_tenants,
        namespaces=claims.allowed_namespaces,
        roles=claims.roles,
        realm=claims.realm,
        expires_at_ms=int(claims.exp * 1000),
    )


def _read_key(entry: dict[str, Any]) -> tuple[str | None, tuple[Any, str]]:
    jwt = _load()
    kind, curve = entry.get("kty"), entry.get("crv")
    known = isinstance(kind, str) and isinstance(curve, str | None)
    allowed = _ALGORITHMS.get((str(kind), curve)) if known else None
    if allowed is None:
        raise ValueError("is no public key of RSA, P-256, P-384 or Ed25519")
    if "d" in entry:
        raise ValueError("is a private key: only public ones belong there")
    if entry.get("use", "sig") != "sig":
        raise ValueError("is not for signatures")
    algorithm = entry.get("alg", allowed[0])
    if algorithm not in allowed:
        raise ValueError(f"is not for one of {', '.join(allowed)}")
    id = entry.get("kid")
    if id is not None and not isinstance(id, str):
        raise ValueError('has a "kid" that is no text')
    try:
        key = jwt.PyJWK(entry, algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise ValueError("cannot be read") from None
    if kind == "RSA" and key.key_size < RSA_BITS_MIN:
        raise ValueError(f"has fewer than {RSA_BITS_MIN} bits")
    return id, (key, algorithm)


def _refused() -> Refused:
    return Refused(Code.UNAUTHENTICATED, "the token is not valid here")


def _load() -> Any:
    import jwt

    return jwt
