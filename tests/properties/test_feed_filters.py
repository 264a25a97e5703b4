"""Filters of feeds, asked of columns, against the rules as written, asked of envelopes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.record import block, payloads
from headrace.core.record_ids import read_id
from headrace.core.selector import Features
from headrace.surfaces.feeds.filters import EventFilter, EventSelector
from headrace.surfaces.feeds.names import EventResource, format_key, parse_key
from headrace.surfaces.feeds.records import parse_events, writer
from headrace.surfaces.feeds.wire import ResourceType

NOW_MS = 1_770_897_600_000
ids = st.sampled_from(["invoice", "production", "a/b", "a?b=c&d", "ü", "%2F", "3"])
names = st.sampled_from(["templateId", "environmentId", "variantId", "a=b&c"])
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
events = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["template.created", "version.published", "a.b-c.d_e"]),
        "resourceRef": st.fixed_dictionaries(
            {"resourceType": st.sampled_from(list(ResourceType)), "resourceId": ids},
            optional={"parentRefs": st.dictionaries(names, ids, max_size=3)},
        ),
    }
)
filters = st.builds(
    EventFilter,
    st.frozensets(st.sampled_from([each.value for each in ResourceType]), max_size=2),
    st.frozensets(
        st.sampled_from(["template.created", "version.published", "no.such"]), max_size=2
    ),
    st.frozensets(ids, max_size=2),
    st.frozensets(ids, max_size=2),
)


def wants(wanted: EventFilter, event: dict[str, Any]) -> bool:
    """AND between filters, OR within one; a template is one of its own events (P11, P12)."""
    ref = event["resourceRef"]
    parents = ref.get("parentRefs", {})
    own = {"template": "templateId", "environment": "environmentId", "activation": "environmentId"}
    known = {own[ref["resourceType"]]: ref["resourceId"]} if ref["resourceType"] in own else {}
    known |= parents
    return (
        (not wanted.resource_types or ref["resourceType"] in wanted.resource_types)
        and (not wanted.event_types or event["type"] in wanted.event_types)
        and (not wanted.template_ids or known.get("templateId") in wanted.template_ids)
        and (not wanted.environment_ids or known.get("environmentId") in wanted.environment_ids)
    )


@given(st.lists(events, min_size=1, max_size=8), filters, st.integers(0, 12))
@settings(max_examples=200, deadline=None)
def test_a_selector_picks_what_the_rules_say(
    sent: list[dict[str, Any]], wanted: EventFilter, after: int
) -> None:
    parsed = parse_events(json.dumps({"events": sent}).encode(), "acme", 1 << 20)
    stored = block(writer(parsed)(range(len(parsed)), 1, NOW_MS), 1, NOW_MS)
    selector = EventSelector(wanted, after)
    expected = [at for at, event in enumerate(sent) if wants(wanted, event) and at + 1 > after]
    assert list(selector.pick(stored, range(stored.count))) == expected
    assert [at for at in range(stored.count) if selector.takes(Features(stored, at))] == expected
    assert not selector.takes_all(stored) or len(expected) == stored.count


@given(st.lists(events, min_size=1, max_size=4), st.integers(1, 2**62))
@settings(max_examples=100, deadline=None)
def test_what_is_stored_is_the_whole_envelope(sent: list[dict[str, Any]], first: int) -> None:
    parsed = parse_events(json.dumps({"events": sent}).encode(), "acme", 1 << 20)
    drafts = writer(parsed)(range(len(parsed)), first, NOW_MS)
    for at, (event, payload) in enumerate(zip(sent, payloads(drafts), strict=True)):
        envelope = json.loads(payload)
        assert read_id(payload) == parsed[at].id.bytes
        assert envelope == {
            "id": str(parsed[at].id),
            "tenantId": "acme",
            "timestamp": "2026-02-12T12:00:00.000Z",
            "sequenceNumber": first + at,
            **event,
        }


@given(texts, texts, st.dictionaries(texts, texts, max_size=4))
def test_a_key_names_one_resource(type: str, id: str, parents: dict[str, str]) -> None:
    resource = EventResource(type.replace("/", "-").replace("?", "-"), id, parents)
    assert parse_key(format_key(resource)) == resource
