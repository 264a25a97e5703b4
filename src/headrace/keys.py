"""The command `headrace keys`: tokens and the signing key of a running server."""

from __future__ import annotations

import argparse
import os
import sys
from urllib.parse import quote, urlencode

import msgspec

from headrace.client.http import Failed, Server
from headrace.core.limits import LIST_PAGE_MAX, TOKENS_MAX
from headrace.printing import table

FEED = "feed"
"""The type of API keys of feeds."""
_VARIABLES = ("HEADRACE_API_KEY", "HEADRACE_ADMIN_TOKEN")
_WRONG_KEY = frozenset((401, 403))
_PAGES_MAX = TOKENS_MAX // LIST_PAGE_MAX + 1


class KeysFailed(Exception):
    """The server said no, or is not there; the message says what to do."""


class _Token(msgspec.Struct, omit_defaults=True):
    id: str
    type: str
    name: str
    created_at: str
    namespace: str | None = None
    environment: str | None = None
    expires_at: str | None = None


class _Made(msgspec.Struct):
    token: _Token
    secret: str


class _Page(msgspec.Struct):
    tokens: list[_Token]
    next_cursor: str | None = None


class _FeedKey(msgspec.Struct, rename="camel", omit_defaults=True):
    id: str
    name: str
    roles: list[str]
    created_at: str
    expires_at: str | None = None
    key: str | None = None


class _FeedKeys(msgspec.Struct, rename="camel"):
    api_keys: list[_FeedKey]


class _Rotated(msgspec.Struct):
    created_at: str


def run(options: argparse.Namespace, url: str) -> int:
    """Ask the server at this address for what the options say."""
    key = options.api_key or next(filter(None, map(os.environ.get, _VARIABLES)), None)
    try:
        with Server(url, key) as server:
            _VERBS[options.verb](server, options)
    except ValueError as error:
        raise KeysFailed(str(error)) from None
    except Failed as failed:
        advice = ""
        if not failed.status:
            advice = "; start it, or say with --url where it is"
        elif failed.status in _WRONG_KEY:
            advice = f"; set {' or '.join(_VARIABLES)}, or give --api-key"
            if failed.status == 403 and "tenant" in options and options.tenant is None:
                advice += "; the admin of a tenant names it: --tenant"
        raise KeysFailed(f"{failed}{advice}") from None
    return 0


def _make(server: Server, options: argparse.Namespace) -> None:
    if options.type == FEED:
        _make_feed_key(server, options)
        return
    if options.tenant is None and options.type != "superadmin":
        raise KeysFailed(f"a {options.type} is of a tenant: say with --tenant of which")
    given = {
        "type": options.type,
        "name": options.name,
        "namespace": options.namespace,
        "environment": options.environment,
        "expires_at": options.expires_at,
    }
    request = {name: value for name, value in given.items() if value is not None}
    made = msgspec.json.decode(server.ask("POST", _path(options), request), type=_Made)
    # What is to be kept goes where a script can take it from, alone.
    print(f"{made.token.id}: a {made.token.type}, shown this once", file=sys.stderr)
    print(made.secret)


def _make_feed_key(server: Server, options: argparse.Namespace) -> None:
    if not options.role:
        raise KeysFailed("a key of a feed has roles: say with --role which")
    request = {"name": options.name, "roles": options.role}
    made = msgspec.json.decode(server.ask("POST", _feed_path(options), request), type=_FeedKey)
    roles = ", ".join(made.roles)
    print(f"{made.id}: a key of a feed for {roles}, shown this once", file=sys.stderr)
    print(made.key)


def _list_feed_keys(server: Server, options: argparse.Namespace) -> None:
    keys = msgspec.json.decode(server.ask("GET", _feed_path(options)), type=_FeedKeys).api_keys
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(keys)).decode())
        return
    rows = [(each.id, ",".join(each.roles), each.expires_at or "never", each.name) for each in keys]
    print(*table("id roles expires name", rows), sep="\n")


def _list(server: Server, options: argparse.Namespace) -> None:
    if options.feed:
        _list_feed_keys(server, options)
        return
    tokens: list[_Token] = []
    query = {"page_size": str(LIST_PAGE_MAX)}
    for _ in range(_PAGES_MAX):
        body = server.ask("GET", f"{_path(options)}?{urlencode(query)}")
        page = msgspec.json.decode(body, type=_Page)
        tokens += page.tokens
        if page.next_cursor is None:
            break
        query["cursor"] = page.next_cursor
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(tokens)).decode())
        return
    rows = [
        (
            each.id,
            each.type,
            each.namespace or "-",
            each.environment or "-",
            each.expires_at or "never",
            each.name,
        )
        for each in tokens
    ]
    print(*table("id type namespace environment expires name", rows), sep="\n")


def _revoke(server: Server, options: argparse.Namespace) -> None:
    path = _feed_path(options) if options.feed else _path(options)
    server.ask("DELETE", f"{path}/{quote(options.id, safe='')}")
    print(f"{options.id} is revoked")


def _rotate(server: Server, options: argparse.Namespace) -> None:
    body = server.ask("POST", "/api/v1/signing-keys/rotate")
    rotated = msgspec.json.decode(body, type=_Rotated)
    print(f"a new key signs since {rotated.created_at}")


def _path(options: argparse.Namespace) -> str:
    """Where the tokens are: those of a tenant, or of superadmins."""
    if options.tenant is None:
        return "/api/v1/tokens"
    return f"/api/v1/tenants/{quote(options.tenant, safe='')}/tokens"


def _feed_path(options: argparse.Namespace) -> str:
    """Where the API keys of a tenant's feed are."""
    if options.tenant is None:
        raise KeysFailed("a key of a feed is of a tenant: say with --tenant of which")
    return f"/tenants/{quote(options.tenant, safe='')}/api-keys"


_VERBS = {"make": _make, "list": _list, "revoke": _revoke, "rotate": _rotate}
