"""What is counted: requests by route and status.

Methods are labels only as far as the server knows them: what callers make up is counted as other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headrace.observe import LabelledFamily, Sample

OTHER = "other"
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))


class FlagsMetrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, ...]] = Counter()

    def answered(self, path: str | None, method: str, status: int) -> None:
        """A request was answered."""
        known = method if method in _METHODS else OTHER
        self.requests[path or OTHER, known, str(status)] += 1

    def samples(self) -> Sequence[Sample]:
        """All of them as they stand."""
        return [
            LabelledFamily(
                "flags_http_requests_total", "Requests by route and status.",
                ("route", "method", "status_code"), self.requests,
            ),
        ]  # fmt: skip
