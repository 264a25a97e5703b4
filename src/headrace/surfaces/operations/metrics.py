"""Metrics of the server: its names for what the engine knows about itself.

Surfaces bring those of their own (`Surface.samples`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from headrace.engine.engine import Engine
from headrace.engine.flow.loop_lag import LoopLag
from headrace.engine.logs.chunks import StagedTotals
from headrace.engine.upkeep.cycle import SealBacklog
from headrace.observe import Counter, Gauge, Histogram, MetricFamily, Sample
from headrace.web.calls import Gate


class JournalVitals:
    """The journal's own counts."""

    def __init__(self, engine: Engine | None) -> None:
        journal = engine.journal if engine else None
        stats = journal.stats if journal else None
        self.frames = stats.frames if stats else 0
        self.batches = stats.batches if stats else 0
        self.fsyncs = stats.syncs if stats else 0
        self.bytes_written = stats.bytes_written if stats else 0
        self.rotations = stats.rotations if stats else 0
        self.queue_depth = journal.queue_depth if journal else 0
        self.queue_depth_peak = stats.queue_peak if stats else 0
        self.submit_full = stats.turned_away if stats else 0
        self.read_only = journal is not None and journal.failure is not None
        self.fsync_latency_us = stats.sync_latency_us if stats else Histogram("none", "", (1,))


class PipelineVitals(Protocol):
    """A pipeline that the server looks after."""

    @property
    def state(self) -> str: ...
    @property
    def restarts(self) -> int: ...
    @property
    def status(self) -> Mapping[str, Any]: ...


PIPELINE_NUMBERS = {
    "segments": "Segments indexed since the pipeline started.",
    "records": "Records indexed since the pipeline started.",
    "failures": "Segments that could not be indexed.",
    "records_per_s": "Records indexed in a second of work.",
    "waiting_segments": "Segments that wait to be indexed.",
    "waiting_records": "Records that wait to be indexed.",
    "lag_s": "Seconds that the oldest segment has waited.",
    "committed_at_ms": "When something was indexed last.",
}
"""What the pipeline says of itself."""
_JOB_NUMBERS = {
    "runs": "Runs of a job of upkeep that the history knows of.",
    "failures": "Runs of a job of upkeep that failed, in a row.",
    "last_seconds": "How long the last run of a job took.",
    "done_at_ms": "When a job was done last.",
    "next_at_ms": "When a job is due.",
}
"""What it says of each job of upkeep."""


def pipeline_samples(pipeline: PipelineVitals) -> list[Sample]:
    """How the pipeline is doing."""
    running = pipeline.state == "running"
    return [
        Gauge("headrace_pipeline_running", "1 while there is a pipeline process.", running),
        Counter("headrace_pipeline_restarts_total", "Starts after an end.", pipeline.restarts),
        *(
            Gauge(f"headrace_pipeline_{name}", help, pipeline.status.get(name, 0))
            for name, help in PIPELINE_NUMBERS.items()
        ),
        *(
            MetricFamily(
                f"headrace_pipeline_job_{name}",
                help,
                "job",
                {job: known[name] for job, known in pipeline.status.get("jobs", {}).items()},
            )
            for name, help in _JOB_NUMBERS.items()
        ),
    ]


def failing_jobs(pipeline: PipelineVitals) -> list[str]:
    """The jobs of upkeep whose last run failed."""
    return [job for job, known in pipeline.status.get("jobs", {}).items() if known["failures"]]


def read_samples(gate: Gate, loop_lag: LoopLag, uptime_ms: int) -> list[Sample]:
    """Metrics of the server at this moment; zeros while it recovers."""
    engine = gate.engine if gate.ready else None
    return [
        *_process_samples(engine, gate, loop_lag, uptime_ms),
        *_staged_samples(engine.transactions.waiting if engine else StagedTotals()),
        *_sealing_samples(
            engine.backlog() if engine else SealBacklog(), engine.segments.count if engine else 0
        ),
        *_journal_samples(JournalVitals(engine)),
    ]


def _process_samples(
    engine: Engine | None, gate: Gate, loop_lag: LoopLag, uptime_ms: int
) -> list[Sample]:
    records, size_bytes = (engine.state.count, engine.state.size_bytes) if engine else (0, 0)
    pressure = engine.scheduler.pressure.level if engine else 0.0
    return [
        Gauge("topics_records_live", "Live records, those of streams too.", records),
        Gauge("topics_bytes_live", "Live record bytes, those of streams too.", size_bytes),
        Gauge("topics_sse_connections", "Open streams.", len(gate.streams)),
        Gauge("topics_ready", "1 once recovery is done.", gate.ready),
        Gauge("topics_recovery_progress", "Recovery from 0 to 1.", gate.progress),
        Gauge("topics_uptime_ms", "Milliseconds since the start.", uptime_ms),
        Gauge(
            "headrace_loop_stall_max_ms",
            "Longest time the event loop was kept from its work.",
            loop_lag.stall_max_ms,
        ),
        Gauge("headrace_pressure", "How hard pressed the server is, 0 to 1.", pressure),
    ]


def _staged_samples(staged: StagedTotals) -> list[Sample]:
    return [
        Gauge(
            "headrace_staged_transactions",
            "Transactions with chunks that are not in their logs yet.",
            staged.transactions,
        ),
        Gauge("headrace_staged_chunks", "Chunks that wait.", staged.chunks),
        Gauge("headrace_staged_bytes", "Bytes of chunks that wait.", staged.size_bytes),
        Gauge("headrace_staged_age_ms", "How long the oldest chunk waits.", staged.age_ms),
    ]


def _sealing_samples(backlog: SealBacklog, segments: int) -> list[Sample]:
    return [
        Gauge("headrace_segments", "Segments that the manifest names.", segments),
        Gauge(
            "headrace_unsealed_bytes",
            "Bytes of the journal with records that are in no segment yet.",
            backlog.unsealed_bytes,
        ),
        Gauge("headrace_unsealed_age_ms", "How long the oldest of them waits.", backlog.age_ms),
    ]


def _journal_samples(journal: JournalVitals) -> list[Sample]:
    return [
        Counter("topics_wal_frames_total", "Frames written.", journal.frames),
        Counter("topics_wal_batches_total", "Group commits.", journal.batches),
        Counter("topics_wal_fsyncs_total", "Syncs to disk.", journal.fsyncs),
        Counter("topics_wal_bytes_written_total", "Bytes written.", journal.bytes_written),
        Counter("topics_wal_rotations_total", "Journal files begun.", journal.rotations),
        Gauge("topics_wal_queue_depth", "Frames waiting to be written.", journal.queue_depth),
        Gauge("topics_wal_queue_depth_peak", "Most that ever waited.", journal.queue_depth_peak),
        Counter(
            "topics_wal_submit_full_total",
            "Writes refused because too much was waiting.",
            journal.submit_full,
        ),
        Gauge("topics_wal_read_only", "1 after a failed sync.", journal.read_only),
        journal.fsync_latency_us.named(
            "topics_wal_fsync_latency_us", "Microseconds that one sync took."
        ),
    ]
