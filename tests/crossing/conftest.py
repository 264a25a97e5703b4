"""The servers of the conformance tests serve these, too."""

from __future__ import annotations

from conformance.conftest import shared_server

__all__ = ["shared_server"]
