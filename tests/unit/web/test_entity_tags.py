"""Entity tags: lists, the star, weak ones, and what is none of them."""

from __future__ import annotations

import pytest

from headrace.web.entity_tags import tag_matches


@pytest.mark.parametrize(
    "header", ['"v3"', "*", 'W/"v3"', '"v1", "v3"', ' "v3" , "v9"', '"v1",W/"v3"']
)
def test_who_has_it(header: str) -> None:
    assert tag_matches(header, '"v3"')
    assert tag_matches(header, 'W/"v3"')


@pytest.mark.parametrize("header", [None, "", '"v33"', "v3", '"v1", "v2"', '"*"', '""'])
def test_who_does_not(header: str | None) -> None:
    assert not tag_matches(header, '"v3"')
