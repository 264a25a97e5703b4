"""Lenses: what the proof lets through works for every document."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from headrace.core.errors import Refused
from headrace.schemas.evolution import Update, evolve, parse_update
from headrace.schemas.forward import apply_lenses
from headrace.schemas.lens import parse_lens
from headrace.schemas.promotion import Promoter
from headrace.schemas.proof import known_behind, prove
from headrace.schemas.registry import NOTHING, decode_registry, encode_registry
from headrace.schemas.validation import compile_schema

NAMES = ["a", "b", "c", "x/y", "~"]
TEXTS = ["", "a", "B", "17", "-4", "2026-01-01T00:00:00Z", "x y"]
NUMBERS = [0, 1, -3, 17, 2.5, 1.0, 10**18]
names = st.sampled_from(NAMES)
scalars: st.SearchStrategy[Any] = st.sampled_from([None, True, False, *TEXTS, *NUMBERS])
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)

Schema = dict[str, Any]


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    properties = draw(st.dictionaries(names, inner, max_size=4))
    required = [name for name in properties if draw(st.integers(0, 3))]
    schema: Schema = {"type": "object", "properties": properties, "required": required}
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.just(False) | inner)
    if not draw(st.integers(0, 7)):
        schema["minProperties"] = draw(st.integers(0, 2))
    if not draw(st.integers(0, 7)):
        schema["maxProperties"] = draw(st.integers(2, 5))
    return schema


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    schema: Schema = {"type": "array", "items": draw(inner)}
    if draw(st.booleans()):
        schema["minItems"] = draw(st.integers(0, 2))
    if not draw(st.integers(0, 3)):
        schema["maxItems"] = draw(st.integers(1, 3))
    if not draw(st.integers(0, 5)):
        schema["uniqueItems"] = True
    return schema


texts_schema = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(1, 20),
        "format": st.sampled_from(["date-time", "email"]),
    },
)
numbers_schema = st.fixed_dictionaries(
    {"type": st.sampled_from(["number", "integer"])},
    optional={
        "minimum": st.integers(-5, 1),
        "maximum": st.integers(2, 20),
        "exclusiveMinimum": st.integers(-5, 1),
        "multipleOf": st.sampled_from([1, 2, 4]),
    },
)
leaves: st.SearchStrategy[Schema] = st.one_of(
    texts_schema,
    numbers_schema,
    st.sampled_from([{}, {"type": "boolean"}, {"type": ["string", "null"]}, {"type": "null"}]),
    st.lists(values, min_size=1, max_size=3).map(lambda found: {"enum": found}),
    values.map(lambda found: {"const": found}),
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3).map(lambda found: {"enum": found}),
)
schemas: st.SearchStrategy[Schema] = st.recursive(
    leaves,
    lambda inner: (
        objects(inner)
        | arrays(inner)
        | st.lists(inner, min_size=1, max_size=2).map(lambda found: {"anyOf": found})
    ),
    max_leaves=6,
)
documents_of = objects(schemas)


# --- lenses that have a chance --------------------------------------------------------------------


def pointer(path: tuple[str, ...]) -> str:
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path)


def places(schema: Schema, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Schema]]:
    """Where values may be, and their schemas."""
    found = [(path, schema)]
    for name, inner in schema.get("properties", {}).items():
        if isinstance(inner, dict):
            found += places(inner, (*path, name))
    return found


def sure(schema: Schema, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Where there is always a value."""
    found = []
    for name in schema.get("required", ()):
        inner = schema.get("properties", {}).get(name)
        found.append((*path, name))
        if isinstance(inner, dict) and inner.get("type") == "object":
            found += sure(inner, (*path, name))
    return found


@st.composite
def ops_of(draw: st.DrawFn, schema: Schema, depth: int = 2) -> list[dict[str, Any]]:
    return [draw(op_of(schema, depth)) for _ in range(draw(st.integers(1, 3)))]


