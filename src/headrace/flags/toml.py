"""Reading TOML that anybody may have sent, in time that its size bounds.

The parser of the standard library takes the square of the parts of a dotted key, and the stack for
every bracket. So brackets and dots are counted first, in one pass that knows where strings and
comments end as the parser does, up to the first mistake at least, where the parser gives up.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from headrace.core.limits import MANIFEST_FILE_BYTES_MAX, TOML_DEPTH_MAX, TOML_KEY_PARTS_MAX

_TOKENS = re.compile(
    r'''
    """ (?: [^"\\]++ | \\.? | "(?!"") )*+ (?: """ "{0,2} )?
    | \'\'\' (?: [^']++ | '(?!\'\') )*+ (?: \'\'\' '{0,2} )?
    | " (?: [^"\\\n]++ | \\[^\n]? )*+ "?
    | ' [^'\n]*+ '?
    | \#[^\n]*+
    | [\[\]{}.=,\n]
    ''',
    re.VERBOSE | re.DOTALL,
)


class NotToml(Exception):
    """Bytes that are no TOML, or more or deeper than is taken."""


def read_toml(content: bytes) -> dict[str, Any]:
    """The table that a file is."""
    if len(content) > MANIFEST_FILE_BYTES_MAX:
        raise NotToml(f"the file has more than {MANIFEST_FILE_BYTES_MAX} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise NotToml(f"the file is not UTF-8 at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise NotToml("the file begins with a byte order mark: save it as UTF-8 without one")
    _check_nesting(text)
    try:
        return tomllib.loads(text)
    except ValueError as error:  # also of numbers and dates, which is not always a TOML error
        raise NotToml(str(error)[:200]) from None
    except RecursionError:  # who calls may have left little of the stack
        raise NotToml("the file is nested too deep") from None


def _check_nesting(text: str) -> None:
    depth = dots = 0
    for match in _TOKENS.finditer(text):
        match match[0]:
            case ".":
                dots += 1
                if dots >= TOML_KEY_PARTS_MAX:
                    raise NotToml(f"a key has more than {TOML_KEY_PARTS_MAX} parts")
            case "[" | "{":
                dots = 0
                depth += 1
                if depth > TOML_DEPTH_MAX:
                    raise NotToml(f"values are nested deeper than {TOML_DEPTH_MAX}")
            case "]" | "}":
                dots = 0
                depth -= 1
            case "=" | "," | "\n":
                dots = 0
