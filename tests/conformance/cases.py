"""What a conformance case is: the shape of the TOML files, loaded so that a typo is an error.

A file is a table `server` (environment and default headers) and a list of cases; a case is a list
of steps; a step is one request and what its answer must be, or something done on a stream or a
WebSocket that an earlier step opened. Text may contain

    ${t}           a topic name that belongs to this case alone (use ${t}-a, ${t}-b for more)
    ${slug}        the same for surfaces whose names are slugs: shorter, with no dot in it
    ${here}        the folder of the file
    ${port}        where the server of the case listens
    ${name}        an example's value, one of the file's `texts`, or one that an earlier step put
                   aside with `save`
    ${name+5}      a number put aside, and five more; or less, or another one: ${name-other}
    ${i}           the round, inside a step with `repeat` or `together`
    ${'ab'*300}    a text repeated
    ${x'ff 00'}    raw bytes
    ${b64'text'}   base64url without padding, as resume tokens are; the text may have holes too

A case with `examples` is one test for each of them; the example is `${example}`, or, where it is
a table, the variables it names. Matchers for `expect` are described in `matching.py`, those for
`frames` in `channels.py`.
"""

from __future__ import annotations

import base64
import re
import tomllib
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

Variables = Mapping[str, str]

_HOLE = re.compile(
    r"\$\{(?:(?P<name>[a-z_][a-z0-9_]*)(?P<sign>[+-])?(?P<plus>(?<=[+-])[a-z0-9_]+)?|'(?P<text>[^']*)'\*(?P<times>\d+)"
    r"|x'(?P<hex>[0-9a-f ]*)'|b64'(?P<token>[^']*)')\}"
)


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all tables in a case file: immutable, and unknown keys are refused."""


class Step(Shape, kw_only=True):
    """One request and its expected answer, or one look at an open channel."""

    send: str = ""  # "METHOD /target"
    join: str = ""  # instead of `send`: wait for the answer of an earlier `background` step
    on: str = ""  # instead of `send`: the name of an open stream or socket to use
    restart: str = ""  # instead of `send`: "stop" or "kill"; needs `own_server`
    note: str = ""

    headers: dict[str, str] = {}  # an empty value removes a default header
    body: str | None = None  # sent as application/json unless `headers` says otherwise
    archive: dict[str, str] = {}  # instead of `body`: a form with these files, as tar.gz
    gzip: bool = False  # compress the body; says so in Content-Encoding
    chunked: bool = False  # send the body without a Content-Length
    declared_bytes: int | None = None  # announce this Content-Length; the rest never comes
    background: str = ""  # do not wait for the answer; a later step joins it under this name
    stream: str = ""  # the answer is an event stream; it stays open under this name
    socket: str = ""  # ask for a WebSocket; it stays open under this name
    subprotocols: list[str] = []
    repeat: int = 1  # send that many times, each with its own ${i}
    together: int = 0  # send that many at the same time, each with its own ${i}
    until: bool = False  # send again until the answer is the expected one, for a bounded time
    within_ms: int = 0  # what comes from here on proves something only if this is over that soon
    # after the case began: a case that was late and went wrong begins again, under other names
    unchanged: str = ""  # topics (separated by spaces) whose state must be the same afterwards

    status: int | str | None = None  # text where an example decides
    error: str = ""  # the expected error.code
    expect: str | None = None  # JSON with matchers; objects match partially
    expect_headers: dict[str, str] = {}  # regular expressions; an empty one means absent
    text: str | None = None  # the whole raw body, byte for byte
    files: dict[str, str] | None = None  # the body is a tar.gz with exactly these
    contains: list[str] = []  # in the raw body, byte for byte
    lacks: list[str] = []
    lines: list[str] = []  # regular expressions, each matching one whole line of the body
    check: list[str] = []  # names of functions in `checks.py`
    took_ms: str = ""  # "200..", "..5000" or "200..5000"
    save: dict[str, str] = {}  # variable = path into the answer (or frames): "records.0.$ts"

    save_headers: dict[str, str] = {}  # variable = header of the answer

    say: list[str] = []  # messages to send on a socket, before frames are looked at
    binary: bool = False  # send them as binary messages
    frames: str | None = None  # JSON array: the frames that come next, in this order
    every: bool = False  # heartbeats and `retry` are frames too; else they are passed over
    ends: str = ""  # nothing follows: "end" for a stream, the close code (a pattern) for a socket
    hang_up: bool = False  # close it from our side, last of all


class Server(Shape, kw_only=True):
    """The server a file's cases run against; equal environments share one process."""

    env: dict[str, str] = {}
    headers: dict[str, str] = {}  # sent with every step, and used to look at state


class Case(Shape, kw_only=True):
    """A story of steps about one promise; `by` says where the promise is made."""

    name: str
    by: str
    env: dict[str, str] = {}
    own_server: bool = False
    refuses_to_start: str = ""  # a regular expression for what the server says when it refuses
    examples: dict[str, str | dict[str, str]] = {}
    step: list[Step] = []


