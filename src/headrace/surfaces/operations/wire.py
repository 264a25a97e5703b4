"""The bodies of probes."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class HealthReply(msgspec.Struct, kw_only=True):
    status: str
    version: str
    uptime_ms: int


class PipelineBody(msgspec.Struct, kw_only=True):
    state: str
    restarts: int
    problem: str | None
    segments: int
    records: int
    failures: int
    records_per_s: float
    waiting_segments: int
    waiting_records: int
    lag_s: float
    committed_at_ms: int
    running: str | None
    """The job of upkeep at work."""
    failing: list[str]
    """The jobs whose last run failed."""


class ReadyReply(msgspec.Struct, kw_only=True):
    status: str
    wal_replay_complete: bool
    topics: int
    pipeline: PipelineBody | UnsetType = UNSET
    """Only where the server looks after a pipeline."""
