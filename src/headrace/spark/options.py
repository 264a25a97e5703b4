"""The options of the data source, read once: what is wrong with them is said in one sentence."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches

import msgspec

from headrace.core.name_patterns import NamePatterns, parse_patterns

COLUMNS = ("log", "seq", "ts", "key", "tag", "node", "data", "meta")
EXTRAS = ("media", "payload", "epoch")
"""Columns that are there for those who ask for them."""
_TYPES = {
    "log": "string",
    "seq": "bigint",
    "ts": "timestamp",
    "key": "string",
    "tag": "string",
    "node": "string",
    "data": "string",
    "meta": "string",
    "media": "string",
    "payload": "binary",
    "epoch": "bigint",
}
OPTIONS = (
    *("url", "path", "log", "apiKey", "timeoutSeconds"),
    *("from_seq", "to_seq", "from_ts", "to_ts", "keys", "columns", "pushdown"),
    *("startingOffsets", "failOnDataLoss"),
    *("maxRowsPerTrigger", "maxBytesPerTrigger", "maxFilesPerTrigger"),
    *("create", "transaction", "batch", "chunkRows", "chunkBytes"),
)
_NEAR = 0.85
"""How much of a name must be the same for it to be a mistake in spelling; 1 is all."""
SEQ_MAX = (1 << 63) - 1
TS_MIN, TS_MAX = -(1 << 62), 1 << 62

_ON = ("true", "1", "yes", "on")
_OFF = ("false", "0", "no", "off")


class OptionError(ValueError):
    """An option that cannot be understood."""


class Where(msgspec.Struct, frozen=True):
    """Where the records are: behind a server, in an object store, or both."""

    url: str | None
    path: str | None
    key: str | None
    timeout_s: float


class RecordSelection(msgspec.Struct, frozen=True):
    """Which records are wanted. Bounds are inclusive; times are microseconds."""

    logs: NamePatterns = NamePatterns()
    first: int = 1
    last: int = SEQ_MAX
    since_us: int = TS_MIN
    until_us: int = TS_MAX
    sets: tuple[tuple[str, frozenset[str]], ...] = ()
    """(column, values): the column must have one of them."""
    starts: tuple[tuple[str, str], ...] = ()
    """(column, prefix)"""

    def takes(self, log: str) -> bool:
        """Whether a log of this name is wanted."""
        return (
            self.logs.takes(log)
            and all(log in values for column, values in self.sets if column == "log")
            and all(log.startswith(prefix) for column, prefix in self.starts if column == "log")
        )


class Pace(msgspec.Struct, frozen=True):
    """How much one batch of a stream may bring."""

    rows: int | None = None
    size_bytes: int | None = None
    files: int | None = None


class ReadOptions(msgspec.Struct, frozen=True):
    where: Where
    wanted: RecordSelection
    columns: tuple[str, ...]
    pushdown: bool
    pace: Pace
    from_latest: bool
    fail_on_loss: bool


class WriteOptions(msgspec.Struct, frozen=True):
    where: Where
    log: str | None
    create: bool
    transaction: str | None
    batch: int
    chunk_rows: int
    chunk_bytes: int


def parse_read(options: Mapping[str, str]) -> ReadOptions:
    _check_spelling(options)
    where = _where(options)
    sets: tuple[tuple[str, frozenset[str]], ...] = ()
    if keys := _list(options, "keys"):
        sets = (("key", frozenset(keys)),)
    starting = options.get("startingOffsets", "earliest").lower()
    if starting not in ("earliest", "latest"):
        raise OptionError("startingOffsets is earliest or latest")
    first, last = _seqs(options)
    if starting == "latest" and "from_seq" in options:
        raise OptionError("startingOffsets latest and from_seq say two things; leave out one")
    since_us, until_us = _time(options, "from_ts", TS_MIN), _time(options, "to_ts", TS_MAX)
    if since_us > until_us:
        raise OptionError("from_ts lies behind to_ts")
    return ReadOptions(
        where=where,
        wanted=RecordSelection(_logs(options), first, last, since_us, until_us, sets),
        columns=parse_columns(options),
        pushdown=_switch(options, "pushdown", default=False),
        pace=Pace(
            _whole(options, "maxRowsPerTrigger", 1),
            _whole(options, "maxBytesPerTrigger", 1),
            _whole(options, "maxFilesPerTrigger", 1),
        ),
        from_latest=starting == "latest",
        fail_on_loss=_switch(options, "failOnDataLoss", default=True),
    )


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    _check_spelling(options)
    where = _where(options)
    if where.url is None:
        raise OptionError("writing needs a server: say url")
    log = options.get("log")
    if log is not None and ("," in log or "*" in log):
        raise OptionError(
            "log names one log to write to; leave it out to write where column log says"
        )
    transaction, batch = options.get("transaction"), _whole(options, "batch", 0)
    if (transaction is None) != (batch is None):
        raise OptionError("transaction and batch belong together")
    return WriteOptions(
        where=where,
        log=log,
        create=_switch(options, "create", default=True),
        transaction=transaction,
        batch=batch or 0,
        chunk_rows=_whole(options, "chunkRows", 1) or 8192,
        chunk_bytes=_whole(options, "chunkBytes", 1) or 4 << 20,
    )


def schema_of(columns: Sequence[str]) -> str:
    """The columns as Spark writes them down."""
    return ", ".join(f"{column} {_TYPES[column]}" for column in columns)


def parse_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    columns = _list(options, "columns")
    unknown = [column for column in columns if column not in COLUMNS + EXTRAS]
    if unknown:
        raise OptionError(
            f"columns: there is no {', '.join(unknown)}; there are {', '.join(COLUMNS + EXTRAS)}"
        )
    return tuple(dict.fromkeys(columns)) or COLUMNS


def _where(options: Mapping[str, str]) -> Where:
    url, path = options.get("url"), options.get("path")
    if not url and not path:
        raise OptionError("say url (a server), path (its data directory or object store), or both")
    key = options.get("apiKey") or os.environ.get("HEADRACE_API_KEY")
    timeout = options.get("timeoutSeconds", "60")
    try:
        return Where(url or None, path or None, key, float(timeout))
    except ValueError:
        raise OptionError(f"timeoutSeconds is a number, not {timeout!r}") from None


def _check_spelling(options: Mapping[str, str]) -> None:
    """Refuse what is nearly an option: Spark passes on whatever it is given, and a bound that
    nobody reads selects everything.
    """
    known = {_plain(name): name for name in OPTIONS}
    for name in options:
        if name.lower() in (each.lower() for each in OPTIONS):
            continue
        if near := get_close_matches(_plain(name), known, 1, _NEAR):
            raise OptionError(f"there is no option {name}; it is {known[near[0]]}")


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _seqs(options: Mapping[str, str]) -> tuple[int, int]:
    """The bounds; a range may be empty, as 1 to 0 is, but not less than that."""
    first, last = _whole(options, "from_seq", 1), _whole(options, "to_seq", 0)
    first, last = 1 if first is None else first, SEQ_MAX if last is None else last
    if first > last + 1:
        raise OptionError(f"from_seq, {first}, lies behind to_seq, {last}")
    return first, last


def _logs(options: Mapping[str, str]) -> NamePatterns:
    logs = _list(options, "log")
    if not logs:
        raise OptionError("say which log: log is a name, several with commas, or a prefix and *")
    try:
        return parse_patterns(logs)
    except ValueError as error:
        raise OptionError(f"log: {error}") from None


def _list(options: Mapping[str, str], name: str) -> list[str]:
    return [part for part in map(str.strip, options.get(name, "").split(",")) if part]


def _whole(options: Mapping[str, str], name: str, least: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= SEQ_MAX:
        raise OptionError(f"{name} is a whole number from {least} on, not {text!r}")
    return int(text)


def _switch(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in _ON + _OFF:
        raise OptionError(f"{name} is true or false, not {text!r}")
    return text in _ON


def _time(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit():
        return int(text) * 1000
    try:
        return micros(datetime.fromisoformat(text))
    except ValueError:
        raise OptionError(
            f"{name} is a time as 2026-01-31T12:00:00Z, or milliseconds since 1970, not {text!r}"
        ) from None


def micros(at: datetime) -> int:
    """Microseconds since 1970; a time without a zone is UTC."""
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    span = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds
