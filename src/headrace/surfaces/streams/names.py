"""Names on the streams surface: what a path means.

A stream's name is the rest of the path, slashes and all, so that what belongs to a stream is
recognised from the end of the path.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from headrace.core.errors import Code, Refused
from headrace.core.limits import STREAM_NAME_BYTES_MAX
from headrace.core.names import METRICS_STREAM, SYSTEM_PREFIX, check_printable, reserved

PATHS = (b"/v1/stream/", b"/ds/v1/stream/")
"""Where streams are found, in every server of this kind."""
CONTROL = "__ds"
KEYED = "pk"
RESOURCES = frozenset(
    ("_schema", "_profile", "_search", "_aggregate", "_details", "_index_status", "_routing_keys")
)
"""Last segments that are not part of a name."""
META, WAIT, ACTIVATE = "touch/meta", "touch/wait", "touch/templates/activate"
_TOUCH = {tuple(path.split("/")): path for path in (META, WAIT, ACTIVATE)}
_PLAIN = re.compile(rb"[A-Za-z0-9.:~-][A-Za-z0-9._:~-]{0,254}")


class Target(NamedTuple):
    """What a path below a mount stands for."""

    name: str
    key: str | None = None
    resource: str | None = None
    control: str | None = None


def parse_target(below: bytes) -> Target:
    """The stream of a path, and what of it is meant."""
    if _PLAIN.fullmatch(below) and below not in (b".", b".."):
        return Target(below.decode())
    segments = [_decode(segment) for segment in below.split(b"/")]
    if segments[0] == CONTROL:
        return Target("", control="/".join(segments))
    if len(segments) > 2 and segments[-2] == KEYED:
        return Target(_check(segments[:-2], served=True), key=segments[-1])
    if len(segments) > 1 and segments[-1] in RESOURCES:
        return Target(_check(segments[:-1], served=True), resource=segments[-1])
    for length in (2, 3):
        if len(segments) > length and (resource := _TOUCH.get(tuple(segments[-length:]))):
            return Target(_check(segments[:-length], served=True), resource=resource)
    return Target(_check(segments, served=True))


def parse_name(text: str) -> str:
    """A name as it stands in a header or a body: a path of ours, or the name itself."""
    raw = text.encode("utf-8", "surrogateescape")
    for prefix in PATHS:
        if raw.startswith(prefix):
            raw = raw[len(prefix) :]
            return _check([_decode(segment) for segment in raw.split(b"/")])
    return _check(text.split("/"))


def _decode(segment: bytes) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise Refused(Code.INVALID, "the name of a stream is UTF-8") from None


def _check(segments: list[str], *, served: bool = False) -> str:
    """The name; those of the server's own streams can be served, not chosen."""
    name = "/".join(segments)
    if not all(segments) or "." in segments or ".." in segments:
        raise Refused(Code.INVALID, "a stream needs a name without empty segments, . and ..")
    if name.startswith(SYSTEM_PREFIX) and not (served and name == METRICS_STREAM):
        raise reserved(name)
    if len(name) > STREAM_NAME_BYTES_MAX // 4 and len(name.encode()) > STREAM_NAME_BYTES_MAX:
        raise Refused(
            Code.INVALID,
            f"the name of a stream has at most {STREAM_NAME_BYTES_MAX} bytes",
            max=STREAM_NAME_BYTES_MAX,
        )
    check_printable(name, "the name of a stream")
    return name
