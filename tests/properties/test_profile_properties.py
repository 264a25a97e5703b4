"""Profiles: normal forms are normal, nothing is lost, no secret stays; touches miss nothing."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.profiles import evlog, metrics
from headrace.profiles.evlog import Evlog
from headrace.profiles.metrics import Metrics
from headrace.profiles.redaction import MARK, SECRETS, Redactor
from headrace.profiles.touches import Touches
from headrace.schemas.validation import Validator

ENVELOPE = [
    "timestamp", "level", "service", "environment", "version", "region", "requestId", "traceId",
    "spanId", "method", "path", "status", "duration", "message", "why", "fix", "link", "sampling",
    "redaction", "context",
]  # fmt: skip
EVLOG_SCHEMA, METRICS_SCHEMA = Validator(evlog.SCHEMA), Validator(metrics.SCHEMA)
words = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
pieces = st.sampled_from(
    [*SECRETS, "=", ":", " ", "&", "\n", "'", '"', "Bearer ", "basic ", "://", "@", "abc12345",
     "eyJhbGciOiJI.eyJzdWIiOiIx.sig", "sk_live_abcdefgh", "api_key", "-----BEGIN PRIVATE KEY-----",
     MARK]
)  # fmt: skip
texts = st.one_of(words, st.lists(pieces, max_size=8).map("".join))
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), texts)
keys = st.one_of(words, st.sampled_from([*SECRETS, "Password", "COOKIE", "mine", *ENVELOPE]))
values = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=10,
)
records = st.dictionaries(keys, values, max_size=10)
profiles = st.sampled_from(
    [
        Evlog.parse({"kind": "evlog"}),
        Evlog.parse({"kind": "evlog", "redactKeys": ["mine"]}),
        Evlog.parse({"kind": "evlog", "redactText": False}),
    ]
)


@given(profiles, records)
def test_evlog_is_a_normal_form(profile: Evlog, record: dict[str, Any]) -> None:
    once = profile.normalise([msgspec.json.encode(record)], 1000)
    assert list(msgspec.json.decode(once[0])) == ENVELOPE
    EVLOG_SCHEMA.check(once[0])
    assert profile.normalise(once, 2000) == once


@given(profiles, records)
def test_evlog_loses_no_key(profile: Evlog, record: dict[str, Any]) -> None:
    (raw,) = profile.normalise([msgspec.json.encode(record)], 1000)
    context = msgspec.json.decode(raw)["context"]
    given_context = record.get("context")
    expected = set(record) - set(ENVELOPE)
    expected |= set(given_context) if isinstance(given_context, dict) else set()
    assert expected <= set(context)
    plain = Evlog.parse({"kind": "evlog", "redactText": False})
    (raw,) = plain.normalise([msgspec.json.encode(record)], 1000)
    context = msgspec.json.decode(raw)["context"]
    for key in set(record) - set(ENVELOPE):
        if isinstance(record[key], bool | int | str | None) and key.lower() not in SECRETS:
            assert context[key] == record[key]


def secrets_below(tree: Any, names: set[str], path: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key.lower() in names:
                found.append((f"{path}{key}", value))
            else:
                found += secrets_below(value, names, f"{path}{key}.")
    elif isinstance(tree, list):
        for at, value in enumerate(tree):
            found += secrets_below(value, names, f"{path}{at}.")
    return found


@given(profiles, records)
def test_no_secret_stays_in_a_context(profile: Evlog, record: dict[str, Any]) -> None:
    names = {*SECRETS, *msgspec.json.decode(profile.config).get("redactKeys", [])}
    (raw,) = profile.normalise([msgspec.json.encode(record)], 1000)
    envelope = msgspec.json.decode(raw)
    found = secrets_below(envelope["context"], names)
    assert all(value == MARK for _, value in found)
    assert {path for path, _ in found} <= set(envelope["redaction"]["keys"])


@given(
    words.filter(lambda word: not word.strip().lower().endswith(tuple(SECRETS))),
    st.sampled_from([f"{name}{sign}" for name in (*SECRETS, "API_KEY") for sign in "=:"]),
    st.text("0123456789xyz", min_size=12, max_size=20).map(lambda text: f"s3cr3t-{text}"),
    st.sampled_from(["", " and more", "&x=1", "\nnext", '"}', "; y"]),
)
def test_no_secret_stays_in_a_text(before: str, name: str, secret: str, behind: str) -> None:
    cleaned = Redactor().clean_text(f"{before} {name}{secret}{behind}")
    assert cleaned is not None
    assert secret not in cleaned
    assert MARK in cleaned


@given(texts)
def test_cleaning_a_clean_text_changes_nothing(text: str) -> None:
    cleaned = Redactor().clean_text(text)
    assert cleaned is None or Redactor().clean_text(cleaned) == cleaned


numbers = st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9)
intervals = st.fixed_dictionaries(
    {
        "metric": words.filter(lambda word: bool(word.strip())),
        "unit": st.just("ms"),
        "windowStart": st.integers(0, 10**12),
        "windowEnd": st.integers(10**12, 10**13),
        "count": st.integers(0, 100),
        "sum": numbers,
    },
    optional={
        "min": numbers | st.none(),
        "max": numbers | st.none(),
        "tags": st.dictionaries(words, scalars, max_size=4),
        "attributes": st.dictionaries(words, scalars, max_size=4),
        "buckets": st.dictionaries(st.integers(0, 2**40).map(str), st.integers(0, 50), max_size=5),
        "instance": words,
        "stream": st.none() | words,
        "metricKind": st.sampled_from(["summary", "gauge"]),
        "more": values,
    },
)


@given(intervals)
def test_metrics_have_a_normal_form(record: dict[str, Any]) -> None:
    once = Metrics().normalise([msgspec.json.encode(record)], 0)
    assert Metrics().normalise(once, 0) == once
    found = METRICS_SCHEMA.check(once[0])
    assert found["dimensionPairs"] == [f"{key}={text}" for key, text in found["tags"].items()]
    assert found["count"] == 0 or found["min"] is not None


@given(st.lists(st.lists(st.integers(0, 20), max_size=6), max_size=30), st.integers(2, 40))
def test_touches_miss_nothing_and_say_little_too_much(rounds: list[list[int]], most: int) -> None:
    touches = Touches(most, 4)
    last: dict[int, int] = {}
    everyone = 0
    for ids in rounds:
        for id in ids:
            touches.touch(id)
        _, overflown = touches.flush()
        last |= dict.fromkeys(ids, touches.generation)
        everyone = touches.generation if overflown else everyone
        assert len(touches) <= most + 1
        recent = set().union(*rounds[max(0, touches.generation - 1) : touches.generation])
        for id in range(21):
            for after in range(touches.generation + 1):
                changed = last.get(id, 0) > after
                assert touches.is_touched([id], after) or not changed
        for id in recent:
            assert not touches.is_touched([id], touches.generation)
        if most >= 40 and not everyone:  # all fits: then the answers are exact
            for id in range(21):
                for after in range(touches.generation + 1):
                    assert touches.is_touched([id], after) == (last.get(id, 0) > after)
