"""Schemas that change: random shapes of documents, lenses between them, and what lenses mean.

`forward` is the specification said again, on plain objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]
Op = dict[str, Any]

STRINGS = ["a", "A", "ab", "foo bar", "bar Foo foo", "", "7", "-3", "2026-01-01T00:01:00Z", "true"]
STAMPS = [
    "2026-01-01T00:00:05Z", "2026-01-01T00:00:59.999Z", "2026-01-01T00:01:00Z",
    "2026-01-01T00:03:30+00:01", "2026-01-01T01:00:00Z", "soon",
]  # fmt: skip
INTEGERS = [0, 1, 7, -3, 200, 2**53 + 1, 1767225630000]
NUMBERS = [0, 1, -8, 2.5, 73.5, 0.125, 1e-7, -0.0]
ODD = [
    "null", "123456789012345678901234567890", "9223372036854775808", "-0.0", "1.0", "7",
    '"7"', '["a",["ab",null],7]', '{"y":1,"y":"foo"}', '"\\ud83d\\ude00 x"', '"Straße İ"', "true",
    "[]", "{}", '"1e3"', '[2,1]', '["b","A"]', '"x\\u0000y"',
]  # fmt: skip
"""Values of a property that no schema knows, as JSON text."""

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
CODES: Schema = {"type": "string", "enum": ["200", "404", "-1"]}
TIMES: Schema = {"type": "string", "enum": ["2026-01-01T00:00:30Z", "2026-01-01T00:02:00.250Z"]}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def shape(properties: dict[str, Schema]) -> Schema:
    """Objects in which all of these are required, and others may be."""
    return {"type": "object", "properties": properties, "required": sorted(properties)}


FIRST = shape(
    {
        "at": STRING,
        "k": STRING,
        "s": STRING,
        "code": CODES,
        "time": TIMES,
        "n": INTEGER,
        "v": NUMBER,
        "ok": BOOLEAN,
        "tags": array(STRING),
        "o": shape({"s": STRING, "n": INTEGER}),
        "list": array(shape({"s": STRING, "v": NUMBER})),
    }
)
KEPT = ("at", "k")
"""No lens touches these: the primary timestamp, so that there is one, and the routing key."""


def values(schema: Schema, name: str = "") -> st.SearchStrategy[Any]:
    """What fits a schema."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if name == "at":
        return st.sampled_from(STAMPS)
    if name == "k":
        return st.sampled_from(["", "a", "b", "ключ", "z"])
    match schema["type"]:
        case "string":
            return st.sampled_from(STRINGS)
        case "integer":
            return st.sampled_from(INTEGERS)
        case "number":
            return st.sampled_from(NUMBERS)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(values(schema["items"]), min_size=1, max_size=3)
        case _:
            properties = schema["properties"]
            return st.fixed_dictionaries({k: values(v, k) for k, v in properties.items()})


def documents(schema: Schema) -> st.SearchStrategy[bytes]:
    """JSON text that fits, with properties nobody declared, some of them twice."""
    odd = st.lists(st.tuples(st.sampled_from(["x", "y"]), st.sampled_from(ODD)), max_size=3)
    return st.builds(_text, values(schema), odd)


def _text(document: dict[str, Any], odd: list[tuple[str, str]]) -> bytes:
    whole = json.dumps(document, ensure_ascii=False)
    extra = "".join(f',"{name}":{text}' for name, text in odd)
    return (whole[:-1] + extra + "}").encode()


def paths(schema: Schema, before: str = "") -> Iterator[tuple[str, Schema]]:
    """Where something is that can be indexed, and what."""
    for name, child in schema["properties"].items():
        here = f"{before}/{name}"
        if child["type"] == "object":
            yield from paths(child, here)
        elif child["type"] == "array" and child["items"]["type"] == "object":
            yield from paths(child["items"], f"{here}/0")
        else:
            yield here, child


# Lenses: each maker takes the schema apart and returns an operation and the schema after it.

Step = tuple[Op, Schema]


@st.composite
def steps(draw: st.DrawFn, schema: Schema, fresh: Iterator[str]) -> Step:
    """One operation that can be proven, and the schema behind it."""
    made = [step for make in MAKERS for step in make(draw, schema["properties"], fresh)]
    op, properties = draw(st.sampled_from(made))
    return op, shape(properties)


Made = list[tuple[Op, dict[str, Schema]]]
Maker = Callable[[st.DrawFn, dict[str, Schema], Iterator[str]], Made]


