"""Columns: the documents of a log as a table, by its JSON Schema and its search configuration.

A column has values of one kind from one place of the documents, as search reads them. What a column
does not tell to the letter stays in the rest, a JSON text: a value of another kind, a number of too
many digits, a time that is written in another way, null, and all that has no column. So a document
is its columns with its rest laid over them, and nothing of it is dropped.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from headrace.core.limits import COLUMN_NAME_MAX, COLUMNS_MAX, SCHEMA_NODES_MAX
from headrace.schemas.builtins import stringify
from headrace.schemas.kinds import kind_of
from headrace.search.config import FieldKind, Search
from headrace.search.pointers import Path, parse_pointer, resolve
from headrace.search.values import CANONICAL, PathReader, Value, format_date, parse_date_ms

REST = "rest"
RECORD_COLUMNS = (
    *("log", "seq", "ts", "key", "tag", "node", "data", "meta"),
    *("media", "payload", "epoch", REST),
)
"""Names that columns of documents do not take: a record has them already."""
_PREFIX = "data_"
"""What a column begins with whose name is taken."""

_KINDS = {
    frozenset({"string"}): FieldKind.KEYWORD,
    frozenset({"integer"}): FieldKind.INTEGER,
    frozenset({"number"}): FieldKind.FLOAT,
    frozenset({"integer", "number"}): FieldKind.FLOAT,
    frozenset({"boolean"}): FieldKind.BOOL,
}
_ARROW = {
    FieldKind.KEYWORD: pa.string(),
    FieldKind.TEXT: pa.string(),
    FieldKind.INTEGER: pa.int64(),
    FieldKind.FLOAT: pa.float64(),
    FieldKind.DATE: pa.timestamp("us", tz="UTC"),
    FieldKind.BOOL: pa.bool_(),
}
_YEARS = range(
    parse_date_ms("0001-01-01") or 0,
    (parse_date_ms("9999-12-31T23:59:59.999Z") or 0) + 1,
)
"""Times that every reader of tables knows, in milliseconds."""
_REFERENCES_MAX = 8
_NOT_A_NAME = re.compile(r"\W", re.ASCII)


class DocumentColumn(msgspec.Struct, frozen=True):
    """Values of one kind, and where documents have them."""

    name: str
    kind: FieldKind
    path: Path

    @property
    def type(self) -> pa.DataType:
        return _ARROW[self.kind]


def columns_of(
    schema: object, search: Search | None = None, taken: Iterable[str] = RECORD_COLUMNS
) -> tuple[DocumentColumn, ...]:
    """The columns of documents that are of this JSON Schema, if any, and are searched like this.

    Names are words of ASCII, and no two are alike to readers who do not tell cases apart. Those of
    nested values are joined by underscores.
    """
    found: dict[Path, tuple[str, FieldKind]] = {}
    for path, kind in _leaves(schema):
        found[path] = "_".join(path), kind
    for field in search.fields.values() if search is not None else ():
        path = field.path()
        if path in found:
            if field.kind is FieldKind.DATE and found[path][1] is not FieldKind.BOOL:
                found[path] = found[path][0], field.kind
        elif path and not any(_overlap(path, other) for other in found):
            found[path] = field.name, field.kind
    return tuple(_named(found, taken))


def _overlap(path: Path, other: Path) -> bool:
    """Whether one leads through the other."""
    shorter = min(len(path), len(other))
    return path[:shorter] == other[:shorter]


def _named(
    found: dict[Path, tuple[str, FieldKind]], taken: Iterable[str]
) -> Iterator[DocumentColumn]:
    used = {name.lower() for name in taken}
    left = COLUMNS_MAX
    for path, (text, kind) in found.items():
        name = _NOT_A_NAME.sub("_", text)
        if not name or name[0].isdigit():
            name = f"_{name}"
        if name.lower() in used:
            name = _PREFIX + name
        if name.lower() not in used and len(name) <= COLUMN_NAME_MAX and left:
            used.add(name.lower())
            left -= 1
            yield DocumentColumn(name, kind, path)


def _leaves(schema: object) -> Iterator[tuple[Path, FieldKind]]:
    """Places and kinds of the scalars that a schema tells of, outer ones first."""
    waiting: deque[tuple[Path, object]] = deque([((), schema)])
    for _ in range(SCHEMA_NODES_MAX):  # references may lead in circles
        if not waiting:
            return
        path, node = waiting.popleft()
        node = _refer(schema, node)
        if not isinstance(node, dict):
            continue
        kinds = _types(node)
        if kinds == {"object"}:
            properties = node.get("properties")
            if isinstance(properties, dict):
                waiting += (((*path, step), inner) for step, inner in properties.items())
        elif path and (kind := _KINDS.get(kinds)):
            is_time = kind is FieldKind.KEYWORD and node.get("format") == "date-time"
            yield path, FieldKind.DATE if is_time else kind


def _refer(schema: object, node: object) -> object:
    """What a node stands for that refers to another of the same schema."""
    for _ in range(_REFERENCES_MAX):
        target = node.get("$ref") if isinstance(node, dict) else None
        if not isinstance(target, str) or not target.startswith("#"):
            return node
        path = parse_pointer(target[1:])
        node = resolve(schema, path) if path is not None else None
    return None


def _types(node: dict[str, Any]) -> frozenset[str]:
    """The types a node allows beside null; nothing where it does not say."""
    said = node.get("type")
    if said is None and "const" in node:
        said = [kind_of(node["const"])]
    elif said is None and isinstance(node.get("enum"), list):
        said = [kind_of(value) for value in node["enum"]]
    elif said is None and "properties" in node:
        said = "object"
    kinds = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    return frozenset(kind for kind in kinds if isinstance(kind, str)) - {"null"}


class ColumnReader:
    """Reads the columns of many documents at once."""

    def __init__(self, columns: Sequence[DocumentColumn]) -> None:
        self.columns = tuple(columns)
        self._paths = PathReader([column.path for column in columns])
        self._tree = _Tree([(at, column.path) for at, column in enumerate(columns)])

    def read(self, raws: Sequence[bytes | None]) -> list[pa.Array]:
        """The columns in their order; documents that are nothing, or no JSON, have no values."""
        return self._arrays(self._values(raws))

    def split(self, raws: Sequence[bytes | None]) -> tuple[list[pa.Array], pa.Array]:
        """The same, and the rest of each document; null where the columns tell all of it."""
        values = self._values(raws)
        texts = [
            list(map(_TEXT[column.kind], found))
            for column, found in zip(self.columns, values, strict=True)
        ]
        rests = [
            None if raw is None else self._rest(raw, told)
            for raw, told in zip(raws, zip(*texts, strict=True) if texts else _ever(), strict=False)
        ]
        return self._arrays(values), pa.array(rests, pa.string())

    def _values(self, raws: Sequence[bytes | None]) -> list[list[Value | None]]:
        found = self._paths.read(raws) if self.columns else []
        return [
            list(map(_FITTING[column.kind], values))
            for column, values in zip(self.columns, found, strict=True)
        ]

    def _arrays(self, values: list[list[Value | None]]) -> list[pa.Array]:
        return [_array(column, found) for column, found in zip(self.columns, values, strict=True)]

    def _rest(self, raw: bytes, told: Sequence[bytes | None]) -> str | None:
        """What of a document its columns do not tell to the letter."""
        members = _members(raw)
        if members is None:
            return raw.decode("utf-8", "replace")
        if not members:
            return None
        if not self._tree.take(members, told):
            return None
        return msgspec.json.encode(members).decode()


class _Tree:
    """Where in a document the columns are."""

    def __init__(self, paths: list[tuple[int, Path]]) -> None:
        self._leaves = {path[0]: at for at, path in paths if len(path) == 1}
        inner: dict[str, list[tuple[int, Path]]] = {}
        for at, path in paths:
            if len(path) > 1:
                inner.setdefault(path[0], []).append((at, path[1:]))
        self._inner = {step: _Tree(rest) for step, rest in inner.items()}

    def take(self, members: dict[str, msgspec.Raw], told: Sequence[bytes | None]) -> bool:
        """Remove what the columns tell; says whether anything is left."""
        for step, at in self._leaves.items():
            raw = members.get(step)
            if raw is not None and bytes(raw) == told[at]:
                del members[step]
        for step, tree in self._inner.items():
            if (raw := members.get(step)) is not None and (inner := _members(bytes(raw))):
                if tree.take(inner, told):
                    members[step] = msgspec.Raw(msgspec.json.encode(inner))
                else:
                    del members[step]
        return bool(members)


_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _members(raw: bytes) -> dict[str, msgspec.Raw] | None:
    """What an object consists of; None for anything else, and where names come twice or are
    written in ways that would not be seen any more.
    """
    try:
        members = _decoder.decode(raw)
        size_bytes = len(msgspec.json.encode(members))
        if size_bytes != len(raw):
            stripped = msgspec.json.format(raw, indent=-1)
            again = _decoder.decode(stripped)
            if len(msgspec.json.encode(again)) != len(stripped):
                return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return members


def _ever() -> Iterator[Sequence[bytes | None]]:
    while True:
        yield ()


def _fitting(kind: FieldKind) -> Any:
    """One scalar of a document as a value of a column; None for what is none."""
    canonical = CANONICAL[kind]

    def fit(value: object) -> Value | None:
        return None if value is None else canonical(value)

    def fit_time(value: object) -> Value | None:
        at_ms = None if value is None else canonical(value)
        return at_ms if at_ms is not None and at_ms in _YEARS else None

    return fit_time if kind is FieldKind.DATE else fit


_FITTING = {kind: _fitting(kind) for kind in FieldKind}


def _string_text(value: Value | None) -> bytes | None:
    return None if value is None else msgspec.json.encode(value)


def _number_text(value: Value | None) -> bytes | None:
    return None if value is None else stringify(value).encode()


def _date_text(value: Any) -> bytes | None:
    return None if value is None else b'"%s"' % format_date(value).encode()


def _bool_text(value: Value | None) -> bytes | None:
    return None if value is None else (b"true" if value else b"false")


_TEXT = {
    FieldKind.KEYWORD: _string_text,
    FieldKind.TEXT: _string_text,
    FieldKind.INTEGER: _number_text,
    FieldKind.FLOAT: _number_text,
    FieldKind.DATE: _date_text,
    FieldKind.BOOL: _bool_text,
}
"""What a value of a column is in JSON, written in the one way that a column tells."""


def _array(column: DocumentColumn, values: list[Any]) -> pa.Array:
    match column.kind:
        case FieldKind.DATE:
            micros = [None if ms is None else ms * 1000 for ms in values]
            return pa.array(micros, pa.int64()).cast(column.type)
        case FieldKind.BOOL:
            return pa.array([None if value is None else value == 1 for value in values], pa.bool_())
        case _:
            return pa.array(values, column.type)
