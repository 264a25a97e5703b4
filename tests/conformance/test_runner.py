"""The conformance runner itself: whatever it checks, it must be able to fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from . import channels, runner
from .cases import Case, Scenario, Step, fill, load_scenarios
from .checks import ROUTES, check_conventions, check_openapi, check_prometheus
from .exchange import Answer
from .matching import find_differences
from .runner import Mismatch, run_scenario

# --- matchers ---

MATCHES = [
    (1, 1),
    ({"a": 1}, {"a": 1, "b": 2}),
    ({"<only>": True, "a": 1}, {"a": 1}),
    ({"a": "<absent>"}, {}),
    ({"a": "<any>"}, {"a": None}),
    ("<null>", None),
    ("<bool>", False),
    ("<int>", 0),
    ("<int 1..5>", 5),
    ("<number 0..>", 0.5),
    ("<number 0..0>", 0),
    ("<string>", ""),
    ("<object>", {}),
    ("<array>", []),
    ("<match a.c>", "abc"),
    ("<length 2>", [1, 2]),
    ("<not 3>", 4),
    ({"a": "<maybe int 1..>"}, {}),
    ({"a": "<maybe int 1..>"}, {"a": 1}),
    (["<unordered>", 1, 2], [2, 1]),
    (["<includes>", 1], [2, 1]),
    (["<each>", "<int>"], [1, 2]),
]

MISMATCHES = [
    (1, 2),
    (1, 1.0),
    (1, True),
    (0, False),
    (None, 0),
    ("a", "A"),
    ({"a": 1}, {}),
    ({"a": None}, {}),
    ({"a": 1}, [1]),
    ({"a": {"b": 1}}, {"a": {"b": 2}}),
    ({"<only>": True, "a": 1}, {"a": 1, "b": 2}),
    ({"a": "<absent>"}, {"a": None}),
    ({"a": "<any>"}, {}),
    ("<null>", False),
    ("<bool>", 1),
    ("<int>", True),
    ("<int>", 1.0),
    ("<int 1..5>", 6),
    ("<int 1..>", 0),
    ("<number 0..0>", 0.01),
    ("<number>", "1"),
    ("<string>", None),
    ("<object>", []),
    ("<array>", {}),
    ("<match a.c>", "abcd"),
    ("<match a>", None),
    ("<length 2>", [1]),
    ("<not 3>", 3),
    ({"a": "<not 3>"}, {}),
    ({"a": "<maybe int 1..>"}, {"a": 0}),
    ({"a": "<maybe object>"}, {"a": None}),
    ([], [1]),
    ([1], []),
    ([1, 2], [2, 1]),
    (["<unordered>", 1, 2], [1, 1]),
    (["<unordered>", 1], [1, 2]),
    (["<unordered>", 1, 1], [1]),
    (["<includes>", 3], [2, 1]),
    (["<each>", "<int>"], [1, "2"]),
    (["<each>", "<int>"], []),
]


@pytest.mark.parametrize(("expected", "actual"), MATCHES)
def test_what_is_as_expected_has_no_differences(expected: Any, actual: Any) -> None:
    assert find_differences(expected, actual) == []


@pytest.mark.parametrize(("expected", "actual"), MISMATCHES)
def test_what_is_not_as_expected_differs(expected: Any, actual: Any) -> None:
    assert find_differences(expected, actual) != []


def test_a_difference_says_where_and_what() -> None:
    found = find_differences({"a": [{"b": 1}]}, {"a": [{"b": 2}]})
    assert found == ["$.a[0].b: expected 1, got 2"]


def test_an_unknown_matcher_is_an_error_of_the_case() -> None:
    with pytest.raises(ValueError, match="unknown matcher"):
        find_differences("<integer>", 1)


# --- checks of whole answers ---


def answer(status: int, body: str, *, target: str = "/v0/topics", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(
        target, "GET", status, {"content-type": "application/json"} | named, body.encode(), 1
    )


GOOD_ERROR = '{"error": {"code": "throttled", "message": "no"}}'


@pytest.mark.parametrize(
    "good",
    [
        answer(200, '{"performance": {"server_total_ms": 0.1}}'),
        answer(200, "{}", target="/v0/health"),
        answer(404, GOOD_ERROR),
        answer(429, GOOD_ERROR, retry_after="1"),
        answer(405, GOOD_ERROR, allow="GET"),
    ],
)
def test_conventions_accept(good: Answer) -> None:
    assert list(check_conventions(good)) == []


@pytest.mark.parametrize(
    "bad",
    [
        answer(200, '{"topics": []}'),
        answer(200, '{"performance": {"server_total_ms": -1}}'),
        answer(200, '{"performance": {"server_total_ms": 1}, "error": {}}'),
        answer(404, "{}"),
        answer(404, '{"error": "no"}'),
        answer(404, '{"error": {"code": "no"}}'),
        answer(404, '{"error": {"code": "Not Found", "message": "no"}}'),
        answer(404, '{"error": {"code": "no", "message": ""}}'),
        answer(404, '{"error": {"code": "no", "message": "no", "hint": 1}}'),
        answer(404, '{"error": {"code": "no", "message": "no", "detail": null}}'),
        answer(404, '{"error": {"code": "no", "message": "no"}, "status": "error"}'),
        answer(404, GOOD_ERROR, content_type="text/html"),
        answer(429, GOOD_ERROR),
        answer(503, GOOD_ERROR, retry_after="soon"),
        answer(405, GOOD_ERROR),
    ],
)
def test_conventions_object(bad: Answer) -> None:
    assert list(check_conventions(bad)) != []


GOOD_METRICS = """# HELP a Things.
# TYPE a gauge
a{topic="x\\"y"} 1
a{topic="z"} 2.5
# TYPE h histogram
h_bucket{le="1"} 1
h_bucket{le="+Inf"} 3
h_sum 9
h_count 3
"""


def test_good_metrics_are_accepted() -> None:
    assert list(check_prometheus(answer(200, GOOD_METRICS))) == []


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("# TYPE a gauge\n", ""),
        ("# TYPE a gauge\n", "# TYPE a gauge\n# TYPE a gauge\n"),
        ('{topic="z"}', "{topic=z}"),
        ('{topic="z"}', '{topic="x\\"y"}'),
        (" 2.5", " two"),
        (" 2.5", ""),
        ('h_bucket{le="1"} 1', 'h_bucket{le="1"} 4'),
        ("h_count 3", "h_count 4"),
        ("h_sum 9\n", ""),
        ("h_count 3\n", "h_count 3"),
    ],
)
def test_bad_metrics_are_objected_to(part: str, instead: str) -> None:
    assert part in GOOD_METRICS
    assert list(check_prometheus(answer(200, GOOD_METRICS.replace(part, instead)))) != []


def openapi() -> dict[str, Any]:
    parameter = {"name": "topic", "in": "path", "required": True, "schema": {"type": "string"}}
    paths: dict[str, Any] = {}
    for bare, methods in ROUTES.items():
        path = bare.replace("{}", "{topic}")
        paths[path] = {}
        for method, statuses in methods.items():
            paths[path][method] = {
                "operationId": f"{method}{path}",
                "parameters": [dict(parameter)] if "{topic}" in path else [],
                "responses": {status: {"$ref": "#/components/responses/x"} for status in statuses},
            }
    return {
        "openapi": "3.1.0",
        "info": {"title": "T", "version": "1"},
        "paths": paths,
        "components": {"responses": {"x": {"description": "x"}}},
    }


def test_a_good_openapi_document_is_accepted() -> None:
    assert list(check_openapi(answer(200, json.dumps(openapi())))) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.update(openapi="3.0.3"),
        lambda d: d["info"].pop("version"),
        lambda d: d["paths"].pop("/v0/metrics"),
        lambda d: d["paths"]["/v0/topics/{topic}"].pop("put"),
        lambda d: d["paths"]["/v0/topics"]["get"].update(operationId="get/v0/ready"),
        lambda d: d["paths"]["/v0/topics"]["get"]["responses"].pop("403"),
        lambda d: d["paths"]["/v0/topics"]["get"]["responses"].update({"200": {}}),
        lambda d: d["paths"]["/v0/topics"]["get"]["responses"].update(ok={"description": "x"}),
        lambda d: d["paths"].update({"/more": {"get": {"operationId": "more"}}}),
        lambda d: d["paths"]["/v0/topics/{topic}"]["get"].update(parameters=[]),
        lambda d: d["paths"]["/v0/topics/{topic}"]["get"]["parameters"][0].pop("required"),
        lambda d: d["components"].pop("responses"),
        lambda d: d["components"].update(schemas={"A": {"$ref": "#/components/schemas/B"}}),
    ],
)
def test_a_bad_openapi_document_is_objected_to(damage: Any) -> None:
    document = openapi()
    damage(document)
    assert list(check_openapi(answer(200, json.dumps(document)))) != []


# --- steps, played against a server with known answers ---


STREAM = """retry: 2000

: hb 17
id: eyJhIjoxfQ
event: record
data: {"topic":"a","from_seq":0,"to_seq":1,
data: "records":[{"$seq":1}]}

event: record
data: {"topic":"a","from_seq":1,"to_seq":2,"records":[{"$seq":2}]}

: hb 18

event: caught-up
id: opaque~
data: plain

"""


class KnownAnswers(BaseHTTPRequestHandler):
    """Answers `GET /v0/topics/...` with a state whose head counts the requests that changed it."""

    head = 0
    counting = threading.Lock()

    def do_GET(self) -> None:
        if self.path == "/stream":
            self._stream()
            return
        self._answer(
            {"head_seq": KnownAnswers.head, "$ts": 5, "performance": {"server_total_ms": 0}}
        )

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with KnownAnswers.counting:
            KnownAnswers.head += 1
        if self.path == "/busy" and KnownAnswers.head < 3:
            self._answer({"error": {"code": "throttled", "message": "try again in a moment"}}, 429)
        else:
            self._answer({"sent": sent.decode()})

    def _answer(self, body: dict[str, Any], status: int = 200) -> None:
        raw = json.dumps(body | {"performance": {"server_total_ms": 0}}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(STREAM.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


class KnownServer:
    """The server of known answers, as the runner wants to see one."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def kill(self) -> None:
        self.calls.append("kill")

    def output(self) -> str:
        return "what the server said"


@pytest.fixture
def known() -> Iterator[KnownServer]:
    KnownAnswers.head = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), KnownAnswers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield KnownServer(server.server_address[1])
        server.shutdown()
        thread.join()


