"""Lenses: how a document of one schema version becomes one of the next (`durable.lens/v1`).

Only the way forward is ever gone; what a lens says of the way back is checked and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from headrace.core.errors import Code, Refused, refuse_invalid
from headrace.core.json_values import need_bool, need_object, need_text, refuse_others
from headrace.schemas.builtins import BUILTINS, Builtin, stringify
from headrace.schemas.kinds import KINDS, kind_fits
from headrace.schemas.proof_budget import ProofBudget
from headrace.schemas.validation import check_schema, check_value
from headrace.search.pointers import Path, need_pointer

API_VERSION = "durable.lens/v1"
_OPS_MAX = 256
_DEPTH_MAX = 16


class Rename(msgspec.Struct, frozen=True):
    """Move a value."""

    source: Path
    to: Path


class Copy(msgspec.Struct, frozen=True):
    source: Path
    to: Path


class Add(msgspec.Struct, frozen=True):
    """Set a value, whatever was there."""

    path: Path
    default: Any


class Remove(msgspec.Struct, frozen=True):
    path: Path


class Hoist(msgspec.Struct, frozen=True):
    """Take a value out of an object."""

    host: Path
    name: str
    to: Path
    remove: bool


class Plunge(msgspec.Struct, frozen=True):
    """Put a value into an object, which is made where there is none."""

    source: Path
    host: Path
    name: str
    create: bool
    remove: bool


class Wrap(msgspec.Struct, frozen=True):
    """Make a list of one."""

    path: Path


class Head(msgspec.Struct, frozen=True):
    """Make the first element of a list."""

    path: Path


class Lookup(msgspec.Struct, frozen=True):
    """A value for each value, found by its text."""

    table: dict[str, Any]
    default: Any = msgspec.UNSET

    @property
    def total(self) -> bool:
        """Whether there is a value for every value."""
        return self.default is not msgspec.UNSET

    def convert(self, value: Any) -> Any:
        """The value for this one; refuses one that is not known."""
        found = self.table.get(stringify(value), self.default)
        if found is msgspec.UNSET:
            raise Refused(Code.INVALID, f"there is no value for {stringify(value)[:80]!r}")
        return found


class Convert(msgspec.Struct, frozen=True):
    path: Path
    source: str
    """The type of what is converted."""
    to: str
    forward: Builtin | Lookup


class In(msgspec.Struct, frozen=True):
    """Operations inside an object."""

    path: Path
    ops: tuple[Op, ...]


class Map(msgspec.Struct, frozen=True):
    """Operations inside each element of a list."""

    path: Path
    ops: tuple[Op, ...]


Op = Rename | Copy | Add | Remove | Hoist | Plunge | Wrap | Head | Convert | In | Map


class Lens(msgspec.Struct, frozen=True):
    """From one version to the next."""

    schema: str
    source: int
    to: int
    ops: tuple[Op, ...]
    kept: dict[str, Any]
    """As it was sent, with the defaults of what it adds."""


def parse_lens(raw: object, budget: ProofBudget | None = None) -> Lens:
    """Check a lens as it was sent."""
    lens = load_lens(raw)
    _check_schemas(lens.kept["ops"], "lens.ops", budget or ProofBudget())
    return lens


def load_lens(raw: object) -> Lens:
    """A lens that was kept: of its schemas nothing is asked any more."""
    lens = need_object(raw, "lens")
    _keys(lens, "lens", ("apiVersion", "schema", "from", "to", "ops"), ("description",))
    if lens["apiVersion"] != API_VERSION:
        refuse_invalid(f"lens.apiVersion must be {API_VERSION}")
    if not isinstance(lens["schema"], str) or not lens["schema"]:
        refuse_invalid("lens.schema must be a string")
    for end in ("from", "to"):
        if type(lens[end]) is not int or lens[end] < 1:
            refuse_invalid(f"lens.{end} must be a positive integer")
    need_text(lens.get("description", ""), "lens.description")
    kept = dict(lens)
    ops, kept["ops"] = _parse_ops(lens["ops"], "lens.ops", _DEPTH_MAX)
    return Lens(lens["schema"], lens["from"], lens["to"], ops, kept)


Parsed = tuple[Op, dict[str, Any]]
"""An operation, and what is kept of it."""
_Parse = Callable[[dict[str, Any], str, int], Parsed]


def _parse_ops(raw: object, where: str, depth: int) -> tuple[tuple[Op, ...], list[dict[str, Any]]]:
    if not isinstance(raw, list) or not raw or len(raw) > _OPS_MAX:
        refuse_invalid(f"{where} must be an array of 1 to {_OPS_MAX} operations")
    if not depth:
        refuse_invalid(f"{where} are nested too deeply")
    parsed: list[Parsed] = []
    for at, item in enumerate(raw):
        place = f"{where}[{at}]"
        op = need_object(item, place)
        name = op.get("op")
        if not isinstance(name, str) or name not in _PARSERS:
            refuse_invalid(f"{place}.op must be one of {', '.join(_PARSERS)}")
        required, optional, parse = _PARSERS[name]
        _keys(op, place, ("op", *required), optional)
        parsed.append(parse(op, place, depth))
    return tuple(op for op, _ in parsed), [kept for _, kept in parsed]


def _parse_rename(op: dict[str, Any], where: str, _: int) -> Parsed:
    return Rename(_inner(op, "from", where), _inner(op, "to", where)), op


def _parse_copy(op: dict[str, Any], where: str, _: int) -> Parsed:
    return Copy(_inner(op, "from", where), _inner(op, "to", where)), op


def _parse_add(op: dict[str, Any], where: str, _: int) -> Parsed:
    path = _inner(op, "path", where)
    default = op.get("default", msgspec.UNSET)
    if default is msgspec.UNSET:
        default = _default_of(op["schema"], where)
    return Add(path, default), {**op, "default": default}


def _default_of(schema: Any, where: str) -> Any:
    if isinstance(schema, dict):
        if "default" in schema:
            return schema["default"]
        empty: dict[str, Any] = {"object": {}, "array": []}
        kind = schema.get("type")
        if isinstance(kind, str) and kind in empty:
            return empty[kind]
    return refuse_invalid(f"{where} needs a default")


def _check_schemas(ops: list[dict[str, Any]], where: str, budget: ProofBudget) -> None:
    """Refuse what is no schema, and defaults that do not fit theirs."""
    for at, op in enumerate(ops):
        place = f"{where}[{at}]"
        if "ops" in op:
            _check_schemas(op["ops"], f"{place}.ops", budget)
        if "schema" in op:
            check_schema(op["schema"], f"{place}.schema", budget)
            if "default" in op and not check_value(op["default"], op["schema"]):
                refuse_invalid(f"{place}.default does not fit {place}.schema")


def _parse_remove(op: dict[str, Any], where: str, _: int) -> Parsed:
    return Remove(_inner(op, "path", where)), op


def _parse_hoist(op: dict[str, Any], where: str, _: int) -> Parsed:
    host, to = _path(op, "host", where), _inner(op, "to", where)
    remove = _flag(op, "removeFromHost", where)
    return Hoist(host, need_text(op["name"], f"{where}.name"), to, remove), op


def _parse_plunge(op: dict[str, Any], where: str, _: int) -> Parsed:
    source, host = _inner(op, "from", where), _path(op, "host", where)
    create, remove = _flag(op, "createHost", where), _flag(op, "removeFromSource", where)
    return Plunge(source, host, need_text(op["name"], f"{where}.name"), create, remove), op


def _parse_wrap(op: dict[str, Any], where: str, _: int) -> Parsed:
    if op["mode"] != "singleton":
        refuse_invalid(f"{where}.mode must be singleton")
    if op.get("reverseMode", "first") != "first":
        refuse_invalid(f"{where}.reverseMode must be first")
    return Wrap(_path(op, "path", where)), op


def _parse_head(op: dict[str, Any], where: str, _: int) -> Parsed:
    if op.get("reverseMode", "singleton") != "singleton":
        refuse_invalid(f"{where}.reverseMode must be singleton")
    return Head(_path(op, "path", where)), op


def _parse_convert(op: dict[str, Any], where: str, _: int) -> Parsed:
    for end in ("fromType", "toType"):
        if not isinstance(op[end], str) or op[end] not in KINDS:
            refuse_invalid(f"{where}.{end} must be one of {', '.join(KINDS)}")
    source, to = op["fromType"], op["toType"]
    forward = _parse_transform(op["forward"], f"{where}.forward", source, to)
    _parse_transform(op["backward"], f"{where}.backward", to, source)
    return Convert(_path(op, "path", where), source, to, forward), op


def _parse_transform(raw: object, where: str, source: str, to: str) -> Builtin | Lookup:
    transform = need_object(raw, where)
    if "builtin" in transform:
        _keys(transform, where, ("builtin",), ())
        name = transform["builtin"]
        if not isinstance(name, str) or name not in BUILTINS:
            refuse_invalid(f"{where}.builtin must be one of {', '.join(BUILTINS)}")
        builtin = BUILTINS[name]
        if source != builtin.source or to not in (builtin.to, _WIDER.get(builtin.to)):
            refuse_invalid(f"{where}: {name} makes {builtin.to} of {builtin.source}")
        return builtin
    _keys(transform, where, ("map",), ("default",))
    table = need_object(transform["map"], f"{where}.map")
    lookup = Lookup(table, transform.get("default", msgspec.UNSET))
    for value in table.values():
        if not kind_fits(value, to):
            refuse_invalid(f"{where}.map has a value that is no {to}")
    if lookup.default is not msgspec.UNSET and not kind_fits(lookup.default, to):
        refuse_invalid(f"{where}.default is no {to}")
    return lookup


_WIDER = {"integer": "number"}


def _parse_in(op: dict[str, Any], where: str, depth: int) -> Parsed:
    ops, kept = _parse_ops(op["ops"], f"{where}.ops", depth - 1)
    return In(_path(op, "path", where), ops), {**op, "ops": kept}


def _parse_map(op: dict[str, Any], where: str, depth: int) -> Parsed:
    ops, kept = _parse_ops(op["ops"], f"{where}.ops", depth - 1)
    return Map(_path(op, "path", where), ops), {**op, "ops": kept}


_PARSERS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], _Parse]] = {
    "rename": (("from", "to"), (), _parse_rename),
    "copy": (("from", "to"), (), _parse_copy),
    "add": (("path", "schema"), ("default",), _parse_add),
    "remove": (("path", "schema"), ("default",), _parse_remove),
    "hoist": (("host", "name", "to"), ("removeFromHost",), _parse_hoist),
    "plunge": (("from", "host", "name"), ("createHost", "removeFromSource"), _parse_plunge),
    "wrap": (("path", "mode"), ("reverseMode",), _parse_wrap),
    "head": (("path",), ("reverseMode",), _parse_head),
    "convert": (("path", "fromType", "toType", "forward", "backward"), (), _parse_convert),
    "in": (("path", "ops"), (), _parse_in),
    "map": (("path", "ops"), (), _parse_map),
}
"""The operations: what they need, what they may have, how they are read."""


# --- parts ----------------------------------------------------------------------------------------


def _path(op: dict[str, Any], key: str, where: str) -> Path:
    return need_pointer(op[key], f"{where}.{key}")


def _inner(op: dict[str, Any], key: str, where: str) -> Path:
    path = _path(op, key, where)
    if not path:
        refuse_invalid(f"{where}.{key} must not be the whole document")
    return path


def _flag(op: dict[str, Any], key: str, where: str) -> bool:
    return need_bool(op.get(key, True), f"{where}.{key}")


def _keys(
    raw: dict[str, Any], where: str, required: tuple[str, ...], optional: tuple[str, ...]
) -> None:
    refuse_others(raw, (*required, *optional), where)
    for key in required:
        if key not in raw:
            refuse_invalid(f"{where}.{key} is missing")
