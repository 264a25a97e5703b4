"""Lint: whether files are a manifest, and everything that is wrong if they are not.

| Code | Problem |
|---|---|
| E001 | `schema_version` is missing or not understood |
| E005 | a segment that does not exist |
| E006 | a bucket outside of 0 to 9999, or that ends before it starts |
| E010 | an environment that `namespace.toml` does not declare (any will do without that file) |
| E011 | a segment without predicate and bucket |
| E014 | a flag of no type, or a variant that is not of its type |
| E016 | an unknown field |
| E018 | a link in an archive |
| E032 | a name that is no key (of a flag or segment), slug, environment or variant |
| E036 | a rule with both of segment and predicate, or with neither |
| E037, E038, E039 | a flag without `_`; `_` without a variant; `_` with `testing` |
| W004 | a bucket without salt |
| H001 | no TOML, too large, too deep; a field of the wrong type, or one that is missing |
| H002 | segments that need each other |
| H003 | a variant that the flag does not have |
| H004 | an operator that does not exist, or an operand that it does not take; too many predicates |

E and W are the protocol's codes, H our own. Errors refuse a manifest, warnings do not.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from headrace.core.limits import LINT_PROBLEMS_MAX, LINT_TEXT_MAX, MANIFEST_TERMS_MAX
from headrace.flags.closure import SegmentGraph
from headrace.flags.model import LintProblem, LintReport, NamespaceDefinition, ParsedFile
from headrace.flags.parsing import parse_file
from headrace.flags.table_reader import shown
from headrace.flags.tree import NAMESPACE_PATH, path_bytes, segment_path


def lint_files(tree: Mapping[str, bytes]) -> tuple[LintReport, dict[str, ParsedFile]]:
    """Lint of files by path, which are taken apart for that."""
    parsed = {path: parse_file(path, content) for path, content in tree.items()}
    return lint_tree(parsed), parsed


def lint_tree(parsed: Mapping[str, ParsedFile]) -> LintReport:
    """Lint of files that were taken apart, by path."""
    files = [parsed[path] for path in sorted(parsed, key=path_bytes)]
    shown_of_files = [problem for file in files for problem in file.problems]
    between = chain(
        _unknown_segments(files, parsed),
        _unknown_environments(files, parsed),
        _cycles(SegmentGraph.of(parsed).segments),
        _too_many_terms(files),
    )
    errors = chain((each for each in shown_of_files if each.is_error), between)
    warnings = (each for each in shown_of_files if not each.is_error)
    foreign = (file.unsupported_version for file in files)
    return LintReport(
        _first(errors),
        _first(warnings),
        next((version for version in foreign if version is not None), None),
    )


def _first(problems: Iterable[LintProblem]) -> tuple[LintProblem, ...]:
    """So many problems as are told, by path."""
    told = islice(problems, LINT_PROBLEMS_MAX)
    return tuple(sorted(told, key=lambda problem: path_bytes(problem.path)))


def _unknown_segments(files: Sequence[ParsedFile], paths: Container[str]) -> Iterator[LintProblem]:
    for file in files:
        for reference in file.references:
            if segment_path(reference.segment) not in paths:
                message = f"there is no segment {shown(reference.segment)}"
                yield LintProblem("E005", message, file.path, reference.location)


def _unknown_environments(
    files: Sequence[ParsedFile], parsed: Mapping[str, ParsedFile]
) -> Iterator[LintProblem]:
    namespace = parsed.get(NAMESPACE_PATH)
    if namespace is None or not isinstance(namespace.definition, NamespaceDefinition):
        return  # any will do, or it is not known which
    for file in files:
        for name in file.environments_used:
            if name not in namespace.definition.environments:
                message = f"{NAMESPACE_PATH} declares no environment {shown(name)}"
                yield LintProblem("E010", message, file.path, f"flag.environments.{name}")


def _too_many_terms(files: Sequence[ParsedFile]) -> Iterator[LintProblem]:
    """A problem of the file with which there are more predicates than a manifest may have."""
    terms = 0
    for file in files:
        terms += file.terms
        if terms > MANIFEST_TERMS_MAX:
            message = f"a manifest has at most {MANIFEST_TERMS_MAX} predicates"
            yield LintProblem("H004", message, file.path)
            return


def _cycles(segments: Mapping[str, tuple[str, ...]]) -> Iterator[LintProblem]:
    """A problem for each way back to a segment that was come from, walking as deep as it goes."""
    done: set[str] = set()
    for first in sorted(segments):
        if first in done:
            continue
        ahead: list[tuple[str, Iterator[str]]] = [(first, iter(segments[first]))]
        way = {first: 0}
        while ahead:
            key, used = ahead[-1]
            segment = next(used, None)
            if segment is None:
                ahead.pop()
                del way[key]
                done.add(key)
            elif segment in way:
                yield _cycle([key for key, _ in ahead[way[segment] :]])
            elif segment in segments and segment not in done:
                way[segment] = len(ahead)
                ahead.append((segment, iter(segments[segment])))


def _cycle(keys: Iterable[str]) -> LintProblem:
    first, *others = keys
    message = f"segments need each other: {' -> '.join([first, *others, first])}"
    return LintProblem("H002", message[:LINT_TEXT_MAX], segment_path(first), "segment.predicate")
