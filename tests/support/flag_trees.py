"""Random manifests that lint finds nothing wrong with, their histories, and who asks for flags.

Names come from small pools, so that versions of a history share files, segments are used by several
flags, and subscriptions name flags that are there and flags that are not. Segments name only those
behind them in their pool: there are no cycles. Files that name a segment which is gone go as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

from headrace.flags.operators import OPERATORS
from headrace.flags.subscription import EVERY_FLAG, FlagSet
from headrace.flags.tree import (
    NAMESPACE_PATH,
    FileKind,
    flag_path,
    key_of,
    kind_of,
    segment_path,
)

FLAG_KEYS = ("a", "a-b", "ab", "b_2", "checkout", "z")
SEGMENT_KEYS = ("s0", "s1", "s1-x", "s2", "s3")
ENVIRONMENTS = ("prod", "stage")
ATTRIBUTES = ("plan", "user.id", "user.email", "age", "version", "tags", "beta", "deep.er.still")
ENTITIES = ("u1", "u2", "käthe", "")
PATHS = (NAMESPACE_PATH, *map(flag_path, FLAG_KEYS), *map(segment_path, SEGMENT_KEYS))

Files = dict[str, bytes]


class SourceFile(NamedTuple):
    """A file, and the segments that it names."""

    content: bytes
    uses: frozenset[str] = frozenset()


Edit = tuple[str, SourceFile | None]
"""What becomes of the file at a path; None: it is removed."""


def format_toml(value: object) -> str:
    """A value as TOML has it."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{', '.join(map(format_toml, value))}]"
        case dict():
            members = (f"{format_toml(key)} = {format_toml(each)}" for key, each in value.items())
            return f"{{{', '.join(members)}}}"
        case _:
            return repr(value)


def format_file(**tables: object) -> bytes:
    """A file with these members beside its schema version."""
    lines = ['schema_version = "0.1"']
    lines += (f"{name} = {format_toml(value)}" for name, value in tables.items())
    return "\n".join(lines).encode()


_TEXTS = (
    "",
    "a",
    "@example.com",
    "käthe",
    "\U0001f600",
    'q"\\',
    "-",
    "a.b",
    " ",
    "\u2028",
    "x" * 80,
)
_FLOATS = (0.0, -0.0, 0.5, 1.0, -2.5, 1e308, 5e-324, 2.0**53)
_WHOLE = (0, 1, -1, 3, 2**53 + 1, 2**63 - 1, -(2**63))
_VERSIONS = ("1.0.0", "1.0.0-rc.1", "1.0.0-rc.2", "0.9.12", "2.0.0+build", "1.0.0-alpha")
_SEMVER_OPS = tuple(f"semver_{op}" for op in ("eq", "gt", "gte", "lt", "lte"))


