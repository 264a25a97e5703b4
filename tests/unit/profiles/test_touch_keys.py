"""Keys as clients work them out, too: every vector of the contract."""

from __future__ import annotations

import pytest
import xxhash

from headrace.profiles.touchkeys import (
    Unkeyed,
    encode_arg,
    field_key,
    format_key,
    id_of,
    membership_key,
    parse_key_id,
    parse_template_id,
    table_key,
    template_id,
    template_key,
    watch_key,
)

TEMPLATE = template_id("public.todos", ["status", "tenantId"])
ARGS = [b"open", b"t1"]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (table_key("public.todos"), "feadeb84d447fd63"),
        (TEMPLATE, "03d5826f0bf1e3e7"),
        (template_key(TEMPLATE), "a440dcf9d1c07171"),
        (watch_key(TEMPLATE, ARGS), "0af6023939b30f26"),
        (membership_key(TEMPLATE, ARGS), "a7b1b1fd3cfa6ed1"),
        (field_key(TEMPLATE, "title", ARGS), "0848fb073b348b65"),
    ],
)
def test_vectors(key: int, text: str) -> None:
    assert format_key(key) == text
    assert parse_key_id(text) == id_of(key)


def test_ids() -> None:
    assert id_of(table_key("public.todos")) == 3561487715
    assert parse_key_id("not hex") == xxhash.xxh32_intdigest(b"not hex")
    assert parse_key_id("FEADEB84D447FD63") == xxhash.xxh32_intdigest(b"FEADEB84D447FD63")
    assert parse_template_id("03d5826f0bf1e3e7") == TEMPLATE
    assert parse_template_id("3d5826f0bf1e3e7") is None


@pytest.mark.parametrize(
    ("value", "encoding", "text"),
    [
        ("open", "string", b"open"),
        ("", "string", b""),
        ("é", "bytes", "é".encode()),
        (5, "int64", b"5"),
        (-5.0, "int64", b"-5"),
        ("17", "int64", b"17"),
        (-(2**63), "int64", b"-9223372036854775808"),
        (True, "bool", b"1"),
        (False, "bool", b"0"),
        ("2026-01-01T01:00:00+01:00", "datetime", b"2026-01-01T00:00:00.000Z"),
        (1767225600000, "datetime", b"2026-01-01T00:00:00.000Z"),
        (None, "string", None),
        (None, "datetime", None),
    ],
)
def test_encodings(value: object, encoding: str, text: bytes | None) -> None:
    assert encode_arg(value, encoding) == text


@pytest.mark.parametrize(
    ("value", "encoding"),
    [
        (5, "string"),
        ({}, "string"),
        ("x", "int64"),
        ("007", "int64"),
        (True, "int64"),
        (1.5, "int64"),
        (2**63, "int64"),
        (1, "bool"),
        ("true", "bool"),
        ("soon", "datetime"),
        (10**15, "datetime"),
        (True, "datetime"),
        (5, "bytes"),
    ],
)
def test_values_without_a_text(value: object, encoding: str) -> None:
    with pytest.raises(Unkeyed):
        encode_arg(value, encoding)
