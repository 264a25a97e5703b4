"""Subscriptions: which flags of which namespaces a stream of changes is about.

Everything is checked here that can be told without asking what exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from headrace.core.base64url import decode_base64url, encode_base64url
from headrace.core.digits import parse_digits
from headrace.core.limits import (
    SUBSCRIBED_FLAGS_MAX,
    SUBSCRIBED_NAMESPACES_MAX,
    SUBSCRIPTION_BYTES_MAX,
    U64_MAX,
)
from headrace.flags.keys import is_key, is_slug

_WILDCARD = "*"
_KEY_BYTES = 57
"""What a key takes beside its characters: a string, and a place in a tuple."""


class SubscriptionRefused(Exception):
    """A subscription that is none. `code` and `details` are what the protocol answers."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    @property
    def reason(self) -> str | None:
        """Why a subscription is invalid; None if the request is not one for a subscription."""
        reason: str | None = self.details.get("reason")
        return reason


class FlagSet(msgspec.Struct, frozen=True):
    """Flags of one namespace: all of them, or those with these keys."""

    keys: tuple[str, ...] | None = None
    """Sorted, each once; None: all."""

    @property
    def canonical(self) -> str:
        """The one text for this set."""
        return _WILDCARD if self.keys is None else ",".join(self.keys)

    @property
    def size_bytes(self) -> int:
        """What it takes of memory, by estimate: much, where somebody names many flags."""
        return sum(_KEY_BYTES + len(key) for key in self.keys or ())


EVERY_FLAG = FlagSet()


class FlagSubscription(msgspec.Struct, frozen=True):
    """What one connection asks for: flags by namespace, and from where on as far as it knows."""

    namespaces: dict[str, FlagSet]
    """By slug, in the order in which they were asked for."""
    since: dict[str, int]
    """The last version that the client has, of those namespaces it said so of."""
    tenant: str | None = None
    """Named in the subscription itself; None: the tenant of who asks."""


def parse_flag_list(text: str, namespace: str | None = None) -> FlagSet:
    """`*`, or keys with commas between them; refuses everything else."""
    if text == _WILDCARD:
        return EVERY_FLAG
    keys = set(text.split(","))
    about = {} if namespace is None else {"namespace": namespace}
    if not all(map(is_key, keys)):
        _refuse("malformed", "flags are * alone, or keys with commas between them", **about)
    if len(keys) > SUBSCRIBED_FLAGS_MAX:
        _refuse(
            "too_many_flags",
            f"at most {SUBSCRIBED_FLAGS_MAX} flags of a namespace can be named; * is all",
            **about,
        )
    return FlagSet(tuple(sorted(keys)))


def encode_subscription(flags: FlagSet) -> str:
    """A set of flags as URLs have it: base64url of its canonical text, without padding."""
    return encode_base64url(flags.canonical.encode()).decode()


def decode_subscription(text: str) -> FlagSet:
    """A set of flags from a URL; keys may be in any order. Refuses what is none."""
    if len(text) > SUBSCRIPTION_BYTES_MAX:
        _refuse("malformed", "the subscription is too long")
    try:
        raw = decode_base64url(text)
        exact = encode_base64url(raw).decode() == text
        listed = raw.decode("ascii")
    except ValueError:
        exact = False
    if not exact:
        _refuse("malformed", "the subscription is not base64url without padding")
    return parse_flag_list(listed)


def parse_subscription(
    namespaces: Sequence[str],
    since: Sequence[str] = (),
    last_event_id: str | None = None,
    *,
    names_tenant: bool = False,
) -> FlagSubscription:
    """What the parameters `ns` and `since` and the header `Last-Event-ID` ask for.

    `names_tenant`: who asks is bound to no tenant, and writes `tenant/slug`.
    """
    if not namespaces:
        raise SubscriptionRefused(
            "invalid_request", "ns is missing: ns=<slug>:<flags>, or ns=<slug>:*"
        )
    if len(namespaces) > SUBSCRIBED_NAMESPACES_MAX:
        _refuse(
            "too_many_namespaces",
            f"at most {SUBSCRIBED_NAMESPACES_MAX} namespaces can be followed on one connection",
        )
    tenants: set[str | None] = set()
    wanted: dict[str, FlagSet] = {}
    for text in namespaces:
        tenant, slug, listed = _split_namespace(text, names_tenant)
        flags = parse_flag_list(listed, slug)
        tenants.add(tenant)
        if len(tenants) > 1:
            _refuse("cross_tenant", "all namespaces of a connection are of one tenant")
        if slug in wanted:
            _refuse("duplicate_namespace", f"{slug} is named more than once", namespace=slug)
        wanted[slug] = flags
    tenant = tenants.pop()
    hints = [_parse_hint(hint, tenant, "since") for text in since for hint in text.split(",")]
    if last_event_id:
        hints.append(_parse_hint(last_event_id, tenant, "Last-Event-ID"))
    known = {slug: version for slug, version in hints if slug in wanted}
    return FlagSubscription(wanted, known, tenant)


def _split_namespace(text: str, names_tenant: bool) -> tuple[str | None, str, str]:
    """Tenant, slug and list of one `ns`."""
    name, colon, listed = text.partition(":")
    tenant, slash, slug = name.rpartition("/")
    if not (colon and is_slug(slug)):
        _refuse(
            "malformed", "ns is <slug>:<flags>, where flags are keys with commas between them, or *"
        )
    if not slash:
        if names_tenant:
            _refuse(
                "tenant_required", "say of which tenant: ns=<tenant>/<slug>:<flags>", namespace=slug
            )
        return None, slug, listed
    if not names_tenant:
        _refuse("malformed", "ns is <slug>:<flags>: your credential is bound to a tenant")
    if not is_slug(tenant):
        _refuse("malformed", "ns is <tenant>/<slug>:<flags>")
    return tenant, slug, listed


def _parse_hint(text: str, tenant: str | None, what: str) -> tuple[str, int]:
    """`slug:version`, where it may be said again of which tenant the slug is.

    Whether that namespace is followed is not asked; the last hint for one counts.
    """
    name, colon, digits = text.rpartition(":")
    slug = name if tenant is None else name.removeprefix(f"{tenant}/")
    version = parse_digits(digits, U64_MAX)
    if not (colon and is_slug(slug)) or version is None:
        raise SubscriptionRefused("invalid_request", f"{what} is not <slug>:<version>")
    return slug, version


def _refuse(reason: str, message: str, **details: str) -> NoReturn:
    raise SubscriptionRefused("invalid_subscription", message, reason=reason, **details)
