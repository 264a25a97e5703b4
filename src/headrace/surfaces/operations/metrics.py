"""The metrics of the topics surface: its names for what the engine knows about itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Protocol

from headrace.observe import Counter, Family, Gauge, Histogram, Number, Sample
from headrace.web.credentials import Principal

TOPIC_SERIES_MAX = 1000
"""Topics with series of their own in one scrape; more would make scrapes slow for everyone."""


class JournalVitals(Protocol):
    """What the journal counts about its own work."""

    @property
    def frames(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def fsyncs(self) -> int: ...
    @property
    def bytes_written(self) -> int: ...
    @property
    def rotations(self) -> int: ...
    @property
    def queue_depth(self) -> int: ...
    @property
    def queue_depth_peak(self) -> int: ...
    @property
    def submit_full(self) -> int: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def fsync_latency_us(self) -> Histogram: ...


class TopicVitals(Protocol):
    """One topic at this moment; the queue fields are `None` for a plain log."""

    @property
    def name(self) -> str: ...
    @property
    def head_seq(self) -> int: ...
    @property
    def earliest_seq(self) -> int: ...
    @property
    def records_live(self) -> int: ...
    @property
    def bytes_live(self) -> int: ...
    @property
    def queue_ready(self) -> int | None: ...
    @property
    def queue_in_flight(self) -> int | None: ...


class StagedVitals(Protocol):
    """Chunks of transactions that are not in their logs yet."""

    @property
    def transactions(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def age_ms(self) -> int: ...


class BacklogVitals(Protocol):
    """Records that no segment holds yet."""

    @property
    def unsealed_bytes(self) -> int: ...
    @property
    def age_ms(self) -> int: ...


class Vitals(Protocol):
    """What the metrics need to know about the running process."""

    @property
    def topics_by_class(self) -> Mapping[str, int]: ...
    @property
    def routers(self) -> int: ...
    @property
    def records_live(self) -> int: ...
    @property
    def bytes_live(self) -> int: ...
    @property
    def queue_topics(self) -> int: ...
    @property
    def queue_leases_in_flight(self) -> int: ...
    @property
    def sse_connections(self) -> int: ...
    @property
    def watch_sessions(self) -> int: ...
    @property
    def ready(self) -> bool: ...
    @property
    def recovery_progress(self) -> float: ...
    @property
    def uptime_ms(self) -> int: ...
    @property
    def loop_stall_max_ms(self) -> float: ...
    @property
    def pressure(self) -> float: ...
    @property
    def staged(self) -> StagedVitals: ...
    @property
    def backlog(self) -> BacklogVitals: ...
    @property
    def segments(self) -> int: ...
    @property
    def journal(self) -> JournalVitals: ...

    def topics(self, wanted: Callable[[str], bool]) -> Iterator[TopicVitals]:
        """The topics whose names are wanted, read one by one as they are asked for."""
        ...


class PipelineVitals(Protocol):
    """A pipeline that the server looks after."""

    @property
    def state(self) -> str: ...
    @property
    def restarts(self) -> int: ...
    @property
    def status(self) -> Mapping[str, Number]: ...


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
    ]


def read_samples(vitals: Vitals, principal: Principal) -> list[Sample]:
    """Read every metric; topics are named only to whoever may see them."""
    return [
        *_process_samples(vitals),
        *_staged_samples(vitals.staged),
        *_sealing_samples(vitals.backlog, vitals.segments),
        *_topic_samples(vitals.topics(principal.may_see)),
        *_journal_samples(vitals.journal),
    ]


def _process_samples(vitals: Vitals) -> list[Sample]:
    by_class = vitals.topics_by_class
    return [
        Gauge("topics_topics", "Topics.", sum(by_class.values())),
        Family("topics_topics_by_class", "Topics by durability class.", "class", by_class),
        Gauge("topics_routers", "Routers.", vitals.routers),
        Gauge("topics_records_live", "Live records, those of streams too.", vitals.records_live),
        Gauge("topics_bytes_live", "Live record bytes, those of streams too.", vitals.bytes_live),
        Gauge("topics_queue_topics", "Topics of type queue.", vitals.queue_topics),
        Gauge(
            "topics_queue_leases_in_flight",
            "Leases held by workers.",
            vitals.queue_leases_in_flight,
        ),
        Gauge("topics_sse_connections", "Open streams.", vitals.sse_connections),
        Gauge("topics_watch_sessions", "Watch sessions.", vitals.watch_sessions),
        Gauge("topics_ready", "1 once recovery is done.", vitals.ready),
        Gauge("topics_recovery_progress", "Recovery from 0 to 1.", vitals.recovery_progress),
        Gauge("topics_uptime_ms", "Milliseconds since the start.", vitals.uptime_ms),
        Gauge(
            "headrace_loop_stall_max_ms",
            "Longest time the event loop was kept from its work.",
            vitals.loop_stall_max_ms,
        ),
        Gauge("headrace_pressure", "How hard pressed the server is, 0 to 1.", vitals.pressure),
    ]


def _staged_samples(staged: StagedVitals) -> list[Sample]:
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


def _sealing_samples(backlog: BacklogVitals, segments: int) -> list[Sample]:
    return [
        Gauge("headrace_segments", "Segments that the manifest names.", segments),
        Gauge(
            "headrace_unsealed_bytes",
            "Bytes of the journal with records that are in no segment yet.",
            backlog.unsealed_bytes,
        ),
        Gauge("headrace_unsealed_age_ms", "How long the oldest of them waits.", backlog.age_ms),
    ]


def _topic_samples(topics: Iterable[TopicVitals]) -> list[Sample]:
    # One more than is shown, to know whether some are left out.
    rows = list(islice(topics, TOPIC_SERIES_MAX + 1))
    shown = rows[:TOPIC_SERIES_MAX]

    def family(name: str, help: str, read: Callable[[TopicVitals], int | None]) -> Family:
        values: dict[str, Number] = {}
        for row in shown:
            value = read(row)
            if value is not None:
                values[row.name] = value
        return Family(f"topics_topic_{name}", help, "topic", values)

    return [
        family("head_seq", "Highest assigned seq.", lambda row: row.head_seq),
        family("earliest_seq", "Seq of the first live record.", lambda row: row.earliest_seq),
        family("records_live", "Live records.", lambda row: row.records_live),
        family("bytes_live", "Live record bytes.", lambda row: row.bytes_live),
        family("queue_ready", "Jobs that can be claimed.", lambda row: row.queue_ready),
        family("queue_in_flight", "Jobs under a lease.", lambda row: row.queue_in_flight),
        Gauge(
            "topics_topic_metrics_truncated",
            f"1 if only the first {TOPIC_SERIES_MAX} topics are listed.",
            len(rows) > len(shown),
        ),
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
