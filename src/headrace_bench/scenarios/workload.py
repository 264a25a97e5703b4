"""The records that every scenario writes."""

from __future__ import annotations

from headrace_bench.wire import format_append, format_xadd, make_payloads

RECORD_BYTES = 200
# Enough different requests that a compressor does not see the same batch again in its window.
VARIANTS = 64


def make_batches(
    topic: str, batch_records: int, *, record_bytes: int = RECORD_BYTES, variants: int = VARIANTS
) -> tuple[bytes, ...]:
    """Different requests that each append a batch."""
    return tuple(
        format_append(topic, make_payloads(batch_records, record_bytes, seed=seed))
        for seed in range(variants)
    )


def make_pipelines(stream: str, batch_records: int) -> tuple[bytes, ...]:
    """The same batches as pipelines for Redis."""
    return tuple(
        format_xadd(stream, make_payloads(batch_records, RECORD_BYTES, seed=seed))
        for seed in range(VARIANTS)
    )
