"""Evaluation: operators, kinds that do not go together, the order of rules, buckets."""

from __future__ import annotations

from math import inf, nan
from typing import Any, get_args

import pytest

from headrace.core.errors import Refused
from headrace.core.limits import (
    CONTEXT_DEPTH_MAX,
    CONTEXT_TEXT_MAX,
    CONTEXT_VALUE_LENGTH_MAX,
    CONTEXT_VALUES_MAX,
    ENTITY_ID_LENGTH_MAX,
)
from headrace.flags.evaluation import (
    Definitions,
    Evaluation,
    UnknownFlag,
    bucket_of,
    check_context,
    evaluate,
    evaluate_all,
)
from headrace.flags.model import (
    AttributeTest,
    Bucket,
    Conjunction,
    Disjunction,
    EnvironmentRules,
    FlagDefinition,
    Negation,
    Operator,
    Predicate,
    SegmentDefinition,
    SegmentTest,
    TargetingRule,
)
from headrace.flags.operators import (
    LISTING,
    OPERATORS,
    operand_problem,
    passes,
    prepare,
    sort_values,
)

UNSET = None


def check(op: Any, operand: Any, given: Any) -> bool:
    if op in LISTING:
        return passes(AttributeTest("x", op, None, sort_values(operand)), prepare(given))
    return passes(AttributeTest("x", op, operand), prepare(given))


def test_there_are_exactly_the_operators_of_the_protocol() -> None:
    assert frozenset(get_args(Operator)) == OPERATORS
    assert len(OPERATORS) == 18


@pytest.mark.parametrize(
    ("op", "operand", "passing", "failing"),
    [
        ("eq", "a", ["a"], ["A", "", 1, True, UNSET, ["a"], {"a": 1}]),
        ("eq", 1, [1, 1.0], [True, "1", 2, UNSET, nan]),
        ("eq", True, [True], [1, 1.0, "true", False, UNSET]),
        ("eq", 2**53 + 1, [2**53 + 1], [float(2**53)]),
        ("neq", "a", ["b", ""], ["a", 1, True, UNSET, ["a"], {}]),
        ("neq", 1, [2, 1.5], [1, 1.0, "a", True, UNSET, nan, inf]),
        ("gt", 1, [1.5, 2, 10**400], [1, 0, "2", True, UNSET, [2], nan, inf]),
        ("gte", 1, [1, 1.0, 2], [0.5, "1", True]),
        ("lt", 1.5, [1, 1.4, -(10**400)], [1.5, 2, "1", False]),
        ("lte", 1, [1, 0], [1.5, "0", False]),
        ("gt", "2026-01-01", ["2026-01-02", "a"], ["2026-01-01", "2025", 3000, UNSET]),
        ("lt", "b", ["a", "", "B"], ["b", "c", 0]),
        ("in", ["a", 1, True], ["a", 1, 1.0, True], ["b", 2, False, "1", UNSET, ["a"], nan]),
        ("in", ["a", "b"], ["a", "b"], [1, True, "ab", UNSET]),
        ("not_in", ["a", "b"], ["c", ""], ["a", "b", 1, True, UNSET, ["c"], {}]),
        ("not_in", [1, "m", True], [2, "a", "z", False, -1], [1, "m", True, UNSET, [2]]),
        ("not_in", [False], [True], [0, "", False]),
        ("contains", "b", ["abc", "b", ["a", "b"], ("b",)], ["ac", "", [], ["ab"], UNSET, 1, {}]),
        ("contains", 1, [[1], [1.0, 2]], [[True], ["1"], "1", 1, UNSET, []]),
        ("contains", "", ["", "a", [""]], [[], UNSET]),
        ("not_contains", "b", ["ac", "", [], ["ab"], [1, None, {}]], ["abc", ["b"], UNSET, 1, {}]),
        ("not_contains", 1, [[True], ["1"], []], [[1], "1", 1, UNSET]),
        ("starts_with", "ab", ["ab", "abc"], ["a", "cab", "", ["ab"], 1, UNSET]),
        ("ends_with", "ab", ["ab", "cab"], ["a", "abc", 1, UNSET]),
        ("semver_eq", "1.2.3", ["1.2.3", "1.2.3+x"], ["1.2.4", "1.2.3-x", "1.2", 1.2, UNSET]),
        ("semver_gt", "1.2.3", ["1.2.4", "1.10.0"], ["1.2.3", "1.2.3-x", "v2.0.0", 2, UNSET]),
        ("semver_gte", "1.2.3", ["1.2.3", "2.0.0"], ["1.2.3-x", ""]),
        ("semver_lt", "1.2.3", ["1.2.3-x", "1.2.2"], ["1.2.3", "1.2.3+x", "1"]),
        ("semver_lte", "1.2.3", ["1.2.3", "0.0.1"], ["1.2.4", ["0.0.1"]]),
        ("is_set", None, ["", 0, False, [], {}, "a"], [UNSET]),
        ("is_set", True, ["", 0, False, []], [UNSET]),
        ("is_set", False, [UNSET], ["", 0, False, []]),
    ],
)
def test_what_passes_an_operator(
    op: str, operand: Any, passing: list[Any], failing: list[Any]
) -> None:
    assert [given for given in passing if not check(op, operand, given)] == []
    assert [given for given in failing if check(op, operand, given)] == []


