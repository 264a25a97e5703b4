"""Where a client asks: its own server, whatever URLs it is told."""

from __future__ import annotations

import pytest

from headrace.client.flags.addresses import ServerAddress, tenant_in
from headrace.flags.subscription import EVERY_FLAG, FlagSet

SERVER = ServerAddress.parse("https://flags.example.com/base/")
CLOSURE = "/api/v1/tenants/acme/namespaces/billing/closure"


def test_what_is_asked_for() -> None:
    flags = {"billing": FlagSet(("a", "b")), "growth": EVERY_FLAG}
    target = SERVER.events_target(flags, {"billing": 41, "growth": 7})
    assert target == "/base/api/v1/events?ns=billing:a,b&ns=growth:*&since=billing:41,growth:7"
    assert SERVER.closure_target("acme", "billing", 42, FlagSet(("checkout-redesign",))) == (
        f"/base{CLOSURE}?version=42&subscription=Y2hlY2tvdXQtcmVkZXNpZ24"
    )


def test_hints_are_left_out_where_there_is_no_room() -> None:
    flags = {
        f"n{at}": FlagSet(tuple(f"{'k' * 60}{each:02}" for each in range(64))) for at in (1, 2)
    }
    assert "since" not in SERVER.events_target(flags, {"n1": 10**300})


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("http://127.0.0.1:4000", "127.0.0.1:4000"),
        ("http://flags.test:80/", "flags.test"),
        ("https://[::1]:8443", "[::1]:8443"),
        ("https://Flags.Test", "flags.test"),
    ],
)
def test_hosts(url: str, authority: str) -> None:
    assert ServerAddress.parse(url).authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "", "flags.test", "ftp://flags.test", "http://", "http://user:secret@flags.test",
        "http://flags.test:port", "http://flags.test/ x", "http://flags.test\r\nx: y",
        "http://flags.test/?a=b", "http://flags.test/#a", "http://[::1",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        ServerAddress.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        f"https://flags.example.com/base{CLOSURE}?version=1&token=x",
        f"https://FLAGS.example.com:443/base{CLOSURE}?version=1&token=x",
    ],
)
def test_a_url_of_the_same_server_is_asked_for_as_it_is(url: str) -> None:
    assert SERVER.own_target(url, "billing") == f"/base{CLOSURE}?version=1&token=x"


@pytest.mark.parametrize(
    "url",
    [
        f"http://flags.example.com/base{CLOSURE}?version=1",
        f"https://flags.example.com:444/base{CLOSURE}?version=1",
        f"https://evil.example.com/base{CLOSURE}?version=1",
        f"https://flags.example.com@evil.test/base{CLOSURE}?version=1",
        f"https://flags.example.com.evil.test/base{CLOSURE}?version=1",
        f"//evil.test/base{CLOSURE}",
        f"/base{CLOSURE}",
        f"https://flags.example.com{CLOSURE}?version=1",
        f"https://flags.example.com/other{CLOSURE}?version=1",
        f"https://flags.example.com/base{CLOSURE}?a=b HTTP/1.1\r\nx: y",
        f"https://flags.example.com/base{CLOSURE}?é",
        "file:///etc/passwd",
        "https://flags.example.com/base/api/v1/tokens",
        "https://flags.example.com/base/api/v1/tenants/acme/namespaces/growth/closure?version=1",
        f"https://flags.example.com/base{CLOSURE}/../manifest?version=1",
        f"https://flags.example.com/base{CLOSURE}#x",
    ],
)
def test_a_url_of_anything_else_is_not_asked_for(url: str) -> None:
    assert SERVER.own_target(url, "billing") is None


def test_the_tenant_is_in_the_url_of_a_closure() -> None:
    assert tenant_in(f"https://elsewhere.test/base{CLOSURE}?version=1", "billing") == "acme"
    assert tenant_in(f"https://elsewhere.test{CLOSURE}", "growth") is None
    for tenant in ("..", "%2e%2e", "A", "a/b", "a b", ""):
        url = f"https://flags.test/api/v1/tenants/{tenant}/namespaces/billing/closure"
        assert tenant_in(url, "billing") is None
