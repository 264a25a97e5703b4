"""Lint: every code, where it is found, and files that nobody should have to parse."""

from __future__ import annotations

import msgspec
import pytest

from headrace.core.limits import (
    LINT_FILE_PROBLEMS_MAX,
    LINT_PROBLEMS_MAX,
    LINT_TEXT_MAX,
    MANIFEST_FILE_BYTES_MAX,
    MANIFEST_TERMS_MAX,
    PREDICATE_DEPTH_MAX,
    PREDICATE_VALUES_MAX,
    TOML_DEPTH_MAX,
    TOML_KEY_PARTS_MAX,
    VARIANT_DEPTH_MAX,
)
from headrace.flags.lint import lint_files, lint_tree
from headrace.flags.model import (
    AttributeTest,
    Bucket,
    Conjunction,
    Disjunction,
    EnvironmentDefinition,
    EnvironmentRules,
    FlagDefinition,
    LintReport,
    NamespaceDefinition,
    Negation,
    ParsedFile,
    SegmentDefinition,
    SegmentReference,
    SegmentTest,
    TargetingRule,
)
from headrace.flags.parsing import parse_file

NAMESPACE = """
schema_version = "0.1"
[namespace]
slug = "billing"
display_name = "Billing"
description = "what it is for"
telemetry_enabled = true
private_attributes = ["user.email"]
raw_entity_ids = false
[namespace.environments]
prod = {display_name = "Production", public_evaluate = true}
stage = {}
"""
FLAG = """
schema_version = "0.1"
[flag]
type = "boolean"
description = "a flag"
owner = "team"
lifecycle = "active"
tags = ["a"]
private_attributes = ["b"]
[flag.variants]
on = true
off = false
[flag.environments._]
variant = "off"
[[flag.environments._.rules]]
segment = "staff"
variant = "on"
description = "colleagues"
[flag.environments.prod]
testing = true
rules = [{predicate = {not = {segment = "beta"}}, variant = "on"}]
[flag.environments.stage]
variant = "on"
"""
STAFF = """
schema_version = "0.1"
[segment]
description = "staff"
[segment.predicate]
attribute = "user.email"
op = "ends_with"
value = "@example.com"
"""
BETA = """
schema_version = "0.1"
[segment.predicate]
and = [
  {or = [{segment = "staff"}, {attribute = "plan", op = "in", values = ["pro", "max", "pro", 1]}]},
  {attribute = "country", op = "is_set"},
]
[segment.bucket]
entity_id_attribute = "user.id"
salt = "beta"
start = 0
end = 999
"""
CLEAN = {
    "namespace.toml": NAMESPACE,
    "flags/a.toml": FLAG,
    "segments/staff.toml": STAFF,
    "segments/beta.toml": BETA,
}


def lint(tree: dict[str, str]) -> LintReport:
    return lint_files({path: text.encode() for path, text in tree.items()})[0]


def found(tree: dict[str, str]) -> list[tuple[str, str, str]]:
    report = lint(tree)
    return [(each.code, each.path, each.location) for each in (*report.errors, *report.warnings)]


