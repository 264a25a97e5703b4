"""Forms with files in them (multipart/form-data, RFC 7578), taken apart without copies on the way.

What a client should never send is refused, not mended: two readers that mend differently see two
different forms.
"""

from __future__ import annotations

import re

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import FORM_HEADER_BYTES_MAX, FORM_PARTS_MAX

MEDIA_TYPE = "multipart/form-data"

_BREAK = b"\r\n"
_DASHES = b"--"
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]")
_PARAMETER = re.compile(
    r";[ \t]*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)=(\"(?:[^\"\\\r\n]|\\.)*\"|[^;\s\"]+)[ \t]*"
)
_AS_IT_IS = ("7bit", "8bit", "binary")


class FormPart(msgspec.Struct, frozen=True):
    """One field of a form."""

    name: str
    content: bytes


def parse_form(content_type: str, body: bytes) -> list[FormPart]:
    """The fields of a form in their order; refuses what is no form."""
    boundary = parse_boundary(content_type)
    mark = _DASHES + boundary
    if not body.startswith(mark):
        raise _malformed("it does not begin with its boundary")
    parts: list[FormPart] = []
    at = len(mark)
    between = _BREAK + mark
    while not body.startswith(_DASHES, at):
        if len(parts) == FORM_PARTS_MAX:
            raise _malformed(f"it has more than {FORM_PARTS_MAX} fields")
        start = _end_of_line(body, at)
        stop = body.find(between, start - len(_BREAK))
        if stop < 0:
            raise _malformed("it is cut short")
        parts.append(_parse_part(body, start, stop))
        at = stop + len(between)
    return parts


def parse_boundary(content_type: str) -> bytes:
    """What stands between the fields; refuses another media type."""
    media, parameters = _parse_parameters(content_type)
    if media != MEDIA_TYPE:
        raise Refused(
            Code.MEDIA_TYPE, f"this needs Content-Type: {MEDIA_TYPE}", content_type=content_type
        )
    boundary = parameters.get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise Refused(Code.MEDIA_TYPE, "the Content-Type names no boundary of a form")
    return boundary.encode("ascii")


def _end_of_line(body: bytes, at: int) -> int:
    """Where the line of a boundary ends: nothing but blanks may follow it."""
    stop = body.find(_BREAK, at, at + FORM_HEADER_BYTES_MAX)
    if stop < 0 or body[at:stop].strip(b" \t"):
        raise _malformed("a boundary is followed by something else")
    return stop + len(_BREAK)


def _parse_part(body: bytes, start: int, stop: int) -> FormPart:
    """The field between two boundaries; a part without headers begins with an empty line."""
    end = body.find(_BREAK * 2, start, min(stop, start + FORM_HEADER_BYTES_MAX))
    if end < 0:
        raise _malformed("a field has no end of its headers")
    name: str | None = None
    for line in body[start:end].split(_BREAK):
        header, colon, value = line.decode("utf-8", "replace").partition(":")
        if not colon:
            raise _malformed("a field has a header without a colon")
        match header.lower():
            case "content-disposition":
                if name is not None:
                    raise _malformed("a field has two names")
                name = _parse_name(value)
            case "content-transfer-encoding" if value.strip().lower() not in _AS_IT_IS:
                raise _malformed("a field is encoded")
    if name is None:
        raise _malformed("a field has no name")
    return FormPart(name, body[end + 2 * len(_BREAK) : stop])


def _parse_name(disposition: str) -> str:
    kind, parameters = _parse_parameters(disposition)
    if kind != "form-data" or "name" not in parameters:
        raise _malformed("a field has no name")
    return parameters["name"]


def _parse_parameters(header: str) -> tuple[str, dict[str, str]]:
    """The value of a header in lower case, and its parameters by name."""
    value, semicolon, rest = header.partition(";")
    parameters: dict[str, str] = {}
    text, at = semicolon + rest.rstrip(), 0
    while at < len(text):
        found = _PARAMETER.match(text, at)
        if found is None or found[1].lower() in parameters:
            raise _malformed("a header with parameters that are none")
        quoted = found[2].startswith('"')
        parameters[found[1].lower()] = (
            re.sub(r"\\(.)", r"\1", found[2][1:-1]) if quoted else found[2]
        )
        at = found.end()
    return value.strip().lower(), parameters


def _malformed(problem: str) -> Refused:
    return Refused(Code.INVALID, f"the body is not a form: {problem}", field="body")