@st.composite
def op_of(draw: st.DrawFn, schema: Schema, depth: int) -> dict[str, Any]:
    known = places(schema)
    path, held = draw(st.sampled_from(known))
    inner = [found for found, _ in known if found] or [(draw(names),)]
    if draw(st.integers(0, 3)):
        inner = sure(schema) or inner
    some = st.sampled_from(inner) | names.map(lambda name: (name,))
    host = draw(st.sampled_from([found for found, _ in known]))
    name = draw(names)
    source, to = draw(some), draw(some)
    kinds = ["rename", "copy", "add", "remove", "hoist", "plunge", "wrap", "head", "convert"]
    kind = draw(st.sampled_from([*kinds, "in", "map"] if depth else kinds))
    match kind:
        case "rename" | "copy":
            return {"op": kind, "from": pointer(source), "to": pointer(to)}
        case "add":
            default = draw(values)
            return {"op": "add", "path": pointer(to), "schema": {}, "default": default}
        case "remove":
            return {"op": "remove", "path": pointer(source), "schema": {}}
        case "hoist":
            remove = draw(st.booleans())
            return {
                "op": "hoist", "host": pointer(host), "name": name, "to": pointer(to),
                "removeFromHost": remove,
            }  # fmt: skip
        case "plunge":
            create, remove = draw(st.booleans()), draw(st.booleans())
            return {
                "op": "plunge", "from": pointer(source), "host": pointer(host), "name": name,
                "createHost": create, "removeFromSource": remove,
            }  # fmt: skip
        case "wrap":
            return {"op": "wrap", "path": pointer(source), "mode": "singleton"}
        case "head":
            arrays = [found for found, schema in known if schema.get("type") == "array"]
            return {"op": "head", "path": pointer(draw(st.sampled_from(arrays or [source])))}
        case "convert":
            return draw(conversion(source))
        case "in":
            return {"op": "in", "path": pointer(path), "ops": draw(ops_of(held, depth - 1))}
        case _:
            lists = [(at, held) for at, held in known if held.get("type") == "array"]
            at, held = draw(st.sampled_from(lists or known))
            items = held.get("items")
            inner_ops = draw(ops_of(items if isinstance(items, dict) else {}, depth - 1))
            return {"op": "map", "path": pointer(at), "ops": inner_ops}


BUILTINS = {
    "lowercase": ("string", "string"),
    "uppercase": ("string", "string"),
    "string_to_int": ("string", "integer"),
    "int_to_string": ("integer", "string"),
    "rfc3339_to_unix_millis": ("string", "integer"),
    "unix_millis_to_rfc3339": ("integer", "string"),
}


@st.composite
def conversion(draw: st.DrawFn, path: tuple[str, ...]) -> dict[str, Any]:
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted(BUILTINS)))
        source, to = BUILTINS[name]
        forward: dict[str, Any] = {"builtin": name}
    else:
        source, to = (
            draw(st.sampled_from(["string", "boolean", "null", "integer", "number"])),
            "string",
        )
        keys = st.sampled_from([*TEXTS, "true", "false", "null", "1", "2.5"])
        forward = {"map": draw(st.dictionaries(keys, st.sampled_from(TEXTS), max_size=4))}
        if draw(st.booleans()):
            forward["default"] = "other"
    fallback = {"string": "", "integer": 0, "number": 0, "boolean": False, "null": None}[source]
    return {
        "op": "convert", "path": pointer(path), "fromType": source, "toType": to,
        "forward": forward, "backward": {"map": {}, "default": fallback},
    }  # fmt: skip


def lens_of(ops: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "durable.lens/v1", "schema": "s", "from": 1, "to": 2, "ops": ops}


# --- documents of a schema ------------------------------------------------------------------------


@st.composite
def documents(draw: st.DrawFn, schema: Any, depth: int = 4) -> Any:
    """Something that is likely to be valid."""
    if not isinstance(schema, dict) or not depth:
        return draw(values)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if "anyOf" in schema:
        return draw(documents(draw(st.sampled_from(schema["anyOf"])), depth - 1))
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = draw(st.sampled_from(kind))
    match kind:
        case "object":
            document = {
                name: draw(documents(inner, depth - 1))
                for name, inner in schema["properties"].items()
                if name in schema["required"] or draw(st.booleans())
            }
            more = schema.get(
                "additionalProperties", False
            )  # what it does not speak of is not there
            if more is not False and draw(st.booleans()):
                for name in draw(st.lists(names, max_size=2)):
                    if name not in schema["properties"]:
                        document[name] = draw(documents(more, depth - 1))
            return document
        case "array":
            low, high = schema.get("minItems", 0), schema.get("maxItems", 3)
            count = draw(st.integers(min(low, high), high))
            return [draw(documents(schema["items"], depth - 1)) for _ in range(count)]
        case "string":
            return draw(st.sampled_from(TEXTS))
        case "number" | "integer":
            return draw(st.sampled_from(NUMBERS))
        case "boolean":
            return draw(st.booleans())
        case "null":
            return None
        case _:
            return draw(values)


def loosened(schema: Any, draw: st.DrawFn) -> Any:
    """A schema that takes at least as much, as a rule."""
    if not isinstance(schema, dict):
        return schema
    loose = dict(schema)
    for keyword in ("minLength", "maxLength", "minimum", "minItems", "maxItems", "multipleOf"):
        if keyword in loose and draw(st.booleans()):
            del loose[keyword]
    if loose.get("type") == "integer" and draw(st.booleans()):
        loose["type"] = "number"
    if "properties" in loose:
        loose["properties"] = {k: loosened(v, draw) for k, v in loose["properties"].items()}
    return loose


