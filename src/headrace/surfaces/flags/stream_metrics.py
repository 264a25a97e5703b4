"""What is counted of streams of changes and of closures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headrace import observe
from headrace.observe import Gauge, LabelledFamily, Sample

Counts = Counter[tuple[str, ...]]


class StreamMetrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self._open = Gauge("flags_streams_open", "Open streams of changes.")
        self._opened = observe.Counter("flags_streams_total", "Streams that were opened.")
        self._hints: Counts = Counter()
        self._events: Counts = Counter()
        self._closures = observe.Counter("flags_closures_total", "Closures that were worked out.")
        self._churn: Counts = Counter()
        self._tarballs: Counts = Counter()

    def opened(self) -> None:
        """A stream began."""
        self._open.value += 1
        self._opened.value += 1

    def closed(self) -> None:
        """A stream ended."""
        self._open.value -= 1

    def resumed(self, kind: str) -> None:
        """Somebody said which version of a namespace they have: `current`, `behind` or `ahead`."""
        self._hints[(kind,)] += 1

    def sent(self, event: str, kind: str) -> None:
        """An event went out: its delivery, or the reason of a resync."""
        self._events[event, kind] += 1

    def computed(self) -> None:
        """A closure was worked out."""
        self._closures.value += 1

    @property
    def closures_computed(self) -> float:
        return self._closures.value

    def churned(self, op: str) -> None:
        """A file of a closure changed."""
        self._churn[(op,)] += 1

    def tarball(self, outcome: str) -> None:
        """A tarball was `made`, was `cached`, or was `shared` with somebody it was made for."""
        self._tarballs[(outcome,)] += 1

    def samples(self) -> Sequence[Sample]:
        """All of them as they stand."""
        return [
            self._open,
            self._opened,
            LabelledFamily(
                "flags_resume_hints_total",
                "Versions that clients said they have, against the newest.",
                ("position",), self._hints,
            ),
            LabelledFamily(
                "flags_events_total",
                "Events sent, by their delivery or by the reason of a resync.",
                ("event", "kind"), self._events,
            ),
            self._closures,
            LabelledFamily(
                "flags_closure_churn_total",
                "Files of closures that changed, by what became of them, for each subscription.",
                ("op",), self._churn,
            ),
            LabelledFamily(
                "flags_tarballs_total", "Tarballs of closures, made and found.",
                ("outcome",), self._tarballs,
            ),
        ]  # fmt: skip
