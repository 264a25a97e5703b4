"""Predicates as files have them, and buckets of segments."""

from __future__ import annotations

from typing import Any, cast

from headrace.core.limits import (
    ATTRIBUTE_LENGTH_MAX,
    PREDICATE_DEPTH_MAX,
    PREDICATE_VALUES_MAX,
)
from headrace.flags.model import (
    BUCKETS,
    AttributeTest,
    Bucket,
    Conjunction,
    Disjunction,
    Negation,
    Operator,
    Predicate,
    SegmentTest,
)
from headrace.flags.operators import LISTING, OPERATORS, operand_problem, sort_values
from headrace.flags.table_reader import TableReader, shown


def read_predicate(table: TableReader, depth: int = 1) -> Predicate | None:
    """The predicate that a table is; None if it is none, which is noted then."""
    if depth > PREDICATE_DEPTH_MAX:
        table.report("H004", f"predicates are nested deeper than {PREDICATE_DEPTH_MAX}")
        return None
    table.findings.terms += 1
    predicate: Predicate | None
    if table.has("and"):
        terms = _read_terms(table, "and", depth)
        predicate = None if terms is None else Conjunction(terms)
    elif table.has("or"):
        terms = _read_terms(table, "or", depth)
        predicate = None if terms is None else Disjunction(terms)
    elif table.has("not"):
        negated = table.table("not")
        term = None if negated is None else read_predicate(negated, depth + 1)
        predicate = None if term is None else Negation(term)
    elif table.has("segment"):
        segment = read_segment_name(table)
        predicate = None if segment is None else SegmentTest(segment)
    else:
        predicate = _read_test(table)
    table.end()
    return predicate


def read_segment_name(table: TableReader) -> str | None:
    """The segment that a rule or a predicate names; it is noted as a reference."""
    segment = table.text("segment")
    if segment is not None:
        table.findings.refer(segment, table.at("segment"))
    return segment


def read_bucket(table: TableReader, salt: str) -> Bucket | None:
    """The bucket that a table is; `salt` counts where it has none of its own."""
    attribute = _read_attribute(table, "entity_id_attribute", "H001")
    if not table.has("salt"):
        table.report("W004", "the bucket has no salt: the key of its segment is used", "salt")
    own_salt = table.text("salt")
    start, end = _read_edge(table, "start"), _read_edge(table, "end")
    table.end()
    if start is not None and end is not None and start > end:
        table.report("E006", f"the bucket starts at {start}, behind its end at {end}", "start")
    if attribute is None or start is None or end is None:
        return None
    return Bucket(attribute, salt if own_salt is None else own_salt, start, end)


def _read_terms(table: TableReader, name: str, depth: int) -> tuple[Predicate, ...] | None:
    tables = table.tables(name)
    if not tables:
        table.report("H004", f"{name} takes an array of at least one predicate", name)
        return None
    terms = [read_predicate(each, depth + 1) for each in tables]
    return tuple(term for term in terms if term is not None)


def _read_test(table: TableReader) -> AttributeTest | None:
    attribute = _read_attribute(table, "attribute", "H004")
    op = table.text("op")
    if op not in OPERATORS:
        table.report(
            "H004",
            "a predicate needs an operator, op" if op is None else f"unknown operator {shown(op)}",
            "op",
        )
        table.rest()  # what it would have taken is not known either
        return None
    name = "values" if op in LISTING else "value"
    given = table.take(name)
    operands = _operands(op, given)
    problem = _operands_problem(op, operands)
    if problem is not None:
        table.report("H004", problem, name)
    if attribute is None or problem is not None:
        return None
    if op in LISTING:
        return AttributeTest(attribute, cast(Operator, op), None, sort_values(operands))
    return AttributeTest(attribute, cast(Operator, op), *operands)


def _operands(op: str, given: Any) -> list[Any]:
    if op in LISTING:
        return given if isinstance(given, list) else []
    return [] if given is None else [given]


def _operands_problem(op: str, operands: list[Any]) -> str | None:
    if not operands and op != "is_set":
        kind = "values, an array of at least one" if op in LISTING else "a value"
        return f"{op} needs {kind}"
    if len(operands) > PREDICATE_VALUES_MAX:
        return f"{op} takes at most {PREDICATE_VALUES_MAX} values"
    problems = (operand_problem(op, operand) for operand in operands)
    return next((problem for problem in problems if problem is not None), None)


def _read_attribute(table: TableReader, name: str, code: str) -> str | None:
    attribute = table.text(name)
    if not attribute or len(attribute) > ATTRIBUTE_LENGTH_MAX:
        message = f"{name} must name an attribute in 1 to {ATTRIBUTE_LENGTH_MAX} characters"
        table.report(code, message, name)
        return None
    return attribute


def _read_edge(table: TableReader, name: str) -> int | None:
    edge = table.take(name)
    if isinstance(edge, bool) or not isinstance(edge, int) or not 0 <= edge < BUCKETS:
        table.report("E006", f"{name} must be a whole number from 0 to {BUCKETS - 1}", name)
        return None
    return edge
