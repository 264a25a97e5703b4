"""Pages in a browser against a server without keys: which may ask, and what for.

Without keys whoever reaches the port may do everything, and any page a user opens reaches it
through the browser. Two things give such a page away. It came to us under a name of its own
(`Host`): DNS rebinding. Or the browser says that it belongs to another site (`Origin`,
`Sec-Fetch-Site`). Browsers alone send the latter, and no page can change them; programs send
neither and are let through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.core.errors import Code, Refused
from headrace.core.limits import HOST_LENGTH_MAX, HOSTS_KNOWN_MAX
from headrace.delivery.addresses import is_loopback

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/]+))(?::[0-9]*)?")
_READS = frozenset(("GET", "HEAD", "OPTIONS"))
_SAME = frozenset((None, b"same-origin", b"none"))
"""What a browser says of our own pages, and of what its user typed; old ones say nothing."""


class OriginCheck:
    """Refuses requests of foreign pages; one for a server without keys."""

    def __init__(self, hosts: tuple[str, ...], origins: tuple[str, ...]) -> None:
        self._hosts = hosts
        self._any_host = hosts == ("*",)
        self._origins = frozenset(origin.encode() for origin in origins)
        self._any_origin = origins == ("*",)
        self._known: set[bytes] = set()
        """Hosts that were found to be ours before."""

    def check(self, method: str, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a request for another host, or one of a foreign page that would change something.

        A request without a Host is not from a browser.
        """
        host = headers.get(b"host")
        if host is not None and host not in self._known:
            self._check_host(host)
        is_of_page = b"origin" in headers or b"sec-fetch-site" in headers
        if is_of_page and method not in _READS:
            self.check_page(headers)

    def check_page(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse what a foreign page asks for, whatever it is."""
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if (origin is None and site is None) or self._any_origin or origin in self._origins:
            return
        ours = origin is None or origin.partition(b"://")[2] == headers.get(b"host", b"").lower()
        if not ours or site not in _SAME:
            raise Refused(
                Code.FORBIDDEN,
                "pages of other origins may not do this on a server without keys; "
                "list this one in HEADRACE_CORS_ORIGINS",
                origin=None if origin is None else origin.decode("latin-1"),
            )

    def _check_host(self, host: bytes) -> None:
        if self._any_host:
            return
        text = host.decode("latin-1").lower()
        found = _HOST.fullmatch(text) if len(text) <= HOST_LENGTH_MAX else None
        name = "" if found is None else (found[1] or found[2]).removesuffix(".")
        local = is_loopback(name) or name.endswith(".localhost")
        if not (local or name in self._hosts):
            raise Refused(
                Code.FORBIDDEN,
                "without keys only loopback hosts are answered; "
                "list this one in HEADRACE_ALLOWED_HOSTS, or configure HEADRACE_API_KEYS",
                host=text[:255],
            )
        if len(self._known) >= HOSTS_KNOWN_MAX:
            self._known.clear()
        self._known.add(host)