def scenario(*steps: Step) -> Scenario:
    case = Case(name="a case", by="a section", own_server=True, step=list(steps))
    return Scenario(
        id="the-id", case=case, env={}, headers={}, variables={"t": "topic", "slug": "a-slug"}
    )


READ = "GET /v0/topics/${t}"
WRITE = "POST /v0/topics/${t}"


@pytest.mark.parametrize(
    "step",
    [
        Step(send=READ, status=200),
        Step(send=READ, status=200, expect='{"head_seq": 0}'),
        Step(send=READ, status=200, expect_headers={"content-type": "application/.*", "Allow": ""}),
        Step(send=READ, status=200, contains=['"head_seq": 0'], lacks=["error"]),
        Step(send=READ, status=200, lines=["\\{.*"]),
        Step(send=READ, status=200, took_ms="..600000"),
        Step(send=READ, status=200, unchanged="${t}"),
        Step(send=WRITE, status=200, body="${'ab'*3}", contains=["ababab"]),
        Step(send=WRITE, status=200, body="", repeat=3),
    ],
)
def test_a_step_passes(known: KnownServer, step: Step) -> None:
    run_scenario(scenario(step), known)


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        (Step(send=READ, status=404), "status: expected 404, got 200"),
        (Step(send=READ, status=200, error="gone"), "$.error: expected"),
        (Step(send=READ, status=200, expect='{"head_seq": 1}'), "$.head_seq: expected 1, got 0"),
        (Step(send=READ, status=200, expect_headers={"Allow": "GET"}), "header Allow"),
        (Step(send=READ, status=200, expect_headers={"Content-Type": ""}), "to be absent"),
        (
            Step(send=READ, status=200, expect_headers={"Content-Type": "text"}),
            "header Content-Type",
        ),
        (Step(send=READ, status=200, contains=['"head_seq":0']), "to contain"),
        (Step(send=READ, status=200, lacks=["head_seq"]), "not to contain"),
        (Step(send=READ, status=200, lines=["head_seq"]), "a line like"),
        (Step(send=READ, status=200, check=["openapi"]), "openapi"),
        (Step(send=READ, status=200, took_ms="60000.."), "took"),
        (Step(send=WRITE, status=200, body="", unchanged="${t}"), "state of topic.head_seq"),
    ],
)
def test_a_step_fails(known: KnownServer, step: Step, complaint: str) -> None:
    with pytest.raises(Mismatch) as mismatch:
        run_scenario(scenario(Step(send=READ, status=200), step), known)
    said = str(mismatch.value)
    assert complaint in said
    assert "the-id: a case" in said
    assert "a section" in said
    assert "step 2" in said


