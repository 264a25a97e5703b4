"""The key that the server signs with: made once, kept in the data directory."""

from __future__ import annotations

import secrets

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.layout import TEMPORARY
from headrace.storage.disk import RealDisk, write_atomically

_BYTES = 32


def signing_key(disk: RealDisk) -> bytes:
    """The private key; a new one when there is none yet. Nobody but its owner can read its file."""
    if not disk.exists(layout.SIGNING_KEY):
        disk.write(layout.SIGNING_KEY + TEMPORARY, ())
        disk.make_private(layout.SIGNING_KEY + TEMPORARY)
        write_atomically(disk, layout.SIGNING_KEY, (secrets.token_bytes(_BYTES).hex().encode(),))
    disk.make_private(layout.SIGNING_KEY)  # once it was made as any file
    try:
        key = bytes.fromhex(disk.read(layout.SIGNING_KEY).decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise Corrupt(layout.SIGNING_KEY, 0, f"not {_BYTES} bytes in hexadecimal")
    return key