@pytest.mark.parametrize(
    ("op", "taken", "refused"),
    [
        ("eq", ["a", 1, 1.5, True], [[], {}, None, nan, inf, 2**63]),
        ("contains", ["a", 1, True], [[], None]),
        ("gt", ["a", 1, -1.5], [True, [], None, nan]),
        ("starts_with", ["", "a"], [1, True, []]),
        ("semver_lt", ["1.0.0"], ["1.0", 1, "x", None]),
        ("is_set", [True, False], ["true", 1, None]),
    ],
)
def test_operands_that_an_operator_takes(op: str, taken: list[Any], refused: list[Any]) -> None:
    assert [each for each in taken if operand_problem(op, each) is not None] == []
    assert [each for each in refused if operand_problem(op, each) is None] == []


def test_lists_of_values_are_sorted_and_have_each_once() -> None:
    assert sort_values(["b", 1, True, "a", 1.0, False, "b"]) == (1, "a", "b", False, True)


def flag(default: EnvironmentRules, **environments: EnvironmentRules) -> Definitions:
    variants = {name: f"value of {name}" for name in ("off", "on", "third")}
    made = FlagDefinition("f", "string", variants, {"_": default, **environments})
    segments = {
        "yes": SegmentDefinition("yes", AttributeTest("x", "is_set")),
        "no": SegmentDefinition("no", AttributeTest("x", "is_set", False)),
    }
    return Definitions({"f": made}, segments)


YES = TargetingRule(SegmentTest("yes"), "on")
NO = TargetingRule(SegmentTest("no"), "third")
DEFAULT = EnvironmentRules("off", (NO, YES))


@pytest.mark.parametrize(
    ("named", "testing", "expected"),
    [
        # Nothing is said of the environment: what `_` says counts.
        (None, False, ("on", "rule:1")),
        (EnvironmentRules(), False, ("on", "rule:1")),
        # Its rules come first, then its variant; rules of `_` do not count then.
        (EnvironmentRules(None, (YES,)), False, ("on", "rule:0")),
        (EnvironmentRules("third", (NO,)), False, ("third", "default")),
        (EnvironmentRules(None, (NO,)), False, ("off", "default")),
        (EnvironmentRules(None, ()), False, ("off", "default")),
        (EnvironmentRules("third"), False, ("third", "default")),
        # Rules that are only tested count for those who want them, and hide `_` from all.
        (EnvironmentRules(None, (YES,), testing=True), True, ("on", "rule:0")),
        (EnvironmentRules(None, (YES,), testing=True), False, ("off", "default")),
        (EnvironmentRules("third", (YES,), testing=True), False, ("third", "default")),
        (EnvironmentRules(None, None, testing=True), False, ("on", "rule:1")),
    ],
)
def test_the_order_in_which_a_flag_is_resolved(
    named: EnvironmentRules | None, testing: bool, expected: tuple[str, str]
) -> None:
    definitions = flag(DEFAULT, **({} if named is None else {"prod": named}))
    variant, rule = expected
    found = evaluate(definitions, "f", {"x": 1}, "prod", testing)
    assert found == Evaluation(f"value of {variant}", variant, rule)
    assert evaluate_all(definitions, {"x": 1}, "prod", testing) == {"f": found}


