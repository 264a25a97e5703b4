"""Evaluation: which value of a flag somebody gets, by what is known of them.

Nothing in a context fails an evaluation: what cannot be compared does not match. A context is asked
for an attribute as a flat key first (`"user.email"`), then as a path through its objects
(`user`, in it `email`); null is as good as not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from headrace.core.errors import refuse_invalid
from headrace.core.limits import (
    CONTEXT_DEPTH_MAX,
    CONTEXT_TEXT_MAX,
    CONTEXT_VALUE_LENGTH_MAX,
    CONTEXT_VALUES_MAX,
    ENTITY_ID_LENGTH_MAX,
)
from headrace.flags.model import (
    ANY_ENVIRONMENT,
    BUCKETS,
    AttributeTest,
    Bucket,
    Conjunction,
    Disjunction,
    EnvironmentRules,
    FlagDefinition,
    NamespaceDefinition,
    Negation,
    ParsedFile,
    Predicate,
    SegmentDefinition,
    SegmentTest,
)
from headrace.flags.operators import passes, prepare

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_U64 = (1 << 64) - 1
_NO_RULES = EnvironmentRules()
DEFAULT_MATCHED = "default"
"""What matched where no rule did."""


class Definitions(msgspec.Struct, frozen=True):
    """What a manifest, or a closure of one, defines."""

    flags: Mapping[str, FlagDefinition]
    segments: Mapping[str, SegmentDefinition]
    namespace: NamespaceDefinition | None = None

    @classmethod
    def of(cls, parsed: Iterable[ParsedFile]) -> Definitions:
        """Of files that lint found nothing wrong with."""
        flags: dict[str, FlagDefinition] = {}
        segments: dict[str, SegmentDefinition] = {}
        namespace = None
        for file in parsed:
            match file.definition:
                case FlagDefinition() as flag:
                    flags[flag.key] = flag
                case SegmentDefinition() as segment:
                    segments[segment.key] = segment
                case NamespaceDefinition():
                    namespace = file.definition
        return cls(flags, segments, namespace)


class Evaluation(msgspec.Struct, frozen=True):
    """What somebody gets of a flag, and why."""

    value: Any
    variant: str
    rule_matched: str
    """`rule:` and the number of the rule in its block, from 0; or `default`."""


class UnknownFlag(Exception):
    """There is no flag with this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no flag {key[:80]!a}")
        self.key = key


def evaluate(
    definitions: Definitions,
    flag: str,
    context: Mapping[str, Any],
    environment: str | None = None,
    testing: bool = False,
) -> Evaluation:
    """What a flag is for somebody. `testing`: rules that are only tried out count as well."""
    found = definitions.flags.get(flag)
    if found is None:
        raise UnknownFlag(flag)
    return ContextEvaluator(definitions, context, environment, testing).evaluate(found)


def evaluate_all(
    definitions: Definitions,
    context: Mapping[str, Any],
    environment: str | None = None,
    testing: bool = False,
) -> dict[str, Evaluation]:
    """What all flags are for somebody, by key; a segment is decided once for all of them."""
    evaluator = ContextEvaluator(definitions, context, environment, testing)
    return {key: evaluator.evaluate(flag) for key, flag in sorted(definitions.flags.items())}


def check_context(context: object) -> Mapping[str, Any]:
    """A context that anybody may have sent; refuses what is none, too large or too deep."""
    if not isinstance(context, dict):
        refuse_invalid("context must be an object")
    values = texts = 0
    ahead: list[tuple[object, int]] = [(context, 1)]
    while ahead:
        value, depth = ahead.pop()
        if depth > CONTEXT_DEPTH_MAX:
            refuse_invalid(f"context is nested deeper than {CONTEXT_DEPTH_MAX}")
        match value:
            case dict():
                texts += sum(map(len, value))
                inner = list(value.values())
            case list():
                inner = value
            case str():
                if len(value) > CONTEXT_VALUE_LENGTH_MAX:
                    refuse_invalid(
                        f"a text in context has more than {CONTEXT_VALUE_LENGTH_MAX} characters"
                    )
                texts += len(value)
                continue
            case _:
                continue
        values += len(inner)
        if values > CONTEXT_VALUES_MAX:
            refuse_invalid(f"context has more than {CONTEXT_VALUES_MAX} values")
        ahead.extend((each, depth + 1) for each in inner)
    if texts > CONTEXT_TEXT_MAX:
        refuse_invalid(f"context has more than {CONTEXT_TEXT_MAX} characters")
    return context


def bucket_of(salt: str, value: str) -> int:
    """In which bucket an entity is: the 64-bit FNV-1a hash of `salt:value`, modulo 10,000."""
    state = _FNV_OFFSET
    for byte in f"{salt}:{value}".encode("utf-8", "surrogatepass"):
        state = ((state ^ byte) * _FNV_PRIME) & _U64
    return state % BUCKETS


