"""Lists of objects that a change of the manifest leaves behind.

An object that a manifest no longer names may still be read by somebody who holds an older version.
So before a change is published, a small object lists what it retires; the janitor removes those
objects once the list is old enough, if by then no manifest names them.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator

import msgspec

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.storage.objects import Listed, Objects


class Retired(msgspec.Struct, frozen=True):
    """Objects that a change leaves without a manifest that names them."""

    names: tuple[str, ...]


def retire(objects: Objects, names: Collection[str]) -> None:
    """Write down that these are about to be named no more."""
    if names:
        retired = Retired(tuple(sorted(names)))
        objects.put(layout.retired(secrets.token_hex(8)), msgspec.json.encode(retired))


def retired_lists(objects: Objects) -> Iterator[tuple[Listed, tuple[str, ...]]]:
    """All lists that are there, with what they name."""
    for listed in objects.list(layout.BUILDS):
        if not layout.is_retired(listed.name):
            continue
        try:
            yield listed, msgspec.json.decode(objects.get(listed.name), type=Retired).names
        except FileNotFoundError:
            continue  # another janitor was here
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Corrupt(listed.name, 0, f"not a list of what was retired: {error}") from None
