"""Runs one conformance test against a server and says which step went wrong and how."""

from __future__ import annotations

import gzip
import http
import json
import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Protocol

from .archives import FORM_TYPE, make_form, pack_files
from .cases import Scenario, Step, fill
from .channels import Channel, Reading
from .eventstream import EventStream, open_stream
from .exchange import Answer, NoAnswer, Request, exchange
from .judging import find_faults
from .matching import find_differences
from .websocket import WebSocket, open_socket

UNTIL_S = 60.0
UNTIL_POLL_S = 0.01
THREADS_MAX = 32
TELLINGS_MAX = 8
SHOWN_CHARACTERS = 1500
TURNED_AWAY = b"try again in a moment"
"""What a writer is told that the server, busy with sealing, had no room for: nothing was done."""
FLEETING = ("performance", "effective_priority", "last_read_ts")


class Server(Protocol):
    """What the runner needs of a server."""

    port: int

    def start(self) -> object: ...
    def stop(self) -> object: ...
    def kill(self) -> object: ...
    def output(self) -> str: ...


class Mismatch(AssertionError):
    """An answer was not the expected one; the message names case, step and differences."""


class Stalled(Exception):
    """It went wrong, and the machine was too slow for what was to be shown: it proves nothing."""


def run_scenario(scenario: Scenario, server: Server) -> None:
    """Play all steps in order. Raises Mismatch at the first one whose answer differs."""
    told = scenario
    for telling in range(1, TELLINGS_MAX + 1):
        try:
            _tell(told, server, last=telling == TELLINGS_MAX)
            return
        except Stalled:
            told = scenario.renamed(f"again{telling}")


def _tell(scenario: Scenario, server: Server, *, last: bool) -> None:
    with ThreadPoolExecutor(THREADS_MAX) as pool, ExitStack() as channels:
        play = _Play(scenario, server, pool, channels)
        try:
            for number, step in enumerate(scenario.case.step, 1):
                for round_number in range(1, step.repeat + 1):
                    play.variables["i"] = str(round_number)
                    play.take(number, step)
        except Mismatch as mismatch:
            if play.late and not last:
                raise Stalled from mismatch
            raise