class ContextEvaluator:
    """Evaluates flags for one context; what it found out about it is kept for the next flag."""

    __slots__ = ("_context", "_environment", "_found", "_known", "_segments", "_testing")

    def __init__(
        self,
        definitions: Definitions,
        context: Mapping[str, Any],
        environment: str | None = None,
        testing: bool = False,
    ) -> None:
        self._segments = definitions.segments
        self._context = context
        self._environment = environment
        self._testing = testing
        self._found: dict[str, Any] = {}
        """Attributes by name, prepared for tests; None: not set."""
        self._known: dict[str, bool] = {}
        """Segments that were decided."""

    def evaluate(self, flag: FlagDefinition) -> Evaluation:
        """What a flag is for this context.

        In this order: rules of the environment, unless it is only testing and that is not wanted;
        its variant; rules of `_`, if the environment declared none at all; the variant of `_`.
        """
        default = flag.environments[ANY_ENVIRONMENT]
        named = _NO_RULES
        if self._environment is not None and self._environment != ANY_ENVIRONMENT:
            named = flag.environments.get(self._environment, _NO_RULES)
        matched = None
        if not named.testing or self._testing:
            matched = self._first_match(named)
        if matched is None and named.variant is not None:
            matched = named.variant, DEFAULT_MATCHED
        if matched is None and named.rules is None:
            matched = self._first_match(default)
        if matched is None:
            assert default.variant is not None, "lint: E038"
            matched = default.variant, DEFAULT_MATCHED
        variant, rule = matched
        return Evaluation(flag.variants[variant], variant, rule)

    def _first_match(self, block: EnvironmentRules) -> tuple[str, str] | None:
        for index, rule in enumerate(block.rules or ()):
            self._decide(_segments_in(rule.predicate))
            if self._holds(rule.predicate):
                return rule.variant, f"rule:{index}"
        return None

    def _decide(self, keys: Iterable[str]) -> None:
        """Decide on segments, those that they name before them: however long the chain is, and
        each once. One that does not exist, or needs itself, has nobody in it.
        """
        ahead = [key for key in keys if key not in self._known]
        entered: set[str] = set()
        while ahead:
            key = ahead[-1]
            segment = self._segments.get(key)
            if key not in self._known and key not in entered and segment is not None:
                entered.add(key)
                if segment.predicate is not None:
                    ahead.extend(
                        used
                        for used in _segments_in(segment.predicate)
                        if used not in self._known and used not in entered
                    )
                continue
            ahead.pop()
            if key not in self._known:
                self._known[key] = segment is not None and self._is_in(segment)

    def _is_in(self, segment: SegmentDefinition) -> bool:
        """Whether the context is in a segment; those that it names have been decided on."""
        return (segment.predicate is None or self._holds(segment.predicate)) and (
            segment.bucket is None or self._is_in_bucket(segment.bucket)
        )

    def _holds(self, predicate: Predicate) -> bool:
        match predicate:
            case AttributeTest():
                return passes(predicate, self._attribute(predicate.attribute))
            case SegmentTest():
                return self._known.get(predicate.segment, False)
            case Conjunction():
                return all(map(self._holds, predicate.terms))
            case Disjunction():
                return any(map(self._holds, predicate.terms))
            case Negation():
                return not self._holds(predicate.term)

    def _is_in_bucket(self, bucket: Bucket) -> bool:
        """Whether the entity is in a bucket: only texts and whole numbers identify one."""
        entity = self._attribute(bucket.entity_id_attribute)
        if isinstance(entity, int) and not isinstance(entity, bool):
            entity = _format_whole(entity)
        if not isinstance(entity, str) or len(entity) > ENTITY_ID_LENGTH_MAX:
            return False
        return bucket.start <= bucket_of(bucket.salt, entity) <= bucket.end

    def _attribute(self, name: str) -> Any:
        if name not in self._found:
            self._found[name] = prepare(_look_up(self._context, name))
        return self._found[name]


def _look_up(context: Mapping[str, Any], name: str) -> Any:
    """An attribute of a context; None if it is not set."""
    if name in context:
        return context[name]
    value: Any = context
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def _format_whole(number: int) -> str | None:
    """A whole number in digits; None for one that is too long for Python to write."""
    return str(number) if number.bit_length() <= 64 else None


def _segments_in(predicate: Predicate) -> Iterator[str]:
    """Segments that a predicate names."""
    match predicate:
        case SegmentTest():
            yield predicate.segment
        case Conjunction() | Disjunction():
            for term in predicate.terms:
                yield from _segments_in(term)
        case Negation():
            yield from _segments_in(predicate.term)
