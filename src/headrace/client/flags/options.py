"""What users say when they make a group, checked before anything is asked of a server."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping

from headrace.client.flags.addresses import ServerAddress
from headrace.client.flags.mirror import NamespaceSubscription
from headrace.client.flags.policy import RefreshPolicy
from headrace.client.flags.session import GroupSession
from headrace.core.limits import SUBSCRIBED_NAMESPACES_MAX, SUBSCRIPTION_BYTES_MAX
from headrace.flags.keys import is_slug
from headrace.flags.subscription import FlagSet, SubscriptionRefused, parse_flag_list

Namespaces = Mapping[str, str | Iterable[str]]
"""Which flags of which namespaces: `{"billing": "*", "growth": ["a", "b"]}`. With a credential that
is bound to no tenant, namespaces are `tenant/slug`.
"""
_VISIBLE = re.compile(r"[!-~]+\Z")


def make_session(
    server: ServerAddress, token: str | None, namespaces: Namespaces, policy: RefreshPolicy | None
) -> GroupSession:
    """The session of a group; ValueError for what no server would take."""
    if token is not None and _VISIBLE.match(token) is None:
        raise ValueError("a token is written in visible ASCII characters")
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    subscriptions = parse_namespaces(namespaces)
    query = server.events_target({each.name: each.flags for each in subscriptions}, {})
    if len(query.partition("?")[2]) > SUBSCRIPTION_BYTES_MAX:
        raise ValueError("too many flags are named for one group: use '*', or several groups")
    return GroupSession(server, subscriptions, policy or RefreshPolicy(), random.random, headers)


def parse_namespaces(namespaces: Namespaces) -> list[NamespaceSubscription]:
    """Which flags to follow; ValueError for what no server would take."""
    if not namespaces:
        raise ValueError("a group follows at least one namespace")
    if len(namespaces) > SUBSCRIBED_NAMESPACES_MAX:
        raise ValueError(f"a group follows at most {SUBSCRIBED_NAMESPACES_MAX} namespaces")
    subscriptions = [
        NamespaceSubscription(name, _parse_flags(name, flags)) for name, flags in namespaces.items()
    ]
    for each in subscriptions:
        if not all(map(is_slug, each.name.split("/", 1))):
            raise ValueError(f"{each.name!r} is not a namespace, as 'billing' or 'acme/billing'")
    if len({each.tenant for each in subscriptions}) > 1:
        raise ValueError("all namespaces of a group are of one tenant")
    return subscriptions


def _parse_flags(name: str, flags: str | Iterable[str]) -> FlagSet:
    listed = flags if isinstance(flags, str) else ",".join(flags)
    try:
        return parse_flag_list(listed)
    except SubscriptionRefused as refused:
        raise ValueError(f"{name}: {refused.message}") from None