@pytest.mark.parametrize("environment", [None, "_", "prod"])
def test_without_a_named_block_the_default_counts(environment: str | None) -> None:
    definitions = flag(DEFAULT, stage=EnvironmentRules("third"))
    assert evaluate(definitions, "f", {}, environment).rule_matched == "rule:0"
    assert evaluate(definitions, "f", {}, "stage").variant == "third"
    assert evaluate(flag(EnvironmentRules("off")), "f", {}, environment).variant == "off"


def test_rules_that_are_only_tested_have_to_be_asked_for() -> None:
    definitions = flag(DEFAULT, prod=EnvironmentRules(None, (YES,), testing=True))
    assert evaluate(definitions, "f", {"x": 1}, "prod").variant == "off"
    assert evaluate_all(definitions, {"x": 1}, "prod")["f"].variant == "off"


def test_a_flag_that_does_not_exist() -> None:
    with pytest.raises(UnknownFlag, match="there is no flag 'g'"):
        evaluate(flag(DEFAULT), "g", {})


def holds(predicate: Predicate, context: dict[str, Any], *segments: SegmentDefinition) -> bool:
    rules = (TargetingRule(predicate, "on"),)
    made = FlagDefinition(
        "f", "boolean", {"on": True, "off": False}, {"_": EnvironmentRules("off", rules)}
    )
    definitions = Definitions({"f": made}, {segment.key: segment for segment in segments})
    return bool(evaluate(definitions, "f", context).value)


EMAIL = AttributeTest("user.email", "eq", "a")


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({"user.email": "a"}, True),
        ({"user": {"email": "a"}}, True),
        ({"user.email": "b", "user": {"email": "a"}}, False),
        ({"user.email": None, "user": {"email": "a"}}, False),
        ({"user": {"email": None}}, False),
        ({"user": "a"}, False),
        ({"user": ["email"]}, False),
        ({"user": {}}, False),
        ({}, False),
    ],
)
def test_an_attribute_is_a_flat_key_or_a_path(context: dict[str, Any], expected: bool) -> None:
    assert holds(EMAIL, context) is expected


def test_predicates_are_joined() -> None:
    x, y = AttributeTest("x", "is_set"), AttributeTest("y", "is_set")
    for context in ({}, {"x": 1}, {"y": 1}, {"x": 1, "y": 1}):
        has_x, has_y = "x" in context, "y" in context
        assert holds(Conjunction((x, y)), context) is (has_x and has_y)
        assert holds(Disjunction((x, y)), context) is (has_x or has_y)
        assert holds(Negation(x), context) is not has_x


def test_a_segment_wants_its_predicate_and_its_bucket() -> None:
    both = SegmentDefinition("s", EMAIL, Bucket("id", "salt", 0, 9999))
    assert holds(SegmentTest("s"), {"user.email": "a", "id": "1"}, both)
    assert not holds(SegmentTest("s"), {"user.email": "b", "id": "1"}, both)
    assert not holds(SegmentTest("s"), {"user.email": "a"}, both)


def test_segments_that_do_not_exist_or_need_themselves_have_nobody_in_them() -> None:
    assert not holds(SegmentTest("gone"), {})
    a = SegmentDefinition("a", SegmentTest("b"))
    b = SegmentDefinition("b", SegmentTest("a"))
    assert not holds(Conjunction((SegmentTest("a"), SegmentTest("b"))), {}, a, b)


def test_a_chain_of_segments_may_be_longer_than_the_stack() -> None:
    count = 5000
    chain = [SegmentDefinition(f"s{n}", SegmentTest(f"s{n + 1}")) for n in range(count)]
    last = SegmentDefinition(f"s{count}", EMAIL)
    assert holds(SegmentTest("s0"), {"user.email": "a"}, *chain, last)
    assert not holds(SegmentTest("s0"), {"user.email": "b"}, *chain, last)