def test_a_manifest_without_problems() -> None:
    report, parsed = lint_files({path: text.encode() for path, text in CLEAN.items()})
    assert report == LintReport()
    assert report.is_clean
    assert parsed["namespace.toml"].definition == NamespaceDefinition(
        slug="billing",
        environments={
            "prod": EnvironmentDefinition("Production", True),
            "stage": EnvironmentDefinition(),
        },
        display_name="Billing",
        description="what it is for",
        telemetry_enabled=True,
        private_attributes=("user.email",),
    )
    assert parsed["flags/a.toml"].definition == FlagDefinition(
        key="a",
        type="boolean",
        variants={"on": True, "off": False},
        environments={
            "_": EnvironmentRules(
                "off", (TargetingRule(SegmentTest("staff"), "on", "colleagues"),)
            ),
            "prod": EnvironmentRules(
                None, (TargetingRule(Negation(SegmentTest("beta")), "on"),), testing=True
            ),
            "stage": EnvironmentRules("on"),
        },
        description="a flag",
        owner="team",
        lifecycle="active",
        tags=("a",),
        private_attributes=("b",),
    )
    assert parsed["flags/a.toml"].segments_used == ("beta", "staff")
    assert parsed["flags/a.toml"].environments_used == ("prod", "stage")
    assert parsed["segments/beta.toml"].definition == SegmentDefinition(
        key="beta",
        predicate=Conjunction(
            (
                Disjunction(
                    (
                        SegmentTest("staff"),
                        AttributeTest("plan", "in", None, (1, "max", "pro")),
                    )
                ),
                AttributeTest("country", "is_set"),
            )
        ),
        bucket=Bucket("user.id", "beta", 0, 999),
    )
    assert parsed["segments/beta.toml"].references == (
        SegmentReference("staff", "segment.predicate.and.0.or.0.segment"),
    )


def test_what_was_parsed_goes_to_another_process_and_back() -> None:
    _, parsed = lint_files({path: text.encode() for path, text in CLEAN.items()})
    packed = msgspec.msgpack.encode(parsed)
    assert msgspec.msgpack.decode(packed, type=dict[str, ParsedFile]) == parsed


def test_nothing_is_a_manifest() -> None:
    assert lint({}).is_clean
    assert lint({"namespace.toml": 'schema_version = "0.7"'}).is_clean


F, S, B, N = "flags/a.toml", "segments/staff.toml", "segments/beta.toml", "namespace.toml"
RULE = '[[flag.environments._.rules]]\nsegment = "staff"\nvariant = "on"\n'
DEFAULTS = f'[flag.environments._]\nvariant = "off"\n{RULE}description = "colleagues"\n'


