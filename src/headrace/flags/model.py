"""What the files of a manifest define. Values that msgpack carries from one process to another."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Scalar = bool | int | float | str
FlagType = Literal["boolean", "string", "integer", "float", "json"]
Lifecycle = Literal["development", "active", "retired"]
Operator = Literal[
    "eq", "neq", "gt", "gte", "lt", "lte", "in", "not_in", "contains", "not_contains",
    "starts_with", "ends_with", "semver_eq", "semver_gt", "semver_gte", "semver_lt", "semver_lte",
    "is_set",
]  # fmt: skip

ANY_ENVIRONMENT = "_"
"""The block of a flag that counts where no named environment says otherwise."""
BUCKETS = 10_000
"""Into so many buckets entities are divided, numbered from 0."""


class AttributeTest(msgspec.Struct, frozen=True, tag="attribute"):
    """Compares an attribute of the context with what is written in the manifest."""

    attribute: str
    op: Operator
    value: Scalar | None = None
    """None: the operator takes several, or none."""
    values: tuple[Scalar, ...] = ()
    """Of `in` and `not_in`: each once, sorted by kind and value."""


class SegmentTest(msgspec.Struct, frozen=True, tag="segment"):
    """Asks whether the context is in a segment."""

    segment: str


class Conjunction(msgspec.Struct, frozen=True, tag="and"):
    """All of these."""

    terms: tuple[Predicate, ...]


class Disjunction(msgspec.Struct, frozen=True, tag="or"):
    """At least one of these."""

    terms: tuple[Predicate, ...]


class Negation(msgspec.Struct, frozen=True, tag="not"):
    """Not this."""

    term: Predicate


Predicate = AttributeTest | SegmentTest | Conjunction | Disjunction | Negation


class Bucket(msgspec.Struct, frozen=True):
    """A share of all entities, picked by a hash of what identifies them."""

    entity_id_attribute: str
    salt: str
    start: int
    end: int
    """The last one, which is included."""


class TargetingRule(msgspec.Struct, frozen=True):
    """Who gets which variant: those whom the predicate is true of."""

    predicate: Predicate
    """A rule that names a segment asks for that segment."""
    variant: str
    description: str = ""


class EnvironmentRules(msgspec.Struct, frozen=True):
    """What a flag is in one environment, or by default."""

    variant: str | None = None
    """None: the environment says nothing of it."""
    rules: tuple[TargetingRule, ...] | None = None
    """None: no rules were declared, which is not the same as none at all."""
    testing: bool = False


class FlagDefinition(msgspec.Struct, frozen=True, tag_field="kind", tag="flag"):
    """A flag: its values by variant, and who gets which of them."""

    key: str
    type: FlagType
    variants: dict[str, Any]
    environments: dict[str, EnvironmentRules]
    description: str = ""
    owner: str = ""
    lifecycle: Lifecycle | None = None
    tags: tuple[str, ...] = ()
    private_attributes: tuple[str, ...] = ()


class SegmentDefinition(msgspec.Struct, frozen=True, tag_field="kind", tag="segment"):
    """A segment: those whom its predicate is true of and who are in its bucket."""

    key: str
    predicate: Predicate | None = None
    bucket: Bucket | None = None
    description: str = ""


class EnvironmentDefinition(msgspec.Struct, frozen=True):
    """A named environment of a namespace."""

    display_name: str = ""
    public_evaluate: bool = False


class NamespaceDefinition(msgspec.Struct, frozen=True, tag_field="kind", tag="namespace"):
    """What `namespace.toml` says; it may be missing, and then any environment may be named."""

    slug: str | None = None
    environments: dict[str, EnvironmentDefinition] = {}
    display_name: str = ""
    description: str = ""
    telemetry_enabled: bool = False
    private_attributes: tuple[str, ...] = ()
    raw_entity_ids: bool = False


Definition = FlagDefinition | SegmentDefinition | NamespaceDefinition


class LintProblem(msgspec.Struct, frozen=True):
    """What is wrong with a manifest, or might be."""

    code: str
    """E and H for errors, W for warnings; H are our own."""
    message: str
    path: str
    location: str = ""
    """Dotted path inside the file; empty if the whole file is meant."""

    @property
    def is_error(self) -> bool:
        """Whether a manifest with this problem is refused."""
        return not self.code.startswith("W")


class LintReport(msgspec.Struct, frozen=True):
    """What is wrong with a manifest: problems by path, those of a file in its order."""

    errors: tuple[LintProblem, ...] = ()
    warnings: tuple[LintProblem, ...] = ()
    """Of both, only the first ones if there are very many."""
    unsupported_version: str | None = None
    """A schema version whose major number is not ours, if any file has one."""

    @property
    def is_clean(self) -> bool:
        """Whether the files are a manifest."""
        return not self.errors


class SegmentReference(msgspec.Struct, frozen=True):
    """A segment that a file names, and where for the first time."""

    segment: str
    location: str


class ParsedFile(msgspec.Struct, frozen=True):
    """One file, taken apart, with the problems that it shows by itself."""

    path: str
    definition: Definition | None = None
    """None: there are errors in the file."""
    problems: tuple[LintProblem, ...] = ()
    references: tuple[SegmentReference, ...] = ()
    """Segments that it names, each once, in the order of the file; errors in it hide none."""
    environments_used: tuple[str, ...] = ()
    """Environments that a flag names, `_` not among them."""
    terms: int = 0
    """Predicates in the file, those inside of others too."""
    unsupported_version: str | None = None
    """A schema version whose major number is not ours: nothing else of the file was read."""

    @property
    def segments_used(self) -> tuple[str, ...]:
        """Segments that it names, each once, sorted."""
        return tuple(sorted(reference.segment for reference in self.references))
