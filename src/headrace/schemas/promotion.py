"""Promotion: records of older versions as they are in the current one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from headrace.core.errors import Code, Refused
from headrace.schemas.forward import Room, apply_lenses
from headrace.schemas.lens import Op, load_lens
from headrace.schemas.registry import Registry

_offset = attrgetter("offset")


class Promoter:
    """Promotes the records of one stream by its registry.

    A record counts from 0 in the registry and from 1 in its log.
    """

    def __init__(self, registry: Registry) -> None:
        self._boundaries = registry.boundaries
        self.version = registry.current_version
        self._lenses: dict[int, Sequence[Sequence[Op]]] = {}
        """What leads from a version to the current one."""
        chain: tuple[Sequence[Op], ...] = ()
        for version in range(self.version - 1, 0, -1):
            chain = (load_lens(registry.lenses[str(version)]).ops, *chain)
            self._lenses[version] = chain
        self.first_current = registry.boundaries[-1].offset + 1 if registry.boundaries else 1
        """The seq from which on records are of the current version as they are."""

    def version_of(self, seq: int) -> int:
        """The version under which this record was appended."""
        at = bisect_right(self._boundaries, seq - 1, key=_offset)
        return self._boundaries[at - 1].version if at else self.version

    def promote(self, seqs: Sequence[int], raws: Sequence[bytes]) -> Sequence[bytes]:
        """The documents of these records in the current version; refuses if one cannot be."""
        if not seqs or min(seqs) >= self.first_current:
            return raws
        return [self._promote(seq, raw) for seq, raw in zip(seqs, raws, strict=True)]

    def promote_some(
        self, seqs: Sequence[int], raws: Sequence[bytes], room_bytes: int
    ) -> tuple[list[bytes], int]:
        """Promote these records from the first on, until lenses have used up so much room; says
        what they used. Something is promoted always.
        """
        made: list[bytes] = []
        used = 0
        for seq, raw in zip(seqs, raws, strict=True):
            room = Room()
            made.append(self._promote(seq, raw, room))
            used += room.used
            if used >= room_bytes:
                break
        return made, used

    def attempt(self, seqs: Sequence[int], raws: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """The same, with nothing for what cannot be promoted."""
        if not seqs or min(seqs) >= self.first_current:
            return raws
        return [self._attempt(seq, raw) for seq, raw in zip(seqs, raws, strict=True)]

    def _attempt(self, seq: int, raw: bytes | None) -> bytes | None:
        if raw is None:
            return None
        try:
            return self._promote(seq, raw)
        except Refused:
            return None

    def _promote(self, seq: int, raw: bytes, room: Room | None = None) -> bytes:
        if seq >= self.first_current:
            return raw
        lenses = self._lenses.get(self.version_of(seq))
        if lenses is None:
            return raw
        try:
            return apply_lenses(lenses, raw, room)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(Code.INVALID, f"lens failed: {error}") from None
