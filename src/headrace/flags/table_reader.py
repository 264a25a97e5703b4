"""Reading tables of TOML: fields of the type that is wanted; whatever is wrong is noted, and
reading goes on, so that people are told everything at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.core.limits import LINT_FILE_PROBLEMS_MAX, LINT_TEXT_MAX
from headrace.flags.model import LintProblem, SegmentReference

_NAME_SHOWN = 80
_MISSING = object()


class Findings:
    """What reading one file found beside its definition."""

    __slots__ = ("has_errors", "path", "problems", "references", "terms")

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[LintProblem] = []
        """Not all of them if there are very many."""
        self.references: dict[str, SegmentReference] = {}
        """Segments that are named, and where for the first time."""
        self.terms = 0
        """Predicates, those inside of others too."""
        self.has_errors = False

    def add(self, code: str, message: str, location: str = "") -> None:
        """Note a problem."""
        problem = LintProblem(code, message[:LINT_TEXT_MAX], self.path, location[:LINT_TEXT_MAX])
        self.has_errors |= problem.is_error
        if len(self.problems) < LINT_FILE_PROBLEMS_MAX:
            self.problems.append(problem)

    def refer(self, segment: str, location: str) -> None:
        """Note that a segment is named."""
        if segment not in self.references:
            self.references[segment] = SegmentReference(segment, location[:LINT_TEXT_MAX])


def shown(name: str) -> str:
    """A name from a file as messages have it."""
    return ascii(name[:_NAME_SHOWN])


class TableReader:
    """One table: its fields are taken by name, and those that nobody took are not known."""

    __slots__ = ("_raw", "findings", "location")

    def __init__(self, findings: Findings, raw: dict[str, Any], location: str) -> None:
        self.findings = findings
        self.location = location
        self._raw = dict(raw)

    def at(self, name: str | int) -> str:
        """Where a field of this table is."""
        return f"{self.location}.{name}" if self.location else str(name)

    def report(self, code: str, message: str, name: str | None = None) -> None:
        """Note a problem of the table, or of one of its fields."""
        self.findings.add(code, message, self.location if name is None else self.at(name))

    def has(self, name: str) -> bool:
        """Whether a field is there and was not taken."""
        return name in self._raw

    def take(self, name: str) -> Any:
        """A field of any type; None if it is not there: TOML has no null."""
        return self._raw.pop(name, None)

    def text(self, name: str) -> str | None:
        """A string; None if there is none."""
        value = self._raw.pop(name, _MISSING)
        if value is _MISSING:
            return None
        if not isinstance(value, str):
            self.report("H001", f"{shown(name)} must be a string", name)
            return None
        return value

    def boolean(self, name: str) -> bool:
        """True or false; false if there is none."""
        value = self._raw.pop(name, False)
        if not isinstance(value, bool):
            self.report("H001", f"{shown(name)} must be true or false", name)
            return False
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """An array of strings; empty if there is none."""
        value = self._raw.pop(name, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            self.report("H001", f"{shown(name)} must be an array of strings", name)
            return ()
        return tuple(value)

    def table(self, name: str) -> TableReader | None:
        """A table; None if there is none."""
        value = self._raw.pop(name, _MISSING)
        if value is _MISSING:
            return None
        return self._reader(value, name)

    def tables(self, name: str) -> list[TableReader] | None:
        """An array of tables; None if there is none."""
        value = self._raw.pop(name, _MISSING)
        if value is _MISSING:
            return None
        if not isinstance(value, list):
            self.report("H001", f"{shown(name)} must be an array of tables", name)
            return []
        readers = (self._reader(each, f"{name}.{index}") for index, each in enumerate(value))
        return [reader for reader in readers if reader is not None]

    def named_tables(self) -> Iterator[tuple[str, TableReader]]:
        """All fields, each of which is a table of a name that users chose."""
        for name in list(self._raw):
            reader = self.table(name)
            if reader is not None:
                yield name, reader

    def rest(self) -> dict[str, Any]:
        """All fields that were not taken, which are taken with that."""
        rest, self._raw = self._raw, {}
        return rest

    def end(self) -> None:
        """Nothing else was expected: note the fields that are left."""
        for name in self._raw:
            self.report("E016", f"unknown field {shown(name)}", name)

    def _reader(self, value: object, name: str) -> TableReader | None:
        if not isinstance(value, dict):
            self.report("H001", f"{shown(name)} must be a table", name)
            return None
        return TableReader(self.findings, value, self.at(name))
