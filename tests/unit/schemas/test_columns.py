"""Columns of documents: what becomes one, what its values are, and that nothing is dropped."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import COLUMNS_MAX
from headrace.profiles.evlog import SCHEMA as EVLOG_SCHEMA
from headrace.profiles.evlog import SEARCH as EVLOG_SEARCH
from headrace.schemas.columns import ColumnReader, DocumentColumn, columns_of
from headrace.search.config import FieldKind, parse_search

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "total": {"type": ["number", "null"]},
        "paid": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
        "state": {"enum": ["new", "paid"]},
        "customer": {"$ref": "#/$defs/customer"},
        "items": {"type": "array"},
        "odd": {"type": ["string", "integer"]},
        "key": {"type": "string"},
        "ID": {"type": "integer"},
    },
    "$defs": {
        "customer": {"properties": {"name": {"type": "string"}, "the age": {"type": "integer"}}}
    },
}


def names(columns: tuple[DocumentColumn, ...]) -> dict[str, str]:
    return {column.name: str(column.type) for column in columns}


def test_columns_of_a_schema() -> None:
    """Scalars of one type, nested ones behind; a name that is taken is another."""
    assert names(columns_of(ORDER)) == {
        "id": "int64",
        "total": "double",
        "paid": "bool",
        "at": "timestamp[us, tz=UTC]",
        "state": "string",
        "data_key": "string",
        "data_ID": "int64",
        "customer_name": "string",
        "customer_the_age": "int64",
    }


def test_search_adds_columns_and_says_which_texts_are_times() -> None:
    columns = columns_of(
        msgspec.json.decode(EVLOG_SCHEMA), parse_search(msgspec.json.decode(EVLOG_SEARCH))
    )
    found = names(columns)
    assert found["timestamp"] == "timestamp[us, tz=UTC]"
    assert found["status"] == "int64"
    assert found["duration"] == "double"
    assert "redaction_keys" not in found
    assert {c.name: c.path for c in columns}["error_message"] == ("context", "error", "message")


@pytest.mark.parametrize("schema", [None, True, [], {"type": "string"}, {"properties": 3}])
def test_what_says_nothing_has_no_columns(schema: object) -> None:
    assert columns_of(schema) == ()
    assert ColumnReader(()).split([b'{"a":1}'])[1].to_pylist() == ['{"a":1}']


def test_schemas_that_go_on_for_ever_end() -> None:
    inner = {f"p{n}": {"$ref": "#"} for n in range(30)}
    found = columns_of({"type": "object", "properties": {**inner, "v": {"type": "integer"}}})
    assert 1 <= len(found) <= COLUMNS_MAX
    assert columns_of({"$ref": "#"}) == ()


def test_values_and_the_rest() -> None:
    reader = ColumnReader(columns_of(ORDER))
    arrays, rests = reader.split(
        [
            b'{"id":1,"total":20,"paid":true,"at":"2026-01-31T12:00:00.000Z",'
            b'"customer":{"name":"Ann"}}',
            b'{"id":1.5,"total":null,"at":"2026-01-31T14:00:00+02:00","customer":{"name":"B","x":1}}',
            b'{"total":0.1000000000000000000001,"id":99999999999999999999}',
            b'{"id": 1, "id": 2}',
            b"[1]",
            b"not json",
            None,
            b"{}",
        ]
    )
    rows = dict(zip((c.name for c in reader.columns), (a.to_pylist() for a in arrays), strict=True))
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert rows["id"] == [1, None, None, 2, None, None, None, None]
    assert rows["total"][:3] == [20.0, None, 0.1]
    assert rows["paid"][0] is True
    assert rows["at"][:2] == [noon, noon]
    assert rows["customer_name"][:2] == ["Ann", "B"]
    assert rests.to_pylist() == [
        None,
        '{"id":1.5,"total":null,"at":"2026-01-31T14:00:00+02:00","customer":{"x":1}}',
        '{"total":0.1000000000000000000001,"id":99999999999999999999}',
        '{"id": 1, "id": 2}',
        "[1]",
        "not json",
        None,
        None,
    ]


def test_times_that_tables_do_not_have_stay_in_the_rest() -> None:
    search = parse_search(
        {
            "primaryTimestampField": "at",
            "fields": {
                "at": {
                    "kind": "date",
                    "bindings": [{"version": 1, "jsonPointer": "/at"}],
                    "column": True,
                }
            },
        }
    )
    (array,), rests = ColumnReader(columns_of(None, search)).split([b'{"at":8640000000000000}'])
    assert array.to_pylist() == [None]
    assert rests.to_pylist() == ['{"at":8640000000000000}']


def _rebuild(columns: tuple[DocumentColumn, ...], values: tuple[Any, ...], rest: str | None) -> Any:
    """A document out of its row: the columns with the rest laid over them."""
    told: dict[str, Any] = {}
    for column, value in zip(columns, values, strict=True):
        if value is None:
            continue
        if column.kind is FieldKind.DATE:
            value = value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        elif column.kind is FieldKind.FLOAT and value.is_integer():
            value = int(value)
        place = told
        for step in column.path[:-1]:
            place = place.setdefault(step, {})
        place[column.path[-1]] = value
    return told if rest is None else _laid_over(told, json.loads(rest))


def _laid_over(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return below | {name: _laid_over(below.get(name), value) for name, value in above.items()}


_scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.just("2026-01-31T12:00:00.000Z") | st.just("2026-01-31")
)  # fmt: skip
_values = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=2), max_leaves=3)
_orders = st.dictionaries(st.sampled_from(list(ORDER["properties"])), _values, max_size=5)  # type: ignore[call-overload]
_documents = st.tuples(_orders, st.dictionaries(st.sampled_from(["name", "x"]), _values)).map(
    lambda pair: pair[0] | ({"customer": pair[1]} if pair[1] else {})
)


@given(st.lists(st.one_of(_documents, _values), min_size=1, max_size=5))
def test_every_document_comes_back(documents: list[Any]) -> None:
    """A column of an array's place may say what the rest says better; both say the same."""
    columns = columns_of(ORDER)
    raws = [msgspec.json.encode(document) for document in documents]
    arrays, rests = ColumnReader(columns).split(raws)
    rows = zip(*(array.to_pylist() for array in arrays), strict=True)
    for document, raw, values, rest in zip(documents, raws, rows, rests.to_pylist(), strict=True):
        told = json.loads(raw)
        if isinstance(told, dict) and "customer" in told and not isinstance(told["customer"], dict):
            assert rest is not None
        assert json.dumps(_rebuild(columns, values, rest), sort_keys=True) == json.dumps(
            told, sort_keys=True
        ), document