@pytest.mark.parametrize(
    ("path", "old", "new", "problems"),
    [
        (F, 'schema_version = "0.1"', "", [("E001", "schema_version")]),
        (F, '"0.1"', "0.1", [("E001", "schema_version")]),
        (F, '"0.1"', '"0.1.2"', [("E001", "schema_version")]),
        (F, '"0.1"', '"00.1"', [("E001", "schema_version")]),
        (F, '"0.1"', '"1.0"', [("E001", "schema_version")]),
        (F, '"staff"', '"nobody"', [("E005", "flag.environments._.rules.0.segment")]),
        (F, '"beta"', '"../a"', [("E005", "flag.environments.prod.rules.0.predicate.not.segment")]),
        (B, '"staff"', '"nobody"', [("E005", "segment.predicate.and.0.or.0.segment")]),
        (B, "end = 999", "end = 10000", [("E006", "segment.bucket.end")]),
        (B, "end = 999", "end = 9.5", [("E006", "segment.bucket.end")]),
        (B, "start = 0", "start = -1", [("E006", "segment.bucket.start")]),
        (B, "start = 0", "start = true", [("E006", "segment.bucket.start")]),
        (B, "start = 0", "start = 1000", [("E006", "segment.bucket.start")]),
        (B, "start = 0", "", [("E006", "segment.bucket.start")]),
        (N, "stage = {}", "", [("E010", F, "flag.environments.stage")]),
        (S, STAFF, 'schema_version = "0.1"\n[segment]', [("E011", "segment")]),
        (S, STAFF, 'schema_version = "0.1"', [("E011", "segment")]),
        (F, '"boolean"', '"bool"', [("E014", "flag.type")]),
        (F, 'type = "boolean"', "", [("E014", "flag.type")]),
        (F, '"boolean"', '["boolean"]', [("E014", "flag.type")]),
        (F, "on = true", "on = 1", [("E014", "flag.variants.on")]),
        (F, 'owner = "team"', 'colour = "red"', [("E016", "flag.colour")]),
        (F, '"0.1"', '"0.1"\nextra = 1', [("E016", "extra")]),
        (F, "testing = true", "tested = true", [("E016", "flag.environments.prod.tested")]),
        (F, RULE, RULE + "weight = 1\n", [("E016", "flag.environments._.rules.0.weight")]),
        (N, "stage = {}", "stage = {x = 1}", [("E016", "namespace.environments.stage.x")]),
        (N, "slug =", "slag =", [("E016", "namespace.slag")]),
        (B, 'salt = "beta"', 'salt = "beta"\nseed = 1', [("E016", "segment.bucket.seed")]),
        (B, '"is_set"}', '"is_set", values = [1]}', [("E016", "segment.predicate.and.1.values")]),
        (S, 'op = "ends_with"', 'op = "ends_with"\nor = []', [
            ("H004", "segment.predicate.or"), ("E016", "segment.predicate.attribute"),
            ("E016", "segment.predicate.op"), ("E016", "segment.predicate.value"),
        ]),
        (N, '"billing"', '"Billing"', [("E032", "namespace.slug")]),
        (N, "stage = {}", 'stage = {}\n_ = {}', [("E032", "namespace.environments._")]),
        (F, "off = false", 'off = false\n"a b" = true', [("E032", "flag.variants.a b")]),
        (F, RULE, RULE + "predicate = {segment = 'staff'}\n",
            [("E036", "flag.environments._.rules.0")]),
        (F, RULE, "[[flag.environments._.rules]]\nvariant = 'on'\n",
            [("E036", "flag.environments._.rules.0")]),
        (F, DEFAULTS, "", [("E037", "flag.environments")]),
        (F, 'variant = "off"', "", [("E038", "flag.environments._.variant")]),
        (F, 'variant = "off"', 'variant = "off"\ntesting = false',
            [("E039", "flag.environments._.testing")]),
        (B, 'salt = "beta"', "", [("W004", "segment.bucket.salt")]),
        (F, "[flag]", "[flag", [("H001", "")]),
        (F, 'owner = "team"', "owner = 1", [("H001", "flag.owner")]),
        (F, 'lifecycle = "active"', 'lifecycle = "dead"', [("H001", "flag.lifecycle")]),
        (F, 'tags = ["a"]', "tags = [1]", [("H001", "flag.tags")]),
        (F, "testing = true", "testing = 1", [("H001", "flag.environments.prod.testing")]),
        (F, "rules = [", "rules = [1, ", [("H001", "flag.environments.prod.rules.0")]),
        (F, '[flag.environments.stage]\nvariant = "on"', "[flag.environments]\nstage = 1",
            [("H001", "flag.environments.stage")]),
        (N, "stage = {}", "stage = 1", [("H001", "namespace.environments.stage")]),
        (B, 'entity_id_attribute = "user.id"', "",
            [("H001", "segment.bucket.entity_id_attribute")]),
        (F, 'variant = "off"', 'variant = "of"', [("H003", "flag.environments._.variant")]),
        (F, RULE, RULE.replace('variant = "on"', 'variant = "none"'),
            [("H003", "flag.environments._.rules.0.variant")]),
        (F, RULE, RULE.replace('variant = "on"', ""),
            [("H003", "flag.environments._.rules.0.variant")]),
        (S, '"ends_with"', '"matches"', [("H004", "segment.predicate.op")]),
        (S, 'op = "ends_with"', "", [("H004", "segment.predicate.op")]),
        (S, '"@example.com"', "1", [("H004", "segment.predicate.value")]),
        (S, 'value = "@example.com"', "", [("H004", "segment.predicate.value")]),
        (S, '"user.email"', '""', [("H004", "segment.predicate.attribute")]),
        (B, '["pro", "max", "pro", 1]', "[]", [("H004", "segment.predicate.and.0.or.1.values")]),
        (B, '["pro", "max", "pro", 1]', "[[1]]", [("H004", "segment.predicate.and.0.or.1.values")]),
        (B, '["pro", "max", "pro", 1]', "'pro'", [("H004", "segment.predicate.and.0.or.1.values")]),
    ],
)  # fmt: skip
def test_a_problem_is_found_where_it_is(
    path: str, old: str, new: str, problems: list[tuple[str, ...]]
) -> None:
    assert old in CLEAN[path]
    tree = {**CLEAN, path: CLEAN[path].replace(old, new, 1)}
    wanted = [each if len(each) == 3 else (each[0], path, each[1]) for each in problems]
    assert sorted(found(tree)) == sorted(wanted)


