"""Runs one conformance test against a server and says which step went wrong and how."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from .cases import Scenario, Step, fill
from .checks import CHECKS, check_conventions
from .exchange import Answer, NoAnswer, NotJson, Request, exchange
from .matching import find_differences, within

UNTIL_S = 5.0
UNTIL_POLL_S = 0.01
BACKGROUND_MAX = 8
SHOWN_CHARACTERS = 1500
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


def run_scenario(scenario: Scenario, server: Server) -> None:
    """Play all steps in order. Raises Mismatch at the first one whose answer differs."""
    with ThreadPoolExecutor(BACKGROUND_MAX) as pool:
        play = _Play(scenario, server, pool)
        for number, step in enumerate(scenario.case.step, 1):
            for round_number in range(1, step.repeat + 1):
                play.variables["i"] = str(round_number)
                play.take(number, step)


class _Play:
    """The state of one test while its steps are taken."""

    def __init__(self, scenario: Scenario, server: Server, pool: ThreadPoolExecutor) -> None:
        self.variables = dict(scenario.variables)
        self._scenario = scenario
        self._server = server
        self._pool = pool
        self._background: dict[str, Future[Answer]] = {}

    def take(self, number: int, step: Step) -> None:
        if step.restart:
            self._restart(fill(step.restart, self.variables))
            return
        if step.background:
            request = self._request(step)
            future = self._pool.submit(exchange, self._server.port, request)
            self._background[step.background] = future
            return
        try:
            answer, differences = self._judge(step)
        except NoAnswer as problem:
            raise Mismatch(self._report(number, step, None, [str(problem)])) from problem
        if differences:
            raise Mismatch(self._report(number, step, answer, differences))
        for name, path in step.save.items():
            self.variables[name] = _text_of(_at(answer.parse_json(), path))

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
            if step.join:
                answer = self._background.pop(step.join).result()
            else:
                answer = exchange(self._server.port, self._request(step))
            differences = list(self._differences(step, answer))
            if not (step.until and differences) or time.monotonic() > deadline:
                return answer, differences
            time.sleep(UNTIL_POLL_S)

    def _request(self, step: Step) -> Request:
        method, _, target = fill(step.send, self.variables).partition(" ")
        headers = {**self._scenario.headers, **step.headers}
        body = None
        if step.body is not None:
            body = fill(step.body, self.variables).encode("utf-8", "surrogateescape")
            headers = {"Content-Type": "application/json", **headers}
        if step.gzip:
            body = gzip.compress(body or b"")
            headers["Content-Encoding"] = "gzip"
        filled = {key: fill(value, self.variables) for key, value in headers.items()}
        kept = {key: value for key, value in filled.items() if value}
        return Request(method, target, kept, body, step.chunked, step.declared_bytes)

    def _differences(self, step: Step, answer: Answer) -> Iterator[str]:
        status = int(fill(str(step.status), self.variables))
        if answer.status != status:
            yield f"status: expected {status}, got {answer.status}"
            return
        yield from self._header_differences(step, answer)
        yield from self._text_differences(step, answer)
        try:
            yield from check_conventions(answer)
            yield from self._json_differences(step, answer)
            for name in step.check:
                yield from CHECKS[name](answer)
        except NotJson as problem:
            yield f"body: {problem}"
        if step.took_ms and not within(answer.took_ms, step.took_ms):
            yield f"took: expected {step.took_ms} ms, got {answer.took_ms:.1f} ms"

    def _json_differences(self, step: Step, answer: Answer) -> Iterator[str]:
        if step.expect is not None or step.error:
            expected = json.loads(fill(step.expect or "{}", self.variables))
            if step.error:
                expected.setdefault("error", {})["code"] = fill(step.error, self.variables)
            yield from find_differences(expected, answer.parse_json())

    def _header_differences(self, step: Step, answer: Answer) -> Iterator[str]:
        for name, text in step.expect_headers.items():
            pattern = fill(text, self.variables)
            value = answer.headers.get(name.lower())
            if not pattern and value is not None:
                yield f"header {name}: expected to be absent, got {value!r}"
            if pattern and (value is None or not re.fullmatch(pattern, value)):
                yield f"header {name}: expected {pattern!r}, got {value!r}"

    def _text_differences(self, step: Step, answer: Answer) -> Iterator[str]:
        for text in step.contains:
            wanted = fill(text, self.variables)
            if wanted.encode("utf-8", "surrogateescape") not in answer.raw:
                yield f"body: expected to contain {wanted[:300]!r}"
        for text in step.lacks:
            unwanted = fill(text, self.variables)
            if unwanted.encode("utf-8", "surrogateescape") in answer.raw:
                yield f"body: expected not to contain {unwanted[:300]!r}"
        body_lines = answer.raw.decode("utf-8", "replace").splitlines() if step.lines else []
        for text in step.lines:
            pattern = fill(text, self.variables)
            if not any(re.fullmatch(pattern, line) for line in body_lines):
                yield f"body: expected a line like {pattern!r}"

    def _state(self, topic: str) -> dict[str, Any]:
        target = f"/v0/topics/{topic}?touch=false"
        answer = exchange(self._server.port, Request("GET", target, self._scenario.headers))
        return {key: value for key, value in answer.parse_json().items() if key not in FLEETING}

    def _report(
        self, number: int, step: Step, answer: Answer | None, differences: list[str]
    ) -> str:
        sent = fill(step.send or f"the answer of {step.join!r}", self.variables)
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
