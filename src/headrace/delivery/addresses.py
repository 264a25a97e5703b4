"""Addresses of hosts: loopback, public, and those private ones that the operator named."""

from __future__ import annotations

import ipaddress
import re

import msgspec

from headrace.core.limits import HOST_NAME_LENGTH_MAX

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_HOST_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")

# Everything that is registered for a special purpose. Of IPv6 only global unicast is public at all;
# inside it, what carries an IPv4 address (Teredo, 6to4) could carry a private one. NAT64,
# IPv4-mapped, IPv4-compatible, site-local and multicast addresses lie outside.
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_SPECIAL: tuple[Network, ...] = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
            "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
            "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
            "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
        ),
    )
)  # fmt: skip


def is_public(address: Address) -> bool:
    """Whether the address is one of the open internet, whatever way leads there."""
    if address.version == 6 and address not in _GLOBAL_UNICAST:
        return False
    return not any(address in network for network in _SPECIAL)


def parse_address(host: str) -> Address | None:
    """The address that a host is written as; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host; a name other than localhost never counts."""
    address = parse_address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_host_name(host: str) -> bool:
    return len(host) <= HOST_NAME_LENGTH_MAX and _HOST_NAME.fullmatch(host) is not None


def is_number(host: str) -> bool:
    """Whether a host is written as a number, or ends in one: some take that for an address."""
    last = host.rstrip(".").rpartition(".")[2]
    return last.isdigit() or last.startswith("0x")


class AllowedHosts(msgspec.Struct, frozen=True):
    """Private receivers that the operator allows, over plain HTTP too."""

    names: frozenset[str] = frozenset()
    """Trusted with whatever addresses they have."""
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> AllowedHosts:
        """Read networks, addresses and host names, joined by commas."""
        names: set[str] = set()
        networks: list[Network] = []
        for item in filter(None, map(str.strip, text.lower().split(","))):
            try:
                networks.append(ipaddress.ip_network(item))
            except ValueError:
                if not is_host_name(item) or "/" in item or item[-1].isdigit():
                    raise ValueError(
                        "networks as 10.0.0.0/8, addresses and host names, joined by commas"
                    ) from None
                names.add(item)
        return cls(frozenset(names), tuple(networks))

    def has_name(self, host: str) -> bool:
        return host in self.names

    def has_address(self, address: Address) -> bool:
        return any(address in network for network in self.networks)
