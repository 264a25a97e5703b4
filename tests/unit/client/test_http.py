"""The client of the bulk surface: where it goes."""

from __future__ import annotations

import pytest

from headrace.client.http import Server


@pytest.mark.parametrize(
    "url",
    ["nowhere", "ftp://127.0.0.1", "http://", "http://a:99999", "http://a b", "http://a/?b"],
)
def test_what_is_no_address_is_said_before_a_request_is_made(url: str) -> None:
    with pytest.raises(ValueError, match="not the address of a server"):
        Server(url)
