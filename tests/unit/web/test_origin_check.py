"""Without keys: whose requests are refused, by what a browser says of the page behind them."""

from __future__ import annotations

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.limits import HOSTS_KNOWN_MAX
from headrace.web.origin_check import OriginCheck

PLAIN = OriginCheck((), ())


def is_refused(check: OriginCheck, method: str, **headers: str) -> bool:
    raw = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    try:
        check.check(method, raw)
    except Refused as refused:
        return refused.code is Code.FORBIDDEN
    return False


LOOPBACK = [
    "localhost", "localhost:4000", "LocalHost:4000", "localhost.", "app.localhost:80",
    "127.0.0.1", "127.0.0.1:4000", "127.8.9.10:1", "[::1]", "[::1]:4000", "[0:0:0:0:0:0:0:1]:1",
]  # fmt: skip
FOREIGN = [
    "", "evil.example", "evil.example:4000", "localhost.evil.example", "127.0.0.1.evil.example",
    "evillocalhost", "10.0.0.1", "[::2]:4000", "[fe80::1]", "0.0.0.0:4000", "localhost:80@evil",
    "evil@localhost", "[::1].evil", "localhost:x", "127.0.0.1:4000, evil",
    "a." * 200 + "localhost",
]  # fmt: skip


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_hosts_are_answered(host: str) -> None:
    assert not is_refused(PLAIN, "GET", host=host)
    assert not is_refused(PLAIN, "POST", host=host), "and the second time"


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_other_hosts_are_not(host: str, method: str) -> None:
    assert is_refused(PLAIN, method, host=host)
    assert is_refused(PLAIN, method, host=host), "nor the second time"


def test_hosts_of_the_setting_are_answered_on_any_port() -> None:
    check = OriginCheck(("headrace", "10.0.0.1", "fd00::1"), ())
    for host in ("headrace", "headrace:4000", "10.0.0.1:80", "[fd00::1]:4000", "localhost"):
        assert not is_refused(check, "POST", host=host)
    assert is_refused(check, "GET", host="headrace.example")
    assert not is_refused(OriginCheck(("*",), ()), "GET", host="whatever.example")


def test_who_sends_no_host_is_no_browser() -> None:
    assert not is_refused(PLAIN, "POST")


HOST = {"host": "localhost:4000"}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "WHATEVER"])
@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (False, {}),
        (False, {"origin": "http://localhost:4000"}),
        (False, {"origin": "http://localhost:4000", "sec_fetch_site": "same-origin"}),
        (False, {"sec_fetch_site": "same-origin"}),
        (False, {"sec_fetch_site": "none"}),
        (True, {"sec_fetch_site": "cross-site"}),
        (True, {"sec_fetch_site": "same-site"}),
        (True, {"sec_fetch_site": "something new"}),
        (True, {"origin": "http://localhost:3000"}),
        (True, {"origin": "http://localhost:3000", "sec_fetch_site": "same-site"}),
        (True, {"origin": "https://evil.example"}),
        (True, {"origin": "https://evil.example", "sec_fetch_site": "cross-site"}),
        (True, {"origin": "https://evil.example", "sec_fetch_site": "same-origin"}),
        (True, {"origin": "http://localhost:4000", "sec_fetch_site": "cross-site"}),
        (True, {"origin": "null"}),
        (True, {"origin": ""}),
    ],
)
def test_what_changes_something_is_for_our_own_pages(
    method: str, refused: bool, said: dict[str, str]
) -> None:
    assert is_refused(PLAIN, method, **HOST, **said) is refused


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_what_only_reads_is_for_all(method: str) -> None:
    # A page elsewhere sees nothing of the answer: that is up to its browser.
    said = {"origin": "https://evil.example", "sec_fetch_site": "cross-site"}
    assert not is_refused(PLAIN, method, **HOST, **said)


def test_pages_of_listed_origins_may_do_everything() -> None:
    listed = OriginCheck((), ("https://app.example",))
    said = {"origin": "https://app.example", "sec_fetch_site": "cross-site"}
    assert not is_refused(listed, "POST", **HOST, **said)
    assert is_refused(listed, "POST", **HOST, origin="https://other.example")
    assert is_refused(listed, "POST", **HOST, sec_fetch_site="cross-site")
    assert is_refused(listed, "POST", host="evil.example", **said), "not under another name"
    assert not is_refused(OriginCheck((), ("*",)), "POST", **HOST, sec_fetch_site="cross-site")


def test_what_is_remembered_of_hosts_is_bounded() -> None:
    check = OriginCheck((), ())
    for at in range(3 * HOSTS_KNOWN_MAX):
        assert not is_refused(check, "GET", host=f"x{at}.localhost")
    assert len(check._known) <= HOSTS_KNOWN_MAX


@pytest.mark.parametrize(
    ("headers", "setting"),
    [
        ({b"host": b"headrace.example"}, "HEADRACE_ALLOWED_HOSTS"),
        ({b"host": b"localhost", b"origin": b"http://localhost:5173"}, "HEADRACE_CORS_ORIGINS"),
    ],
)
def test_who_is_refused_is_told_the_setting(headers: dict[bytes, bytes], setting: str) -> None:
    with pytest.raises(Refused, match=f"list this one in {setting}"):
        PLAIN.check("POST", headers)
