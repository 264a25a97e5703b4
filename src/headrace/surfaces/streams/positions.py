"""A log as a stream shows it: its type, its epoch, its positions.

A topic reads as a JSON stream; its epoch is its own, so that offsets of a topic that was deleted
and made anew are known as such.
"""

from __future__ import annotations

from headrace.core.errors import Code, Refused
from headrace.core.log import Log
from headrace.core.read import Page
from headrace.core.stream_state import JSON
from headrace.engine.open_log import OpenLog
from headrace.surfaces.streams.offsets import Mark, Offset, format_offset

_EPOCHS = 1 << 32


def content_type_of(log: Log) -> str:
    return log.stream.content_type if log.stream is not None else JSON


def epoch_of(log: Log) -> int:
    return log.stream.epoch if log.stream is not None else log.id % _EPOCHS


def format_position(log: Log, seq: int) -> str:
    """The offset behind this record."""
    return format_offset(_epoch_at(log, seq), seq)


def _epoch_at(log: Log, seq: int) -> int:
    return log.stream.epoch_at(seq) if log.stream is not None else epoch_of(log)


def resolve(live: OpenLog, offset: Offset | Mark) -> int:
    """The seq behind which a read goes on; refuses positions this stream does not have."""
    if offset is Mark.START:
        return 0
    if offset is Mark.NOW:
        return live.visible
    log = live.log
    if offset.epoch not in (epoch_of(log), _epoch_at(log, offset.seq)):
        if offset.epoch < epoch_of(log) or log.stream is None:
            raise Refused(
                Code.GONE,
                f'this offset is of an earlier life of "{log.name}"; start again without it',
                next_offset=format_position(log, 0),
            )
        raise _beyond(live)
    if offset.seq > live.visible:
        raise _beyond(live)
    return offset.seq


def _beyond(live: OpenLog) -> Refused:
    return Refused(
        Code.INVALID,
        f'this offset is beyond the end of "{live.log.name}"',
        next_offset=format_position(live.log, live.visible),
    )


def check_gap(live: OpenLog, page: Page, offset: Offset | Mark) -> None:
    """Records behind the offset that retention or a crash took: a reader that goes on is told."""
    if page.gap is not None and isinstance(offset, Offset):
        raise Refused(
            Code.GONE,
            f"the records up to {page.gap.last} are gone ({page.gap.reason.value})",
            next_offset=format_position(live.log, page.gap.last),
        )
