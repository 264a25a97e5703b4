"""Pages of manifests: Parquet files of neighbouring segments, or builds, that many roots share.

A page is never changed. Who changes what it lists writes others in its place, and the root keeps
the pages that the change did not touch. The newest segments are in the root itself, until they are
many.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import msgspec
import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from headrace.core.errors import Corrupt
from headrace.core.limits import PAGE_ITEMS_MAX, PAGES_CACHED_MAX, TAIL_ITEMS_MAX
from headrace.formats import layout
from headrace.formats.manifest import Build, Manifest, ManifestPage, Segment, SegmentBounds
from headrace.formats.table import encode_table, read_table

FORMAT = "1"

T = TypeVar("T", Segment, Build)
Get = Callable[[str], bytes]

_TYPES = {
    int: pa.int64(),
    str: pa.string(),
    int | None: pa.int64(),
    str | None: pa.string(),
    tuple[int, ...]: pa.list_(pa.int64()),
}
_BOUNDS = [field.name for field in msgspec.structs.fields(SegmentBounds)]


def _schema(kind: type[Segment] | type[Build]) -> pa.Schema:
    fields = [(field.name, _TYPES[field.type]) for field in msgspec.structs.fields(kind)]
    return pa.schema(fields, metadata={"headrace.format": FORMAT})


_SCHEMAS: dict[type, pa.Schema] = {kind: _schema(kind) for kind in (Segment, Build)}


class PageCache:
    """Pages that were read, by name and checksum; those that were not used for long go first."""

    def __init__(self, pages_max: int = PAGES_CACHED_MAX) -> None:
        self._pages_max = pages_max
        self._held: OrderedDict[tuple[str, str], tuple[Any, ...]] = OrderedDict()

    def get(self, page: ManifestPage) -> tuple[Any, ...] | None:
        key = (page.name, page.checksum)
        found = self._held.pop(key, None)
        if found is not None:
            self._held[key] = found
        return found

    def put(self, page: ManifestPage, items: tuple[Any, ...]) -> None:
        self._held[page.name, page.checksum] = items
        while len(self._held) > self._pages_max:
            self._held.popitem(last=False)


_CACHE = PageCache()
"""Of this process. Names are never used twice, in whatever store."""


def assemble(root: Manifest, get: Get, cache: PageCache | None = None) -> Manifest:
    """The whole manifest of a root; `Corrupt` when a page is not what it was."""
    if not root.page_names:
        return root
    cache = cache or _CACHE
    segments = [item for page in root.pages for item in _load(page, Segment, get, cache)]
    builds = [item for page in root.build_pages for item in _load(page, Build, get, cache)]
    return msgspec.structs.replace(
        root, segments=(*segments, *root.segments), builds=(*builds, *root.builds)
    )


def _load(page: ManifestPage, kind: type[T], get: Get, cache: PageCache) -> tuple[T, ...]:
    known = cache.get(page)
    if known is None:
        known = decode_page(get(page.name), page, kind)
        cache.put(page, known)
    return known


def encode_page(items: Sequence[T]) -> bytes:
    rows = [msgspec.structs.astuple(item) for item in items]
    return encode_table(_SCHEMAS[type(items[0])], rows)


def decode_page(raw: bytes, page: ManifestPage, kind: type[T]) -> tuple[T, ...]:
    """What a page lists; `Corrupt` when it is not what was published."""
    if xxh3_64_hexdigest(raw) != page.checksum:
        raise Corrupt(page.name, 0, "checksum mismatch: the bytes are not what was published")
    try:
        table = read_table(raw)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corrupt(page.name, 0, f"not a page of a manifest: {error}") from None
    try:
        found = msgspec.convert(table.to_pylist(), tuple[kind, ...])  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise Corrupt(page.name, 0, f"not a page of a manifest: {error}") from None
    if len(found) != page.count:
        raise Corrupt(page.name, 0, f"lists {len(found)}; the manifest says {page.count}")
    return cast(tuple[T, ...], found)


def paginate(
    before: Manifest, after: Manifest, token: Callable[[], str]
) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest with its pages, of which it takes over what it can from the one before; and the
    new ones among them.
    """
    new: dict[str, bytes] = {}

    def write(items: Sequence[T]) -> ManifestPage:
        raw = encode_page(items)
        page = _describe(layout.page(after.version, token()), xxh3_64_hexdigest(raw), items)
        new[page.name] = raw
        _CACHE.put(page, tuple(items))
        return page

    pages = _repage(before.pages, before.segments, after.segments, write)
    builds = _repage(before.build_pages, before.builds, after.builds, write)
    return msgspec.structs.replace(after, pages=pages, build_pages=builds), new


def _repage(
    held: Sequence[ManifestPage],
    before: tuple[T, ...],
    after: tuple[T, ...],
    write: Callable[[Sequence[T]], ManifestPage],
) -> tuple[ManifestPage, ...]:
    """The pages of a list that was another one with these pages."""
    pages: list[ManifestPage] = []
    at = 0
    """Up to here the list is in pages."""
    for place, page in _kept(held, before, after):
        _write_run(pages, after, at, place, write)
        pages.append(page)
        at = place + page.count
    if len(after) - at > TAIL_ITEMS_MAX:
        _write_run(pages, after, at, len(after), write)
    return tuple(pages)


def _kept(
    held: Sequence[ManifestPage], before: tuple[T, ...], after: tuple[T, ...]
) -> Iterator[tuple[int, ManifestPage]]:
    """The pages whose items still follow each other, and where."""
    start = at = 0
    places: dict[int, int] | None = None
    for page in held:
        items = before[start : start + page.count]
        start += page.count
        if after[at : at + page.count] != items:
            if places is None:
                places = {id(item): place for place, item in enumerate(after[at:], at)}
            found = places.get(id(items[0]))
            if found is None or found < at or after[found : found + page.count] != items:
                continue
            at = found
        yield at, page
        at += page.count


def _write_run(
    pages: list[ManifestPage],
    after: tuple[T, ...],
    start: int,
    stop: int,
    write: Callable[[Sequence[T]], ManifestPage],
) -> None:
    """Write what lies between pages that are kept; a short one before it is written with it."""
    if start == stop:
        return
    if pages and pages[-1].count + stop - start <= PAGE_ITEMS_MAX:
        start -= pages.pop().count
    pages += (
        write(after[at : min(at + PAGE_ITEMS_MAX, stop)])
        for at in range(start, stop, PAGE_ITEMS_MAX)
    )


def _describe(name: str, checksum: str, items: Sequence[T]) -> ManifestPage:
    numbers = [n for item in (items[0], items[-1]) for n in _numbers(item)]
    return ManifestPage(
        name=name,
        checksum=checksum,
        count=len(items),
        first=numbers[0],
        last=numbers[-1],
        **_bounds(items),
    )


def _numbers(item: Segment | Build) -> tuple[int, ...]:
    return (item.number,) if isinstance(item, Segment) else item.segments


def _bounds(items: Sequence[Segment | Build]) -> dict[str, Any]:
    """The bounds of all segments, where all of them have some."""
    found: dict[str, Any] = {}
    for name in _BOUNDS:
        values: list[Any] = [getattr(item, name, None) for item in items]
        if None not in values:
            found[name] = min(values) if name.endswith("_min") else max(values)
    return found
