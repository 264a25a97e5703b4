"""What is staged of one transaction is found without taking the names of all its files apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from headrace.engine.logs.chunks import Chunks
from headrace.formats import layout


def test_chunks_of_batches_are_found_without_parsing_names() -> None:
    engine, staging = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 0)), None
    chunks = Chunks(cast(Any, engine), cast(Any, staging))
    paths = [layout.staged_chunk("t", batch, "0-0-0.key") for batch in range(10)]
    old = layout.staged_chunk("t", 4, "1-0-0")  # from before keys were noted
    chunks.open(dict.fromkeys([*paths, old], 100))
    with mock.patch.object(layout, "staged_name", side_effect=AssertionError("parsed")):
        assert chunks.of("t", 4) == [*paths[:5], old]
        assert chunks.of("t", 7, 6) == paths[6:8]
        assert chunks.of("other", 9) == []
        assert chunks.path("t", 4, "1-0-0", "key") == old
        assert chunks.path("t", 4, "0-0-0", "key") == paths[4]
        assert "0-0-0.key" in chunks.path("other", 4, "0-0-0", "key")