def changed(schema: Any, draw: st.DrawFn) -> Any:
    """A schema with something else in some places."""
    if not isinstance(schema, dict):
        return schema
    other = dict(schema)
    match draw(st.integers(0, 24)):
        case 0:
            return draw(leaves)
        case 1:
            other["minimum"] = draw(st.integers(-9, 9))
        case 2 if "properties" in other:
            other["required"] = list(other["properties"])
        case 3:
            other["additionalProperties"] = draw(st.just(False) | leaves)
        case 4:
            other["minLength"], other["minItems"] = draw(st.integers(0, 2)), 1
        case 5:
            other["uniqueItems"] = True
        case 6:
            other["maxProperties"] = draw(st.integers(1, 4))
        case 7:
            return {"anyOf": [draw(leaves), other]}
        case 8:
            return {"allOf": [other, {"minProperties": 1}]}
        case 9:
            other["patternProperties"] = {"^[ab]": draw(leaves)}
        case 10 if "enum" in other:
            other["enum"] = [*other["enum"][1:], "more"]
    if "properties" in other:
        other["properties"] = {
            name: changed(inner, draw) for name, inner in other["properties"].items()
        }
    if isinstance(other.get("items"), dict):
        other["items"] = changed(other["items"], draw)
    return other


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schema, Schema, list[dict[str, Any]]]:
    """An old schema, a lens, and a new schema that is close to what the lens makes of the old."""
    old = draw(documents_of)
    known: Any = old
    ops: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 8))):
        schema = known if isinstance(known, dict) else {}
        op = draw(op_of(schema, depth=2))
        try:
            known = known_behind(parse_lens(lens_of([op])), known)
        except Refused:
            if draw(st.integers(0, 15)):
                continue  # a lens in which nothing fails is worth more
        ops.append(op)
    ops = ops or draw(ops_of(old))
    new = loosened(json.loads(json.dumps(known)), draw)
    return old, changed(new, draw) if draw(st.booleans()) else new, ops


@settings(
    max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(st.data())
def test_what_is_proven_holds(data: st.DataObject) -> None:
    old, new, ops = data.draw(cases())
    valid_old, valid_new = compile_schema(old).is_valid, compile_schema(new).is_valid
    try:
        lens = parse_lens(lens_of(ops))
        prove(old, new, lens)
    except Refused:
        event("refused")
        return
    event(f"proven {ops[0]['op']}")
    for _ in range(8):
        document = data.draw(documents(old))
        if not valid_old(document):
            continue
        event("promoted")
        made = json.loads(apply_lenses([lens.ops], json.dumps(document).encode()))
        assert valid_new(made), (document, made)


@settings(max_examples=150)
@given(documents_of, st.data())
def test_a_schema_implies_itself(schema: Schema, data: st.DataObject) -> None:
    """The least that can be asked: a lens that adds what was not there, to the same schema."""
    new = {**schema, "properties": {**schema["properties"], "new": {"type": "integer"}}}
    for keyword in ("minProperties", "maxProperties"):
        new.pop(keyword, None)  # what is counted there is not known any more
    lens = parse_lens(lens_of([{"op": "add", "path": "/new", "schema": {}, "default": 7}]))
    prove(schema, new, lens)


@settings(max_examples=200)
@given(st.recursive(scalars, lambda i: st.lists(i) | st.dictionaries(st.text(), i)), st.data())
def test_parsers_refuse_and_nothing_else(value: Any, data: st.DataObject) -> None:
    for raw in (value, {"schema": value}, lens_of(value), {"schema": {}, "lens": lens_of([value])}):
        try:
            parse_update(json.dumps(raw).encode())
        except Refused:
            pass
        try:
            parse_lens(raw)
        except Refused:
            pass


@settings(max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 20))
def test_a_record_goes_through_the_lenses_of_its_version(steps: list[int], clipped: int) -> None:
    """Each version counts one up; what is promoted has the number of the newest."""
    registry, offset = NOTHING, 0
    name = "s"
    versions: list[int] = []
    for version, more in enumerate(steps, 1):
        schema = {"type": "object", "properties": {f"v{version}": {}}, "required": [f"v{version}"]}
        update: dict[str, Any] = {"schema": schema}
        if version > 1:
            rename = {"op": "rename", "from": f"/v{version - 1}", "to": f"/v{version}"}
            update["lens"] = {**lens_of([rename]), "from": version - 1, "to": version}
        registry = evolve(registry, parse_update(json.dumps(update).encode()), name, offset)
        versions += [version] * more
        offset += more
    kept = encode_registry(registry)
    promoter = Promoter(decode_registry(kept))
    raws = [b'{"v%d":%d}' % (version, at) for at, version in enumerate(versions)]
    seqs = [*range(1, len(raws) + 1)]
    assert [promoter.version_of(seq) for seq in seqs] == versions
    wanted = [{f"v{len(steps)}": at} for at in range(len(raws))]
    assert [json.loads(raw) for raw in promoter.promote(seqs, raws)] == wanted
    assert (
        list(promoter.attempt(seqs[::-1], raws[::-1])) == list(promoter.promote(seqs, raws))[::-1]
    )
    assert isinstance(Update(), msgspec.Struct)
