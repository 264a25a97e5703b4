"""From the bytes of a file to what it defines, with everything that is wrong with it.

What one file shows by itself is found here; what needs other files, in `lint`.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, cast, get_args

from headrace.core.limits import I64_MAX, VARIANT_DEPTH_MAX
from headrace.flags.keys import KEY_RULE, LABEL_RULE, SLUG_RULE, is_key, is_label, is_slug
from headrace.flags.model import (
    ANY_ENVIRONMENT,
    Definition,
    EnvironmentDefinition,
    EnvironmentRules,
    FlagDefinition,
    FlagType,
    Lifecycle,
    NamespaceDefinition,
    ParsedFile,
    Predicate,
    SegmentDefinition,
    SegmentTest,
    TargetingRule,
)
from headrace.flags.predicates import read_bucket, read_predicate, read_segment_name
from headrace.flags.table_reader import Findings, TableReader, shown
from headrace.flags.toml import NotToml, read_toml
from headrace.flags.tree import FileKind, key_of, kind_of

SCHEMA_MAJOR = 0
"""Of the versions of the schema that are understood."""
_SCHEMA_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\Z")
_FLAG_TYPES = get_args(FlagType)
_LIFECYCLES = get_args(Lifecycle)


def parse_file(path: str, content: bytes) -> ParsedFile:
    """A file of a manifest, taken apart. Never raises: what is wrong is in its problems."""
    findings = Findings(path)
    kind = kind_of(path)
    if kind is None:
        findings.add("H001", "this is no file of a manifest")
        return _parsed(findings, None)
    key = key_of(path)
    if kind is not FileKind.NAMESPACE and not is_key(key):
        findings.add("E032", f"{shown(key)} is no key: {KEY_RULE}")
    try:
        top = TableReader(findings, read_toml(content), "")
    except NotToml as problem:
        findings.add("H001", str(problem))
        return _parsed(findings, None)
    unsupported = _read_schema_version(top)
    if unsupported is not None:
        return _parsed(findings, None, unsupported_version=unsupported)
    environments: tuple[str, ...] = ()
    definition: Definition | None
    match kind:
        case FileKind.NAMESPACE:
            definition = _read_namespace(top)
        case FileKind.SEGMENT:
            definition = _read_segment(top, key)
        case FileKind.FLAG:
            definition = _read_flag(top, key)
            environments = tuple(
                name for name in definition.environments if name != ANY_ENVIRONMENT
            )
    top.end()
    return _parsed(findings, definition, environments)


def _parsed(
    findings: Findings,
    definition: Definition | None,
    environments: tuple[str, ...] = (),
    unsupported_version: str | None = None,
) -> ParsedFile:
    return ParsedFile(
        findings.path,
        None if findings.has_errors else definition,
        tuple(findings.problems),
        tuple(findings.references.values()),
        environments,
        findings.terms,
        unsupported_version,
    )


def _read_schema_version(top: TableReader) -> str | None:
    """Note a version that is not understood; one whose major number is not ours is returned."""
    given = top.take("schema_version")
    version = _SCHEMA_VERSION.match(given) if isinstance(given, str) else None
    if version is None:
        top.report("E001", 'schema_version must be a string, as "0.1"', "schema_version")
    elif int(version[1]) != SCHEMA_MAJOR:
        top.report(
            "E001", f"schema_version {version[0]} is not understood: 0.x is", "schema_version"
        )
        return version[0]
    return None


def _read_namespace(top: TableReader) -> NamespaceDefinition:
    table = top.table("namespace")
    if table is None:
        return NamespaceDefinition()
    slug = table.text("slug")
    if slug is not None and not is_slug(slug):
        table.report("E032", f"{shown(slug)} is no slug: {SLUG_RULE}", "slug")
    environments: dict[str, EnvironmentDefinition] = {}
    declared = table.table("environments")
    if declared is not None:
        for name, environment in declared.named_tables():
            _check_label(declared, name, "an environment")
            environments[name] = EnvironmentDefinition(
                environment.text("display_name") or "", environment.boolean("public_evaluate")
            )
            environment.end()
    definition = NamespaceDefinition(
        slug,
        environments,
        table.text("display_name") or "",
        table.text("description") or "",
        table.boolean("telemetry_enabled"),
        table.texts("private_attributes"),
        table.boolean("raw_entity_ids"),
    )
    table.end()
    return definition


def _read_segment(top: TableReader, key: str) -> SegmentDefinition:
    table = top.table("segment")
    if table is None or not (table.has("predicate") or table.has("bucket")):
        top.report("E011", "a segment needs a predicate, a bucket, or both", "segment")
    if table is None:
        return SegmentDefinition(key)
    predicate, bucket = table.table("predicate"), table.table("bucket")
    definition = SegmentDefinition(
        key,
        None if predicate is None else read_predicate(predicate),
        None if bucket is None else read_bucket(bucket, salt=key),
        table.text("description") or "",
    )
    table.end()
    return definition


def _read_flag(top: TableReader, key: str) -> FlagDefinition:
    table = top.table("flag") or TableReader(top.findings, {}, "flag")
    flag_type = table.take("type")
    if flag_type not in _FLAG_TYPES:
        table.report("E014", f"type must be one of {', '.join(_FLAG_TYPES)}", "type")
        flag_type = None
    lifecycle = table.take("lifecycle")
    if lifecycle is not None and lifecycle not in _LIFECYCLES:
        table.report("H001", f"lifecycle must be one of {', '.join(_LIFECYCLES)}", "lifecycle")
    variants = _read_variants(table, flag_type)
    definition = FlagDefinition(
        key,
        cast(FlagType, flag_type),
        variants,
        _read_environments(table, variants),
        table.text("description") or "",
        table.text("owner") or "",
        cast(Lifecycle | None, lifecycle),
        table.texts("tags"),
        table.texts("private_attributes"),
    )
    table.end()
    return definition


def _read_variants(table: TableReader, flag_type: str | None) -> dict[str, Any]:
    declared = table.table("variants")
    if declared is None:
        return {}
    variants = declared.rest()
    for name, value in variants.items():
        _check_label(declared, name, "a variant")
        if flag_type is not None and not _fits(value, flag_type):
            declared.report("E014", f"the value of {shown(name)} is not of type {flag_type}", name)
        elif flag_type == "float":
            variants[name] = float(value)
    return variants


def _fits(value: object, flag_type: str) -> bool:
    """Whether a variant of a flag of this type may have this value."""
    match flag_type:
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "integer":
            return _is_integer(value)
        case "float":
            return _is_integer(value) or (isinstance(value, float) and isfinite(value))
        case _:
            return _is_json(value, 1)


def _is_integer(value: object) -> bool:
    return (
        isinstance(value, int) and not isinstance(value, bool) and -I64_MAX - 1 <= value <= I64_MAX
    )


def _is_json(value: object, depth: int) -> bool:
    """Whether JSON can say this: no dates, no infinity, not too deep."""
    if depth > VARIANT_DEPTH_MAX:
        return False
    match value:
        case dict():
            return all(_is_json(each, depth + 1) for each in value.values())
        case list():
            return all(_is_json(each, depth + 1) for each in value)
        case float():
            return isfinite(value)
        case bool() | str():
            return True
        case _:
            return _is_integer(value)


def _read_environments(table: TableReader, variants: dict[str, Any]) -> dict[str, EnvironmentRules]:
    declared = table.table("environments")
    if declared is None or not declared.has(ANY_ENVIRONMENT):
        table.report("E037", f"a flag needs environments.{ANY_ENVIRONMENT}", "environments")
    if declared is None:
        return {}
    environments = {}
    for name, environment in declared.named_tables():
        if name == ANY_ENVIRONMENT:
            _check_defaults(environment)
        else:
            _check_label(declared, name, "an environment")
        environments[name] = _read_environment(environment, variants)
    return environments


def _check_defaults(environment: TableReader) -> None:
    if not environment.has("variant"):
        environment.report("E038", f"environments.{ANY_ENVIRONMENT} needs a variant", "variant")
    if environment.has("testing"):
        environment.report("E039", f"environments.{ANY_ENVIRONMENT} cannot be testing", "testing")


def _read_environment(environment: TableReader, variants: dict[str, Any]) -> EnvironmentRules:
    variant = _read_variant(environment, variants)
    tables = environment.tables("rules")
    rules = None
    if tables is not None:
        read = (_read_rule(each, variants) for each in tables)
        rules = tuple(rule for rule in read if rule is not None)
    testing = environment.boolean("testing")
    environment.end()
    return EnvironmentRules(variant, rules, testing)


def _read_rule(table: TableReader, variants: dict[str, Any]) -> TargetingRule | None:
    if table.has("segment") == table.has("predicate"):
        has = "both" if table.has("segment") else "neither"
        table.report("E036", f"a rule needs a segment or a predicate, and has {has}")
    segment = read_segment_name(table)
    inline = table.table("predicate")
    predicate: Predicate | None = None if inline is None else read_predicate(inline)
    if segment is not None:
        predicate = SegmentTest(segment)
    if not table.has("variant"):
        table.report("H003", "a rule needs a variant", "variant")
    variant = _read_variant(table, variants)
    description = table.text("description") or ""
    table.end()
    if predicate is None or variant is None:
        return None
    return TargetingRule(predicate, variant, description)


def _read_variant(table: TableReader, variants: dict[str, Any]) -> str | None:
    variant = table.text("variant")
    if variant is not None and variant not in variants:
        table.report("H003", f"the flag has no variant {shown(variant)}", "variant")
    return variant


def _check_label(table: TableReader, name: str, what: str) -> None:
    if not is_label(name):
        table.report("E032", f"{shown(name)} cannot be the name of {what}: {LABEL_RULE}", name)
