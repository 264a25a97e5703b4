"""Names on the streams surface: what a path means.

A stream's name is the rest of the path, slashes and all, so that what belongs to a stream is
recognised from the end of the path.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from headrace.core.errors import Code, Refused
from headrace.core.limits import STREAM_NAME_BYTES_MAX
from headrace.core.names import METRICS_STREAM, check_printable
from headrace.core.owners import SYSTEM_PREFIX, reserved

PATHS = (b"/v1/stream/", b"/ds/v1/stream/")
"""Where streams are found, in every server of this kind."""
CONTROL = "__ds"
_PLAIN = re.compile(r"[A-Za-z0-9.:~-][A-Za-z0-9._:~-]{0,254}")


def parse_path(text: str, raw_path: bytes) -> str:
    """The stream that a path names."""
    if "\ufffd" in text:  # it is so in the path, or could not be decoded
        _decode(raw_path)
    if _PLAIN.fullmatch(text) and text not in (".", ".."):
        return text
    return _check(text.split("/"), served=True)


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
    if served and segments[0] == CONTROL:
        raise Refused(Code.NOT_FOUND, f"there is no {CONTROL} here")
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
