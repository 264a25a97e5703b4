"""Where a group asks: one server, and nothing that lies elsewhere, whatever a server says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from headrace.client.http_address import HttpAddress, port_of, split_url
from headrace.core.limits import SUBSCRIPTION_BYTES_MAX
from headrace.flags.keys import is_slug
from headrace.flags.subscription import FlagSet, encode_subscription

_CLOSURE = re.compile(r"/api/v1/tenants/([^/]+)/namespaces/([^/]+)/closure\Z")


class ServerAddress(HttpAddress, frozen=True):
    """A server of flags."""

    def events_target(self, flags: Mapping[str, FlagSet], since: Mapping[str, int]) -> str:
        """What to ask for to follow these namespaces, given as `slug` or `tenant/slug`.

        Hints from where on are left out when there is no room for them: they are no more than that.
        """
        query = "&".join(f"ns={quote(name)}:{each.canonical}" for name, each in flags.items())
        hints = ",".join(f"{slug}:{version}" for slug, version in since.items())
        if hints and len(query) + len(hints) + len("&since=") <= SUBSCRIPTION_BYTES_MAX:
            query += f"&since={hints}"
        return f"{self.path}/api/v1/events?{query}"

    def closure_target(self, tenant: str, slug: str, version: int, flags: FlagSet) -> str:
        """What to ask for to get a closure with one's own credential."""
        path = self._closure_path(tenant, slug)
        return f"{path}?version={version}&subscription={encode_subscription(flags)}"

    def _closure_path(self, tenant: str, slug: str) -> str:
        return f"{self.path}/api/v1/tenants/{tenant}/namespaces/{slug}/closure"

    def own_target(self, url: str, slug: str) -> str | None:
        """What to ask this server for to get the closure at a URL.

        None if that lies elsewhere, or is no closure of this namespace.
        """
        parts, tenant = split_url(url), tenant_in(url, slug)
        if parts is None or parts.fragment or tenant is None:
            return None
        if parts.path != self._closure_path(tenant, slug):
            return None
        if (parts.scheme, parts.hostname, port_of(parts)) != (self.scheme, self.host, self.port):
            return None
        return f"{parts.path}?{parts.query}"


def tenant_in(url: str, slug: str) -> str | None:
    """The tenant in the URL of a closure of this namespace; None if it is not such a URL."""
    parts = split_url(url)
    found = None if parts is None else _CLOSURE.search(parts.path)
    if found is None or found[2] != slug or not is_slug(found[1]):
        return None
    return found[1]
