"""Ownership: one object store holds the journal of one data directory.

A server that is given the store of another would remove what that one is about to publish, and seal
what it has sealed. So a data directory has an id, a manifest says whose the store is, and a server
that publishes or removes anything asks that first, in the change of the manifest itself.
"""

from __future__ import annotations

import secrets

import msgspec

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.manifest import Manifest, StoreOwner
from headrace.storage.disk import Disk, write_atomically
from headrace.storage.manifests import Change, load
from headrace.storage.objects import Objects, StoreError

_BYTES = 8


class NotOurs(StoreError):
    """Another server uses this object store."""


class Ownership:
    """What one start of a server may change in a store."""

    def __init__(self, owner: StoreOwner, found: StoreOwner | None) -> None:
        self._owner = owner
        self._allowed = {None, found, owner}
        """Whose the store may be: nobody's, that of the start before us, ours."""
        self._refuse_others(found)

    @property
    def claimed(self) -> bool:
        """Whether a manifest said that the store is ours."""
        return len(self._allowed) == 1

    def require(self, manifest: Manifest) -> None:
        """`NotOurs` when the store is of another data directory, or of another start on ours."""
        if manifest.owner in self._allowed:
            return
        self._refuse_others(manifest.owner)
        raise NotOurs(
            "another server was started on a copy of this data directory, and publishes to the "
            "same object store: this one seals no more"
        )

    def _refuse_others(self, found: StoreOwner | None) -> None:
        if found is not None and found.directory != self._owner.directory:
            raise NotOurs(
                f"it is of another server, whose data directory has the id {found.directory} and "
                f"not {self._owner.directory}; nothing was changed. Give this server a bucket or "
                f"prefix of its own; if this is a copy of that directory, and the only one left, "
                f"write the first id to its {layout.SERVER_ID}"
            )

    def note(self, manifest: Manifest) -> None:
        """This is the newest manifest."""
        if manifest.owner == self._owner:
            self._allowed = {self._owner}

    def claiming(self, change: Change) -> Change:
        """The same change, by who owns the store and says so."""

        def claim(manifest: Manifest) -> Manifest | None:
            self.require(manifest)
            changed = change(manifest)
            if changed is None:
                return None
            return msgspec.structs.replace(changed, owner=self._owner)

        return claim


def own(disk: Disk, objects: Objects) -> Ownership:
    """The ownership that a start on this data directory can have; `NotOurs` if it is another's."""
    owner = StoreOwner(directory=_directory_id(disk), start=secrets.token_hex(_BYTES))
    return Ownership(owner, load(objects).owner)


def _directory_id(disk: Disk) -> str:
    """The id of a data directory: made once."""
    if not disk.exists(layout.SERVER_ID):
        write_atomically(disk, layout.SERVER_ID, (secrets.token_hex(_BYTES).encode(),))
    found = disk.read(layout.SERVER_ID).decode("ascii", "replace").strip()
    if len(found) != 2 * _BYTES or not found.isalnum():
        raise Corrupt(layout.SERVER_ID, 0, f"not an id of {2 * _BYTES} letters and digits")
    return found
