"""What can keep a namespace from being refreshed, as users see it."""

from __future__ import annotations

from enum import Enum

import msgspec


class FlagState(Enum):
    """How well a namespace is known. Whatever it is, the last good tree is served."""

    NOT_READY = "not_ready"
    """There has been no verified tree yet."""
    FRESH = "fresh"
    """Connected, and every change that was announced is in, or about to be."""
    STALE = "stale"
    """The connection is lost or a refresh failed, for a short while so far."""
    ERROR = "error"
    """The same for longer, or for a reason that does not pass by itself."""


class RefreshCheck(Enum):
    """Where a refresh failed."""

    CONNECTION = "connection"
    """The stream of events: refused, lost, silent."""
    EVENT = "event"
    """An event that cannot be read, or has no place here."""
    PROTOCOL = "protocol"
    """An event of a protocol that this client does not speak."""
    PRE_APPLY = "pre_apply"
    """A delta is against another closure than the one that is held."""
    PER_FILE = "per_file"
    """A content of a delta is not what its hash says."""
    POST_APPLY = "post_apply"
    """The tree that a delta leads to is not the one that was announced."""
    FETCH = "fetch"
    """A snapshot could not be fetched."""
    SNAPSHOT = "snapshot"
    """A snapshot is no archive of a closure, or not of the one that was announced."""
    LINT = "lint"
    """The tree is what was announced, but no manifest without errors, or not what was asked for."""


class RefreshError(msgspec.Struct, frozen=True):
    """Why a refresh failed."""

    check: RefreshCheck
    message: str
    version: int | None = None
    """The version that was not reached, if one was announced."""
    status: int | None = None
    """What the server answered with, if it did."""
    code: str = ""
    """The code of the server's refusal."""

    def __str__(self) -> str:
        about = f"{self.check.value}: {self.message}"
        return about if self.version is None else f"{about} (version {self.version})"
