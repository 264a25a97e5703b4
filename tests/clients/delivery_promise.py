"""The promise every client is held to: all records, once, in order, whatever breaks meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import httpx

TOPICS = ("room:a", "room:b")
RECORDS = 90
BATCH = 3
KEY = "client-key"
ANSWER_S = 120.0
HEADERS = {"Authorization": f"Bearer {KEY}"}
CUTS = (600, 1500, 4000)
"""Bytes after which the first streams are cut; never at the end of a frame but by accident."""

Seen = dict[str, list[tuple[int, Any]]]


def write(url: str, first: int, last: int) -> None:
    """Append the numbers to every topic, a few at a time."""
    with httpx.Client(base_url=url, headers=HEADERS, timeout=ANSWER_S, trust_env=False) as client:
        for start in range(first, last + 1, BATCH):
            numbers = range(start, min(start + BATCH, last + 1))
            for topic in TOPICS:
                reply = client.post(
                    f"/v0/topics/{topic}", json={"records": [{"data": n} for n in numbers]}
                )
                reply.raise_for_status()


def collect(frames: Iterable[dict[str, Any]]) -> Seen:
    """What record frames showed, topic by topic, in the order it came."""
    seen: Seen = {topic: [] for topic in TOPICS}
    for frame in frames:
        seen[frame["topic"]] += [(record["$seq"], record["data"]) for record in frame["records"]]
    return seen


def is_whole(frames: Iterable[dict[str, Any]], last: int = RECORDS) -> bool:
    """Whether every topic was seen to its end."""
    return all(records and records[-1][0] >= last for records in collect(frames).values())


def check(frames: Iterable[dict[str, Any]], last: int = RECORDS) -> None:
    """No loss, no duplicate, no other order."""
    expected = [(number, number) for number in range(1, last + 1)]
    for topic, records in collect(frames).items():
        assert records == expected, f"{topic}: {records}"
