"""The routes of trackers: which path takes which handler, and what its documentation says."""

from __future__ import annotations

from headrace.core.errors import Code
from headrace.surfaces.topics import consumer_wire as wire
from headrace.surfaces.topics.errors import REFUSALS
from headrace.surfaces.topics.trackers import TrackerRoutes
from headrace.web.credentials import Scope
from headrace.web.envelope import ErrorReply
from headrace.web.surface import Described, Parameter, Route, with_refusals

TRACKER = "/v0/trackers/{name}"

_TRACKER = Parameter("name", str, "The tracker: 1 to 255 of A-Z a-z 0-9 . _ : -", place="path")
_PAGE = (
    Parameter("prefix", str, "Only names that start with this"),
    Parameter("page_size", int, "1 to 1000", default=100),
    Parameter("cursor", str, "`next_cursor` of the page before"),
)


def _replies(ok: dict[int, Described], *codes: Code) -> dict[int, Described]:
    return with_refusals(ok, codes, REFUSALS, ErrorReply)


def consumer_routes(trackers: TrackerRoutes) -> list[Route]:
    """The routes with these handlers."""
    return [
        Route(
            "PUT", TRACKER, trackers.put, "Create a tracker",
            _replies(
                {
                    200: Described(wire.TrackerReply, "The tracker existed and is as it was"),
                    201: Described(wire.TrackerReply, "The tracker is new"),
                },
                Code.INVALID, Code.LOG_NOT_FOUND, Code.CONFLICT, Code.LOG_INCOMPATIBLE,
                Code.BODY_TOO_LARGE, Code.MEDIA_TYPE, Code.READ_ONLY,
            ),
            request=wire.TrackerRequest, parameters=(_TRACKER,), scope=Scope.READ | Scope.WRITE,
            group="Trackers",
            description="A cursor that the server keeps, over a topic or a stream of JSON. One whose "
            "source was deleted begins anew with the log that has the name now.",
            example={"source": "orders", "start_from": "earliest"},
        ),
        Route(
            "GET", TRACKER, trackers.get, "Where a tracker stands",
            _replies(
                {200: Described(wire.TrackerState, "Its cursor, and who holds it")},
                Code.INVALID, Code.TRACKER_NOT_FOUND,
            ),
            parameters=(_TRACKER,), scope=Scope.READ, group="Trackers",
        ),
        Route(
            "GET", "/v0/trackers", trackers.list_all, "List trackers by name",
            _replies({200: Described(wire.TrackerListReply, "One page")}, Code.INVALID),
            parameters=_PAGE, scope=Scope.READ, group="Trackers",
        ),
        Route(
            "DELETE", TRACKER, trackers.delete, "Delete a tracker",
            _replies({200: Described(wire.TrackerDropReply, "It is gone")}, Code.INVALID),
            parameters=(_TRACKER,), scope=Scope.DELETE, group="Trackers",
        ),
        Route(
            "POST", f"{TRACKER}/poll", trackers.poll, "Acknowledge records and get the next ones",
            _replies(
                {200: Described(wire.PollReply, "Records, perhaps none; the node holds the lease")},
                Code.INVALID, Code.TRACKER_NOT_FOUND, Code.TRACKER_LEASED, Code.FENCED,
                Code.CURSOR_EXPIRED, Code.SOURCE_DELETED, Code.BODY_TOO_LARGE, Code.MEDIA_TYPE,
                Code.READ_ONLY,
            ),
            request=wire.PollRequest, parameters=(_TRACKER,), scope=Scope.READ | Scope.WRITE,
            group="Trackers",
            description="Records come again until `ack_seq` says that they are handled. A node holds "
            "the tracker for 60 s behind each poll; others get `tracker_leased` meanwhile.",
            example={"node": "worker-1", "ack_seq": 12, "limit": 100},
        ),
    ]  # fmt: skip