def test_segments_that_are_named_over_and_over_are_decided_once() -> None:
    """Each names the next one twice: by names alone, that would be 2 ** 200 questions."""
    pairs = [
        SegmentDefinition(
            f"s{n}", Conjunction((SegmentTest(f"s{n + 1}"), SegmentTest(f"s{n + 1}")))
        )
        for n in range(200)
    ]
    assert holds(SegmentTest("s0"), {"user.email": "a"}, *pairs, SegmentDefinition("s200", EMAIL))


def fnv1a(raw: bytes) -> int:
    """By polynomial arithmetic, as the definition of the hash has it."""
    state = 14695981039346656037
    for byte in raw:
        state = (state ^ byte) * 1099511628211 % 2**64
    return state


def test_the_hash_of_buckets_is_fnv1a() -> None:
    # From the tables of those who made the hash.
    assert fnv1a(b"") == 0xCBF29CE484222325
    assert fnv1a(b"a") == 0xAF63DC4C8601EC8C
    assert fnv1a(b"foobar") == 0x85944171F73967E8
    for salt, value in [("", ""), ("foo", "bar"), ("käthe", "\U0001f600"), ("s:", ":v")]:
        assert bucket_of(salt, value) == fnv1a(f"{salt}:{value}".encode()) % 10_000


@pytest.mark.parametrize(
    ("entity", "is_in"),
    [
        ("u1", True),
        (17, True),
        (-17, True),
        ("", True),
        ("\ud800", True),
        (2**64, False),
        pytest.param(10**5000, False, id="more digits than Python writes"),
        (1.0, False),
        (True, False),
        (None, False),
        (["u1"], False),
        ({"id": 1}, False),
        ("x" * ENTITY_ID_LENGTH_MAX, True),
        ("x" * (ENTITY_ID_LENGTH_MAX + 1), False),
    ],
)
def test_who_can_be_in_a_bucket(entity: Any, is_in: bool) -> None:
    everyone = SegmentDefinition("s", None, Bucket("id", "salt", 0, 9999))
    assert holds(SegmentTest("s"), {"id": entity}, everyone) is is_in


def test_a_bucket_has_both_of_its_ends() -> None:
    at = bucket_of("salt", "17")
    for start, end, expected in [(at, at, True), (0, at - 1, False), (at + 1, 9999, False)]:
        bucket = Bucket("id", "salt", start, end)
        assert holds(SegmentTest("s"), {"id": 17}, SegmentDefinition("s", None, bucket)) is expected
        assert (
            holds(SegmentTest("s"), {"id": "17"}, SegmentDefinition("s", None, bucket)) is expected
        )


def test_buckets_share_entities_evenly() -> None:
    counts = [0] * 10
    for n in range(10_000):
        counts[bucket_of("experiment", f"user-{n}") // 1000] += 1
    assert min(counts) > 850
    assert max(counts) < 1150


def nest(depth: int) -> dict[str, Any]:
    context: dict[str, Any] = {}
    for _ in range(depth - 1):
        context = {"a": context}
    return context


def test_contexts_have_a_size_and_a_depth() -> None:
    for context in (
        {},
        nest(CONTEXT_DEPTH_MAX),
        {"a": [1] * (CONTEXT_VALUES_MAX - 1)},
        {"a": "x" * CONTEXT_VALUE_LENGTH_MAX},
        {"": ["x" * 1024] * (CONTEXT_TEXT_MAX // 1024)},
    ):
        assert check_context(context) is context
    for context in (
        [],
        None,
        "x",
        nest(CONTEXT_DEPTH_MAX + 1),
        nest(100_000),
        {"a": [1] * CONTEXT_VALUES_MAX},
        {"a": "x" * (CONTEXT_VALUE_LENGTH_MAX + 1)},
        {"a": ["x" * 1024] * (CONTEXT_TEXT_MAX // 1024)},
        {"a" * (CONTEXT_TEXT_MAX + 1): 1},
        {"a": [["x" * 1000] * 10] * 10},
    ):
        with pytest.raises(Refused):
            check_context(context)
