"""Streams of older snapshots and entries of older journals are read as they are."""

from __future__ import annotations

import msgspec

from headrace.core.entry import Register, SetProfile
from headrace.core.stream_state import Stream, apply


def test_a_stream_that_was_written_before_there_were_registries() -> None:
    stream = Stream("application/json", 3, 17, producers={"p": (1, 2)}, last_ns=5)
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(stream))
    old = msgspec.msgpack.encode(fields[:-2])
    assert msgspec.msgpack.decode(old, type=Stream) == stream
    assert (stream.registry, stream.profile) == (None, None)


def test_what_is_registered_and_adopted_stays() -> None:
    stream = Stream("application/json", 0, 0)
    apply(stream, Register(1, b'{"currentVersion":1}'))
    apply(stream, SetProfile(1, b'{"kind":"evlog"}'))
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(stream), type=Stream)
    assert (back.registry, back.profile) == (b'{"currentVersion":1}', b'{"kind":"evlog"}')
    apply(stream, Register(1, None))
    apply(stream, SetProfile(1, None))
    assert (stream.registry, stream.profile) == (None, None)
