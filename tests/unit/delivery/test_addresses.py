"""Which addresses are public, and which private ones the operator may name."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from headrace.delivery.addresses import AllowedHosts, is_public

PUBLIC = ["8.8.8.8", "1.1.1.1", "100.63.255.255", "172.32.0.1", "2606:4700::1", "2a00:1450::1"]
PRIVATE = {
    "unspecified": ["0.0.0.0", "0.1.2.3", "::"],
    "loopback": ["127.0.0.1", "127.255.0.1", "::1"],
    "private": ["10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fd00::1", "fc00::1"],
    "link-local": ["169.254.169.254", "fe80::1", "fe80::1%eth0"],
    "site-local": ["fec0::1", "feff::1"],
    "shared": ["100.64.0.1", "100.127.255.255"],
    "benchmarking": ["198.18.0.1", "198.19.255.255", "2001:2::1"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    "multicast, reserved": ["224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "ff02::1"],
    "protocols": ["192.0.0.1", "192.0.0.9", "192.88.99.1", "2001:10::1", "100::1", "5f00::1"],
    "IPv4-mapped": ["::ffff:10.0.0.1", "::ffff:8.8.8.8"],
    "IPv4-compatible": ["::10.0.0.1", "::8.8.8.8", "::7f00:1"],
    "NAT64": ["64:ff9b::a00:1", "64:ff9b::8.8.8.8", "64:ff9b:1::a00:1", "64:ff9b:1:ffff::1"],
    "6to4": ["2002:a00:1::", "2002:808:808::1"],
    "Teredo": ["2001:0:4136:e378:8000:63bf:f5ff:fffe", "2001::1"],
}


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize("kind", PRIVATE)
def test_addresses_that_are_not(kind: str) -> None:
    assert [text for text in PRIVATE[kind] if is_public(ip_address(text))] == []


def test_what_an_operator_may_name() -> None:
    allowed = AllowedHosts.parse(" 10.0.0.0/8, ::1,Hooks.Internal ,localhost,127.0.0.1")
    assert allowed.has_name("hooks.internal")
    assert allowed.has_name("localhost")
    assert not allowed.has_name("example.com")
    assert [
        text
        for text in ("10.9.8.7", "::1", "127.0.0.1", "127.0.0.2", "11.0.0.1", "fd00::1")
        if allowed.has_address(ip_address(text))
    ] == ["10.9.8.7", "::1", "127.0.0.1"]


@pytest.mark.parametrize("text", ["10.0.0.1/8", "*", "a b", "http://x", "1.2.3", "x:80", "a/24"])
def test_what_an_operator_may_not(text: str) -> None:
    with pytest.raises(ValueError, match="joined by commas"):
        AllowedHosts.parse(text)
