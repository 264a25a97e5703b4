from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec.structs import replace

from headrace.core.errors import Code
from headrace.web.answers import Answer
from headrace.web.calls import Call
from headrace.web.credentials import NO_SCOPE, Scope
from headrace.web.docs_page import render
from headrace.web.envelope import refuser
from headrace.web.openapi import build
from headrace.web.surface import (
    Described,
    OutgoingCall,
    Parameter,
    Refusal,
    Route,
    Surface,
    complete,
)


class Leaf(msgspec.Struct):
    """One record as it is read."""

    seq: int = msgspec.field(name="$seq")
    data: msgspec.Raw
    meta: dict[str, msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET


class Batch(msgspec.Struct):
    """What a write carries."""

    records: list[Leaf]
    node: str | list[str] | None = None
    kind: Literal["log", "queue"] = "log"
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=30_000, description="Longest <wait>.")] = 0


class Tree(msgspec.Struct):
    children: list[Tree]


class Failure(msgspec.Struct):
    code: str
    message: str


async def nobody(call: Call) -> Answer:
    raise NotImplementedError


TOPIC = Parameter("topic", str, "Name of the topic.", place="path", example="jobs")
PAGE_SIZE = Parameter("page_size", int, "Entries in a page.", default=100)
FAILED = Described(Failure, "The request is wrong.")

ROUTES = (
    Route(
        "POST",
        "/v0/topics/{topic}",
        nobody,
        "Append records.",
        {201: Described(Leaf, "Created."), 200: Described(Leaf, "Appended."), 400: FAILED},
        request=Batch,
        parameters=(TOPIC, Parameter("Idempotency-Key", str, "Dedupe key.", place="header")),
        scope=Scope.WRITE,
        group="Records",
        example={"records": [{"data": "it's here"}]},
    ),
    Route(
        "DELETE",
        "/v0/topics/{topic}",
        nobody,
        "Delete <b>everything</b>.",
        {200: Described(None, "Gone.")},
        scope=Scope.READ | Scope.DELETE,
        group="Topics",
    ),
    Route(
        "GET",
        "/v0/topics/{topic}/at/{seq}",
        nobody,
        "Read one.",
        {200: Described(list[Leaf], ""), 404: FAILED},
        parameters=(PAGE_SIZE,),
        scope=NO_SCOPE,
        group="Records",
    ),
    Route("GET", "/v0/metrics", nobody, "Scrape.", {200: Described(str, "Metrics.", "text/plain")}),
    Route("PUT", "/v0/tree", nobody, "Grow.", {200: Described(Tree, "Grown.")}, request=Tree),
)
REFUSALS = complete(
    {Code.INVALID: Refusal(400, "invalid_request", "The <request> cannot be read.")}
)
SURFACE = Surface(
    name="tried",
    title="Tried",
    prefixes=("/v0/",),
    routes=ROUTES,
    refusals=REFUSALS,
    refuse=refuser(REFUSALS),
)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return build("Headrace & topics", "0.1.0", [SURFACE], description="One <engine>.")


def test_the_document_survives_json(document: dict[str, Any]) -> None:
    assert json.loads(msgspec.json.encode(document)) == document
    assert document["openapi"] == "3.1.0"
    assert document["info"]["title"] == "Headrace & topics"


