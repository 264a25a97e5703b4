"""The key that the server signs with: made once, kept in the data directory."""

from __future__ import annotations

import secrets

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.storage.disk import Disk, write_atomically

_BYTES = 32


def signing_key(disk: Disk) -> bytes:
    """The private key; a new one when there is none yet."""
    if not disk.exists(layout.SIGNING_KEY):
        write_atomically(disk, layout.SIGNING_KEY, (secrets.token_bytes(_BYTES).hex().encode(),))
    try:
        key = bytes.fromhex(disk.read(layout.SIGNING_KEY).decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise Corrupt(layout.SIGNING_KEY, 0, f"not {_BYTES} bytes in hexadecimal")
    return key
