"""How many requests a surface answered, by route, method and status.

Routes are counted by their templates, and methods as far as they are known: what callers make up is
counted as other.
"""

from __future__ import annotations

from collections import Counter

from headrace.observe import LabelledFamily

OTHER = "other"
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))


class AnsweredRequests:
    """The counter of one surface, under the name that it is told by."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._counts: Counter[tuple[str, ...]] = Counter()

    def add(self, path: str | None, method: str, status: int) -> None:
        """A request was answered; `path` is the template of its route, if there is one."""
        known = method if method in _METHODS else OTHER
        self._counts[path or OTHER, known, str(status)] += 1

    def sample(self) -> LabelledFamily:
        """The counts as they stand."""
        labels = ("route", "method", "status_code")
        return LabelledFamily(self._name, "Requests by route and status.", labels, self._counts)
