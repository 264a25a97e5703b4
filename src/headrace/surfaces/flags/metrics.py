"""What is counted: requests by route and status, and what there is of what caps bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headrace.core.owners import FLAGS, SYSTEM
from headrace.core.state import State
from headrace.observe import Gauge, MetricFamily, Sample
from headrace.surfaces.flags.names import TENANTS
from headrace.surfaces.flags.permissions import type_of
from headrace.web.answered_requests import AnsweredRequests


class FlagsMetrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.requests = AnsweredRequests("flags_http_requests_total")
        self._state: State | None = None

    def open(self, state: State) -> None:
        """From here on, there is something to count."""
        self._state = state

    def samples(self) -> Sequence[Sample]:
        """All of them as they stand."""
        return [self.requests.sample(), *self._catalog()]

    def _catalog(self) -> Sequence[Sample]:
        state = self._state
        if state is None:
            return []
        types = (type_of(token.grants.roles) for token in state.tokens.values())
        tokens = Counter(type.value for type in types if type is not None)
        tenants = sum(1 for _ in state.names("", TENANTS, SYSTEM))
        return [
            Gauge("flags_tenants", "Tenants.", tenants),
            Gauge("flags_namespaces", "Namespaces.", state.count_of(FLAGS)),
            MetricFamily(
                "flags_tokens", "Tokens, expired ones too, by type.", "type", tokens, "gauge"
            ),
        ]
