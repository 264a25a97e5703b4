"""What a log's config says about it."""

from __future__ import annotations

import pytest

from headrace.core.config import Discard, Durability, LogConfig


@pytest.mark.parametrize(
    ("config", "trims"),
    [
        (LogConfig(), False),
        (LogConfig(ttl_ms=1), True),
        (LogConfig(cap_records=1), True),
        (LogConfig(cap_bytes=1), True),
        (LogConfig(cap_records=1, discard=Discard.REJECT), False),
        (LogConfig(ttl_ms=1, cap_records=1, discard=Discard.REJECT), True),
    ],
)
def test_which_logs_can_lose_records_to_retention(config: LogConfig, trims: bool) -> None:
    assert config.trims is trims


def test_classes() -> None:
    assert [LogConfig(durability=kind).journaled for kind in Durability] == [
        False,
        True,
        True,
        True,
    ]
    assert [LogConfig(durability=kind).synced for kind in Durability] == [False, False, False, True]