class CaseFile(Shape, kw_only=True):
    """One TOML file."""

    section: str
    texts: dict[str, str] = {}  # variables that all cases have
    server: Server = Server()
    case: list[Case]


class Scenario(Shape, kw_only=True):
    """A case ready to run: one example of it, with its server settings and variables."""

    id: str
    case: Case
    env: dict[str, str]
    headers: dict[str, str]
    variables: dict[str, str]

    @property
    def restarts(self) -> bool:
        return any(step.restart for step in self.case.step)

    def renamed(self, suffix: str) -> Scenario:
        """The same test with topics of other names: those of the first time are used up."""
        topic, slug = self.variables["t"], self.variables["slug"]
        variables = {
            key: value.replace(topic, f"{topic}.{suffix}").replace(slug, f"{slug}-{suffix}")
            for key, value in self.variables.items()
        }
        return msgspec.structs.replace(self, variables=variables)


def load_scenarios(folder: Path) -> list[Scenario]:
    """Every test of every case file of a folder, in a stable order, each id once."""
    scenarios: list[Scenario] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            found = msgspec.convert(tomllib.loads(path.read_text()), CaseFile)
        except (msgspec.ValidationError, tomllib.TOMLDecodeError) as error:
            raise ValueError(f"{path.name}: {error}") from error
        for case in found.case:
            scenarios += _expand(path, found, case)
    ids = [scenario.id for scenario in scenarios]
    if twice := {name for name in ids if ids.count(name) > 1}:
        raise ValueError(f"case names used twice: {sorted(twice)}")
    return scenarios


def fill(text: str, variables: Variables) -> str:
    """Put values into the holes of a text; unknown names raise, bytes become surrogate escapes."""

    def value(hole: re.Match[str]) -> str:
        if hole["plus"] is not None:
            more = hole["plus"]
            number = int(more) if more.isdigit() else int(variables[more])
            return str(int(variables[hole["name"]]) + (number if hole["sign"] == "+" else -number))
        if hole["name"] is not None:
            return variables[hole["name"]]
        if hole["token"] is not None:
            plain = fill(hole["token"], variables).encode()
            return base64.urlsafe_b64encode(plain).decode().rstrip("=")
        if hole["hex"] is not None:
            return bytes.fromhex(hole["hex"]).decode("utf-8", "surrogateescape")
        return hole["text"] * int(hole["times"])

    return _HOLE.sub(value, text)


def _expand(path: Path, file: CaseFile, case: Case) -> list[Scenario]:
    stem, server = path.stem, file.server
    _validate(stem, case)
    examples: dict[str, str | dict[str, str]] = case.examples or {"": {}}
    scenarios = []
    for label, example in examples.items():
        name = _slug(f"{stem} {case.name} {label}")
        digits = f"{zlib.crc32(name.encode()):08x}"
        variables = {
            "t": f"{name[:60]}.{digits}",
            "slug": f"s{digits}",
            "here": str(path.parent.resolve()),
        }
        variables |= {key: fill(value, variables) for key, value in file.texts.items()}
        given = {"example": example} if isinstance(example, str) else example
        variables |= {key: fill(value, variables) for key, value in given.items()}
        scenarios.append(
            Scenario(
                id=name,
                case=case,
                env={key: fill(value, variables) for key, value in (server.env | case.env).items()},
                headers=server.headers,
                variables=variables,
            )
        )
    return scenarios


def _validate(stem: str, case: Case) -> None:
    if bool(case.refuses_to_start) == bool(case.step):
        raise ValueError(f"{stem}: {case.name}: needs steps, or to refuse to start")
    started = [step.background for step in case.step if step.background]
    if sorted(started) != sorted(step.join for step in case.step if step.join):
        raise ValueError(f"{stem}: {case.name}: every background step must be joined once")
    opened: set[str] = set()
    for number, step in enumerate(case.step, 1):
        if problem := _problem(case, step, opened):
            raise ValueError(f"{stem}: {case.name}: step {number}: {problem}")
        opened |= {name for name in (step.stream, step.socket) if name}


def _problem(case: Case, step: Step, opened: set[str]) -> str:
    """What is wrong with a step that comes after these channels were opened; empty if nothing."""
    answers = bool(step.join or (step.send and not step.background))
    looks = bool(step.say or step.frames is not None or step.ends or step.hang_up)
    if [bool(step.send), bool(step.join), bool(step.on), bool(step.restart)].count(True) != 1:
        return "needs exactly one of send, join, on and restart"
    if (step.status is not None) != answers:
        return "an answer needs a status, and only an answer does"
    if [bool(step.background), bool(step.stream), bool(step.socket)].count(True) > 1:
        return "is either a background step, a stream or a socket"
    if step.together and (step.until or step.save or step.stream or step.socket or not step.send):
        return "requests sent together can only be answered"
    if looks != bool(step.on):
        return "say, frames, ends and hang_up are for open channels, and one of them is needed"
    if step.on and step.on not in opened:
        return f"nothing was opened as {step.on!r}"
    if step.restart and not case.own_server:
        return "only a case with its own server may restart it"
    return ""


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower()
