"""Paths and what they lead to."""

from __future__ import annotations

import pytest

from headrace.web.routing import RouteTable

ROUTER = RouteTable(
    (template, template)
    for template in (
        "/a",
        "/a/{x}",
        "/a/{x}/b",
        "/s/{n:path}",
        "/s/{n:path}/_schema",
        "/s/{n:path}/pk/{key}",
        "/s/__ds/{id}",
    )
)


@pytest.mark.parametrize(
    ("path", "template", "values"),
    [
        ("/a", "/a", ()),
        ("/a/1", "/a/{x}", ("1",)),
        ("/a/b", "/a/{x}", ("b",)),
        ("/a/1/b", "/a/{x}/b", ("1",)),
        ("/s/1", "/s/{n:path}", ("1",)),
        ("/s/1/2/3", "/s/{n:path}", ("1/2/3",)),
        ("/s/_schema", "/s/{n:path}", ("_schema",)),
        ("/s/1/2/_schema", "/s/{n:path}/_schema", ("1/2",)),
        ("/s/1/pk/k", "/s/{n:path}/pk/{key}", ("1", "k")),
        ("/s/pk/k", "/s/{n:path}", ("pk/k",)),
        ("/s/1/pk/_schema", "/s/{n:path}/pk/{key}", ("1", "_schema")),
        ("/s/__ds/i", "/s/__ds/{id}", ("i",)),
        ("/s//", "/s/{n:path}", ("/",)),
    ],
)
def test_where_a_path_leads(path: str, template: str, values: tuple[str, ...]) -> None:
    match = ROUTER.find(path.split("/"))
    assert match is not None
    assert (match.found, match.values) == (template, values)
    assert len(match.names) == len(values)


@pytest.mark.parametrize("path", ["", "/", "/b", "/a/", "/a/1/", "/a/1/c", "/s", "/s/__ds/i/j"])
def test_where_nothing_is(path: str) -> None:
    assert ROUTER.find(path.split("/")) is None


def test_two_things_cannot_be_at_one_place() -> None:
    with pytest.raises(AssertionError, match="two places"):
        RouteTable([("/a/{x}", 1), ("/a/{y}", 2)])
