"""What a request says in its first line, and what that may cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.limits import PATH_SHOWN_BYTES_MAX, QUERY_PARAMETERS_MAX
from headrace.surfaces.streams import reading
from headrace.web.calls import Gate
from headrace.web.concurrency import Slots
from headrace.web.credential_store import CredentialStore
from headrace.web.responder import Responder
from headrace.web.search_requests import parse_parameters
from support.asking import ask, make_request
from support.template_surface.routes import surface


@pytest.mark.parametrize(
    "parse",
    [
        lambda query: make_request("GET", f"/?{query}").get_param("a0"),
        lambda query: reading.parse_query(query)["a0"],
        lambda query: parse_parameters(query)["a0"],
    ],
)
def test_a_query_has_so_many_parameters(parse: Callable[[str], Any]) -> None:
    """Hundreds of thousands would hold everybody up while they are read."""
    most = "&".join(f"a{number}=b" for number in range(QUERY_PARAMETERS_MAX))
    assert parse(most) == "b"
    with pytest.raises(Refused) as refusal:
        parse(most + "&c=d")
    assert refusal.value.code is Code.INVALID


def test_a_long_path_is_told_in_short() -> None:
    request = make_request("GET", "/v0/" + "%41" * 80_000)
    assert request.path == "/v0/" + "A" * ((PATH_SHOWN_BYTES_MAX - 4) // 3)
    respond = Responder(Gate(CredentialStore(), Slots(), Slots(), 0), [surface()])
    reply = asyncio.run(ask(respond, "GET", "/v0/" + "%41" * 80_000))
    assert reply.status == 404
    assert len(reply.body) < 2 * PATH_SHOWN_BYTES_MAX
