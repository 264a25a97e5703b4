"""Request logs: the envelope, and what is taken out of it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from headrace.core.errors import Refused
from headrace.profiles.evlog import SCHEMA, SEARCH, Evlog
from headrace.profiles.redaction import MARK, Redactor
from headrace.search.config import FieldKind, parse_search

NOW = 1_794_764_932_403
KEYS = [
    "timestamp", "level", "service", "environment", "version", "region", "requestId", "traceId",
    "spanId", "method", "path", "status", "duration", "message", "why", "fix", "link", "sampling",
    "redaction", "context",
]  # fmt: skip


def make(**config: Any) -> Evlog:
    return Evlog.parse({"kind": "evlog", **config})


def envelope(record: object, **config: Any) -> dict[str, Any]:
    (raw,) = make(**config).normalise([msgspec.json.encode(record)], NOW)
    found: dict[str, Any] = msgspec.json.decode(raw)
    return found


def test_the_sample() -> None:
    record = (
        b'{"service":"checkout","status":"502","duration":"12.5","message":" boom ",'
        b'"why":"declined","requestId":"req_1","user":{"id":7,"Password":"x",'
        b'"cards":[{"token":"t"}]},"context":{"cookie":"c","a":1}}'
    )
    profile = make()
    (raw,) = profile.normalise([record], NOW)
    assert raw == (
        b'{"timestamp":"2026-11-15T17:48:52.403Z","level":"error","service":"checkout",'
        b'"environment":null,"version":null,"region":null,"requestId":"req_1","traceId":null,'
        b'"spanId":null,"method":null,"path":null,"status":502,"duration":12.5,"message":"boom",'
        b'"why":"declined","fix":null,"link":null,"sampling":null,'
        b'"redaction":{"keys":["cookie","user.Password","user.cards.0.token"]},'
        b'"context":{"cookie":"[REDACTED]","a":1,"user":{"id":7,"Password":"[REDACTED]",'
        b'"cards":[{"token":"[REDACTED]"}]}}}'
    )
    assert profile.key_of(raw) == "req_1"


def test_every_key_is_always_there() -> None:
    found = envelope({})
    assert list(found) == KEYS
    assert found["level"] == "info"
    assert found["context"] == {}
    assert found["redaction"] == {"keys": []}
    assert {found[key] for key in KEYS[2:18]} == {None}


@pytest.mark.parametrize(
    ("record", "level"),
    [
        ({"level": " WARN "}, "warn"),
        ({"level": "Debug", "status": 500}, "debug"),
        ({"level": "fatal", "status": 404}, "warn"),
        ({"level": 3}, "info"),
        ({"status": 499}, "warn"),
        ({"status": 500}, "error"),
        ({"status": 399}, "info"),
        ({"why": "x"}, "error"),
        ({"fix": "x"}, "error"),
        ({"link": "x", "status": 200}, "error"),
        ({"why": "  "}, "info"),
    ],
)
def test_levels(record: dict[str, Any], level: str) -> None:
    assert envelope(record)["level"] == level


@pytest.mark.parametrize(
    ("given", "status", "duration"),
    [
        (200, 200, 200),
        ("200", 200, 200),
        (" 200 ", 200, 200),
        (200.0, 200, 200),
        ("12.5", None, 12.5),
        (12.5, None, 12.5),
        ("1e3", 1000, 1000),
        ("-1", -1, -1),
        (True, None, None),
        ("", None, None),
        ("0x10", None, None),
        ("1_000", None, None),
        ("NaN", None, None),
        ("Infinity", None, None),
        ("1e999", None, None),
        ([1], None, None),
        (None, None, None),
    ],
)
def test_numbers(given: object, status: object, duration: object) -> None:
    found = envelope({"status": given, "duration": given})
    assert (found["status"], found["duration"]) == (status, duration)


def test_texts_are_trimmed_or_null() -> None:
    names = [*KEYS[2:11], "message"]
    assert [envelope({name: " x "})[name] for name in names] == ["x"] * len(names)
    assert [envelope({name: "  "})[name] for name in names] == [None] * len(names)
    assert [envelope({name: 7})[name] for name in names] == [None] * len(names)


def test_a_timestamp_is_kept_as_it_is() -> None:
    assert envelope({"timestamp": " yesterday "})["timestamp"] == "yesterday"
    assert envelope({"timestamp": 17})["timestamp"] == "2026-11-15T17:48:52.403Z"


def test_what_has_no_place_goes_to_the_context_and_wins_there() -> None:
    assert envelope({"a": 1, "context": {"a": 0, "b": 2}})["context"] == {"a": 1, "b": 2}
    assert envelope({"context": [1]})["context"] == {"context": [1]}
    assert envelope({"context": None, "x": None})["context"] == {"context": None, "x": None}
    assert envelope({"sampling": {"rate": 0.5}})["sampling"] == {"rate": 0.5}


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("record", "trace", "span"),
    [
        ({"traceparent": HEADER}, TRACE, SPAN),
        ({"traceparent": HEADER.upper()}, TRACE, SPAN),
        ({"traceContext": {"traceparent": HEADER}}, TRACE, SPAN),
        ({"traceContext": {"traceId": "t", "spanId": "s"}}, "t", "s"),
        ({"traceContext": {"traceId": "t"}, "traceparent": HEADER}, "t", SPAN),
        ({"traceId": "mine", "traceparent": HEADER}, "mine", SPAN),
        ({"traceId": "mine", "traceContext": {"traceId": "t"}}, "mine", None),
        ({"traceparent": f"ff-{TRACE}-{SPAN}-01"}, None, None),
        ({"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, None, None),
        ({"traceparent": f"00-{TRACE}-{'0' * 16}-01"}, None, None),
        ({"traceparent": f"00-{TRACE}-{SPAN}"}, None, None),
        ({"traceparent": 5, "traceContext": "x"}, None, None),
    ],
)
def test_traces(record: dict[str, Any], trace: str | None, span: str | None) -> None:
    found = envelope(record)
    assert (found["traceId"], found["spanId"]) == (trace, span)


def test_the_routing_key() -> None:
    profile = make()

    def key(record: object) -> str | None:
        return profile.key_of(profile.normalise([msgspec.json.encode(record)], NOW)[0])

    assert key({"requestId": "r", "traceId": "t"}) == "r"
    assert key({"traceId": "t"}) == "t"
    assert key({}) is None


def test_configured_keys_are_secret_too() -> None:
    found = envelope({"SSN": 1, "a": [{"ssn": {"deep": [1]}}]}, redactKeys=[" Ssn "])
    assert found["context"] == {"SSN": MARK, "a": [{"ssn": MARK}]}
    assert found["redaction"]["keys"] == ["SSN", "a.0.ssn"]


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("login with password=hunter2 failed", f"login with password={MARK} failed"),
        ("/a?token=abc&x=1", f"/a?token={MARK}&x=1"),
        ("/a?access_token=abc#f", f"/a?access_token={MARK}"),
        ("/a?api_key=abc&apikey=d&api-key=e", f"/a?api_key={MARK}&apikey={MARK}&api-key={MARK}"),
        ('{"client_secret": "s3", "n": 1}', f'{{"client_secret": "{MARK}", "n": 1}}'),
        ("Authorization: Digest a=b, c=d\nnext", f"Authorization: {MARK}\nnext"),
        ("set-cookie: a=b; c=d", f"set-cookie: {MARK}"),
        ("sent Bearer abc123def456", f"sent Bearer {MARK}"),
        ("TOKEN = Bearer xyz", f"TOKEN = Bearer {MARK}"),
        ("basic dXNlcjpwYXNzd29yZA==", f"basic {MARK}"),
        ("at https://bob:pw@host/x", f"at https://bob:{MARK}@host/x"),
        ("jwt eyJhbGciOiJub25lIn0.eyJzdWIiOiIx.c2ln here", f"jwt {MARK} here"),
        ("key sk_live_abcdef123456", f"key {MARK}"),
        ("AKIAIOSFODNN7EXAMPLE", MARK),
        ("ghp_abcdefghijklmnopqrstuv", MARK),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----", MARK),
    ],
)
def test_secrets_in_texts(text: str, cleaned: str) -> None:
    found = envelope({"message": text, "why": text, "path": text, "note": {"deep": [text]}})
    assert found["message"] == found["why"] == found["path"] == cleaned
    assert found["context"] == {"note": {"deep": [cleaned]}}
    assert found["redaction"]["keys"] == ["message", "path", "why", "note.deep.0"]
    assert envelope({"message": text}, redactText=False)["message"] == text


@pytest.mark.parametrize(
    "text",
    [
        "used tokens: 17",
        "the token expired",
        "basic authentication failed",
        "bearer authentication required",
        "https://example.com:8080/x",
        "mail to bob@example.com: hello",
        "password_hash=1",
        "a risk-free offer of sk-8",
    ],
)
def test_texts_that_hold_no_secret(text: str) -> None:
    found = envelope({"message": text})
    assert found["message"] == text
    assert found["redaction"]["keys"] == []


@pytest.mark.parametrize("text", ["eyJ-" * 50_000, "://a:" * 50_000, "bearer " * 50_000])
def test_long_texts_take_no_time_to_speak_of(text: str) -> None:
    steps = Redactor().clean_text(text)  # would not come back if it were quadratic
    assert steps is None or MARK in steps


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (b"[]", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"a":1e400}', "cannot be read"),
        (b'{"a":"\\ud800"}', "cannot be read"),
    ],
)
def test_what_is_no_record(record: bytes, problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        make().normalise([b"{}", record], NOW)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"redactKeys": "x"}, r"profile\.redactKeys"),
        ({"redactKeys": [1]}, r"profile\.redactKeys"),
        ({"redactKeys": [" "]}, "empty"),
        ({"redactKeys": [str(n) for n in range(65)]}, "at most 64"),
        ({"redactText": 1}, r"profile\.redactText"),
        ({"colour": 1}, r"profile\.colour is not supported"),
    ],
)
def test_configurations_that_are_refused(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        make(**config)


def test_the_configuration_is_told_as_it_counts() -> None:
    assert make().config == b'{"kind":"evlog"}'
    assert make(redactKeys=[" B ", "a", "b"]).config == b'{"kind":"evlog","redactKeys":["b","a"]}'
    assert make(redactText=False).config == b'{"kind":"evlog","redactText":false}'


def test_where_it_may_be_installed() -> None:
    make().check(is_json=True, empty=True)
    with pytest.raises(Refused, match="application/json"):
        make().check(is_json=False, empty=True)
    with pytest.raises(Refused, match="empty"):
        make().check(is_json=True, empty=False)


def test_what_comes_with_it() -> None:
    installed = make().installs()
    assert installed is not None
    assert installed.routing_key is None
    assert msgspec.json.decode(SCHEMA)["required"] == KEYS
    search = parse_search(msgspec.json.decode(SEARCH))
    assert search.primary == "timestamp"
    assert not search.rollups
    assert dict(search.defaults) == {"message": 2, "why": 1.5, "fix": 1.25, "error.message": 2}
    assert sorted(search.aliases) == ["env", "msg", "req", "span", "time", "trace", "ts"]
    folded = {name for name, field in search.fields.items() if field.lowercase}
    assert folded == {"level", "service", "environment", "method"}
    texts = {name for name, field in search.fields.items() if field.kind is FieldKind.TEXT}
    assert texts == {"message", "why", "fix", "error.message"}
    assert search.fields["error.message"].path() == ("context", "error", "message")
    typed = {name: field.kind.value for name, field in search.fields.items() if field.typed}
    assert typed == {"timestamp": "date", "status": "integer", "duration": "float"}
    assert not any(re.search("aggregatable", str(field.flags)) for field in search.fields.values())