@pytest.mark.parametrize("path", ["flags/A.toml", "segments/1a.toml", f"flags/{'a' * 64}.toml"])
def test_the_name_of_a_file_is_a_key(path: str) -> None:
    text = FLAG if path.startswith("flags") else STAFF
    assert found({**CLEAN, path: text}) == [("E032", path, "")]


def test_a_path_that_is_none_of_a_manifest() -> None:
    assert [each.code for each in parse_file("README.md", b"").problems] == ["H001"]


BARE = """schema_version = "0.1"
[flag]
type = "boolean"
[flag.variants]
on = true
[flag.environments._]
"""


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        ("", "E037", "a flag needs environments._"),
        (BARE, "E038", "environments._ needs a variant"),
        (f'{BARE}variant = "on"\ntesting = false', "E039", "environments._ cannot be testing"),
        (f'{BARE}rules = [{{variant = "on"}}]', "E036",
            "a rule needs a segment or a predicate, and has neither"),
        (f'{BARE}rules = [{{segment = "s", predicate = {{}}}}]', "E036",
            "a rule needs a segment or a predicate, and has both"),
        (f'{BARE}rules = [{{segment = "s"}}]', "H003", "a rule needs a variant"),
        (f"\ufeff{BARE}", "H001",
            "the file begins with a byte order mark: save it as UTF-8 without one"),
    ],
)  # fmt: skip
def test_a_problem_says_what_is_needed(content: str, code: str, message: str) -> None:
    problems = parse_file(F, content.encode()).problems
    assert (code, message) in {(each.code, each.message) for each in problems}


def test_without_a_namespace_file_environments_have_any_name() -> None:
    tree = dict(CLEAN)
    del tree["namespace.toml"]
    assert found(tree) == []


def test_a_schema_of_another_time_is_told_apart() -> None:
    report = lint({**CLEAN, F: FLAG.replace('"0.1"', '"12.0"').replace("type", "kind")})
    assert [(each.code, each.path) for each in report.errors] == [("E001", F)]
    assert report.unsupported_version == "12.0"
    assert lint({**CLEAN, F: FLAG.replace('"0.1"', '"x"')}).unsupported_version is None


def segment(*used: str) -> str:
    terms = ", ".join(f'{{segment = "{each}"}}' for each in used)
    return f'schema_version = "0.1"\n[segment.predicate]\nor = [{terms}]'


def test_segments_that_need_each_other() -> None:
    tree = {
        "segments/a.toml": segment("b"),
        "segments/b.toml": segment("c", "d"),
        "segments/c.toml": segment("a", "d"),
        "segments/d.toml": STAFF,
        "segments/e.toml": segment("a", "d"),
    }
    problem = ("H002", "segments/a.toml", "segment.predicate")
    assert found(tree) == [problem]
    assert "a -> b -> c -> a" in lint(tree).errors[0].message
    assert found({"segments/a.toml": segment("a")}) == [problem]
    assert found({**tree, "segments/c.toml": segment("d")}) == []


def test_a_long_chain_of_segments_is_no_cycle() -> None:
    count = 2000
    tree = {f"segments/s{n}.toml": segment(f"s{n + 1}") for n in range(count)}
    assert found({**tree, f"segments/s{count}.toml": STAFF}) == []
    assert [code for code, _, _ in found({**tree, f"segments/s{count}.toml": segment("s0")})] == [
        "H002"
    ]


