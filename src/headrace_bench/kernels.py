"""`python -m headrace_bench.kernels`: how fast bare kernels index, on one core without Spark."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import islice
from statistics import median
from time import perf_counter, process_time

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.record import Block, draft
from headrace.formats.companion import Descriptor, decode_hashes
from headrace.formats.index_plans import IndexPlans, plan
from headrace.formats.segment import Built, LogRows
from headrace.formats.segment import build as seal
from headrace.pipeline.kernels.build import build
from headrace.pipeline.kernels.builds import merge_builds
from headrace.search.aggregate import Buckets
from headrace.search.companions import Companions
from headrace.search.config import parse_search
from headrace.search.lookup import IndexLookup
from headrace.search.query import parse_query
from headrace_bench import evlog

SEGMENT_ROWS = 125_000
KEYS = 5000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    records = parser.parse_args().records
    pa.set_cpu_count(1)
    plans = IndexPlans(plans=(plan(1, "evlog", msgspec.json.encode(evlog.SEARCH)),))
    files: dict[str, pa.Buffer] = {}

    def write(family: str, content: pa.Buffer) -> str:
        files[str(len(files))] = content
        return str(len(files) - 1)

    builds: list[Descriptor] = []
    cpu = wall = 0.0
    size = sealed = 0
    for number, built in enumerate(_segments(records), 1):
        size, sealed = size + built.record_bytes, sealed + len(built.segment)
        before = process_time(), perf_counter()
        builds.append(
            build(
                pq.ParquetFile(pa.BufferReader(built.segment)),
                pq.read_table(pa.BufferReader(built.index)),
                plans,
                write,
                segment=number,
                generation=1,
            )
        )
        cpu, wall = cpu + process_time() - before[0], wall + perf_counter() - before[1]
    print(f"{records:,} records of {size / records:.0f} bytes; segments {sealed / 1e6:.1f} MB")
    print(f"build  {records / wall:>10,.0f} records/s  {1e6 * cpu / records:.2f} CPU-s per million")
    _sizes(builds)
    before = process_time(), perf_counter()
    merged = merge_builds(builds, lambda file: files[file.name], write)
    cpu, wall = process_time() - before[0], perf_counter() - before[1]
    print(f"merge  {records / wall:>10,.0f} records/s  {1e6 * cpu / records:.2f} CPU-s per million")
    _sizes([merged])
    _ask(merged, files)


QUERIES = (
    "requestId:req_0000abcd",
    "service:billing level:error",
    "path:/v1/orders/12*",
    "status:500",
    "duration:>=400",
    'timestamp:>="2026-01-01T00:10:00Z" timestamp:<"2026-01-01T00:10:10Z"',
    "msg:refund",
    'msg:"issuer declined"',
    "msg:refund OR msg:w17 OR status:404",
    "service:billing NOT level:info",
)


def _ask(build: Descriptor, files: dict[str, pa.Buffer]) -> None:
    """How long answers from a merged build take."""
    search = parse_search(evlog.SEARCH)
    companions = Companions(
        build,
        lambda file: pq.ParquetFile(pa.BufferReader(files[file.name])),
        lambda file: decode_hashes(files[file.name]),
    )
    lookup = IndexLookup(companions, 1, search)

    def timed(name: str, ask: Callable[[], int]) -> None:
        times = []
        for _ in range(20):
            before = perf_counter()
            found = ask()
            times.append(perf_counter() - before)
        print(f"{1000 * median(times):8.2f} ms  {found:>9,}  {name}")

    for text in QUERIES:
        query = parse_query(text, search)
        timed(text, lambda query=query: len(lookup.find(query)))  # type: ignore[misc]

    def windows() -> int:
        buckets = Buckets(search.rollups["latency"], 60_000, ["n", "ms"], ["service"])
        buckets.add_windows(companions, 1, 0, 1 << 60)
        return len(buckets.report())

    timed("aggregate by service per minute", windows)


def _segments(records: int) -> list[Built]:
    source = evlog.documents(records)
    found, first = [], 1
    while raws := list(islice(source, SEGMENT_ROWS)):
        drafts = draft(raws, keys=[f"key-{at % KEYS}" for at in range(len(raws))])
        last = first + len(raws) - 1
        block = Block(first, last, evlog.START_MS, drafts.data, drafts.ends, keys=drafts.keys)
        found.append(seal([LogRows(1, "evlog", [block])]))
        first = last + 1
    return found


def _sizes(builds: list[Descriptor]) -> None:
    sizes: dict[str, int] = {}
    for one in builds:
        for file in one.files:
            sizes[file.family] = sizes.get(file.family, 0) + file.file_bytes
    print("       " + ", ".join(f"{name} {size / 1e6:.2f} MB" for name, size in sizes.items()))


if __name__ == "__main__":
    main()
