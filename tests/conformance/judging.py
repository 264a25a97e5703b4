"""What is wrong with an answer, said in words."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator

from .archives import unpack_files
from .cases import Step, Variables, fill
from .checks import CHECKS, check_conventions
from .exchange import Answer, NotJson
from .matching import find_differences, within

TIMER_MS = 1.0
"""How early a timer of the server may be: it counts whole milliseconds, from a turn of its loop."""


def find_faults(step: Step, answer: Answer, variables: Variables) -> Iterator[str]:
    """Every way in which an answer is not what the step expects."""
    status = int(fill(str(step.status), variables))
    if answer.status != status:
        yield f"status: expected {status}, got {answer.status}"
        return
    yield from _in_headers(step, answer, variables)
    yield from _in_text(step, answer, variables)
    try:
        yield from check_conventions(answer)
        yield from _in_json(step, answer, variables)
        for name in step.check:
            yield from CHECKS[name](answer)
    except NotJson as problem:
        yield f"body: {problem}"
    if step.took_ms and not within(answer.took_ms + TIMER_MS, step.took_ms):
        yield f"took: expected {step.took_ms} ms, got {answer.took_ms:.1f} ms"


def _in_json(step: Step, answer: Answer, variables: Variables) -> Iterator[str]:
    if step.expect is not None or step.error:
        expected = json.loads(fill(step.expect or "{}", variables))
        if step.error:
            expected.setdefault("error", {})["code"] = fill(step.error, variables)
        yield from find_differences(expected, answer.parse_json())


def _in_headers(step: Step, answer: Answer, variables: Variables) -> Iterator[str]:
    for name, text in step.expect_headers.items():
        pattern = fill(text, variables)
        value = answer.headers.get(name.lower())
        if not pattern and value is not None:
            yield f"header {name}: expected to be absent, got {value!r}"
        if pattern and (value is None or not re.fullmatch(pattern, value)):
            yield f"header {name}: expected {pattern!r}, got {value!r}"


def _in_text(step: Step, answer: Answer, variables: Variables) -> Iterator[str]:
    if step.text is not None:
        whole = fill(step.text, variables).encode("utf-8", "surrogateescape")
        if answer.raw != whole:
            yield f"body: expected {whole[:300]!r}, got {answer.raw[:300]!r}"
    if step.files is not None:
        yield from _in_archive(step.files, answer, variables)
    for text in step.contains:
        wanted = fill(text, variables)
        if wanted.encode("utf-8", "surrogateescape") not in answer.raw:
            yield f"body: expected to contain {wanted[:300]!r}"
    for text in step.lacks:
        unwanted = fill(text, variables)
        if unwanted.encode("utf-8", "surrogateescape") in answer.raw:
            yield f"body: expected not to contain {unwanted[:300]!r}"
    body_lines = answer.raw.decode("utf-8", "replace").splitlines() if step.lines else []
    for text in step.lines:
        pattern = fill(text, variables)
        if not any(re.fullmatch(pattern, line) for line in body_lines):
            yield f"body: expected a line like {pattern!r}"


def _in_archive(expected: dict[str, str], answer: Answer, variables: Variables) -> Iterator[str]:
    wanted = {fill(path, variables): fill(text, variables) for path, text in expected.items()}
    try:
        found = unpack_files(answer.raw)
    except (tarfile.TarError, OSError, EOFError) as problem:
        yield f"body: expected a tar.gz: {problem}"
        return
    yield from find_differences({"<only>": True, **wanted}, found, "files")
