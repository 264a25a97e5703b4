"""What the logs of a batch are asked before it is decided: nothing is refused behind that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from headrace.core import log as core_log
from headrace.core.errors import Code, Refused
from headrace.core.log import Log, check_owner
from headrace.core.owners import SYSTEM, reserved
from headrace.core.state import not_found
from headrace.core.stream_state import media_of, same_type
from headrace.engine.kernel import Kernel
from headrace.engine.logs.chunks import ChunkSummary
from headrace.engine.streams.expiry import StreamExpiry


def check_logs(
    kernel: Kernel,
    expiry: StreamExpiry,
    logs: Mapping[str, Log],
    brought: Sequence[ChunkSummary],
    owner: str,
) -> None:
    """Refuse unless all of them are there, and of the right kind."""
    for name, log in logs.items():
        stream = log.stream
        if log.id not in kernel.open_logs or (stream and not expiry.is_there(log)):
            raise not_found(name)
        if log.owner == SYSTEM:
            raise reserved(name)
        if stream is None:
            check_owner(log, owner)
    for each in brought:
        stream = logs[each.log].stream
        media = media_of(stream)
        is_same = media == each.media or (media and each.media and same_type(media, each.media))
        if not is_same or (stream is not None and stream.closed):
            raise Refused(
                Code.LOG_INCOMPATIBLE,
                f'"{each.log}" is closed, or holds something else than was staged',
                topic=each.log,
            )


def check_room(kernel: Kernel, logs: Mapping[str, Log], brought: Sequence[ChunkSummary]) -> None:
    """Refuse what does not fit into a log, or into the server."""
    growth_bytes = 0
    records, sizes_bytes = Counter[str](), Counter[str]()
    for each in brought:
        records[each.log] += each.records
        sizes_bytes[each.log] += each.size_bytes
    for name, log in logs.items():
        if log.config.ttl_ms and log.id in kernel.open_logs:
            kernel.expire_now(kernel.open_logs[log.id])
        core_log.check_room(log, records[name], sizes_bytes[name])
        growth_bytes += core_log.growth_bytes(log, records[name], sizes_bytes[name])
    kernel.caps.check_growth(kernel.state, growth_bytes)
