"""Writing: tasks stage chunks, the driver commits them once for each batch.

Nobody sees a record before the commit, and the server lets the first commit of a batch win, so a
task that runs twice, a driver that dies and a batch that comes again change nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from headrace.client.http import Server
from headrace.spark.options import OptionError, WriteOptions

COLUMNS = ("data", "meta", "tag", "node", "key")
GIVEN = ("seq", "ts", "epoch", "media")
"""What the server says of a record: passed over, so that what was read can be written."""
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class Staged(WriterCommitMessage):
    """What one task staged."""

    transaction: str
    batch: int
    part: int
    chunks: list[str] = field(default_factory=list)


def check_schema(schema: StructType, options: WriteOptions) -> None:
    """Say what is missing before anything runs."""
    known = {each.name: each.dataType for each in schema.fields}
    if "data" not in known:
        raise OptionError(
            "a column data with JSON text is needed, as to_json(struct('*')) makes it; "
            f"there are {', '.join(known)}"
        )
    if options.log is None and "log" not in known:
        raise OptionError("say where to write to: option log, or a column log")
    for name, kind in known.items():
        if name not in COLUMNS + GIVEN + ("log",):
            raise OptionError(
                f"column {name} has no place in a record; there are {', '.join(COLUMNS)} and log"
            )
        if name not in GIVEN and not isinstance(kind, StringType | BinaryType):
            raise OptionError(f"column {name} is text, not {kind.simpleString()}")


class _Stage:
    """Stages the rows of one task, in chunks of one log each."""

    def __init__(self, options: WriteOptions, staged: Staged) -> None:
        where = options.where
        assert where.url is not None
        self._options = options
        self._server = Server(where.url, where.key, where.timeout_s)
        self._staged = staged
        # Another attempt of the task may cut its rows otherwise: it has names of its own.
        self._attempt = secrets.randbelow(10**9)
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._done = False

    def run(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        with self._server:
            for batch in batches:
                for log, rows in self._by_log(batch):
                    self._take(log, rows)
                if self._done:
                    break
            for log in list(self._waiting):
                self._flush(log)
        return self._staged

    def _by_log(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not batch.num_rows:
            return
        rows = batch.select([name for name in COLUMNS if name in batch.schema.names])
        if self._options.log is not None:
            yield self._options.log, rows
            return
        logs = batch.column("log")
        for log in pc.unique(logs).to_pylist():
            if log is None:
                raise ValueError("column log is null in some rows")
            yield log, rows.filter(pc.equal(logs, log))

    def _take(self, log: str, rows: pa.RecordBatch) -> None:
        waiting = self._waiting.setdefault(log, [])
        per_row = max(1, rows.nbytes // rows.num_rows)
        step = max(1, min(self._options.chunk_rows, self._options.chunk_bytes // per_row))
        for start in range(0, rows.num_rows, step):
            waiting.append(rows.slice(start, step))
            held = pa.Table.from_batches(waiting)
            if (
                held.num_rows >= self._options.chunk_rows
                or held.nbytes >= self._options.chunk_bytes
            ):
                self._flush(log)
                waiting = self._waiting.setdefault(log, [])

    def _flush(self, log: str) -> None:
        waiting = self._waiting.pop(log)
        if not waiting or self._done:
            return
        table = pa.Table.from_batches(waiting)
        for start in range(0, len(table), self._options.chunk_rows):
            self._send(log, table.slice(start, self._options.chunk_rows))

    def _send(self, log: str, table: pa.Table) -> None:
        staged = self._staged
        name = f"{staged.part}-{self._attempt}-{len(staged.chunks)}"
        if self._server.stage(staged.transaction, staged.batch, name, log, table):
            staged.chunks.append(name)
        else:
            self._done = True  # this batch is in its logs already


def _commit(options: WriteOptions, messages: Sequence[object], *, once: bool) -> None:
    staged = sorted(_staged(messages), key=lambda each: each.part)
    chunks = [chunk for each in staged for chunk in each.chunks]
    if not chunks:
        return  # nothing to write, or all of it was written before
    assert options.where.url is not None
    with Server(options.where.url, options.where.key, options.where.timeout_s) as server:
        transaction, batch = staged[0].transaction, staged[0].batch
        server.commit(transaction, batch, chunks, create=options.create, once=once)


def _abort(options: WriteOptions, messages: Sequence[object]) -> None:
    assert options.where.url is not None
    with Server(options.where.url, options.where.key, 5.0) as server:
        for transaction, batch in {(each.transaction, each.batch) for each in _staged(messages)}:
            server.abort(transaction, batch)


def _staged(messages: Sequence[object]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


class HeadraceWriter(DataSourceArrowWriter):
    """Writes a DataFrame: all of it, or nothing."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._transaction = options.transaction or f"once-{secrets.token_hex(16)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        staged = Staged(self._transaction, self._options.batch, _context().partitionId())
        return _Stage(self._options, staged).run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self._options, messages, once=self._options.transaction is None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self._options, messages)


class HeadraceStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query, each once."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = _context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise RuntimeError("Spark does not say which batch of which query this is")
        staged = Staged(query, int(batch), context.partitionId())
        return _Stage(self._options, staged).run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _commit(self._options, messages, once=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _abort(self._options, messages)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "this runs in a task"
    return context