def _any(draw: st.DrawFn, held: dict[str, Schema], *types: str) -> list[str]:
    """One property of these types, if there is one."""
    names = [
        name
        for name, schema in held.items()
        if name not in KEPT and (not types or schema["type"] in types)
    ]
    return [draw(st.sampled_from(names))] if names else []


def _without(held: dict[str, Schema], name: str) -> dict[str, Schema]:
    return {key: value for key, value in held.items() if key != name}


def _rename(draw: st.DrawFn, held: dict[str, Schema], fresh: Iterator[str]) -> Made:
    made: Made = []
    for name in _any(draw, held):
        to = next(fresh)
        op = {"op": "rename", "from": f"/{name}", "to": f"/{to}"}
        made.append((op, {**_without(held, name), to: held[name]}))
    return made


def _copy(draw: st.DrawFn, held: dict[str, Schema], fresh: Iterator[str]) -> Made:
    made: Made = []
    for name in _any(draw, held):
        to = next(fresh)
        made.append(({"op": "copy", "from": f"/{name}", "to": f"/{to}"}, {**held, to: held[name]}))
    return made


def _add(draw: st.DrawFn, held: dict[str, Schema], fresh: Iterator[str]) -> Made:
    to = next(fresh)
    schema = draw(st.sampled_from([STRING, INTEGER, NUMBER, BOOLEAN, array(STRING)]))
    default = draw(values(schema))
    op = {"op": "add", "path": f"/{to}", "schema": schema, "default": default}
    return [(op, {**held, to: schema})]


def _remove(draw: st.DrawFn, held: dict[str, Schema], fresh: Iterator[str]) -> Made:
    return [
        ({"op": "remove", "path": f"/{name}", "schema": held[name]}, _without(held, name))
        for name in _any(draw, held)
    ]


def _hoist(draw: st.DrawFn, held: dict[str, Schema], fresh: Iterator[str]) -> Made:
    made: Made = []
    for host in _any(draw, held, "object"):
        for name in _any(draw, held[host]["properties"]):
            to = next(fresh)
            removes = draw(st.booleans())
            op = {"op": "hoist", "host": f"/{host}", "name": name, "to": f"/{to}"}
            inner = held[host]["properties"]
            after = {**held, to: inner[name]}
            if removes:
                after[host] = shape(_without(inner, name))
            made.append((op if removes else {**op, "removeFromHost": False}, after))
    return made


def _plunge(draw: st.DrawFn, held: dict[str, Schema], fresh: Iterator[str]) -> Made:
    made: Made = []
    for name in _any(draw, held, "string", "integer", "number", "boolean"):
        for host in _any(draw, held, "object"):
            inner = next(fresh)
            op = {"op": "plunge", "from": f"/{name}", "host": f"/{host}", "name": inner}
            after = shape({**held[host]["properties"], inner: held[name]})
            made.append((op, {**_without(held, name), host: after}))
        for host in ("x", next(fresh)):  # nobody declared it, and x is there now and then
            if host not in held:
                op = {"op": "plunge", "from": f"/{name}", "host": f"/{host}", "name": "p"}
                made.append((op, {**_without(held, name), host: shape({"p": held[name]})}))
    return made


def _wrap(draw: st.DrawFn, held: dict[str, Schema], fresh: Iterator[str]) -> Made:
    return [
        ({"op": "wrap", "path": f"/{name}", "mode": "singleton"}, {**held, name: array(held[name])})
        for name in _any(draw, held, "string", "integer", "number")
    ]


def _head(draw: st.DrawFn, held: dict[str, Schema], fresh: Iterator[str]) -> Made:
    return [
        ({"op": "head", "path": f"/{name}"}, {**held, name: held[name]["items"]})
        for name in _any(draw, held, "array")
    ]


def _builtin(path: str, of: str, to: str, forward: str, backward: str) -> Op:
    return {
        "op": "convert",
        "path": path,
        "fromType": of,
        "toType": to,
        "forward": {"builtin": forward},
        "backward": {"builtin": backward},
    }


def _convert(draw: st.DrawFn, held: dict[str, Schema], fresh: Iterator[str]) -> Made:
    made: Made = []
    for name, schema in held.items():
        path = f"/{name}"
        if name in KEPT:
            continue
        if schema == CODES:
            op = _builtin(path, "string", "integer", "string_to_int", "int_to_string")
            made.append((op, {**held, name: INTEGER}))
        elif schema == TIMES:
            names = "rfc3339_to_unix_millis", "unix_millis_to_rfc3339"
            op = _builtin(path, "string", "integer", *names)
            made.append((op, {**held, name: INTEGER}))
        elif schema == STRING:
            forward = draw(st.sampled_from(["lowercase", "uppercase"]))
            op = _builtin(path, "string", "string", forward, "lowercase")
            made.append((op, {**held, name: STRING}))
        elif schema == INTEGER:
            op = _builtin(path, "integer", "string", "int_to_string", "string_to_int")
            made.append((op, {**held, name: STRING}))
        elif schema == BOOLEAN:
            mapped = {"true": "yes", "false": "no"}
            op = _builtin(path, "boolean", "string", "", "")
            op |= {"forward": {"map": mapped, "default": "?"}}
            op |= {"backward": {"map": {"yes": True}, "default": False}}
            made.append((op, {**held, name: STRING}))
    return made


