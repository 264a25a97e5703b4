"""Users who show a name and a password (RFC 7617): the table that a setting holds."""

from __future__ import annotations

from base64 import b64decode
from hashlib import sha256
from hmac import compare_digest

from headrace.core.errors import Code, Refused
from headrace.core.limits import USER_NAME_MAX
from headrace.web.credentials import NO_SCOPE, VISIBLE, KeyringError, Principal

User = tuple[bytes, Principal]
"""The digest of `name:password`, and who that is."""


USER = "user:"
"""How the ids of users begin, whichever way they say who they are."""
REALM_END = "/"
"""Between a realm, which has none, and a name, which may: no two users have one id."""


def user_id(realm: str, name: str) -> str:
    """The id of the principal of a user."""
    return f"{USER}{realm}{REALM_END}{name}"


def is_user(id: str) -> bool:
    """Whether this is the id of a user, of whom roles tell what they may do; keys and tokens are
    made for so many actions and names, and no more.
    """
    return id.startswith(USER)


def build_user(name: str, password: str, realm: str, roles: tuple[str, ...]) -> User:
    """A user for a table; the name has no colon in it."""
    principal = Principal(user_id(realm, name), NO_SCOPE, roles=roles, realm=realm)
    return sha256(f"{name}:{password}".encode()).digest(), principal


class UserTable:
    """The configured users, as digests."""

    __slots__ = ("_users",)

    def __init__(self, users: tuple[User, ...] = ()) -> None:
        self._users = users

    @classmethod
    def parse(cls, text: str) -> UserTable:
        """Read `name:password[:realm[:role+role]],…`; raise `KeyringError` on anything else."""
        entries = [entry for entry in map(str.strip, text.split(",")) if entry]
        if not entries:
            raise KeyringError("holds no user; unset it to run without users")
        users: dict[str, User] = {}
        for number, entry in enumerate(entries, start=1):
            name, password, realm, roles, *more = (*entry.split(":"), "", "", "")
            if not (name and password) or any(more) or not VISIBLE.fullmatch(entry):
                raise KeyringError(
                    f"user {number} of {len(entries)}: expected name:password[:realm[:role+role]] "
                    "in visible ASCII characters, without ':' in any of them"
                )
            if len(name) > USER_NAME_MAX:
                raise KeyringError(f"user {number} of {len(entries)}: the name is too long")
            if REALM_END in realm:
                raise KeyringError(f"user {number} of {len(entries)}: no realm has a {REALM_END!r}")
            if name in users:
                raise KeyringError(f"user {number} of {len(entries)} has the name of another")
            granted = tuple(role for role in roles.split("+") if role)
            users[name] = build_user(name, password, realm, granted)
        return cls(tuple(users.values()))

    def __len__(self) -> int:
        return len(self._users)

    def __repr__(self) -> str:
        return f"<UserTable of {len(self)}>"

    def has(self, id: str) -> bool:
        """Whether a principal of this id is in the table."""
        return any(principal.id == id for _, principal in self._users)

    def identify(self, credentials: str) -> Principal:
        """Say whose name and password these are, in base64, or refuse."""
        try:
            shown = sha256(b64decode(credentials.strip(), validate=True)).digest()
        except ValueError:
            raise _unknown() from None
        found = None
        # No early exit: the time taken must not tell which user matched.
        for known, principal in self._users:
            if compare_digest(known, shown):
                found = principal
        if found is None:
            raise _unknown()
        return found


def _unknown() -> Refused:
    return Refused(Code.UNAUTHENTICATED, "unknown user, or another password")
