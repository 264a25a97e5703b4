"""Tag predicates: exact, or a literal prefix followed by one star."""

from __future__ import annotations

import msgspec

from headrace.core.errors import Code, Refused


class TagEq(msgspec.Struct, frozen=True, tag="Eq"):
    tag: str

    def matches(self, tag: str | None) -> bool:
        return tag == self.tag


class TagPrefix(msgspec.Struct, frozen=True, tag="Prefix"):
    prefix: str

    def matches(self, tag: str | None) -> bool:
        return tag is not None and tag.startswith(self.prefix)


TagMatch = TagEq | TagPrefix


def parse_match(value: object) -> TagMatch:
    """`"X"`, `"X*"`, `["tag","Eq","X"]` or `["tag","Glob","X*"]`."""
    match value:
        case str() if value.endswith("*"):
            return parse_match(["tag", "Glob", value])
        case str():
            return TagEq(value)
        case ["tag", "Eq", str() as tag]:
            return TagEq(tag)
        case ["tag", "Glob", str() as glob] if glob.endswith("*") and "*" not in glob[:-1]:
            return TagPrefix(glob[:-1])
        case ["tag", "Glob", str()]:
            raise Refused(Code.INVALID, "a Glob is a literal prefix followed by a single *")
        case ["tag", str() as op, _] if op not in ("Eq", "Glob"):
            raise Refused(Code.INVALID, f"match knows Eq and Glob, not {op[:50]!r}")
    raise Refused(Code.INVALID, 'match is a tag, ["tag","Eq","X"] or ["tag","Glob","X*"]')


def format_match(match: TagMatch) -> list[str]:
    """The predicate as a tuple, whichever way it was written."""
    match match:
        case TagEq(tag=tag):
            return ["tag", "Eq", tag]
        case TagPrefix(prefix=prefix):
            return ["tag", "Glob", prefix + "*"]
