"""What is said of events that cannot be stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.core.errors import Refused
from headrace.surfaces.feeds.records import parse_events

REF = {"resourceType": "theme", "resourceId": "dark"}


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"type": "theme"}, "type is made of two words or more, joined by dots: version.published"),
        ({"type": "a.b\n"}, "type is made of two words or more, joined by dots: version.published"),
        ({"type": "a.b", "id": "7"}, "id is not a UUID"),
    ],
)
def test_a_value_of_the_wrong_form_is_told_what_it_should_be(
    event: dict[str, Any], message: str
) -> None:
    body = json.dumps({"events": [{**event, "resourceRef": REF}]}).encode()
    with pytest.raises(Refused) as refused:
        parse_events(body, "acme", 1000)
    assert refused.value.message == f"events[0].{message}"
    (error,) = refused.value.detail["errors"]
    assert error.rejected_value in event.values()