class _Play:
    """The state of one test while its steps are taken."""

    def __init__(
        self, scenario: Scenario, server: Server, pool: ThreadPoolExecutor, channels: ExitStack
    ) -> None:
        self.variables = {**scenario.variables, "port": str(server.port)}
        self._scenario = scenario
        self._server = server
        self._pool = pool
        self._background: dict[str, Future[Answer]] = {}
        self._to_close = channels
        self._channels: dict[str, Channel] = {}
        self._began = time.monotonic()
        self.late = False

    def take(self, number: int, step: Step) -> None:
        try:
            self._take(number, step)
        finally:
            took_ms = (time.monotonic() - self._began) * 1000
            self.late = self.late or 0 < step.within_ms < took_ms

    def _take(self, number: int, step: Step) -> None:
        if step.restart:
            self._restart(fill(step.restart, self.variables))
        elif step.background:
            future = self._pool.submit(self._exchange, self._request(step))
            self._background[step.background] = future
        elif step.on:
            self._look(number, step)
        elif step.together:
            self._send_together(number, step)
        else:
            self._ask(number, step)

    def _ask(self, number: int, step: Step) -> None:
        try:
            answer, differences = self._judge(step)
        except NoAnswer as problem:
            raise Mismatch(self._report(number, step, None, [str(problem)])) from problem
        if differences:
            raise Mismatch(self._report(number, step, answer, differences))
        for name, path in step.save.items():
            self.variables[name] = _text_of(_at(answer.parse_json(), path))
        for name, header in step.save_headers.items():
            self.variables[name] = answer.headers[header.lower()]

    def _look(self, number: int, step: Step) -> None:
        """Talk and listen on an open channel."""
        channel = self._channels[step.on]
        for text in step.say:
            message = fill(text, self.variables)
            assert isinstance(channel, WebSocket), f"{step.on} is one way"
            channel.say(message.encode("utf-8", "surrogateescape") if step.binary else message)
        reading = Reading(channel, every=step.every)
        differences = reading.differences(json.loads(fill(step.frames or "[]", self.variables)))
        if step.ends and not differences:
            wanted, end = fill(step.ends, self.variables), reading.end()
            if not re.fullmatch(wanted, end):
                differences = [f"expected the end to be {wanted!r}, got {end}"]
        if differences:
            came = [f"got {_shorten(json.dumps(frame))}" for frame in reading.taken]
            raise Mismatch(self._report(number, step, None, differences + came))
        for name, path in step.save.items():
            self.variables[name] = _text_of(_at(reading.taken, path))
        if step.hang_up:
            channel.close()

    def _send_together(self, number: int, step: Step) -> None:
        futures: list[Future[Answer]] = []
        for each in range(1, step.together + 1):
            self.variables["i"] = str(each)
            request = self._request(step)
            futures.append(self._pool.submit(self._exchange, request))
        for each, future in enumerate(futures, 1):
            self.variables["i"] = str(each)
            try:
                answer = future.result()
            except NoAnswer as problem:
                raise Mismatch(self._report(number, step, None, [str(problem)])) from problem
            if differences := list(find_faults(step, answer, self.variables)):
                raise Mismatch(self._report(number, step, answer, differences))

    def _judge(self, step: Step) -> tuple[Answer, list[str]]:
        topics = fill(step.unchanged, self.variables).split()
        before = {topic: self._state(topic) for topic in topics}
        answer, differences = self._answer(step)
        for topic, state in before.items():
            same = {"<only>": True, **state}
            differences += find_differences(same, self._state(topic), f"state of {topic}")
        return answer, differences

    def _restart(self, how: str) -> None:
        endings = {"stop": self._server.stop, "kill": self._server.kill}
        endings[how]()
        self._server.start()

    def _answer(self, step: Step) -> tuple[Answer, list[str]]:
        deadline = time.monotonic() + UNTIL_S
        while True:
            answer = self._get(step)
            differences = list(find_faults(step, answer, self.variables))
            if not (step.until and differences) or time.monotonic() > deadline:
                return answer, differences
            time.sleep(UNTIL_POLL_S)

    def _get(self, step: Step) -> Answer:
        if step.join:
            return self._background.pop(step.join).result()
        request = self._request(step)
        channel: EventStream | WebSocket | None = None
        if step.stream:
            answer, channel = open_stream(self._server.port, request)
        elif step.socket:
            names = [fill(name, self.variables) for name in step.subprotocols]
            answer, channel = open_socket(self._server.port, request, names)
        else:
            answer = self._exchange(request)
        if channel is not None:
            self._to_close.callback(channel.close)
            self._channels[step.stream or step.socket] = channel
        return answer

    def _exchange(self, request: Request) -> Answer:
        deadline = time.monotonic() + UNTIL_S
        while True:
            answer = exchange(self._server.port, request)
            busy = answer.status == http.HTTPStatus.TOO_MANY_REQUESTS and TURNED_AWAY in answer.raw
            if not busy or time.monotonic() > deadline:
                return answer

    def _request(self, step: Step) -> Request:
        method, _, target = fill(step.send, self.variables).partition(" ")
        headers = {**self._scenario.headers, **step.headers}
        body = None
        if step.body is not None:
            body = fill(step.body, self.variables).encode("utf-8", "surrogateescape")
            headers = {"Content-Type": "application/json", **headers}
        if step.archive:
            files = {
                fill(k, self.variables): fill(v, self.variables) for k, v in step.archive.items()
            }
            body = make_form("archive", pack_files(files))
            headers = {"Content-Type": FORM_TYPE, **headers}
        if step.gzip:
            body = gzip.compress(body or b"")
            headers["Content-Encoding"] = "gzip"
        filled = {
            fill(key, self.variables): fill(value, self.variables) for key, value in headers.items()
        }
        kept = {key: value for key, value in filled.items() if value}
        return Request(method, target, kept, body, step.chunked, step.declared_bytes)

    def _state(self, topic: str) -> dict[str, Any]:
        target = f"/v0/topics/{topic}?touch=false"
        answer = exchange(self._server.port, Request("GET", target, self._scenario.headers))
        return {key: value for key, value in answer.parse_json().items() if key not in FLEETING}

    def _report(
        self, number: int, step: Step, answer: Answer | None, differences: list[str]
    ) -> str:
        done = step.send or f"on {step.on}: {' '.join(step.say)}".rstrip(": ")
        sent = fill(f"the answer of {step.join!r}" if step.join else done, self.variables)
        parts = [
            f"case {self._scenario.id}: {self._scenario.case.name}",
            f"expected by: {self._scenario.case.by}",
            f"step {number}: {sent} {_shorten(fill(step.body or '', self.variables))}",
            *(f"  - {difference}" for difference in differences),
        ]
        if answer is not None:
            parts.append(f"got {answer.status} {_shorten(answer.raw.decode('utf-8', 'replace'))}")
        if answer is None or answer.status >= 500:
            parts.append(f"server output: {self._server.output()[-SHOWN_CHARACTERS:]}")
        text = "\n".join(parts)
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _shorten(text: str) -> str:
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]}… ({len(text)} characters)"
