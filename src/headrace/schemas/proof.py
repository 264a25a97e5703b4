"""The proof that a lens works: whatever is valid under the old schema can go through it, and is
valid under the new one.

What is known of a document is itself a schema, at first the old one. Each operation changes it as
it changes documents, and refuses when a document could fail there. In the end what is known must
imply the new schema. What cannot be shown is refused: to forget something that is known is always
right, to assume something that is not never is.

One thing is assumed all the same, because hardly a schema says it: that a document has no
properties which its schema does not speak of. They may well be there, and pass through a lens as
they are; but who adds a property to a schema, or closes it, need not have said so one version
before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.core.errors import Refused, refuse_invalid
from headrace.schemas.implication import (
    OBJECT,
    Implication,
    Known,
    PlacedByLens,
    elements_of,
    finite,
    kinds_of,
    property_of,
    spread,
    unknown,
)
from headrace.schemas.kinds import kind_fits
from headrace.schemas.lens import (
    Add,
    Convert,
    Copy,
    Head,
    Hoist,
    In,
    Lens,
    Lookup,
    Map,
    Op,
    Plunge,
    Remove,
    Rename,
    Wrap,
)
from headrace.schemas.proof_budget import ProofBudget
from headrace.schemas.validation import draft_of

_SPEAK_OF_MORE = {
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "enum",
    "if",
    "minProperties",
    "not",
    "oneOf",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
}
"""Keywords by which a schema says something of properties that it does not name."""
_SAID: Known = {"$comment": "patternProperties say something of them"}
"""What is known of properties that patterns speak of: nothing, but they are not absent."""
_FIRST_MS = -62_167_219_200_000
_LAST_MS = 253_402_300_799_999
"""The milliseconds that a date-time can name: years 0 to 9999."""


def prove(old: Known, new: Known, lens: Lens, budget: ProofBudget | None = None) -> None:
    """Refuse a lens that cannot be shown to lead from every old document to a new one."""
    budget = budget or ProofBudget()
    draft = draft_of(new)
    if draft_of(old) is not draft:
        refuse_invalid("the new schema must be of the same JSON Schema draft as the old one")
    known = known_behind(lens, _taken_at_its_word(old), budget)
    if problem := Implication(draft, budget).problem(known, new):
        refuse_invalid(f"lens cannot be proven: {problem}")


def _taken_at_its_word(schema: Known) -> Known:
    """The schema without properties that it does not speak of."""
    if not isinstance(schema, dict):
        return schema
    taken = dict(schema)
    # What is required is there, also where nothing else is said of it.
    held = dict.fromkeys(schema.get("required", ()), True) | schema.get("properties", {})
    if held:
        taken["properties"] = {name: _taken_at_its_word(inner) for name, inner in held.items()}
    if isinstance(schema.get("items"), dict):
        taken["items"] = _taken_at_its_word(schema["items"])
    if kinds_of(schema) == OBJECT and not _SPEAK_OF_MORE & schema.keys():
        taken["additionalProperties"] = False
    return taken


def known_behind(lens: Lens, old: Known, budget: ProofBudget | None = None) -> Known:
    """What is known of documents behind the lens; refuses a lens that a document could fail in."""
    return _pass(lens.ops, old, "lens.ops", budget or ProofBudget())


def _pass(ops: Sequence[Op], known: Known, where: str, budget: ProofBudget) -> Known:
    for at, op in enumerate(ops):
        budget.spend()
        known = _step(op, known, f"{where}[{at}]", budget)
    return known


def _step(op: Op, known: Known, where: str, budget: ProofBudget) -> Known:
    match op:
        case Rename(source=source, to=to):
            value = _get(known, source, where)
            return _set(_drop(known, source, where), to, value, where)
        case Copy(source=source, to=to):
            return _set(known, to, _get(known, source, where), where)
        case Add(path=path, default=default):
            return _set(known, path, {"enum": [default]}, where)
        case Remove(path=path):
            return _drop(known, path, where)
        case Hoist(host=host, name=name, to=to, remove=remove):
            source = (*host, name)
            value = _get(known, source, where)
            left = _drop(known, source, where) if remove else known
            return _set(left, to, value, where)
        case Plunge(source=source, remove=remove):
            value = _get(known, source, where)
            left = _drop(known, source, where) if remove else known
            if op.create:
                left = _create(left, op.host, where)
            return _set(left, (*op.host, op.name), value, where)
        case Wrap(path=path):
            inner = _get(known, path, where)
            wrapped = {"type": "array", "items": inner, "minItems": 1, "maxItems": 1}
            return _replace(known, path, wrapped, where)
        case Head(path=path):
            return _replace(known, path, _first(_get(known, path, where), where), where)
        case Convert(path=path):
            return _replace(known, path, _converted(op, _get(known, path, where), where), where)
        case In(path=path, ops=ops):
            inner = _get(known, path, where)
            if kinds_of(inner) != OBJECT:
                refuse_invalid(f"{where}: {_pointer(path)} is not always an object")
            passed = _pass(ops, inner, f"{where}.ops", budget)
            return _replace(known, path, passed, where, placed=False)
        case Map(path=path):
            mapped = _mapped(op, _get(known, path, where), where, budget)
            return _replace(known, path, mapped, where)


# --- where values are -----------------------------------------------------------------------------


def _get(known: Known, path: Sequence[str], where: str) -> Known:
    """What is known of a value that is there in every document."""
    for at, step in enumerate(path):
        if kinds_of(known) != OBJECT:
            refuse_invalid(f"{where}: {_pointer(path[:at])} is not always an object")
        known = spread(known)
        if step not in known.get("required", ()):
            refuse_invalid(f"{where}: {_pointer(path[: at + 1])} is not required in the old schema")
        known = property_of(known, step)
    return known


def _change(known: Known, path: Sequence[str], name: str, value: Known, where: str) -> Known:
    """The same with this value at a name of the object at the path; `False`: it is not there."""
    if path:
        inner = _change(_get(known, path[:1], where), path[1:], name, value, where)
        return _change(known, (), path[0], inner, where)
    if kinds_of(known) != OBJECT:
        refuse_invalid(f"{where}: there is not always an object to hold {name!r}")
    known = spread(known)
    required = [each for each in known.get("required", ()) if each != name]
    if value is not False:
        required.append(name)
    return {
        "type": "object",
        "properties": {**known.get("properties", {}), name: value},
        "required": required,
        "additionalProperties": _SAID if "patternProperties" in known else unknown(known),
    }


def _set(known: Known, path: Sequence[str], value: Known, where: str) -> Known:
    return _change(known, path[:-1], path[-1], _placed(value), where)


def _drop(known: Known, path: Sequence[str], where: str) -> Known:
    _get(known, path, where)
    return _change(known, path[:-1], path[-1], False, where)


def _replace(
    known: Known, path: Sequence[str], value: Known, where: str, *, placed: bool = True
) -> Known:
    """The same with this where something else was."""
    if not path:
        return value
    return _change(known, path[:-1], path[-1], _placed(value) if placed else value, where)


def _placed(value: Known) -> Known:
    return PlacedByLens({} if value is True else value) if value is not False else value


def _create(known: Known, host: Sequence[str], where: str) -> Known:
    """The same with an object there that may have been missing, or of which nothing was said."""
    if not host:
        return known
    parent = _get(known, host[:-1], where)
    if kinds_of(parent) != OBJECT:
        refuse_invalid(f"{where}: {_pointer(host[:-1])} is not always an object")
    parent, name = spread(parent), host[-1]
    if name in parent.get("required", ()):
        return known
    made = _host(parent, name)
    if made is None:
        refuse_invalid(f"{where}: {_pointer(host)} may be something else than an object")
    return _change(known, host[:-1], name, made, where)


def _host(parent: dict[str, Any], name: str) -> Known | None:
    """What is known of a host behind `createHost`; None: it is declared, and maybe no object.

    One that is not declared counts as absent. What is there all the same and is no object is
    replaced.
    """
    held = property_of(parent, name)
    if held is False or (held in (True, {}) and name not in parent.get("properties", {})):
        return {"enum": [{}]} if "patternProperties" not in parent else {"type": "object"}
    if kinds_of(held) == OBJECT:
        held = spread(held)  # what is required of it is so only where it was there before
        return {
            "type": "object",
            "properties": held.get("properties", {}),
            "additionalProperties": unknown(held),
        }
    return None if name in parent.get("properties", {}) else {"type": "object"}


# --- what values become ---------------------------------------------------------------------------


def _first(known: Known, where: str) -> Known:
    values = finite(known)
    if values is not None:
        if not all(isinstance(value, list) and value for value in values):
            refuse_invalid(f"{where}: the array may be empty")
        return {"enum": [value[0] for value in values]}
    if kinds_of(known) != frozenset({"array"}):
        refuse_invalid(f"{where}: it is not always an array")
    least = known.get("minItems", 0) if isinstance(known, dict) else 0
    if least < 1:
        refuse_invalid(f"{where}: the array may be empty; minItems must be at least 1")
    return elements_of(known)


def _mapped(op: Map, known: Known, where: str, budget: ProofBudget) -> Known:
    if kinds_of(known) != frozenset({"array"}):
        refuse_invalid(f"{where}: {_pointer(op.path)} is not always an array")
    values = finite(known)
    bounds: dict[str, Any] = {}
    if values is not None:
        inner: Known = {"enum": [element for value in values for element in value]}
        if values:
            bounds = {"minItems": min(map(len, values)), "maxItems": max(map(len, values))}
        if not inner["enum"]:
            return known  # always empty: nothing happens
    else:
        inner = elements_of(known)
        bounds = {key: known[key] for key in ("minItems", "maxItems") if key in known}
    return {"type": "array", "items": _pass(op.ops, inner, f"{where}.ops", budget), **bounds}


def _converted(op: Convert, known: Known, where: str) -> Known:
    values = finite(known)
    if values is not None:
        for value in values:
            if not kind_fits(value, op.source):
                refuse_invalid(f"{where}: {_pointer(op.path)} is not always of type {op.source}")
        try:
            return {"enum": [op.forward.convert(value) for value in values]}
        except Refused as refused:
            refuse_invalid(f"{where}: {refused.message}")
    wanted = {"number", "integer"} if op.source == "number" else {op.source}
    if not kinds_of(known) <= wanted:
        refuse_invalid(f"{where}: {_pointer(op.path)} is not always of type {op.source}")
    if isinstance(op.forward, Lookup):
        if not op.forward.total:
            refuse_invalid(f"{where}: a map without a default needs an enum in the old schema")
        return {"enum": [*op.forward.table.values(), op.forward.default]}
    if not op.forward.total:
        refuse_invalid(f"{where}: {op.forward.name} needs an enum in the old schema")
    made: Known = {"type": op.to if op.to != "number" else "integer"}
    if op.forward.name == "unix_millis_to_rfc3339" and _can_be_dated(known):
        made["format"] = "date-time"
    return made


def _can_be_dated(known: Known) -> bool:
    least, most = known.get("minimum", None), known.get("maximum", None)
    return least is not None and most is not None and least >= _FIRST_MS and most <= _LAST_MS


def _pointer(path: Sequence[str]) -> str:
    steps = (step.replace("~", "~0").replace("/", "~1") for step in path)
    return "".join(f"/{step}" for step in steps) or "the document"