# --- streams and sockets ---

OPEN = Step(send="GET /stream", stream="s", status=200)
FIRST = """{"<only>": true, "event": "record", "id": {"a": 1}, "id_text": "eyJhIjoxfQ",
  "data": {"topic": "a", "from_seq": 0, "to_seq": 1, "records": [{"$seq": 1}]}}"""
SECOND = '{"<only>": true, "event": "record", "data": {"from_seq": 1}}'
THIRD = (
    '{"<only>": true, "event": "caught-up", "id": "opaque~", "id_text": "opaque~", "data": "plain"}'
)
BOTH = """{"event": "records",
  "data": {"from_seq": 0, "to_seq": 2, "records": [{"$seq": 1}, {"$seq": 2}]}}"""
HEARTBEAT = '{"<only>": true, "comment": "hb", "at": "<int 17..18>"}'


@pytest.mark.parametrize(
    "look",
    [
        Step(on="s", frames=f"[{FIRST}, {SECOND}, {THIRD}]", ends="end"),
        Step(on="s", frames=f"[{FIRST}]"),
        Step(on="s", frames=f"[{BOTH}, {THIRD}]", ends="end"),
        Step(on="s", frames=f'[["<unordered>", {THIRD}, {SECOND}, {FIRST}]]', ends="end"),
        Step(
            on="s",
            every=True,
            frames=f'[{{"retry": 2000}}, {HEARTBEAT}, {FIRST}, {SECOND}, {HEARTBEAT}, {THIRD}]',
            ends="end",
        ),
        Step(on="s", hang_up=True),
    ],
)
def test_a_stream_is_as_expected(known: KnownServer, look: Step) -> None:
    run_scenario(scenario(OPEN, look), known)