class ManifestMaker:
    """Makes files, manifests and contexts by chance, the same ones for the same seed.

    Drawing each value with hypothesis would take a hundred times as long.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def maybe(self) -> bool:
        return self.random.random() < 0.5

    def scalar(self) -> Any:
        pools = (_TEXTS, _FLOATS, _WHOLE, (True, False), ENTITIES)
        return self.random.choice(self.random.choice(pools))

    def json(self, depth: int = 3) -> Any:
        match self.random.randrange(4 if depth else 2):
            case 2:
                return [self.json(depth - 1) for _ in range(self.random.randrange(3))]
            case 3:
                keys = self.random.sample(_TEXTS, self.random.randrange(3))
                return {key: self.json(depth - 1) for key in keys}
            case _:
                return self.scalar()

    def value(self, flag_type: str) -> Any:
        """A value of a flag of this type."""
        match flag_type:
            case "boolean":
                return self.maybe()
            case "string":
                return self.random.choice(_TEXTS)
            case "integer":
                return self.random.choice(_WHOLE)
            case "float":
                return self.random.choice(_FLOATS)
            case _:
                return self.json()

    def predicate(self, segments: Sequence[str], depth: int = 3) -> dict[str, Any]:
        """A predicate that may name these segments."""
        match self.random.choice(["test", "test", "segment", "and", "or", "not"]):
            case "segment" if segments:
                return {"segment": self.random.choice(segments)}
            case "and" | "or" as op if depth:
                count = self.random.randint(1, 3)
                return {op: [self.predicate(segments, depth - 1) for _ in range(count)]}
            case "not" if depth:
                return {"not": self.predicate(segments, depth - 1)}
        return {"attribute": self.random.choice(ATTRIBUTES), **self._operator()}

    def _operator(self) -> dict[str, Any]:
        choice = self.random.choice
        op = choice(sorted(OPERATORS))
        if op in _SEMVER_OPS:
            return {"op": op, "value": choice(_VERSIONS)}
        if op in ("starts_with", "ends_with"):
            return {"op": op, "value": choice(_TEXTS)}
        if op in ("gt", "gte", "lt", "lte"):
            return {"op": op, "value": choice(choice((_TEXTS, _WHOLE, _FLOATS)))}
        if op in ("in", "not_in"):
            return {"op": op, "values": [self.scalar() for _ in range(self.random.randint(1, 4))]}
        if op == "is_set":
            return {"op": op, "value": self.maybe()} if self.maybe() else {"op": op}
        return {"op": op, "value": self.scalar()}

    def segment_file(self, key: str) -> SourceFile:
        behind = SEGMENT_KEYS[SEGMENT_KEYS.index(key) + 1 :]
        table: dict[str, Any] = {"description": self.random.choice(_TEXTS)}
        uses: frozenset[str] = frozenset()
        has_bucket = self.maybe()
        if not has_bucket or self.maybe():
            table["predicate"] = self.predicate(behind)
            uses = named_segments(table["predicate"])
        if has_bucket:
            start, end = sorted(self.random.choices(range(10_000), k=2))
            table["bucket"] = {"entity_id_attribute": "user.id", "start": start, "end": end}
            if self.maybe():
                table["bucket"]["salt"] = self.random.choice(_TEXTS)
        return SourceFile(format_file(segment=table), uses)

    def flag_file(self) -> SourceFile:
        flag_type = self.random.choice(["boolean", "string", "integer", "float", "json"])
        names = self.random.sample(["on", "off", "V2", "50.5"], self.random.randint(1, 4))
        environments: dict[str, Any] = {"_": {"variant": names[0]}}
        if self.maybe():
            environments["_"]["rules"] = self._rules(names)
        for name in ENVIRONMENTS:
            if self.maybe():
                environments[name] = self._environment(names)
        table = {
            "type": flag_type,
            "variants": {name: self.value(flag_type) for name in names},
            "environments": environments,
        }
        rules = [rule for block in environments.values() for rule in block.get("rules", ())]
        uses = (named_segments(rule.get("predicate", rule)) for rule in rules)
        return SourceFile(format_file(flag=table), frozenset().union(*uses))

    def _environment(self, variants: Sequence[str]) -> dict[str, Any]:
        block: dict[str, Any] = {}
        if self.maybe():
            block["variant"] = self.random.choice(variants)
        if self.maybe():
            block["rules"] = self._rules(variants)
        if self.maybe():
            block["testing"] = self.maybe()
        return block

    def _rules(self, variants: Sequence[str]) -> list[dict[str, Any]]:
        rules = []
        for _ in range(self.random.randrange(3)):
            rule: dict[str, Any] = {"variant": self.random.choice(variants)}
            if self.maybe():
                rule["segment"] = self.random.choice(SEGMENT_KEYS)
            else:
                rule["predicate"] = self.predicate(SEGMENT_KEYS)
            rules.append(rule)
        return rules

    def namespace_file(self) -> SourceFile:
        environments = {name: {"public_evaluate": self.maybe()} for name in ENVIRONMENTS}
        table = {
            "slug": "billing",
            "description": self.random.choice(_TEXTS),
            "environments": environments,
        }
        return SourceFile(format_file(namespace=table))

    def edit(self) -> Edit:
        """A file that is new, other than before, or gone."""
        path = self.random.choice(PATHS)
        return path, None if self.random.random() < 0.25 else self.file(path)

    def file(self, path: str) -> SourceFile:
        match kind_of(path):
            case FileKind.FLAG:
                return self.flag_file()
            case FileKind.SEGMENT:
                return self.segment_file(key_of(path))
            case _:
                return self.namespace_file()

    def tree(self) -> dict[str, SourceFile]:
        """A manifest, with most of the files that there may be."""
        made = [(path, self.file(path)) for path in PATHS if self.random.random() < 0.8]
        return apply_edits({}, made)

    def history(self, versions: int) -> list[Files]:
        """Versions of a manifest, one after the other; some are the same as the one before."""
        tree = self.tree()
        made = [contents(tree)]
        while len(made) < versions:
            tree = apply_edits(tree, [self.edit() for _ in range(self.random.randrange(4))])
            made.append(contents(tree))
        return made

    def context(self) -> dict[str, Any]:
        """Who a flag may be evaluated for: attributes that manifests ask for, and others."""
        context: dict[str, Any] = {}
        for name in (*ATTRIBUTES, "user", "deep"):
            if self.maybe():
                context[name] = self._attribute()
        if self.maybe():
            context["user"] = {"id": self._attribute(), "email": self._attribute()}
        if self.maybe():
            context["deep"] = {"er": {"still": self._attribute()}}
        return context

    def _attribute(self) -> Any:
        return self.random.choice((None, self.random.choice(_VERSIONS), self.json(2)))


def named_segments(predicate: Mapping[str, Any]) -> frozenset[str]:
    """Segments that a predicate, or a rule with one, names."""
    if "segment" in predicate:
        return frozenset([predicate["segment"]])
    inner = [*predicate.get("and", ()), *predicate.get("or", ())]
    inner += [predicate["not"]] if "not" in predicate else []
    return frozenset().union(*map(named_segments, inner))


def apply_edits(tree: Mapping[str, SourceFile], edits: Sequence[Edit]) -> dict[str, SourceFile]:
    """A manifest after some edits, without the files that name what is gone."""
    edited = dict(tree)
    for path, file in edits:
        if file is None:
            edited.pop(path, None)
        else:
            edited[path] = file
    while True:
        whole = {
            path: file
            for path, file in edited.items()
            if all(segment_path(segment) in edited for segment in file.uses)
        }
        if len(whole) == len(edited):
            return whole
        edited = whole


def contents(tree: Mapping[str, SourceFile]) -> Files:
    return {path: file.content for path, file in tree.items()}


def makers() -> st.SearchStrategy[ManifestMaker]:
    return st.integers(0, 2**32 - 1).map(ManifestMaker)


def trees() -> st.SearchStrategy[Files]:
    """Manifests: their files by path."""
    return makers().map(lambda maker: contents(maker.tree()))


def histories(versions_max: int = 5) -> st.SearchStrategy[list[Files]]:
    """Versions of a manifest, one after the other."""
    return st.builds(ManifestMaker.history, makers(), st.integers(1, versions_max))


def contexts() -> st.SearchStrategy[dict[str, Any]]:
    """Who a flag may be evaluated for."""
    return makers().map(ManifestMaker.context)


def flag_sets() -> st.SearchStrategy[FlagSet]:
    """What may be subscribed to: all flags, or some, which need not exist."""
    keys = st.sets(st.sampled_from((*FLAG_KEYS, "missing")), min_size=1, max_size=4)
    return st.just(EVERY_FLAG) | keys.map(lambda keys: FlagSet(tuple(sorted(keys))))


def large_tree(flags: int = 1000, segments: int = 200) -> Files:
    """A manifest of a size that people have: every flag has a rule for a segment, and every tenth
    segment names another one.
    """
    tree = {NAMESPACE_PATH: format_file(namespace={"slug": "large"})}
    for n in range(segments):
        predicate: dict[str, Any] = {
            "attribute": "user.email", "op": "ends_with", "value": f"@{n}.example"
        }  # fmt: skip
        if n % 10 == 9:
            predicate = {"or": [predicate, {"segment": f"segment-{n - 1}"}]}
        tree[segment_path(f"segment-{n}")] = format_file(segment={"predicate": predicate})
    for n in range(flags):
        rules = [{"segment": f"segment-{n % segments}", "variant": "on"}] if segments else []
        tree[flag_path(f"flag-{n}")] = format_file(
            flag={
                "type": "boolean",
                "variants": {"on": True, "off": False},
                "environments": {"_": {"variant": "off", "rules": rules}},
            }
        )
    return tree


def naive_closure(files: Files, flags: FlagSet) -> set[str]:
    """Paths of a closure, found by looking for the names of segments in all of the text."""
    wanted = {path for path in files if path.startswith("flags/")}
    if flags.keys is not None:
        wanted &= {flag_path(key) for key in flags.keys}
    reached = {path for path in files if path.startswith("segments/") and flags.keys is None}
    ahead = list(wanted)
    while ahead:
        text = files[ahead.pop()]
        for path in files.keys() - reached:
            key = path.removeprefix("segments/").removesuffix(".toml")
            if path.startswith("segments/") and b'"segment" = "%s"' % key.encode() in text:
                reached.add(path)
                ahead.append(path)
    return wanted | reached | ({NAMESPACE_PATH} & files.keys())
