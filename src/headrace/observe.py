"""What can be seen from outside: counters, gauges, histograms, and log lines."""

from __future__ import annotations

import json
import logging
import math
import re
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, Protocol, TextIO

Number = int | float
Kind = Literal["counter", "gauge", "histogram"]
Point = tuple[str, str, Number]
"""A suffix of the metric's name, its labels as rendered, and the value."""

LATENCY_BOUNDS_US = (
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
)  # fmt: skip


class Sample(Protocol):
    """Anything that can be rendered: it has a name, a kind, a help line and points."""

    @property
    def name(self) -> str: ...

    @property
    def help(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    def points(self) -> Iterator[Point]:
        """The values as text lines need them."""
        ...

    def plain(self) -> Any:
        """The same values as JSON needs them."""
        ...


class _Single:
    """One number under one name."""

    __slots__ = ("help", "name", "value")

    def __init__(self, name: str, help: str, value: Number = 0) -> None:
        self.name = name
        self.help = help
        self.value = value

    def add(self, n: Number = 1) -> None:
        """Move the value by n."""
        self.value += n

    def points(self) -> Iterator[Point]:
        """The one value."""
        yield "", "", self.value

    def plain(self) -> Number | None:
        """The one value."""
        return _json_number(self.value)


class Counter(_Single):
    """A number that only grows; `counter.value += n` is `add` without the call."""

    __slots__ = ()
    kind: Kind = "counter"


class Gauge(_Single):
    """A number that goes up and down."""

    __slots__ = ()
    kind: Kind = "gauge"

    def set(self, value: Number) -> None:
        """Replace the value."""
        self.value = value


class MetricFamily:
    """One value for each value of one label, as read at one moment."""

    __slots__ = ("help", "kind", "label", "name", "values")

    def __init__(
        self, name: str, help: str, label: str, values: Mapping[str, Number], kind: Kind = "gauge"
    ) -> None:
        self.name = name
        self.help = help
        self.label = label
        self.values = values
        self.kind: Kind = kind

    def points(self) -> Iterator[Point]:
        """One line for each value of the label."""
        for which, value in self.values.items():
            yield "", format_label(self.label, which), value

    def plain(self) -> dict[str, Number | None]:
        """From the label's value to the number."""
        return {which: _json_number(value) for which, value in self.values.items()}


class LabelledFamily:
    """One value for each combination of values of several labels, as read at one moment."""

    __slots__ = ("help", "kind", "labels", "name", "values")

    def __init__(
        self,
        name: str,
        help: str,
        labels: tuple[str, ...],
        values: Mapping[tuple[str, ...], Number],
        kind: Kind = "counter",
    ) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self.values = values
        self.kind: Kind = kind

    def points(self) -> Iterator[Point]:
        """One line for each combination."""
        for which, value in self.values.items():
            yield "", format_labels(dict(zip(self.labels, which, strict=True))), value

    def plain(self) -> list[dict[str, Any]]:
        """The labels of each combination, and its value."""
        return [
            dict(zip(self.labels, which, strict=True)) | {"value": _json_number(value)}
            for which, value in self.values.items()
        ]


class Histogram:
    """How often values fell at or under each bound. One writer, any number of readers."""

    __slots__ = ("bounds", "counts", "help", "name", "sum")
    kind: Kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[Number]) -> None:
        assert list(bounds) == sorted(set(bounds)), "bounds ascend"
        self.name = name
        self.help = help
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.sum: Number = 0

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self.counts)

    def observe(self, value: Number) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def named(self, name: str, help: str) -> Histogram:
        """Copy what was observed so far under the name a surface gives it."""
        copy = Histogram(name, help, self.bounds)
        copy.counts = self.counts.copy()
        copy.sum = self.sum
        return copy

    def points(self) -> Iterator[Point]:
        """Cumulative buckets, then sum and count, taken from one look at the counts."""
        running = list(accumulate(self.counts.copy()))
        for bound, count in zip((*self.bounds, math.inf), running, strict=True):
            yield "_bucket", format_label("le", format_number(bound)), count
        yield "_sum", "", self.sum
        yield "_count", "", running[-1]

    def plain(self) -> dict[str, Any]:
        """Cumulative buckets by bound, sum and count."""
        running = list(accumulate(self.counts.copy()))
        bounds = (*map(format_number, self.bounds), "+Inf")
        return {
            "buckets": dict(zip(bounds, running, strict=True)),
            "sum": self.sum,
            "count": running[-1],
        }


def render_prometheus(samples: Iterable[Sample]) -> str:
    """Render as Prometheus text exposition 0.0.4."""
    lines: list[str] = []
    for sample in samples:
        name = sample.name
        lines.append(f"# HELP {name} {sample.help.translate(_HELP_ESCAPES)}")
        lines.append(f"# TYPE {name} {sample.kind}")
        lines += [
            f"{name}{suffix}{labels} {format_number(value)}"
            for suffix, labels, value in sample.points()
        ]
    return "\n".join(lines) + "\n" if lines else ""


def snapshot(samples: Iterable[Sample]) -> dict[str, Any]:
    """Render as one JSON-ready mapping from name to value."""
    return {sample.name: sample.plain() for sample in samples}


def format_label(name: str, value: str) -> str:
    """Format one label with its braces."""
    return format_labels({name: value})


def format_labels(labels: Mapping[str, str]) -> str:
    """Format labels with their braces."""
    pairs = (f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}"


def format_number(value: Number) -> str:
    """Format a number as Prometheus spells it."""
    if value == math.inf:
        return "+Inf"
    if value == -math.inf:
        return "-Inf"
    if value != value:
        return "NaN"
    return str(int(value) if isinstance(value, bool) else value)


_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def _json_number(value: Number) -> Number | None:
    # JSON has no word for the infinite, and a parser that meets one rejects the whole document.
    if not math.isfinite(value):
        return None
    return int(value) if isinstance(value, bool) else value


# --- log lines ---

_LOG = logging.getLogger("headrace")
_BARE = re.compile(r"[^\s\"=\x00-\x1f\x7f-\x9f]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SECRET_FIELDS = frozenset({"authorization", "api_key", "key", "password", "secret", "token"})


def log_line(
    level: str, message: str, /, trace: BaseException | None = None, **fields: object
) -> None:
    """Write one log line: what happened, and the facts as key=value."""
    number = logging.getLevelNamesMapping()[level.upper()]
    _LOG.log(number, "%s", message, exc_info=trace, extra={"fields": fields})


def start_log(level: str, stream: TextIO | None = None) -> None:
    """Send every log line of the process, the web server's too, to stderr in one format."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class LineFormatter(logging.Formatter):
    """Time, level, message, fields: one line for each event, whatever its values contain."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Format the moment in UTC, with milliseconds."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{seconds}.{int(record.msecs):03d}Z"

    def format(self, record: logging.LogRecord) -> str:
        """Format the event; a traceback, where there is one, follows on its own lines."""
        fields: dict[str, Any] = getattr(record, "fields", {})
        parts = [
            self.formatTime(record),
            f"{record.levelname:<7}",
            _CONTROL.sub(" ", record.getMessage()),
            *(f"{name}={_format_field(name, value)}" for name, value in fields.items()),
        ]
        line = " ".join(parts)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _format_field(name: str, value: object) -> str:
    if name.lower() in _SECRET_FIELDS:
        return "***"
    text = str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text)