@pytest.mark.parametrize(
    ("look", "complaint"),
    [
        (Step(on="s", frames=f"[{SECOND}]"), "frame 1.data.from_seq: expected 1, got 0"),
        (Step(on="s", frames=f"[{FIRST}, {THIRD}]"), "frame 2.event"),
        (Step(on="s", frames=f"[{FIRST}]", ends="end"), "no end but"),
        (Step(on="s", frames=f"[{BOTH}, {THIRD}, {THIRD}]"), "frame 3: expected"),
        (Step(on="s", frames=f"[{BOTH}, {BOTH}]"), "frame 2.event"),
        (Step(on="s", frames=f"[{FIRST}, {BOTH}]"), "frame 2"),
        (Step(on="s", frames=f'[["<unordered>", {FIRST}, {THIRD}]]'), "frame 1: expected an item"),
        (Step(on="s", every=True, frames='[{"retry": 3000}]'), "expected 3000, got 2000"),
        (Step(on="s", every=True, frames=f"[{FIRST}]"), "frame 1.event"),
        (Step(on="s", frames=f"[{HEARTBEAT}]"), "frame 1.comment"),
    ],
)
def test_a_stream_is_not_as_expected(known: KnownServer, look: Step, complaint: str) -> None:
    with pytest.raises(Mismatch) as mismatch:
        run_scenario(scenario(OPEN, look), known)
    assert complaint in str(mismatch.value)


