"""What can be shown of a lens, and what cannot."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from headrace.core.errors import Refused
from headrace.schemas import proof
from headrace.schemas.implication import spread
from headrace.schemas.lens import parse_lens
from headrace.schemas.proof import prove
from headrace.schemas.proof_budget import ProofBudget

TEXT = {"type": "string"}
INT = {"type": "integer"}
S = {"mode": "singleton"}


def obj(required: str = "", **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


def rename(source: str, to: str) -> dict[str, Any]:
    return {"op": "rename", "from": source, "to": to}


def convert(kinds: str, forward: dict[str, Any], back: Any = "") -> dict[str, Any]:
    source, to = kinds.split(">")
    backward = {"map": {}, "default": back}
    return {
        "op": "convert", "path": "/a", "fromType": source, "toType": to,
        "forward": forward, "backward": backward,
    }  # fmt: skip


def problem(old: Any, new: Any, *ops: dict[str, Any]) -> str:
    lens = {"apiVersion": "durable.lens/v1", "schema": "s", "from": 1, "to": 2, "ops": [*ops]}
    try:
        prove(old, new, parse_lens(lens))
    except Refused as refused:
        return refused.message
    return ""


AB = rename("/a", "/b")
IN = {"op": "in", "path": "/o", "ops": [AB]}
MAP = {"op": "map", "path": "/l", "ops": [AB]}
WRAP = {"op": "wrap", "path": "/a", **S}
HEAD = {"op": "head", "path": "/a"}
LOWER = convert("string>string", {"builtin": "lowercase"})
PLUNGE = {"op": "plunge", "from": "/a", "host": "/h", "name": "x"}
OPEN = {"additionalProperties": True}


@pytest.mark.parametrize(
    ("old", "new", "ops"),
    [
        (obj("a", a=TEXT), obj("b", b=TEXT), [AB]),
        (obj("a", a=INT), obj("b", b={"type": "number"}), [AB]),
        (obj("a", a={"enum": [1, 2]}), obj("b", b=INT), [AB]),
        (obj("a", a={"const": "x"}), obj("b", b={"enum": ["x", "y"]}), [AB]),
        (obj("a", a=TEXT), obj("b", b=TEXT), [rename("/a", "/t"), rename("/t", "/b")]),
        (obj("a", a=TEXT), obj("a b", a=TEXT, b=TEXT), [{"op": "copy", "from": "/a", "to": "/b"}]),
        (obj(), obj("n", n=INT), [{"op": "add", "path": "/n", "schema": INT, "default": 1}]),
        (obj("a", a=TEXT), obj(), [{"op": "remove", "path": "/a", "schema": TEXT}]),
        (obj("h", h=obj("x", x=INT)), obj("h x", h=obj(), x=INT),
         [{"op": "hoist", "host": "/h", "name": "x", "to": "/x"}]),
        (obj("a", a=INT) | {"additionalProperties": False}, obj("h", h=obj("x", x=INT)), [PLUNGE]),
        (obj("a", a=INT), obj("h", h=obj("x", x=INT)), [PLUNGE]),
        (obj("a", a=INT) | OPEN, obj("h", h=obj("x", x=INT)) | OPEN, [PLUNGE]),
        (obj("a", a=INT) | {"minProperties": 1}, obj("h", h=obj("x", x=INT, y=TEXT)), [PLUNGE]),
        (obj("a", a=INT) | {"anyOf": [{"required": ["a"]}]}, obj("h", h=obj("x", x=INT)), [PLUNGE]),
        (obj("a", a=INT) | {"additionalProperties": TEXT}, obj("h", h=obj("x", x=INT)), [PLUNGE]),
        (obj("a", a=TEXT), obj("b", b=TEXT) | {"additionalProperties": False}, [AB]),
        (obj("a", a=TEXT), obj("b", b=TEXT, n=INT), [AB]),
        (obj("a o", a=TEXT, o=obj(x=INT)), obj("b o", b=TEXT, o=obj(x=INT, y=INT)), [AB]),
        (obj("a", a=INT, h=obj(y=TEXT)), obj("h", h=obj("x", x=INT, y=TEXT)), [PLUNGE]),
        (obj("a", a=TEXT), obj("a", a={"type": "array", "items": TEXT, "maxItems": 1}), [WRAP]),
        (obj("a", a=TEXT), obj("b", b={"type": "array", "items": TEXT}),
         [AB, {**WRAP, "path": "/b"}]),
        (obj("a", a={"type": "array", "items": INT, "minItems": 1}), obj("a", a=INT), [HEAD]),
        (obj("a", a={"enum": [[1, 2], [3]]}), obj("a", a={"enum": [1, 3]}), [HEAD]),
        (obj("a", a=TEXT), obj("a", a=TEXT), [LOWER]),
        (obj("a", a={"enum": ["A"]}), obj("a", a={"const": "a"}), [LOWER]),
        (obj("a", a={"enum": ["1", "2"]}), obj("a", a={"enum": [1, 2]}),
         [convert("string>integer", {"builtin": "string_to_int"})]),
        (obj("a", a={"const": "2026-01-01T00:00:00Z"}), obj("a", a=INT),
         [convert("string>integer", {"builtin": "rfc3339_to_unix_millis"})]),
        (obj("a", a=INT), obj("a", a=TEXT),
         [convert("integer>string", {"builtin": "unix_millis_to_rfc3339"}, 0)]),
        (obj("a", a=INT | {"minimum": 0, "maximum": 253402300799999}),
         obj("a", a=TEXT | {"format": "date-time"}),
         [convert("integer>string", {"builtin": "unix_millis_to_rfc3339"}, 0)]),
        (obj("a", a=TEXT), obj("a", a={"enum": [1, 0]}),
         [convert("string>integer", {"map": {"x": 1}, "default": 0})]),
        (obj("a", a={"type": "boolean"}), obj("a", a={"enum": ["y", "n"]}),
         [convert("boolean>string", {"map": {"true": "y", "false": "n"}}, True)]),
        (obj("o", o=obj("a", a=TEXT)), obj("o", o=obj("b", b=TEXT)),
         [IN]),
        (obj("l", l={"type": "array", "items": obj("a", a=TEXT)}),
         obj("l", l={"type": "array", "items": obj("b", b=TEXT)}),
         [MAP]),
        (obj("a", a=TEXT | {"minLength": 3}), obj("b", b=TEXT | {"minLength": 2}),
         [AB]),
        (obj("a", a=TEXT, x={"not": INT}), obj("b", b=TEXT, x={"not": INT}), [AB]),
        (obj("a", a={"format": "email"} | TEXT), obj("b", b={"format": "uri"} | TEXT),
         [AB]),
    ],
)  # fmt: skip
def test_shown(old: Any, new: Any, ops: list[dict[str, Any]]) -> None:
    assert problem(old, new, *ops) == ""


ARRAY = {"type": "array", "items": obj("a", a=TEXT)}


@pytest.mark.parametrize(
    ("old", "new", "op", "said"),
    [
        (obj(a=TEXT), obj(b=TEXT), AB, "/a is not required in the old schema"),
        (obj("a"), obj("b", b=INT), AB, "/b may be of type"),
        ({"required": ["a"]}, obj("b", b={}), AB, "not always an object"),
        (obj("a", a=TEXT), obj("b", b=INT), AB, "/b may be of type string"),
        (obj("a", a={"type": "number"}), obj("b", b=INT), AB, "/b may be of type number"),
        (obj("a", a={"enum": [1, "x"]}), obj("b", b=INT), AB, '/b may be "x"'),
        (obj("a", a={}), obj("b", b=TEXT), AB, "/b may be of type"),
        (obj("a", a=TEXT), obj(), AB, "/b is not declared in the new schema"),
        (obj("a", a=TEXT), obj("a b", a=TEXT, b=TEXT), AB, "/a is required"),
        (obj("a", a=TEXT), obj("b", b=TEXT), rename("/a", "/o/b"), "/o is not required"),
        (obj("a", a=TEXT) | OPEN, obj("b", b=TEXT) | {"additionalProperties": False}, AB,
         "may have properties that the new schema does not know"),
        (obj("a", a=TEXT) | OPEN, obj("b", b=TEXT, n=INT), AB, "/n may be of type"),
        (obj("a", a=TEXT), obj("b c", b=TEXT), AB, "/c is required"),
        (obj("a", a=TEXT), obj("a b", a=TEXT, b=INT), {"op": "copy", "from": "/a", "to": "/b"},
         "/b may be of type string"),
        (obj(), obj("n", n=TEXT), {"op": "add", "path": "/n", "schema": INT, "default": 1},
         "/n may be 1"),
        (obj("a", a=TEXT), obj("a", a=TEXT), {"op": "remove", "path": "/a", "schema": TEXT},
         "/a is required"),
        (obj("h", h=obj("x", x=INT)), obj("h x", h=obj("x", x=INT), x=INT),
         {"op": "hoist", "host": "/h", "name": "x", "to": "/x"}, "/h/x is required"),
        (obj("h", h=obj(x=INT)), obj("h x", h=obj(), x=INT),
         {"op": "hoist", "host": "/h", "name": "x", "to": "/x"}, "/h/x is not required"),
        (obj("a", a=INT, h=TEXT), obj("h", h=obj("x", x=INT)), PLUNGE, "/h may be something else"),
        (obj("a", a=INT, h={}) | OPEN, obj("h", h=obj("x", x=INT)), PLUNGE,
         "/h may be something else"),
        (obj("a h", a=INT), obj("h", h=obj("x", x=INT)), PLUNGE, "not always an object to hold"),
        (obj("a", a=INT) | {"patternProperties": {"h": obj(y=INT)}},
         obj("h", h=obj("x", x=INT) | {"additionalProperties": False}), PLUNGE,
         "may have properties"),
        (obj("a", a=INT) | {"additionalProperties": obj(y=INT)},
         obj("h", h=obj("x", x=INT, y=TEXT)) | {"additionalProperties": {}}, PLUNGE,
         "/h/y may be of type integer"),
        (obj("a", a=INT, h=obj("y", y=INT)), obj("h", h=obj("x y", x=INT, y=INT)), PLUNGE,
         "/h/y is required"),
        (obj("a", a=INT, h=obj()), obj("h", h=obj("x", x=INT)), {**PLUNGE, "createHost": False},
         "/h is not required"),
        (obj("a", a=INT) | OPEN, obj("a h", a=INT, h=obj("x", x=INT)) | OPEN,
         {**PLUNGE, "removeFromSource": True}, "/a is required"),
        (obj("a", a=TEXT), obj("a", a=TEXT), WRAP, "/a may be of type array"),
        (obj("a", a=TEXT), obj("a", a={"type": "array", "minItems": 2}), WRAP, "minItems"),
        (obj("a", a={"type": "array", "items": INT}), obj("a", a=INT), HEAD, "may be empty"),
        (obj("a", a={"enum": [[1], []]}), obj("a", a=INT), HEAD, "may be empty"),
        (obj("a", a=TEXT), obj("a", a=INT), HEAD, "not always an array"),
        (obj("a", a=INT), obj("a", a=TEXT), LOWER, "not always of type string"),
        (obj("a", a={"enum": ["x", 1]}), obj("a", a=TEXT), LOWER, "not always of type string"),
        (obj("a", a=TEXT), obj("a", a=INT), convert("string>integer", {"builtin": "string_to_int"}),
         "string_to_int needs an enum"),
        (obj("a", a={"enum": ["1", "x"]}), obj("a", a=INT),
         convert("string>integer", {"builtin": "string_to_int"}), "'x' is not a whole number"),
        (obj("a", a=TEXT | {"format": "date-time"}), obj("a", a=INT),
         convert("string>integer", {"builtin": "rfc3339_to_unix_millis"}), "needs an enum"),
        (obj("a", a=INT), obj("a", a=TEXT | {"format": "date-time"}),
         convert("integer>string", {"builtin": "unix_millis_to_rfc3339"}, 0), "may break format"),
        (obj("a", a=TEXT), obj("a", a=INT), convert("string>integer", {"map": {"x": 1}}),
         "a map without a default needs an enum"),
        (obj("a", a={"enum": ["x", "y"]}), obj("a", a=INT),
         convert("string>integer", {"map": {"x": 1}}), "no value for 'y'"),
        (obj("o", o=TEXT), obj("o", o=TEXT), IN,
         "/o is not always an object"),
        (obj("l", l=obj()), obj("l", l=obj()), MAP,
         "/l is not always an array"),
        (obj("l", l=ARRAY), obj("l", l=ARRAY), MAP,
         "/l/*/b is not declared"),
        (obj("a", a=TEXT), obj("b", b=TEXT | {"pattern": "x"}), AB, "may break pattern"),
        (obj("a", a=TEXT), obj("b", b={"oneOf": [TEXT]}), AB, "may break oneOf"),
        (obj("a", a=TEXT), obj("b", b=TEXT) | {"minProperties": 2}, AB, "minProperties"),
        (obj("a", a=TEXT), obj("b", b=TEXT) | {"unevaluatedProperties": False}, AB,
         "unevaluatedProperties"),
        (obj("a", a=TEXT), obj("b", b=TEXT) | {"$schema": "https://json-schema.org/draft/2020-12/schema"},
         AB, "same JSON Schema draft"),
    ],
)  # fmt: skip
def test_not_shown(old: Any, new: Any, op: dict[str, Any], said: str) -> None:
    assert said in problem(old, new, op)


def test_a_proof_ends() -> None:
    """However much there is to compare, the answer comes."""
    old: Any = TEXT
    new: Any = TEXT
    for _ in range(12):
        old = obj("", **{f"p{at}": old for at in range(3)})
        new = {"type": "object", "additionalProperties": {"allOf": [new, new]}}
    said = problem(obj("a", a=TEXT, x=old), obj("b", b=TEXT, x=new), AB)
    assert "too complicated" in said or "may" in said


def wide(name: str) -> dict[str, Any]:
    return obj(name, **{f"p{at}": TEXT for at in range(50)}, **{name: TEXT})


CHAIN = [rename(f"/n{at}", f"/n{at + 1}") for at in range(100)]


@pytest.mark.parametrize(
    ("old", "new", "ops"),
    [
        (wide("n0"), wide("n100"), CHAIN),
        (obj("o", o=wide("n0")), obj("o", o=wide("n100")),
         [{"op": "in", "path": "/o", "ops": CHAIN}]),
        (obj("l", l={"type": "array", "items": wide("n0")}),
         obj("l", l={"type": "array", "items": wide("n100")}),
         [{"op": "map", "path": "/l", "ops": CHAIN}]),
    ],
)  # fmt: skip
def test_the_time_is_asked_at_every_step(
    old: Any, new: Any, ops: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, real = 0, proof._step

    def step(op: Any, *more: Any) -> Any:
        nonlocal taken
        taken += 1
        return real(op, *more)

    monkeypatch.setattr(proof, "_step", step)
    lens = parse_lens(
        {"apiVersion": "durable.lens/v1", "schema": "s", "from": 1, "to": 2, "ops": ops}
    )
    asked: list[int] = []
    prove(old, new, lens, ProofBudget(lambda: bool(asked.append(taken))))
    assert max(later - sooner for sooner, later in pairwise(asked)) <= 1
    assert len(asked) > taken + 50, "also where schemas are compared"
    for last in (7, len(asked) - 7):
        answers = iter([False] * last)
        with pytest.raises(Refused, match="too complicated"):
            prove(old, new, lens, ProofBudget(partial(next, answers, True)))


def test_an_enum_of_objects_is_spread_in_one_go() -> None:
    """Each of them has a name of its own: a list for each name is as long as it must be."""

    class Counted(dict[str, Any]):
        looks = 0

        def __contains__(self, name: object) -> bool:
            Counted.looks += 1
            return super().__contains__(name)

    values = [Counted({f"n{at}": at, "all": at}) for at in range(500)]
    known = spread({"enum": values})
    assert known["required"] == ["all"]
    assert len(known["properties"]) == 501
    assert Counted.looks == 0


def test_values_are_not_checked_where_that_takes_too_long() -> None:
    old = obj("a", a={"enum": [[at] for at in range(2000)]})
    new = obj("b", b={"enum": [[at] for at in range(3000)]})
    assert "too long" in problem(old, new, AB)


def test_what_is_copied_into_itself_is_not_written_out() -> None:
    """What is known doubles with each of these; it would never end."""
    copies = [{"op": "copy", "from": "/a", "to": f"/a/c{at}"} for at in range(200)]
    old = obj("a", a=obj())
    assert "/a/c0 is not declared" in problem(old, obj("a", a={}), *copies)
    declared = obj("a", a=obj(**{f"c{at}": {} for at in range(200)}))
    assert "/a/c1/c0 is not declared" in problem(old, declared, *copies)
