"""Lenses: each operation forward, and what it cannot do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.core.errors import Refused
from headrace.schemas.forward import Room, apply_lenses
from headrace.schemas.lens import parse_lens

S = {"mode": "singleton"}


def lens(*ops: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "durable.lens/v1", "schema": "s", "from": 1, "to": 2, "ops": [*ops]}


def forward(document: str, *ops: dict[str, Any]) -> str:
    return apply_lenses([parse_lens(lens(*ops)).ops], document.encode()).decode()


def rename(source: str, to: str) -> dict[str, Any]:
    return {"op": "rename", "from": source, "to": to}


def convert(path: str, kinds: str, transform: dict[str, Any]) -> dict[str, Any]:
    source, to = kinds.split(">")
    samples = {"string": "", "integer": 0, "number": 0, "boolean": True, "null": None}
    samples |= {"object": {}, "array": []}  # type: ignore[dict-item]
    return {
        "op": "convert", "path": path, "fromType": source, "toType": to, "forward": transform,
        "backward": {"map": {}, "default": samples[source]},
    }  # fmt: skip


def builtin(path: str, kinds: str, name: str) -> dict[str, Any]:
    return convert(path, kinds, {"builtin": name})


BC = rename("/b", "/c")
HOIST = {"op": "hoist", "host": "/h", "name": "x", "to": "/x"}
PLUNGE = {"op": "plunge", "from": "/x", "host": "/h", "name": "y"}


@pytest.mark.parametrize(
    ("document", "op", "wanted"),
    [
        ('{"a":1.50,"b": {}}', rename("/a", "/c"), '{"b":{},"c":1.50}'),
        ('{"a":1,"b":{}}', rename("/a", "/b/c"), '{"b":{"c":1}}'),
        ('{"a":{"b":{"c":1}}}', rename("/a/b", "/a"), '{"a":{"c":1}}'),
        ('{"a":1}', rename("/a", "/a"), '{"a":1}'),
        ('{"a/b":1,"m~n":{}}', rename("/a~1b", "/m~0n/~01"), '{"m~n":{"~1":1}}'),
        ('{"":1}', rename("/", "/a"), '{"a":1}'),
        ('{"a":[1,2,3]}', rename("/a/1", "/b"), '{"a":[1,3],"b":2}'),
        ('{"a":1,"b":[2,3]}', rename("/a", "/b/0"), '{"b":[1,3]}'),
        ('{"a":1,"b":[2]}', rename("/a", "/b/1"), '{"b":[2,1]}'),
        ('{"a":1,"a":2}', rename("/a", "/b"), '{"b":2}'),
        ('{"a":1e5,"b":123456789012345678901234567890}', rename("/a", "/c"),
         '{"b":123456789012345678901234567890,"c":1e5}'),
        ('{"a":{"b":1}}', {"op": "copy", "from": "/a", "to": "/c"}, '{"a":{"b":1},"c":{"b":1}}'),
        ('{"a":1}', {"op": "add", "path": "/b", "schema": {"default": 2}}, '{"a":1,"b":2}'),
        ('{"a":1}', {"op": "add", "path": "/a", "schema": {}, "default": None}, '{"a":null}'),
        ('{}', {"op": "add", "path": "/a", "schema": {"type": "object"}}, '{"a":{}}'),
        ('{}', {"op": "add", "path": "/a", "schema": {"type": "array"}}, '{"a":[]}'),
        ('{"a":1,"b":2}', {"op": "remove", "path": "/a", "schema": {}}, '{"b":2}'),
        ('{"h":{"x":1,"z":2}}', HOIST, '{"h":{"z":2},"x":1}'),
        ('{"h":{"x":1}}', {**HOIST, "removeFromHost": False}, '{"h":{"x":1},"x":1}'),
        ('{"x":1}', {**HOIST, "host": "", "to": "/y"}, '{"y":1}'),
        ('{"x":1,"h":{}}', PLUNGE, '{"h":{"y":1}}'),
        ('{"x":1}', PLUNGE, '{"h":{"y":1}}'),
        ('{"x":1,"h":{"z":2}}', PLUNGE, '{"h":{"z":2,"y":1}}'),
        ('{"x":1,"h":7}', PLUNGE, '{"h":{"y":1}}'),
        ('{"x":1,"h":[{}]}', PLUNGE, '{"h":{"y":1}}'),
        ('{"x":1,"h":null}', PLUNGE, '{"h":{"y":1}}'),
        ('{"x":1}', {**PLUNGE, "removeFromSource": False}, '{"x":1,"h":{"y":1}}'),
        ('{"x":1}', {**PLUNGE, "host": ""}, '{"y":1}'),
        ('{"a":1}', {"op": "wrap", "path": "/a", **S}, '{"a":[1]}'),
        ('{"a":[1]}', {"op": "wrap", "path": "/a", **S, "reverseMode": "first"}, '{"a":[[1]]}'),
        ('1', {"op": "wrap", "path": "", **S}, "[1]"),
        ('{"a":[1.0,2]}', {"op": "head", "path": "/a"}, '{"a":1.0}'),
        ('{"a":{"b":1}}', {"op": "in", "path": "/a", "ops": [rename("/b", "/c")]}, '{"a":{"c":1}}'),
        ('{"a":[{"b":1},{"b":2}]}', {"op": "map", "path": "/a", "ops": [rename("/b", "/c")]},
         '{"a":[{"c":1},{"c":2}]}'),
        ('{"a":[]}', {"op": "map", "path": "/a", "ops": [rename("/b", "/c")]}, '{"a":[]}'),
        ('[1,2]', {"op": "map", "path": "", "ops": [{"op": "wrap", "path": "", **S}]}, "[[1],[2]]"),
        ('{"a":"X"}', builtin("/a", "string>string", "lowercase"), '{"a":"x"}'),
        ('{"a":"x"}', builtin("/a", "string>string", "uppercase"), '{"a":"X"}'),
        ('{"a":"-17"}', builtin("/a", "string>integer", "string_to_int"), '{"a":-17}'),
        ('{"a":"17"}', builtin("/a", "string>number", "string_to_int"), '{"a":17}'),
        ('{"a":17.0}', builtin("/a", "integer>string", "int_to_string"), '{"a":"17"}'),
        ('{"a":"2026-01-01T00:00:00.5+01:00"}',
         builtin("/a", "string>integer", "rfc3339_to_unix_millis"), '{"a":1767222000500}'),
        ('{"a":1767222000500}', builtin("/a", "integer>string", "unix_millis_to_rfc3339"),
         '{"a":"2025-12-31T23:00:00.500Z"}'),
        ('{"a":"x"}', convert("/a", "string>integer", {"map": {"x": 1}}), '{"a":1}'),
        ('{"a":"y"}', convert("/a", "string>integer", {"map": {"x": 1}, "default": 9}), '{"a":9}'),
        ('{"a":true}', convert("/a", "boolean>string", {"map": {"true": "yes"}}), '{"a":"yes"}'),
        ('{"a":null}', convert("/a", "null>string", {"map": {"null": "no"}}), '{"a":"no"}'),
        ('{"a":1.0}', convert("/a", "number>string", {"map": {"1": "one"}}), '{"a":"one"}'),
        ('{"a":1}', convert("/a", "number>string", {"map": {"1": "one"}}), '{"a":"one"}'),
        ('{"a":1e-7}', convert("/a", "number>string", {"map": {"1e-7": "s"}}), '{"a":"s"}'),
        ('{"a":0.00001}', convert("/a", "number>string", {"map": {"0.00001": "s"}}), '{"a":"s"}'),
        ('{"a":1e21}', convert("/a", "number>string", {"map": {"1e+21": "l"}}), '{"a":"l"}'),
        ('{"a":"x"}', convert("/a", "string>object", {"map": {"x": {"y": [1]}}}),
         '{"a":{"y":[1]}}'),
    ],
)  # fmt: skip
def test_forward(document: str, op: dict[str, Any], wanted: str) -> None:
    assert forward(document, op) == wanted


COPIES = [{"op": "copy", "from": "/a", "to": f"/a/c{at}"} for at in range(200)]
FILL = {"op": "add", "path": "/x", "schema": {}, "default": "x" * 10_000}
MANY = "[" + ",".join(["{}"] * 2000) + "]"
LONG = convert("", "object>string", {"map": {}, "default": "x" * 10_000})


@pytest.mark.parametrize(
    ("document", "ops"),
    [
        ('{"a":{}}', COPIES),
        ('{"a":"%s"}' % ("x" * 200_000),
         [{"op": "copy", "from": "/a", "to": f"/c{at}"} for at in range(200)]),
        (MANY, [{"op": "map", "path": "", "ops": [FILL]}]),
        (MANY, [{"op": "map", "path": "", "ops": [LONG]}]),
        ('{"a":{"b":"%s"}}' % ("x" * 200_000),
         [{"op": "hoist", "host": "/a", "name": "b", "to": f"/c{at}", "removeFromHost": False}
          for at in range(200)]),
        ('{"a":"%s","b":{}}' % ("x" * 200_000),
         [{"op": "plunge", "from": "/a", "host": "/b", "name": f"c{at}", "removeFromSource": False}
          for at in range(200)]),
    ],
)  # fmt: skip
def test_a_document_does_not_grow_without_bound(document: str, ops: list[dict[str, Any]]) -> None:
    with pytest.raises(Refused, match="grows"):
        forward(document, *ops)


def test_operations_on_every_element_of_a_long_array_are_counted() -> None:
    to_and_fro = [rename("/x", "/y"), rename("/y", "/x")] * 100
    ops = parse_lens(lens({"op": "map", "path": "/a", "ops": to_and_fro})).ops
    document = b'{"a":[%b{"x":1}]}' % (b'{"x":1},' * 100)
    with pytest.raises(Refused, match="as much to do"):
        apply_lenses([ops], document, Room(100_000))
    room = Room(1_000_000)
    assert apply_lenses([ops], document, room) == document
    assert room.used > 101 * len(to_and_fro)


@pytest.mark.parametrize(
    ("document", "op", "problem"),
    [
        ("{}", rename("/a", "/b"), "/a does not exist"),
        ('{"a":1}', rename("/a", "/b/c"), "/b does not exist"),
        ('{"a":1}', rename("/a", "/a/b"), "/a does not exist"),
        ('{"a":1,"b":2}', rename("/a", "/b/c"), "/b/c has no place to be"),
        ('{"a":1,"b":[]}', rename("/a", "/b/1"), "/b/1 has no place to be"),
        ('{"a":1,"b":[]}', rename("/a", "/b/-"), "/b/- has no place to be"),
        ('{"a":[1]}', rename("/a/1", "/b"), "/a/1 does not exist"),
        ('{"a":[1]}', rename("/a/x", "/b"), "/a/x does not exist"),
        ("7", rename("/a", "/b"), "/a does not exist"),
        ("{}", {"op": "copy", "from": "/a~1b", "to": "/b"}, "/a~1b does not exist"),
        ("{}", {"op": "add", "path": "/a/b", "schema": {}, "default": 1}, "/a does not exist"),
        ("{}", {"op": "remove", "path": "/a", "schema": {}}, "/a does not exist"),
        ('{"h":{}}', HOIST, "/h/x does not exist"),
        ('{"x":1}', {**PLUNGE, "createHost": False}, "/h does not exist"),
        ('{"x":1,"h":2}', {**PLUNGE, "createHost": False}, "/h/y has no place to be"),
        ('{"a":[]}', {"op": "head", "path": "/a"}, "/a is not an array with elements"),
        ('{"a":1}', {"op": "head", "path": "/a"}, "/a is not an array with elements"),
        ('{"a":[]}', {"op": "in", "path": "/a", "ops": [BC]}, "/a is not an object"),
        ('{"a":{}}', {"op": "map", "path": "/a", "ops": [BC]}, "/a is not an array"),
        ('{"a":1}', builtin("/a", "string>string", "lowercase"), "/a is no string"),
        ('{"a":1.5}', builtin("/a", "integer>string", "int_to_string"), "/a is no integer"),
        ('{"a":"x"}', builtin("/a", "string>integer", "string_to_int"), "'x' is not a whole"),
        ('{"a":"1.5"}', builtin("/a", "string>integer", "string_to_int"), "is not a whole"),
        ('{"a":"2026-01-01"}', builtin("/a", "string>integer", "rfc3339_to_unix_millis"),
         "is not an RFC 3339 time"),
        ('{"a":"y"}', convert("/a", "string>integer", {"map": {"x": 1}}), "no value for 'y'"),
    ],
)  # fmt: skip
def test_a_document_it_does_not_fit(document: str, op: dict[str, Any], problem: str) -> None:
    with pytest.raises(Refused) as refused:
        forward(document, op)
    assert problem in refused.value.message


def test_operations_see_what_those_before_them_made() -> None:
    ops = [
        {"op": "copy", "from": "/a", "to": "/b"},
        {"op": "in", "path": "/b", "ops": [rename("/x", "/y")]},
        {"op": "wrap", "path": "/b", **S},
        rename("/a/x", "/c"),
    ]
    assert json.loads(forward('{"a":{"x":1}}', *ops)) == {"a": {}, "b": [{"y": 1}], "c": 1}


def test_what_is_not_touched_keeps_its_bytes() -> None:
    document = '{"a":1,"keep": {"z" : 1.0e2,  "\\u0061": [ ] },"s":"\\/é"}'
    assert forward(document, rename("/a", "/b")) == (
        '{"keep":{"z" : 1.0e2,  "\\u0061": [ ] },"s":"\\/é","b":1}'
    )


def test_defaults_are_kept_with_the_lens() -> None:
    inner = {"op": "add", "path": "/b", "schema": {"type": "array"}}
    sent = lens(
        {"op": "add", "path": "/a", "schema": {"default": 7}},
        {"op": "in", "path": "/o", "ops": [inner]},
        {"op": "map", "path": "/l", "ops": [inner]},
    )
    ops = parse_lens(sent).kept["ops"]
    assert ops[0] == {"op": "add", "path": "/a", "schema": {"default": 7}, "default": 7}
    assert ops[1]["ops"] == ops[2]["ops"] == [{**inner, "default": []}]
    assert "default" not in sent["ops"][0]
