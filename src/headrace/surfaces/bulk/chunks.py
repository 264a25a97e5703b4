"""A chunk of Arrow as drafts: every limit of a record checked, column by column."""

from __future__ import annotations

from array import array

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import Code, Refused
from headrace.core.limits import GROUP_BYTES_MAX, META_KEYS_MAX, NESTING_MAX, STREAM_KEY_BYTES_MAX
from headrace.core.record import Blobs, Drafts, Texts
from headrace.formats.ipc import Outline, outline
from headrace.formats.nesting import is_too_deep

_COLUMNS = {"data", "meta", "tag", "node", "key"}
_TYPES = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.null())
"""What is as large as its bytes, or has none."""
_OTHERS = {
    b"ARROW1": "it is an Arrow file (Feather); write it with pyarrow.ipc.new_stream",
    b"PAR1": "it is Parquet; write it with pyarrow.ipc.new_stream",
    b"\x1f\x8b": "it is gzip; say Content-Encoding: gzip",
}
"""What others send, by its first bytes, and what they should do."""
_value = msgspec.json.Decoder(msgspec.Raw)
_meta = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ChunkLimits(msgspec.Struct, frozen=True):
    """What one chunk may carry."""

    records: int
    record_bytes: int
    meta_bytes: int
    tag_bytes: int
    node_bytes: int


def parse_chunk(body: bytes, limits: ChunkLimits, media: str | None) -> Drafts:
    """The records of an Arrow stream; `media` is what payloads are when they are not JSON."""
    table = _table(body, limits)
    data = _binary(table, "data")
    if data is None or data.null_count:
        raise Refused(Code.INVALID, "data is missing in some records", field="data")
    metas = _parse_metas(_binary(table, "meta"), limits)
    _check_lengths(data, metas, limits.record_bytes)
    if media is None:
        _check_json(data)
    key_bytes_max = GROUP_BYTES_MAX if media is None else STREAM_KEY_BYTES_MAX
    offsets, values = data.buffers()[1:]
    cuts = memoryview(offsets).cast("B").cast("i")[data.offset : data.offset + len(data) + 1]
    payloads = bytes(memoryview(values)[cuts[0] : cuts[-1]]) if values is not None else b""
    ends = array("I", [end - cuts[0] for end in cuts[1:]])
    return Drafts(
        payloads,
        ends.tobytes(),
        metas,
        _texts(table, "tag", limits.tag_bytes),
        _texts(table, "node", limits.node_bytes),
        _texts(table, "key", key_bytes_max),
        media,
    )


def _table(body: bytes, limits: ChunkLimits) -> pa.Table:
    """The rows of a chunk, which are no more bytes than its body; others are not decoded."""
    try:
        _check_outline(outline(body, batches_max=limits.records), limits)
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        others = (what for magic, what in _OTHERS.items() if body.startswith(magic))
        problem = next(others, str(error))
        raise Refused(Code.INVALID, f"the body is not a plain Arrow stream: {problem}") from None
    return table


def _check_outline(found: Outline, limits: ChunkLimits) -> None:
    names = found.schema.names
    if "data" not in names or not set(names) <= _COLUMNS or len(set(names)) < len(names):
        raise Refused(
            Code.INVALID,
            "a chunk has the columns data and, if wanted, meta, tag, node and key",
            columns=[name[:100] for name in names[:10]],
        )
    for field in found.schema:
        if field.type not in _TYPES:
            raise Refused(
                Code.INVALID,
                f"{field.name} is text or bytes, and neither a dictionary, nor runs, nor views:"
                " cast it to string or binary before it is written",
                field=field.name,
            )
    if found.compressed:
        raise Refused(
            Code.INVALID, "a chunk is not compressed by Arrow; send it with Content-Encoding: gzip"
        )
    if not 0 < found.rows <= limits.records:
        raise Refused(
            Code.BATCH_TOO_LARGE if found.rows else Code.INVALID,
            f"a chunk has 1 to {limits.records} records, not {found.rows}",
            max=limits.records,
        )


def _binary(table: pa.Table, name: str) -> pa.Array | None:
    """A column as bytes in one piece; strings are UTF-8 already."""
    if name not in table.column_names:
        return None
    column = table.column(name)
    try:
        return pa.concat_arrays([chunk.cast(pa.binary()) for chunk in column.chunks])
    except (pa.ArrowException, ValueError) as error:
        raise Refused(Code.INVALID, f"{name} is text or bytes: {error}", field=name) from None


def _texts(table: pa.Table, name: str, bytes_max: int) -> Texts | None:
    if name not in table.column_names:
        return None
    try:
        column = table.column(name).cast(pa.string())
    except pa.ArrowException as error:
        raise Refused(Code.INVALID, f"{name} is text: {error}", field=name) from None
    if column.null_count == len(column):
        return None
    longest = pc.max(pc.binary_length(column)).as_py()
    if longest > bytes_max:
        raise Refused(
            Code.INVALID, f"a {name} has at most {bytes_max} bytes", field=name, max=bytes_max
        )
    texts: Texts = column.to_pylist()
    return texts


def _check_lengths(data: pa.Array, metas: Blobs | None, bytes_max: int) -> None:
    lengths = pc.binary_length(data)
    if metas is not None:
        lengths = pc.add(lengths, pa.array([len(meta or b"") for meta in metas], pa.int32()))
    longest = pc.max(lengths).as_py()
    if longest > bytes_max:
        raise Refused(
            Code.RECORD_TOO_LARGE,
            f"a record has {longest} bytes; the limit is {bytes_max}",
            max=bytes_max,
        )


def _check_json(data: pa.Array) -> None:
    """Each payload is one JSON text. One is looked at after the other, in a thread: whoever has to
    do something else gets a turn in between.
    """
    try:
        for text in data.to_pylist():
            if not text.isascii():
                text.decode()
            if is_too_deep(text):
                raise Refused(
                    Code.INVALID, f"JSON nests at most {NESTING_MAX} levels", max=NESTING_MAX
                )
            _value.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(
            Code.INVALID, f"data is not JSON, one JSON text for each record: {error}", field="data"
        ) from None


def _parse_metas(column: pa.Array | None, limits: ChunkLimits) -> Blobs | None:
    if column is None or column.null_count == len(column):
        return None
    metas: Blobs = column.to_pylist()
    for text in metas:
        if text is not None:
            _check_meta(text, limits.meta_bytes)
    return metas


def _check_meta(text: bytes, bytes_max: int) -> None:
    """Refuse what is no object with few keys; large ones before they are taken apart."""
    if len(text) > bytes_max:
        raise Refused(
            Code.RECORD_TOO_LARGE,
            f"a meta has at most {bytes_max} bytes",
            field="meta",
            max=bytes_max,
        )
    try:
        text.decode()
        keys = len(_meta.decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(Code.INVALID, f"meta is an object: {error}", field="meta") from None
    if keys > META_KEYS_MAX or is_too_deep(text):
        raise Refused(
            Code.INVALID,
            f"a meta has at most {META_KEYS_MAX} keys",
            field="meta",
            max=META_KEYS_MAX,
        )