def test_frames_are_saved(known: KnownServer) -> None:
    look = Step(on="s", frames=f"[{FIRST}]", save={"n": "0.data.to_seq", "id": "0.id_text"})
    write = Step(
        send=WRITE,
        status=200,
        body="${n} ${n+4} ${id} ${b64'{\"a\":${n}}'}",
        contains=[f"1 5 {token} {token}" for token in ["eyJhIjoxfQ"]],
    )
    run_scenario(scenario(OPEN, look, write), known)


def test_a_stream_that_is_none_is_an_answer(known: KnownServer) -> None:
    run_scenario(scenario(Step(send=READ, stream="s", status=200, expect='{"$ts": 5}')), known)


def test_silence_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "FRAMES_S", 0.05)
    with talking() as server, pytest.raises(Mismatch, match="got nothing"):
        run_scenario(scenario(CONNECT, Step(on="w", frames='[{"op": "x"}]')), server)
    with talking() as server, pytest.raises(Mismatch, match="no end in"):
        run_scenario(scenario(CONNECT, Step(on="w", ends="1000")), server)


@contextmanager
def talking() -> Iterator[KnownServer]:
    """A WebSocket server that says every text back, twice if it is an object."""

    def talk(connection: ServerConnection) -> None:
        for message in connection:
            connection.send(message)
            if message == "bye":
                connection.close(4000)
            if isinstance(message, str) and message.startswith("{"):
                connection.send(message)

    def admit(connection: ServerConnection, request: Request) -> Response | None:
        if request.path == "/v0/ws":
            return None
        headers = Headers({"Content-Type": "application/json", "Content-Length": "49"})
        return Response(403, "Forbidden", headers, GOOD_ERROR.encode())

    def choose(connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        return offered[-1] if offered else None

    with serve(talk, "127.0.0.1", 0, process_request=admit, select_subprotocol=choose) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield KnownServer(server.socket.getsockname()[1])
        server.shutdown()
        thread.join()


CONNECT = Step(send="GET /v0/ws", socket="w", status=101)


@pytest.mark.parametrize(
    "look",
    [
        Step(
            on="w",
            say=['{"op": "${t}"}'],
            frames='[{"op": "topic"}, {"<only>": true, "op": "topic"}]',
        ),
        Step(on="w", say=["bye"], frames='[{"text": "bye"}]', ends="4000|1000"),
        Step(on="w", say=["${x'ff'}a"], binary=True, frames='[{"binary": "ff61"}]', hang_up=True),
        Step(on="w", say=["[1]", "2"], frames='[["<unordered>", {"text": "2"}, {"text": "[1]"}]]'),
    ],
)
def test_a_socket_is_as_expected(look: Step) -> None:
    with talking() as server:
        run_scenario(scenario(CONNECT, look), server)


@pytest.mark.parametrize(
    ("look", "complaint"),
    [
        (Step(on="w", say=["{}"], frames='[{"op": "topic"}]'), "frame 1.op"),
        (Step(on="w", say=["bye"], frames='[{"text": "bye"}]', ends="1000"), "got 4000"),
        (Step(on="w", say=["bye"], frames='[{"text": "bye"}, {}]'), "got the end (4000)"),
    ],
)
def test_a_socket_is_not_as_expected(look: Step, complaint: str) -> None:
    with talking() as server, pytest.raises(Mismatch) as mismatch:
        run_scenario(scenario(CONNECT, look), server)
    assert complaint in str(mismatch.value)


def test_a_socket_is_refused_or_has_a_subprotocol() -> None:
    refused = Step(send="GET /other", socket="w", status=403, error="throttled")
    named = Step(
        send="GET /v0/ws",
        socket="w",
        subprotocols=["a", "b"],
        status=101,
        expect_headers={"Sec-WebSocket-Protocol": "b"},
    )
    with talking() as server:
        run_scenario(scenario(refused, named), server)


def test_requests_sent_together_are_all_looked_at(known: KnownServer) -> None:
    def write(text: str) -> Step:
        return Step(send=WRITE, body="<${i}>", together=3, status=200, contains=[text])

    run_scenario(scenario(write("<${i}>")), known)
    with pytest.raises(Mismatch, match="to contain '<1>'"):
        run_scenario(scenario(write("<1>")), known)


def test_until_sends_again(known: KnownServer) -> None:
    write = Step(send=WRITE, body="", background="writer")
    read = Step(send=READ, status=200, until=True, expect='{"head_seq": 1}')
    run_scenario(scenario(write, read, Step(join="writer", status=200)), known)


def test_until_ends(known: KnownServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "UNTIL_S", 0.05)
    read = Step(send=READ, status=200, until=True, expect='{"head_seq": 1}')
    with pytest.raises(Mismatch, match="head_seq"):
        run_scenario(scenario(read), known)


def test_a_writer_that_is_turned_away_tries_again(known: KnownServer) -> None:
    run_scenario(scenario(Step(send="POST /busy", status=200, body="")), known)
    assert KnownAnswers.head == 3


class SlowTime:
    """A second goes by whenever somebody looks at it."""

    def __init__(self) -> None:
        self.now_s = 0

    def monotonic(self) -> int:
        self.now_s += 1
        return self.now_s


LATE = {"within_ms": 500}
IN_TIME = {"within_ms": 3_600_000}


def test_a_case_that_was_late_and_went_wrong_begins_again_under_another_name(
    known: KnownServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "time", SlowTime())
    write = Step(send=WRITE, status=200, body="<${t}>", contains=["<topic.again1>"], **LATE)
    run_scenario(scenario(write), known)
    assert KnownAnswers.head == 2


def test_a_case_that_was_late_and_went_well_is_told_once(
    known: KnownServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "time", SlowTime())
    run_scenario(scenario(Step(send=WRITE, status=200, body="", **LATE)), known)
    assert KnownAnswers.head == 1


def test_a_case_that_was_in_time_goes_wrong_at_once(
    known: KnownServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "time", SlowTime())
    with pytest.raises(Mismatch, match="expected 201, got 200"):
        run_scenario(scenario(Step(send=WRITE, status=201, body="", **IN_TIME)), known)
    assert KnownAnswers.head == 1


def test_a_case_that_is_always_late_goes_wrong_in_the_end(
    known: KnownServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "time", SlowTime())
    with pytest.raises(Mismatch, match="expected 201, got 200"):
        run_scenario(scenario(Step(send=WRITE, status=201, body="", **LATE)), known)
    assert KnownAnswers.head == runner.TELLINGS_MAX


def test_the_answer_of_a_background_step_is_looked_at(known: KnownServer) -> None:
    write = Step(send=WRITE, body="", background="writer")
    with pytest.raises(Mismatch, match="expected 201, got 200"):
        run_scenario(scenario(write, Step(join="writer", status=201)), known)


def test_a_saved_value_is_used(known: KnownServer) -> None:
    first = Step(send=READ, status=200, save={"ts": "$ts"})
    run_scenario(scenario(first, Step(send=READ, status=200, expect='{"$ts": ${ts}}')), known)
    with pytest.raises(Mismatch, match="expected 5, got 0"):
        run_scenario(
            scenario(first, Step(send=READ, status=200, expect='{"head_seq": ${ts}}')), known
        )


def test_a_name_nobody_gave_a_value_is_an_error(known: KnownServer) -> None:
    with pytest.raises(KeyError, match="nobody"):
        run_scenario(scenario(Step(send="GET /v0/topics/${nobody}", status=200)), known)


def test_no_answer_is_a_mismatch(known: KnownServer) -> None:
    nobody = KnownServer(port=1)
    with pytest.raises(Mismatch, match=r"step 1(.|\n)*Connection"):
        run_scenario(scenario(Step(send=READ, status=200)), nobody)


def test_a_restart_ends_and_starts(known: KnownServer) -> None:
    run_scenario(scenario(Step(restart="kill"), Step(restart="stop")), known)
    assert known.calls == ["kill", "start", "stop", "start"]


# --- the files ---

GOOD_FILE = """
section = "s"
[[case]]
name = "n"
by = "b"
[case.examples]
one = "${t}-1"
two = { a = "x" }
[[case.step]]
send = "GET /"
status = 200
"""


def load(folder: Path, text: str) -> list[Scenario]:
    (folder / "file.toml").write_text(text)
    return load_scenarios(folder)


def test_each_example_is_a_test_of_its_own(tmp_path: Path) -> None:
    one, two = load(tmp_path, GOOD_FILE)
    assert (one.id, two.id) == ("file-n-one", "file-n-two")
    assert one.variables["t"] != two.variables["t"]
    assert one.variables["example"] == one.variables["t"] + "-1"
    assert two.variables["a"] == "x"


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("status = 200", "statsu = 200"),
        ("status = 200", ""),
        ("status = 200", 'status = 200\nrestart = "kill"'),
        ('send = "GET /"', ""),
        ('send = "GET /"', 'send = "GET /"\nbackground = "x"'),
        ('send = "GET /"', 'join = "nobody"'),
        ('send = "GET /"', 'on = "nobody"'),
        ('send = "GET /"', 'send = "GET /"\nframes = "[]"'),
        ('send = "GET /"', 'send = "GET /"\nstream = "x"\nsocket = "x"'),
        ('send = "GET /"', 'send = "GET /"\nstream = "x"\ntogether = 2'),
        ("status = 200", 'status = 200\nstream = "x"\n[[case.step]]\non = "x"'),
        (
            "status = 200",
            'status = 200\nstream = "x"\n[[case.step]]\non = "x"\nends = "end"\nstatus = 200',
        ),
        ('by = "b"', ""),
        ('by = "b"', 'by = "b"\nrefuses_to_start = "x"'),
        ('one = "${t}-1"', 'Two = "${t}-1"'),
        ('one = "${t}-1"', 'one = "${u}"'),
        ("[[case.step]]", "[[case.steps]]"),
    ],
)
def test_a_mistake_in_a_file_is_an_error(tmp_path: Path, part: str, instead: str) -> None:
    assert part in GOOD_FILE
    with pytest.raises((ValueError, KeyError)):
        load(tmp_path, GOOD_FILE.replace(part, instead))


def test_holes_are_filled() -> None:
    assert fill("${a}-${'xy'*2}-$seq", {"a": "1"}) == "1-xyxy-$seq"
    assert fill("${a+5} ${a-2} ${a+b} ${b-a}", {"a": "1", "b": "30"}) == "6 -1 31 29"
    assert fill("""${b64'{"${a}":1}'}""", {"a": "a"}) == "eyJhIjoxfQ"
    raw = fill("${x'ff 41 ed a0 80'}", {})
    assert raw.encode("utf-8", "surrogateescape") == b"\xff\x41\xed\xa0\x80"
