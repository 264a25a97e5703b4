"""The operations surface: probes, metrics, and the documentation of all surfaces."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from headrace.surfaces.operations import wire
from headrace.surfaces.operations.probes import PROMETHEUS, Probes
from headrace.web.answers import JSON, Answer
from headrace.web.calls import Call, by_key, by_nothing
from headrace.web.credentials import Scope
from headrace.web.envelope import WORDS, ErrorReply, close, refuser
from headrace.web.surface import Described, Handler, Route, Surface, complete

REFUSALS = complete(WORDS)
HTML = "text/html; charset=utf-8"


def surface(
    probes: Probes, documents: dict[str, Callable[[], bytes]], *, probes_need_key: bool
) -> Surface:
    """The surface; `documents` are made by path when they are first asked for."""
    return Surface(
        name="operations",
        title="Operations",
        prefixes=(),
        routes=[*_routes(probes, need_key=probes_need_key), *_documents(documents)],
        refusals=REFUSALS,
        refuse=refuser(REFUSALS),
        finish=close,
    )


def _documents(documents: dict[str, Callable[[], bytes]]) -> list[Route]:
    def handler(make: Callable[[], bytes], media: str) -> Handler:
        made = cache(make)  # starting up is faster without it

        async def answer(call: Call) -> Answer:
            return Answer(200, [("content-type", media)], made())

        return answer

    return [
        Route(
            "GET", path, handler(make, media), "Documentation",
            {200: Described(str, "The document", media)}, group="Documentation",
            authenticate=by_nothing,
        )
        for path, make in documents.items()
        for media in (JSON if path.endswith(".json") else HTML,)
    ]  # fmt: skip


def _routes(probes: Probes, *, need_key: bool) -> list[Route]:
    open_to = by_key if need_key else by_nothing
    return [
        *(
            Route(
                "GET", path, probes.health, "Is the process alive",
                {200: Described(wire.HealthReply, "Yes")}, group="Probes", head=True,
                authenticate=open_to,
            )
            for path in ("/v0/health", "/healthz")
        ),
        *(
            Route(
                "GET", path, probes.ready, "Is the server ready",
                {
                    200: Described(wire.ReadyReply, "Yes"),
                    503: Described(ErrorReply, "`not_ready` with `replay_progress`, or `shutting_down`"),
                },
                group="Probes", head=True, authenticate=open_to,
            )
            for path in ("/v0/ready", "/readyz")
        ),
        Route(
            "GET", "/v0/metrics", probes.metrics, "Metrics for Prometheus, or as JSON",
            {
                200: Described(str, "Text; JSON with Accept: application/json", media=PROMETHEUS),
                401: Described(ErrorReply, "`unauthorized`"),
                403: Described(ErrorReply, "`forbidden`"),
            },
            scope=Scope.READ, group="Probes", head=True,
        ),
    ]  # fmt: skip
