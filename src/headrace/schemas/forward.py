"""Going forward: what a lens makes of a document.

Only those parts of a document are taken apart that an operation leads into; all others stay the
bytes they were, so that numbers are written as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec
from msgspec import Raw

from headrace.core.errors import Code, Refused
from headrace.core.limits import PROMOTED_BYTES_MAX
from headrace.schemas.kinds import kind_fits
from headrace.schemas.lens import (
    Add,
    Convert,
    Copy,
    Head,
    Hoist,
    In,
    Map,
    Op,
    Plunge,
    Remove,
    Rename,
    Wrap,
)
from headrace.search.pointers import Path, is_index

Node = Any
"""A value in bytes, or an object or array with such values."""

_object = msgspec.json.Decoder(dict[str, Raw])
_array = msgspec.json.Decoder(list[Raw])
_encode = msgspec.json.Encoder().encode
_ROOT = "document"
_NODE_BYTES = 16
"""What a value counts for beside its bytes."""
_OP_BYTES = 16
"""What an operation counts for, each time: it takes some microseconds."""
_BRACE, _BRACKET = b"{["


def apply_lenses(lenses: Sequence[Sequence[Op]], raw: bytes, room: Room | None = None) -> bytes:
    """The document behind all these lenses, one after another."""
    room = room or Room()
    root: dict[str, Node] = {_ROOT: Raw(raw)}
    for ops in lenses:
        _apply(ops, root, _ROOT, room)
    return _encode(root[_ROOT])


class Room:
    """What lenses may still add to a document, and do with it: they copy, fill arrays of any length
    and go through them.
    """

    __slots__ = ("_left", "_size")

    def __init__(self, size_bytes: int = PROMOTED_BYTES_MAX) -> None:
        self._left = self._size = size_bytes

    @property
    def used(self) -> int:
        return self._size - self._left

    def take(self, size_bytes: int) -> None:
        self.spend(size_bytes + _NODE_BYTES)

    def spend(self, size_bytes: int) -> None:
        self._left -= size_bytes
        if self._left < 0:
            raise Refused(
                Code.INVALID,
                f"lens failed: the document grows by more than {self._size} bytes,"
                f" or there is as much to do (an operation counts as {_OP_BYTES})",
            )

    def added(self, value: Any) -> Raw:
        """A value that a lens brings."""
        raw = _encode(value)
        self.take(len(raw))
        return Raw(raw)

    def copied(self, node: Node) -> Node:
        """A copy that changes to the original do not reach."""
        if isinstance(node, dict):
            self.take(sum(map(len, node)))
            return {key: self.copied(value) for key, value in node.items()}
        if isinstance(node, list):
            self.take(0)
            return [self.copied(value) for value in node]
        self.take(len(node))
        return node


def _apply(ops: Sequence[Op], holder: Node, key: Any, room: Room) -> None:
    """Apply the operations to what the holder has there."""
    for op in ops:
        room.spend(_OP_BYTES)
        match op:
            case Rename(source=source, to=to):
                _set(holder, key, to, _take(holder, key, source))
            case Copy(source=source, to=to):
                _set(holder, key, to, room.copied(_get(holder, key, source)))
            case Add(path=path, default=default):
                _set(holder, key, path, room.added(default))
            case Remove(path=path):
                _take(holder, key, path)
            case Hoist(host=host, name=name, to=to, remove=remove):
                source = (*host, name)
                found = _take if remove else _get
                _set(holder, key, to, room.copied(found(holder, key, source)))
            case Plunge():
                _plunge(op, holder, key, room)
            case Wrap(path=path):
                at, last = _place(holder, key, path)
                at[last] = [at[last]]
            case Head(path=path):
                at, last = _place(holder, key, path)
                elements = _open(at, last)
                if not isinstance(elements, list) or not elements:
                    _fail(path, "is not an array with elements")
                at[last] = elements[0]
            case Convert():
                at, last = _place(holder, key, op.path)
                at[last] = _convert(op, at[last], room)
            case In(path=path, ops=inner):
                at, last = _place(holder, key, path)
                if not isinstance(_open(at, last), dict):
                    _fail(path, "is not an object")
                _apply(inner, at, last, room)
            case Map(path=path, ops=inner):
                at, last = _place(holder, key, path)
                elements = _open(at, last)
                if not isinstance(elements, list):
                    _fail(path, "is not an array")
                for index in range(len(elements)):
                    _apply(inner, elements, index, room)


def _plunge(op: Plunge, holder: Node, key: Any, room: Room) -> None:
    found = _take if op.remove else _get
    value = room.copied(found(holder, key, op.source))
    if op.create and op.host:
        *above, last = op.host
        at, inner = _place(holder, key, above)
        parent = _open(at, inner)
        if isinstance(parent, dict) and not isinstance(_open_or_none(parent, last), dict):
            parent[last] = {}
    _set(holder, key, (*op.host, op.name), value)


def _convert(op: Convert, node: Node, room: Room) -> Raw:
    value = msgspec.json.decode(_encode(node))
    if not kind_fits(value, op.source):
        _fail(op.path, f"is no {op.source}")
    return room.added(op.forward.convert(value))


# --- finding one's way ----------------------------------------------------------------------------


def _open(holder: Node, key: Any) -> Node:
    """What the holder has there, taken apart if it is an object or an array."""
    node = holder[key]
    if isinstance(node, Raw):
        first = memoryview(node)[0]
        if first == _BRACE:
            node = holder[key] = _object.decode(node)
        elif first == _BRACKET:
            node = holder[key] = _array.decode(node)
    return node


def _open_or_none(holder: dict[str, Node], key: str) -> Node:
    return _open(holder, key) if key in holder else None


def _place(holder: Node, key: Any, path: Sequence[str]) -> tuple[Node, Any]:
    """Where the path leads to: an open holder and the key in it, which is there."""
    for step in path:
        holder, key = _open(holder, key), step
        if isinstance(holder, list) and is_index(step):
            key = int(step)
            if key >= len(holder):
                _fail(path, "does not exist")
        elif not isinstance(holder, dict) or step not in holder:
            _fail(path, "does not exist")
    return holder, key


def _get(holder: Node, key: Any, path: Path) -> Node:
    at, last = _place(holder, key, path)
    return at[last]


def _take(holder: Node, key: Any, path: Path) -> Node:
    at, last = _place(holder, key, path)
    return at.pop(last)


def _set(holder: Node, key: Any, path: Path, value: Node) -> None:
    """Put a value there, over what is there; behind the last element it makes an array longer."""
    *above, last = path
    at, inner = _place(holder, key, above)
    parent = _open(at, inner)
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and is_index(last) and int(last) <= len(parent):
        parent[int(last) : int(last) + 1] = [value]
    else:
        _fail(path, "has no place to be")


def _fail(path: Sequence[str], problem: str) -> NoReturn:
    pointer = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path)
    raise Refused(Code.INVALID, f"lens failed: {pointer or 'the document'} {problem}")
