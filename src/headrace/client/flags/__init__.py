"""Flags at hand: verified copies of namespaces, kept up to date over one connection.

Whatever a server, a proxy or a network does, what is evaluated is the last tree that was verified
file by file and as a whole, and that lint found nothing wrong with.
"""

from headrace.client.flags.groups import (
    AsyncFlagGroup,
    AsyncFlagNamespace,
    FlagGroup,
    SyncFlagNamespace,
)
from headrace.client.flags.listeners import FlagChange, FlagStateChange
from headrace.client.flags.namespaces import FlagEvaluation, FlagsNotReady
from headrace.client.flags.policy import RefreshPolicy
from headrace.client.flags.problems import FlagState, RefreshCheck, RefreshError

__all__ = [
    "AsyncFlagGroup",
    "AsyncFlagNamespace",
    "FlagChange",
    "FlagEvaluation",
    "FlagGroup",
    "FlagState",
    "FlagStateChange",
    "FlagsNotReady",
    "RefreshCheck",
    "RefreshError",
    "RefreshPolicy",
    "SyncFlagNamespace",
]