def refs(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from refs(value)
    elif isinstance(node, list):
        for value in node:
            yield from refs(value)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    components = document["components"]["schemas"]
    assert set(components) == {"Batch", "Leaf", "Tree", "Failure"}
    assert {ref.removeprefix("#/components/schemas/") for ref in refs(document)} == set(components)


def test_operations_carry_their_parts(document: dict[str, Any]) -> None:
    append = document["paths"]["/v0/topics/{topic}"]["post"]
    assert append["operationId"] == "post_v0_topics_topic"
    assert append["tags"] == ["Records"]
    assert list(append["responses"]) == ["200", "201", "400"]
    body = append["requestBody"]["content"]["application/json"]
    assert body["schema"] == {"$ref": "#/components/schemas/Batch"}
    assert [(each["name"], each["in"], each["required"]) for each in append["parameters"]] == [
        ("topic", "path", True),
        ("Idempotency-Key", "header", False),
    ]
    assert document["tags"] == [{"name": "Records"}, {"name": "Topics"}]
    assert document["x-error-codes"][0]["code"] == "invalid_request"


def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    ids = [spec["operationId"] for path in document["paths"].values() for spec in path.values()]
    assert len(set(ids)) == len(ROUTES)


def test_path_parameters_are_found_without_being_written(document: dict[str, Any]) -> None:
    read = document["paths"]["/v0/topics/{topic}/at/{seq}"]["get"]
    assert [each["name"] for each in read["parameters"]] == ["topic", "seq", "page_size"]
    assert read["parameters"][2]["schema"] == {"type": "integer", "default": 100}
    assert read["responses"]["200"]["description"] == "OK"


def test_scopes_become_security(document: dict[str, Any]) -> None:
    paths = document["paths"]
    assert paths["/v0/topics/{topic}"]["delete"]["security"] == [{"bearer": ["read", "delete"]}]
    assert paths["/v0/topics/{topic}/at/{seq}"]["get"]["security"] == [{"bearer": []}]
    assert paths["/v0/metrics"]["get"]["security"] == []


def test_a_wrong_table_is_found_at_once() -> None:
    def document(*routes: Route) -> None:
        build("t", "1", [replace(SURFACE, routes=routes)])

    with pytest.raises(AssertionError, match="has no place for"):
        document(replace(ROUTES[0], path="/v0/topics"))
    namesake = msgspec.defstruct("Leaf", ["other"])
    with pytest.raises(AssertionError, match="two wire types are called Leaf"):
        document(ROUTES[0], replace(ROUTES[3], request=namesake))


def test_types_of_several_surfaces_may_have_one_name() -> None:
    leaf = msgspec.defstruct("Leaf", ["other"])
    other = replace(SURFACE, name="other", routes=[replace(ROUTES[3], request=leaf, path="/o")])
    components = build("t", "1", [SURFACE, other])["components"]["schemas"]
    assert {"tried.Leaf", "other.Leaf"} <= set(components)


def test_schemes_media_and_webhooks_are_told() -> None:
    surface = replace(
        SURFACE,
        routes=[replace(ROUTES[0], media="text/csv", request=str), replace(ROUTES[3], summary="")],
        security={"a": {"type": "http"}, "b": {"type": "apiKey"}},
        webhooks={
            "changed": OutgoingCall(
                summary="A change",
                request=Leaf,
                parameters=[Parameter("webhook-id", str, "Of the delivery.", place="header")],
                replies={200: "It was taken."},
                group="Changes",
            )
        },
    )
    made = build("t", "1", [surface])
    append = made["paths"]["/v0/topics/{topic}"]["post"]
    assert append["security"] == [{"a": ["write"]}, {"b": ["write"]}]
    assert list(append["requestBody"]["content"]) == ["text/csv"]
    called = made["webhooks"]["changed"]["post"]
    assert (called["summary"], called["operationId"]) == ("A change", "webhook_changed")
    assert [each["name"] for each in called["parameters"]] == ["webhook-id"]
    assert called["responses"] == {"200": {"description": "It was taken."}}
    assert (called["tags"], called["requestBody"]["required"]) == (["Changes"], True)
    [content] = called["requestBody"]["content"].values()
    assert content["schema"] == {"$ref": "#/components/schemas/Leaf"}
    assert "Leaf" in made["components"]["schemas"]
    assert "/v0/metrics" not in made["paths"], "what has no summary is not told of"


class Outline(HTMLParser):
    """Checks that tags nest, and collects ids, links and text."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        given = {name: value or "" for name, value in attrs}
        assert not any(name.startswith("on") or name == "src" for name in given)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def page(document: dict[str, Any]) -> str:
    return render(document, "http://127.0.0.1:4000")


def test_the_page_is_whole_and_needs_nothing_else(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    outline.close()
    assert outline.open == []
    assert len(set(outline.ids)) == len(outline.ids)
    inside = {link[1:] for link in outline.links if link.startswith("#")}
    assert inside <= set(outline.ids)
    assert {link for link in outline.links if not link.startswith("#")} == {"/openapi.json"}
    assert "<script" not in page


def test_the_page_says_what_the_document_says(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    text = "".join(outline.text)
    for expected in (
        "Headrace & topics",
        "Append records.",
        "Delete <b>everything</b>.",
        "Needs a key with write.",
        "Needs a key with read and delete.",
        "No key needed.",
        "Longest <wait>. ≥ 0 ≤ 30000 default 0",
        "The <request> cannot be read.",
        "array of Leaf",
        "object of any JSON",
        '"log" or "queue"',
        "text/plain",
    ):
        assert expected in text, expected


def test_examples_can_be_pasted(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    text = "".join(outline.text)
    assert (
        "curl -X POST http://127.0.0.1:4000/v0/topics/jobs \\\n"
        '  -H "Authorization: Bearer $KEY" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        """  -d '{"records": [{"data": "it'"'"'s here"}]}'"""
    ) in text
    assert "curl http://127.0.0.1:4000/v0/metrics" in text


def test_what_comes_from_outside_is_escaped(document: dict[str, Any]) -> None:
    page = render(document, "http://evil'><script>alert(1)</script>")
    assert "<script" not in page