@pytest.mark.parametrize(
    ("flag_type", "fitting", "others"),
    [
        ("boolean", ["true"], ["1", '"true"', "[]"]),
        ("string", ['"x"', '""'], ["1", "true", "1979-05-27"]),
        ("integer", ["0", "-9223372036854775808", "0xff"], ["1.0", "true", "9223372036854775808"]),
        ("float", ["1.5", "1", "-0.0"], ["inf", "nan", "true", '"1"', "1e999"]),
        (
            "json",
            [
                '{a = [1, 2.5, "x", {b = true}]}', "[]", "1", '"x"',
                "[" * VARIANT_DEPTH_MAX + "]" * VARIANT_DEPTH_MAX,
                "{a = " * (VARIANT_DEPTH_MAX - 1) + "1" + "}" * (VARIANT_DEPTH_MAX - 1),
            ],
            [
                "{a = inf}", "[1979-05-27]", "[9223372036854775808]",
                "[" * (VARIANT_DEPTH_MAX + 1) + "]" * (VARIANT_DEPTH_MAX + 1),
                "{a = " * VARIANT_DEPTH_MAX + "1" + "}" * VARIANT_DEPTH_MAX,
            ],
        ),
    ],
)  # fmt: skip
def test_variants_are_of_the_type_of_their_flag(
    flag_type: str, fitting: list[str], others: list[str]
) -> None:
    def codes(value: str) -> list[str]:
        text = FLAG.replace('"boolean"', f'"{flag_type}"').replace("true\noff = false", value)
        text = text.replace('"off"', '"on"')
        return [each.code for each in parse_file(F, text.encode()).problems]

    assert {value: codes(value) for value in fitting} == {value: [] for value in fitting}
    assert {value: codes(value) for value in others} == {value: ["E014"] for value in others}


def test_whole_numbers_of_a_float_are_floats() -> None:
    text = FLAG.replace('"boolean"', '"float"').replace("true\noff = false", "1\noff = 0.5")
    definition = parse_file(F, text.encode()).definition
    assert isinstance(definition, FlagDefinition)
    assert [type(value) for value in definition.variants.values()] == [float, float]


HEAD = 'schema_version = "0.1"\n'


def nested(depth: int, around: str) -> str:
    inner = '{segment = "staff"}'
    for _ in range(depth - 1):
        inner = around.format(inner)
    return f"{HEAD}[segment]\npredicate = {inner}"


@pytest.mark.parametrize("around", ["{{not = {}}}", "{{and = [{}]}}", "{{or = [{}]}}"])
def test_predicates_are_so_deep(around: str) -> None:
    tree = {**CLEAN, "segments/deep.toml": nested(PREDICATE_DEPTH_MAX, around)}
    assert found(tree) == []
    tree["segments/deep.toml"] = nested(PREDICATE_DEPTH_MAX + 1, around)
    assert [code for code, _, _ in found(tree)] == ["H004"]


def test_lists_of_values_are_so_long() -> None:
    for count, codes in [(PREDICATE_VALUES_MAX, []), (PREDICATE_VALUES_MAX + 1, ["H004"])]:
        values = ",".join(map(str, range(count)))
        test = f"{HEAD}[segment.predicate]\nattribute = 'a'\nop = 'in'\nvalues = [{values}]"
        assert [each.code for each in parse_file(S, test.encode()).problems] == codes


