"""A YAML file as nodes that know their file, line and key, so that a problem says where it is.

What a configuration needs of YAML, and no more: mappings, lists and scalars of the core schema of
YAML 1.2 (`yes` is a word). Anchors, aliases and tags are refused: none is needed, and aliases make
a small file a large one. Built from events, one by one, so that depth is bounded as they come.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, TypeVar

import msgspec

from headrace.core.limits import (
    CONFIGURATION_BYTES_MAX,
    CONFIGURATION_DEPTH_MAX,
    CONFIGURATION_TEXT_MAX,
)
from headrace.core.names import has_controls
from headrace.surfaces.notifications.handlers import parse_float, parse_int

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_URL = re.compile(r"https?://[^\s/?#@\\]+(?:/[^\s?#\\]*)?", re.IGNORECASE)
_LINE_BREAKS = re.compile(r"\s*[\r\n]\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHOWN = 80

W = TypeVar("W", bound=str)


class ConfigurationError(ValueError):
    """A configuration file that no server should start with; says where, on one line."""

    def __init__(self, file: str, line: int | None, key: str, problem: str) -> None:
        where = file if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {key}: {problem}" if key else f"{where}: {problem}")
        self.file = file
        self.line = line
        self.key = key
        self.problem = problem


class ConfigurationNode(msgspec.Struct):
    """A value in the file, and where it is."""

    file: str
    line: int
    key: str
    """The keys on the way to it, joined by dots."""
    content: dict[str, ConfigurationNode] | list[ConfigurationNode] | str
    plain: bool = False
    """Whether a scalar is without quotes, and may be a number."""

    def error(self, problem: str) -> ConfigurationError:
        """What is wrong with this value, and where it is."""
        return ConfigurationError(self.file, self.line, self.key, problem)

    def fail(self, problem: str) -> NoReturn:
        """Refuse to start because of this value."""
        raise self.error(problem)

    @property
    def empty(self) -> bool:
        """Whether nothing is given: a key alone, or null."""
        return isinstance(self.content, str) and self.plain and self.content in _NULL

    def members(self, *known: str) -> dict[str, ConfigurationNode]:
        """The values by key; refuses a key that is not known, where any are."""
        if self.empty:
            return {}
        if not isinstance(self.content, dict):
            self.fail("is not a mapping")
        for name, node in self.content.items():
            if known and name not in known:
                node.fail(f"is not a key here; there are {', '.join(known)}")
        return self.content

    def need(self, name: str) -> ConfigurationNode:
        """A value that must be there."""
        found = self.members().get(name)
        if found is None or found.empty:
            self.fail(f"has no {name}")
        return found

    def items(self, most: int) -> list[ConfigurationNode]:
        """The values of a list."""
        if not isinstance(self.content, list):
            self.fail("is not a list")
        if len(self.content) > most:
            self.fail(f"has more than {most} items")
        return self.content

    def text(self, most: int = CONFIGURATION_TEXT_MAX) -> str:
        """A text that is not empty; a number without quotes is the text it is written as."""
        if not isinstance(self.content, str) or self.empty or not self.content:
            self.fail("is not a text")
        if len(self.content) > most:
            self.fail(f"has more than {most} characters")
        if has_controls(self.content) or _SURROGATE.search(self.content):
            self.fail("has control characters")
        return self.content

    def url(self) -> str:
        """An address of HTTP, without a slash at its end."""
        text = self.text()
        if not text.isascii() or _URL.fullmatch(text) is None:
            self.fail("is not an address as https://notifications.example.org")
        return text.rstrip("/")

    def whole(self, least: int, most: int) -> int:
        """A whole number between two bounds, both included."""
        number = parse_int(self.content) if self.plain and isinstance(self.content, str) else None
        if number is None or not least <= number <= most:
            self.fail(f"is not a whole number from {least} to {most}")
        return number

    def number(self) -> float:
        """A finite number."""
        number = parse_float(self.content) if self.plain and isinstance(self.content, str) else None
        if number is None:
            self.fail("is not a finite number")
        return number

    def switch(self) -> bool:
        """True or false."""
        if self.plain and isinstance(self.content, str):
            if self.content in _TRUE:
                return True
            if self.content in _FALSE:
                return False
        raise self.error("is not true or false")

    def choice(self, *words: W) -> W:
        """One of these words."""
        text = self.text()
        for word in words:
            if word == text:
                return word
        raise self.error(f"is not {' or '.join(words)}")


def parse_yaml(raw: bytes, file: str) -> ConfigurationNode:
    """The one document of a file; raises `ConfigurationError`."""
    import yaml  # only who has a file pays for it

    if len(raw) > CONFIGURATION_BYTES_MAX:
        raise ConfigurationError(file, None, "", f"has more than {CONFIGURATION_BYTES_MAX} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(file, None, "", "is not UTF-8") from None
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where it was built
    try:
        return _TreeBuilder(file, yaml.events).build(yaml.parse(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = _flatten(error.problem or "is not YAML")
        if "cannot start any token" in problem and "\t" in text:
            problem += "; YAML is indented with spaces, not with tabs"
        line = None if mark is None else mark.line + 1
        raise ConfigurationError(file, line, "", problem) from None
    except yaml.YAMLError as error:  # a character that YAML does not have
        raise ConfigurationError(file, None, "", _flatten(str(error))) from None


def _flatten(problem: str) -> str:
    return _LINE_BREAKS.sub("; ", problem)[:200]


class _TreeBuilder:
    """Makes nodes of the events of a parser."""

    def __init__(self, file: str, kinds: Any) -> None:
        self._file = file
        self._kinds = kinds
        """The classes of events: the module of PyYAML that has them."""

    def build(self, events: Iterable[Any]) -> ConfigurationNode:
        kinds = self._kinds
        root = ConfigurationNode(self._file, 1, "", {})
        stack: list[tuple[ConfigurationNode, str | None]] = []
        """Collections that are not at their end, and the key whose value comes next in each."""
        documents = 0
        for event in self._check(events):
            line = event.start_mark.line + 1
            if isinstance(event, kinds.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise ConfigurationError(self._file, line, "", "is more than one document")
            elif isinstance(event, kinds.CollectionEndEvent):
                stack.pop()
            elif isinstance(event, kinds.NodeEvent):
                if stack and isinstance(stack[-1][0].content, dict) and stack[-1][1] is None:
                    stack[-1] = (stack[-1][0], self._read_key(stack[-1][0], event, line))
                    continue
                node = self._node(event, line, stack)
                if not stack:
                    root = node
                if isinstance(event, kinds.CollectionStartEvent):
                    if len(stack) >= CONFIGURATION_DEPTH_MAX:
                        node.fail(f"is more than {CONFIGURATION_DEPTH_MAX} levels deep")
                    stack.append((node, None))
        return root

    def _node(
        self, event: Any, line: int, stack: list[tuple[ConfigurationNode, str | None]]
    ) -> ConfigurationNode:
        """A node for what begins here, in its place in the collection around it."""
        kinds = self._kinds
        content: Any
        plain = False
        if isinstance(event, kinds.MappingStartEvent):
            content = {}
        elif isinstance(event, kinds.SequenceStartEvent):
            content = []
        else:
            content, plain = event.value, event.implicit[0]
        if not stack:
            return ConfigurationNode(self._file, line, "", content, plain)
        parent, name = stack[-1]
        if isinstance(parent.content, list):
            key = f"{parent.key}[{len(parent.content)}]"
            node = ConfigurationNode(self._file, line, key, content, plain)
            parent.content.append(node)
        else:
            assert isinstance(parent.content, dict)
            assert name is not None
            node = parent.content[name]
            node.content, node.plain = content, plain
            stack[-1] = (parent, None)
        return node

    def _read_key(self, parent: ConfigurationNode, event: Any, line: int) -> str:
        """A key of a mapping; its node, which is at the line of the key, waits for its value."""
        kinds = self._kinds
        assert isinstance(parent.content, dict)
        if not isinstance(event, kinds.ScalarEvent):
            raise ConfigurationError(self._file, line, parent.key, "has a key that is not a text")
        name: str = event.value
        shown = ascii(name[:_SHOWN])[1:-1]
        key = f"{parent.key}.{shown}" if parent.key else shown
        if name in parent.content:
            raise ConfigurationError(self._file, line, key, "is there twice")
        parent.content[name] = ConfigurationNode(self._file, line, key, "", plain=True)
        return name

    def _check(self, events: Iterable[Any]) -> Iterator[Any]:
        """The events, as long as none brings an alias, an anchor or a tag."""
        kinds = self._kinds
        for event in events:
            if isinstance(event, kinds.NodeEvent):
                line = event.start_mark.line + 1
                if isinstance(event, kinds.AliasEvent) or event.anchor is not None:
                    problem = "anchors and aliases are not supported"
                    raise ConfigurationError(self._file, line, "", problem)
                if getattr(event, "tag", None) is not None:
                    raise ConfigurationError(self._file, line, "", "tags are not supported")
            yield event
