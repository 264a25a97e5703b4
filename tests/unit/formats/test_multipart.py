"""Forms: what they hold, and what is refused because two readers could see two forms in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Code, Refused
from headrace.core.limits import FORM_HEADER_BYTES_MAX, FORM_PARTS_MAX
from headrace.formats.multipart import FormPart, parse_boundary, parse_form

TYPE = "multipart/form-data; boundary=xyz"
NAMED = b'Content-Disposition: form-data; name="archive"; filename="a.tar.gz"'


def form(*fields: tuple[bytes, bytes], boundary: bytes = b"xyz") -> bytes:
    parts = [b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, head, content) for head, content in fields]
    return b"".join(parts) + b"--%b--\r\n" % boundary


def test_fields_come_in_their_order_as_they_are() -> None:
    body = form(
        (NAMED + b"\r\nContent-Type: application/gzip", b"\x1f\x8b\r\n--xy\r\n\r\n"),
        (b"content-disposition:form-data;name=note", b""),
    )
    assert parse_form(TYPE, body) == [
        FormPart("archive", b"\x1f\x8b\r\n--xy\r\n\r\n"),
        FormPart("note", b""),
    ]


def test_a_form_may_be_empty_and_have_something_behind_it() -> None:
    assert parse_form(TYPE, b"--xyz--") == []
    assert parse_form(TYPE, form((NAMED, b"a")) + b"an epilogue") == [FormPart("archive", b"a")]


def test_blanks_may_follow_a_boundary() -> None:
    body = b"--xyz \t\r\n" + NAMED + b"\r\n\r\na\r\n--xyz--"
    assert parse_form(TYPE, body) == [FormPart("archive", b"a")]


@pytest.mark.parametrize(
    ("text", "boundary"),
    [
        ("multipart/form-data; boundary=xyz", b"xyz"),
        ('Multipart/Form-Data; charset=utf-8; Boundary="a b:c"', b"a b:c"),
        ("multipart/form-data;boundary=" + "x" * 70, b"x" * 70),
    ],
)
def test_boundaries(text: str, boundary: bytes) -> None:
    assert parse_boundary(text) == boundary


@pytest.mark.parametrize(
    "text",
    [
        "",
        "application/json",
        "multipart/mixed; boundary=xyz",
        "multipart/form-data",
        'multipart/form-data; boundary=""',
        'multipart/form-data; boundary="ends with a blank "',
        "multipart/form-data; boundary=" + "x" * 71,
        "multipart/form-data; boundary=a\u00e9",
        'multipart/form-data; boundary="a\\"b"',
    ],
)
def test_other_types_are_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_form(text, b"--xyz--")
    assert refused.value.code is Code.MEDIA_TYPE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--xy",
        b"\r\n--xyz--",
        b"preamble\r\n" + form((NAMED, b"a")),
        b"--xyz",
        b"--xyzz\r\n" + NAMED + b"\r\n\r\na\r\n--xyz--",
        form((NAMED, b"a"))[:-5],
        b"--xyz\r\n" + NAMED + b"\r\n\r\na\r\n--xyz",
        b"--xyz\r\n" + NAMED + b"\r\n--xyz--",
        b"--xyz\r\n\r\nno headers\r\n--xyz--",
        form((b"Content-Type: text/plain", b"a")),
        form((b"Content-Disposition: attachment; name=archive", b"a")),
        form((b"Content-Disposition: form-data; filename=archive", b"a")),
        form((NAMED + b"\r\n" + NAMED, b"a")),
        form((b"Content-Disposition: form-data; name=a; name=b", b"a")),
        form((b'Content-Disposition: form-data; name="a', b"a")),
        form((NAMED + b"\r\nno colon", b"a")),
        form((NAMED + b"\r\nContent-Transfer-Encoding: base64", b"YQ==")),
        form((NAMED + b"\r\nX: " + b"x" * FORM_HEADER_BYTES_MAX, b"a")),
        form(*[(NAMED, b"a")] * (FORM_PARTS_MAX + 1)),
    ],
)
def test_what_is_no_form_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        parse_form(TYPE, body)
    assert refused.value.code is Code.INVALID


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=200)), max_size=FORM_PARTS_MAX)
)
def test_what_is_written_is_read(fields: list[tuple[str, bytes]]) -> None:
    boundary = b"-" * 20 + b"boundary"
    body = form(
        *[(b"Content-Disposition: form-data; name=" + n.encode(), c) for n, c in fields],
        boundary=boundary,
    )
    content_type = f"multipart/form-data; boundary={boundary.decode()}"
    assert parse_form(content_type, body) == [FormPart(*field) for field in fields]


@given(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 300))
def test_whatever_comes_is_a_form_or_refused(noise: bytes, start: int, stop: int) -> None:
    whole = form((NAMED, b"content"), (NAMED, b"more"))
    with pytest.raises(Refused):
        parse_form(TYPE, b"x" + noise)
    try:
        parts = parse_form(TYPE, whole[:start] + noise + whole[stop:])
    except Refused:
        return
    assert all(isinstance(part.content, bytes) for part in parts)
