"""An append request as drafts: checks every limit of the surface, without looking into the
payloads.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from sys import byteorder

import msgspec
from msgspec import UNSET, Raw

from headrace.core.errors import Code, Refused
from headrace.core.limits import GROUP_BYTES_MAX, I64_MAX, META_KEYS_MAX, NESTING_MAX
from headrace.core.record import Blobs, Drafts, Texts
from headrace.engine.ports import Clock
from headrace.formats.nesting import is_too_deep
from headrace.surfaces.topics.wire import AppendRequest, PlainAppendRequest, RecordRequest


class AppendLimits(msgspec.Struct, frozen=True):
    """What one append may carry."""

    batch_records: int
    record_bytes: int
    meta_bytes: int
    tag_bytes: int
    node_bytes: int


_meta_keys = msgspec.json.Decoder(dict[str, Raw])


def parse_drafts(request: AppendRequest, body_bytes: int, limits: AppendLimits) -> Drafts:
    """The records as columns; `body_bytes` is an upper bound for what any of them can hold."""
    records = request.records
    _check_count(len(records), limits.batch_records)
    metas = _metas(records, limits)
    tags = _texts([record.tag for record in records], limits.tag_bytes, "tag")
    nodes = _texts(_nodes(request), limits.node_bytes, "node")
    groups = _texts([record.group for record in records], GROUP_BYTES_MAX, "group")
    datas = [record.data for record in records]
    return _columns(datas, metas, tags, nodes, groups, body_bytes, limits)


def parse_plain_drafts(
    request: PlainAppendRequest, body_bytes: int, limits: AppendLimits
) -> Drafts:
    """As `parse_drafts`, for records that have nothing but data."""
    count = len(request.records)
    nodes: Texts | None = None
    if request.node is not None:
        nodes = _texts([request.node] * count, limits.node_bytes, "node")
    if count == 1 and body_bytes <= min(limits.record_bytes, 2 * NESTING_MAX):
        data = bytes(request.records[0].data)  # so small that it breaks no limit
        return Drafts(data, len(data).to_bytes(4, byteorder), nodes=nodes)
    _check_count(count, limits.batch_records)
    datas = [record.data for record in request.records]
    return _columns(datas, None, None, nodes, None, body_bytes, limits)


def parse_due(request: AppendRequest | PlainAppendRequest, clock: Clock) -> list[int | None] | None:
    """When each job may be claimed, for those that are to wait; nothing when none is."""
    is_plain = isinstance(request, PlainAppendRequest)
    if is_plain and request.delay_ms is None and request.deliver_at is None:
        return None
    now_ms = clock.now_ms()
    default = _due(request.delay_ms, request.deliver_at, now_ms)
    if isinstance(request, PlainAppendRequest):
        return [default] * len(request.records)
    own = [_due(record.delay_ms, record.deliver_at, now_ms) for record in request.records]
    due = [default if at_ms is None else at_ms for at_ms in own]
    return None if due.count(None) == len(due) else due


def _due(delay_ms: int | None, at_ms: int | None, now_ms: int) -> int | None:
    if delay_ms is None:
        return None if at_ms is None else min(at_ms, I64_MAX)
    if at_ms is not None:
        raise Refused(Code.INVALID, "say delay_ms or deliver_at, not both", field="deliver_at")
    return min(now_ms + delay_ms, I64_MAX)


def _check_count(count: int, records_max: int) -> None:
    if not count:
        raise Refused(Code.INVALID, "records must hold at least one record", field="records")
    if count > records_max:
        raise Refused(
            Code.BATCH_TOO_LARGE,
            f"{count} records in one write; the limit is {records_max}",
            max=records_max,
        )


def _columns(
    datas: list[Raw],
    metas: Blobs | None,
    tags: Texts | None,
    nodes: Texts | None,
    groups: Texts | None,
    body_bytes: int,
    limits: AppendLimits,
) -> Drafts:
    if body_bytes > limits.record_bytes:
        _check_sizes(datas, metas, limits.record_bytes)
    lengths = [*map(len, datas)]
    if max(lengths) > 2 * NESTING_MAX:
        _check_nesting(datas)
    ends = array("I", accumulate(lengths)).tobytes()
    return Drafts(b"".join(datas), ends, metas, tags, nodes, groups)


def _nodes(request: AppendRequest) -> Texts:
    default = request.node
    return [default if record.node is None else record.node for record in request.records]


def _texts(texts: Texts, bytes_max: int, field: str) -> Texts | None:
    if texts.count(None) == len(texts):
        return None
    for text in texts:
        # No character takes more than four bytes: most need no counting.
        if text is not None and len(text) * 4 > bytes_max and len(text.encode()) > bytes_max:
            raise Refused(
                Code.INVALID, f"a {field} has at most {bytes_max} bytes", field=field, max=bytes_max
            )
    return texts


def _metas(records: list[RecordRequest], limits: AppendLimits) -> Blobs | None:
    raws = [record.meta for record in records]
    if raws.count(UNSET) == len(raws):
        return None
    return [None if raw is UNSET else _meta(bytes(raw), limits.meta_bytes) for raw in raws]


def _meta(raw: bytes, bytes_max: int) -> bytes | None:
    if raw == b"null":
        return None
    if raw[:1] != b"{":
        raise Refused(Code.INVALID, "meta is an object", field="meta")
    if len(raw) > bytes_max:
        raise Refused(
            Code.RECORD_TOO_LARGE,
            f"a meta has at most {bytes_max} bytes",
            field="meta",
            max=bytes_max,
        )
    if raw.count(b":") > META_KEYS_MAX and len(_meta_keys.decode(raw)) > META_KEYS_MAX:
        raise Refused(
            Code.INVALID,
            f"a meta has at most {META_KEYS_MAX} keys",
            field="meta",
            max=META_KEYS_MAX,
        )
    if is_too_deep(raw):
        raise _too_deep()
    return raw


def _check_sizes(datas: list[Raw], metas: Blobs | None, bytes_max: int) -> None:
    for index, data in enumerate(datas):
        size = len(data) + len((metas[index] if metas else None) or b"")
        if size > bytes_max:
            raise Refused(
                Code.RECORD_TOO_LARGE,
                f"record {index} has {size} bytes; the limit is {bytes_max}",
                index=index,
                max=bytes_max,
            )


def _check_nesting(datas: list[Raw]) -> None:
    for data in datas:
        if is_too_deep(bytes(data)):
            raise _too_deep()


def _too_deep() -> Refused:
    return Refused(Code.INVALID, f"JSON nests at most {NESTING_MAX} levels", max=NESTING_MAX)
