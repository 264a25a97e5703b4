"""JSON that somebody made up or damaged: every parser takes it or refuses it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from headrace.core.errors import Refused
from headrace.core.limits import NESTING_MAX
from headrace.formats.nesting import is_too_deep
from headrace.schemas.evolution import parse_update
from headrace.schemas.lens import parse_lens
from headrace.schemas.validation import Validator, check_schema
from headrace.surfaces.streams.appends import parse_drafts
from headrace.surfaces.topics.appending import parse_append
from headrace.surfaces.topics.drafts import AppendLimits
from headrace.web.bodies import check_utf8
from headrace.web.calls import decode

LIMITS = AppendLimits(
    batch_records=50, record_bytes=1 << 16, meta_bytes=512, tag_bytes=64, node_bytes=64
)
SCALARS = (
    None, True, False, 0, 1, -1, 2**53, 2**64, 10**400, 0.01, -0.0, 1e300, 5e-324, "", "a", "ü",
    "[", "{", "\\", '"', "\\\"[", "\ud7ff", "\U0001f600", "2020-01-01T00:00:00Z", "a" * 300,
)  # fmt: skip
NAMES = ("a", "b", "", "ü", "data", "meta", "tag", "records", "$schema", "~", "/", "*")
OPS = ("rename", "copy", "add", "remove", "hoist", "plunge", "wrap", "head", "convert", "in", "map")
PATTERNS = ("a", "^a+$", "(a|b)*c", "(?=a)", r"(a)\1", "a{9}{9}{9}{9}", "[", r"\d", "", ".{1,99}")


_searches = msgspec.json.Decoder(dict[str, msgspec.Raw])


def value(dice: Random, depth: int = 4) -> Any:
    kind = dice.randrange(8) if depth else 0
    if kind == 6:
        return [value(dice, depth - 1) for _ in range(dice.randint(0, 4))]
    if kind == 7:
        return {dice.choice(NAMES): value(dice, depth - 1) for _ in range(dice.randint(0, 4))}
    if kind == 5 and depth == 4:
        made: Any = 1
        for _ in range(dice.choice((NESTING_MAX - 2, NESTING_MAX - 1, NESTING_MAX, 400, 3000))):
            made = [made] if dice.random() < 0.9 else {"a": made}
        return made
    return dice.choice(SCALARS)


def schema(dice: Random, depth: int = 4) -> Any:
    if not depth or dice.random() < 0.1:
        return dice.choice((True, False, {}, {"type": "string"}, {"type": "integer"}))
    made: dict[str, Any] = {}
    for _ in range(dice.randint(0, 3)):
        inner = [schema(dice, depth - 1) for _ in range(dice.randint(1, 3))]
        named = {dice.choice(NAMES): each for each in inner}
        one = inner[0]
        match dice.randrange(14):
            case 0:
                made["type"] = dice.choice(("object", "array", "string", ["integer", "null"]))
            case 1:
                made[dice.choice(("allOf", "anyOf", "oneOf", "prefixItems"))] = inner
            case 2:
                made[dice.choice(("not", "if", "then", "else", "contains", "items"))] = one
            case 3:
                made[dice.choice(("properties", "dependentSchemas", "dependencies"))] = named
            case 4:
                made["patternProperties"] = {dice.choice(PATTERNS): one}
            case 5:
                made[dice.choice(("additionalProperties", "propertyNames"))] = one
            case 6:
                made[dice.choice(("unevaluatedProperties", "unevaluatedItems"))] = one
            case 7:
                made["pattern"] = dice.choice(PATTERNS)
            case 8:
                made["enum"] = [value(dice, 2) for _ in range(dice.randint(1, 4))]
            case 9:
                made["const"] = value(dice, 2)
            case 10:
                made[dice.choice(("minimum", "maximum", "multipleOf"))] = dice.choice(
                    (1, 0.01, 1e9)
                )
            case 11:
                made[dice.choice(("uniqueItems", "required", "format"))] = dice.choice(
                    (True, ["a"], "date-time", "regex")
                )
            case 12:
                made[dice.choice(("minLength", "maxItems", "minProperties"))] = dice.randint(0, 3)
            case 13:
                made[dice.choice(("$ref", "$schema", "definitions", "x"))] = value(dice, 1)
    return made


def op(dice: Random, depth: int = 3) -> Any:
    made: dict[str, Any] = {"op": dice.choice(OPS)}
    for key in ("path", "from", "to", "host"):
        if dice.random() < 0.5:
            made[key] = dice.choice(("", "/a", "/a/b", "/~0", "/~", "a", 1))
    for key, made_up in (
        ("schema", lambda: schema(dice, 2)),
        ("default", lambda: value(dice, 2)),
        ("name", lambda: dice.choice(("a", "", 1))),
        ("ops", lambda: [op(dice, depth - 1)] if depth else []),
        ("mode", lambda: "singleton"),
    ):
        if dice.random() < 0.4:
            made[key] = made_up()
    return made


def envelope(dice: Random) -> Any:
    """Something that one of the parsers may like."""
    match dice.randrange(5):
        case 0:
            records = [{"data": value(dice)} for _ in range(dice.randint(0, 3))]
            for record in records:
                if dice.random() < 0.3:
                    record[dice.choice(("meta", "tag", "node", "group"))] = value(dice, 2)
            return {"records": records}
        case 1:
            return [value(dice) for _ in range(dice.randint(0, 3))]
        case 2:
            return {"schema": schema(dice), "routingKey": value(dice, 2)}
        case 3:
            lens = {"apiVersion": "durable.lens/v1", "schema": "s", "from": 1, "to": 2}
            return {"schema": {}, "lens": {**lens, "ops": [op(dice) for _ in range(2)]}}
    return value(dice)


def encode(made: Any, dice: Random) -> bytes:
    """As deep as it is: the encoder of Python has no patience for that."""
    deep, inner = 0, made
    while isinstance(inner, list) and len(inner) == 1:
        deep, inner = deep + 1, inner[0]
    try:
        text = json.dumps(inner, ensure_ascii=dice.random() < 0.5, allow_nan=False)
    except RecursionError:
        text = '{"a":' * 3000 + "1" + "}" * 3000
    return b"[" * deep + text.encode("utf-8", "surrogatepass") + b"]" * deep


def damage(raw: bytes, dice: Random) -> bytes:
    body = bytearray(raw)
    for _ in range(dice.choice((0, 0, 0, 1, 2))):
        at = dice.randrange(len(body)) if body else 0
        match dice.randrange(3):
            case 0:
                body[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                del body[at : at + dice.choice((1, 5))]
            case 2:
                body[at:at] = dice.choice((b"[", b"}", b'"', b"\\", b"1e999", b"\xff", b"\xc3\xbc"))
    return bytes(body)


def attempt(work: Any, *given: Any) -> Any:
    try:
        return work(*given)
    except Refused:
        return None


def append(body: bytes) -> Any:
    check_utf8(body)
    return parse_append(body, LIMITS)


def check_both(made: Any, body: bytes) -> Any:
    check_schema(made, "s")
    return Validator(msgspec.json.encode(made)).check(body)


def fuzz(seed: int, rounds: int) -> int:
    """Let all parsers have a look; returns how often one of them took something."""
    dice = Random(seed)
    taken = 0
    for _ in range(rounds):
        body = damage(encode(envelope(dice), dice), dice)
        topics = attempt(append, body)
        streams = attempt(parse_drafts, body, "application/json", None)
        for drafts in (topics and topics[1], streams):
            if drafts is not None:
                taken += 1
                assert drafts.count > 1 or not is_too_deep(drafts.data)
        taken += attempt(parse_update, body) is not None
        attempt(decode, _searches, body)
        try:
            sent = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if not is_too_deep(body):  # others are refused before anything goes down into them
            attempt(parse_lens, sent)
            taken += attempt(check_both, schema(dice), body) is not None
    return taken


@pytest.mark.parametrize("seed", [21, 22])
def test_json_in_short(seed: int) -> None:
    assert fuzz(seed, 250) > 50


@pytest.mark.soak
def test_json(fresh_seeds: Iterator[int]) -> None:
    for seed in fresh_seeds:
        fuzz(seed, 1000)