def _in(draw: st.DrawFn, held: dict[str, Schema], fresh: Iterator[str]) -> Made:
    made: Made = []
    for name in _any(draw, held, "object"):
        inside = held[name]["properties"]
        for op, after in _rename(draw, inside, fresh) + _add(draw, inside, fresh):
            made.append(
                ({"op": "in", "path": f"/{name}", "ops": [op]}, {**held, name: shape(after)})
            )
    return made


def _map(draw: st.DrawFn, held: dict[str, Schema], fresh: Iterator[str]) -> Made:
    made: Made = []
    for name in _any(draw, held, "array"):
        items = held[name]["items"]
        if items["type"] == "object":
            inside = items["properties"]
            for op, after in _rename(draw, inside, fresh) + _remove(draw, inside, fresh):
                made.append(
                    (
                        {"op": "map", "path": f"/{name}", "ops": [op]},
                        {**held, name: array(shape(after))},
                    )
                )
    return made


MAKERS: list[Maker] = [
    _rename, _copy, _add, _remove, _hoist, _plunge, _wrap, _head, _convert, _in, _map,
]  # fmt: skip


def lens(stream: str, version: int, ops: list[Op]) -> dict[str, Any]:
    """The lens to the version after this one."""
    return {
        "apiVersion": "durable.lens/v1",
        "schema": stream,
        "from": version,
        "to": version + 1,
        "ops": ops,
    }


# What lenses do.


def forward(document: Any, ops: list[Op]) -> Any:
    """The document behind these operations; they are known to fit."""
    document = deepcopy(document)
    for op in ops:
        _apply(document, op)
    return document


def _apply(document: Any, op: Op) -> None:
    match op["op"]:
        case "rename":
            _put(document, op["to"], _take(document, op["from"]))
        case "copy":
            _put(document, op["to"], deepcopy(_get(document, op["from"])))
        case "add":
            _put(document, op["path"], deepcopy(op["default"]))
        case "remove":
            _take(document, op["path"])
        case "hoist":
            host = _get(document, op["host"])
            value = host[op["name"]]
            if op.get("removeFromHost", True):
                del host[op["name"]]
            _put(document, op["to"], deepcopy(value))
        case "plunge":
            value = _take(document, op["from"])
            if not isinstance(document.get(_name(op["host"])), dict):
                _put(document, op["host"], {})
            _get(document, op["host"])[op["name"]] = value
        case "wrap":
            _put(document, op["path"], [_get(document, op["path"])])
        case "head":
            _put(document, op["path"], _get(document, op["path"])[0])
        case "convert":
            _put(document, op["path"], _converted(_get(document, op["path"]), op["forward"]))
        case "in":
            for inner in op["ops"]:
                _apply(_get(document, op["path"]), inner)
        case "map":
            for item in _get(document, op["path"]):
                for inner in op["ops"]:
                    _apply(item, inner)


def _name(pointer: str) -> str:
    assert pointer.count("/") == 1
    return pointer[1:]


def _get(document: Any, pointer: str) -> Any:
    return document[_name(pointer)]


def _take(document: Any, pointer: str) -> Any:
    return document.pop(_name(pointer))


def _put(document: Any, pointer: str, value: Any) -> None:
    document[_name(pointer)] = value


def _converted(value: Any, how: dict[str, Any]) -> Any:
    if "map" in how:
        name = value if isinstance(value, str) else json.dumps(value)
        return how["map"].get(name, how["default"])
    match how["builtin"]:
        case "lowercase":
            return value.lower()
        case "uppercase":
            return value.upper()
        case "string_to_int":
            return int(value)
        case "int_to_string":
            return str(value)
        case "rfc3339_to_unix_millis":
            return round(datetime.fromisoformat(value).timestamp() * 1000)
        case _:
            seconds, milli = divmod(value, 1000)
            at = datetime.fromtimestamp(seconds, UTC)
            return f"{at:%Y-%m-%dT%H:%M:%S}.{milli:03d}Z"