def test_a_manifest_has_so_many_predicates() -> None:
    each = 5000
    terms = ", ".join(["{attribute = 'a', op = 'is_set'}"] * (each - 1))
    text = f"{HEAD}[segment.predicate]\nor = [{terms}]".encode()
    names = [f"segments/s{n}.toml" for n in range(MANIFEST_TERMS_MAX // each + 1)]
    file = parse_file(names[0], text)
    assert file.terms == each
    files = {path: msgspec.structs.replace(file, path=path) for path in names}
    report = lint_tree(files)
    assert [(each.code, each.path) for each in report.errors] == [("H004", max(names))]
    del files[names[0]]
    assert lint_tree(files).is_clean


@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        b"\xef\xbb\xbfa = 1",
        b"a = '\0'",
        b"a = " + b"9" * 100_000,
        b"a = " + b"[" * 100_000,
        b"a = " + b"{a=" * 80_000,
        b"a" + b".a" * 100_000 + b" = 1",
        b"[a" + b".a" * 100_000 + b"]",
        # What looks like the end of a string is not always one, nor the beginning.
        b'a = {b = """c"""", d' + b".d" * 100_000 + b" = 1}",
        b"a = {b = '''c'''', d" + b".d" * 100_000 + b" = 1}",
        b'"a\\"b"' + b".a" * 100_000 + b" = 1",
        b"a = [ # ]\n" + b"[" * 100_000,
        b'a = """' + b'\\"""' * 60_000,
        b'"' * 200_000,
        b"'" * 200_000,
        b" " * (MANIFEST_FILE_BYTES_MAX + 1),
    ],
)
def test_hostile_files_are_refused_before_they_take_their_time(content: bytes) -> None:
    parsed = parse_file(F, content)
    assert [each.code for each in parsed.problems] == ["H001"]
    assert parsed.definition is None


def test_files_are_so_deep_and_keys_so_long() -> None:
    def message(text: str) -> str:
        return parse_file(F, text.encode()).problems[0].message

    def brackets(depth: int) -> str:
        return f"a = {'[' * depth}{']' * depth}"

    assert "nested" in message(brackets(TOML_DEPTH_MAX + 1))
    assert "nested" not in message(brackets(TOML_DEPTH_MAX))
    assert "nested" not in message("\n".join(f"a{n} = [[[]]]" for n in range(TOML_DEPTH_MAX)))
    for text in ("{} = 1", "[{}]", "x = {{{} = 1}}", "x = [1.5, {{{} = 1}}]"):
        assert "parts" in message(text.format(".".join("a" * (TOML_KEY_PARTS_MAX + 1))))
        assert "parts" not in message(text.format(".".join("a" * TOML_KEY_PARTS_MAX)))
    floats = ", ".join(["1.5"] * 100)
    assert "parts" not in message(f"a = [{floats}]\nb = {{x.y = 1.5, x.z = 1.5}}\n")


def test_a_file_has_so_many_bytes() -> None:
    filled = FLAG + "#" * (MANIFEST_FILE_BYTES_MAX - len(FLAG))
    assert parse_file(F, filled.encode()).problems == ()
    assert [each.code for each in parse_file(F, filled.encode() + b"#").problems] == ["H001"]


@pytest.mark.parametrize(
    "text",
    [
        '"' + "a." * 100 + '"',
        "'" + "[" * 100 + "'",
        '"""' + "a.\n[{" * 100 + '"""',
        "'''" + "a.\n[{" * 100 + "'''",
        '"\\"' + "." * 100 + '"',
        '"" # ' + "[." * 100,
        '"""""" # ' + "[." * 100,
        '"""\n"" \\""" """ # ' + "[." * 100,
    ],
)
def test_dots_and_brackets_in_texts_are_nothing_special(text: str) -> None:
    assert parse_file(F, FLAG.replace('"a flag"', text).encode()).problems == ()


def test_not_everything_is_told_of_a_file_with_very_many_problems() -> None:
    text = "".join(f"{'x' * 400}{n} = 1\n" for n in range(400))
    problems = parse_file(F, text.encode()).problems
    assert len(problems) == LINT_FILE_PROBLEMS_MAX
    assert max(len(each.message) for each in problems) <= LINT_TEXT_MAX
    assert max(len(each.location) for each in problems) <= LINT_TEXT_MAX
    many = {f"flags/f{n}.toml": parse_file(f"flags/f{n}.toml", text.encode()) for n in range(60)}
    assert len(lint_tree(many).errors) == LINT_PROBLEMS_MAX
