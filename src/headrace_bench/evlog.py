"""Records like those of request logs, about 200 bytes each, and how they are searched."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

from headrace.search.values import format_date

START_MS = 1_767_225_600_000
STEP_MS = 10
"""So that a million records are two hours and three quarters."""
_WORDS = [
    *("payment", "issuer", "declined", "timeout", "checkout", "cart", "user", "session", "retry"),
    *("upstream", "database", "slow", "ok", "request", "done", "cache", "miss", "token"),
    *("expired", "quota", "shard", "replica", "order", "invoice", "refund"),
]


def _keyword(name: str, *, lowercase: bool = False) -> dict[str, Any]:
    return {
        "kind": "keyword",
        "bindings": [{"version": 1, "jsonPointer": f"/{name}"}],
        "normalizer": "lowercase_v1" if lowercase else "identity_v1",
        **dict.fromkeys(("exact", "prefix", "exists", "sortable"), True),
    }


def _typed(name: str, kind: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "bindings": [{"version": 1, "jsonPointer": f"/{name}"}],
        **dict.fromkeys(("exact", "column", "exists", "sortable", "aggregatable"), True),
    }


def _text(pointer: str) -> dict[str, Any]:
    return {
        "kind": "text",
        "bindings": [{"version": 1, "jsonPointer": pointer}],
        "analyzer": "unicode_word_v1",
        "exists": True,
        "positions": True,
    }


SEARCH: dict[str, Any] = {
    "primaryTimestampField": "timestamp",
    "aliases": {"msg": "message", "req": "requestId", "ts": "timestamp"},
    "defaultFields": [
        {"field": "message", "boost": 2},
        {"field": "why", "boost": 1.5},
        {"field": "fix", "boost": 1.25},
        {"field": "error.message", "boost": 2},
    ],
    "fields": {
        **{name: _keyword(name, lowercase=True) for name in ("level", "service", "method")},
        "environment": _keyword("environment", lowercase=True),
        **{name: _keyword(name) for name in ("requestId", "traceId", "spanId", "path")},
        "timestamp": _typed("timestamp", "date"),
        "status": _typed("status", "integer"),
        "duration": _typed("duration", "float"),
        **{name: _text(f"/{name}") for name in ("message", "why", "fix")},
        "error.message": _text("/context/error/message"),
    },
    "rollups": {
        "latency": {
            "dimensions": ["service"],
            "intervals": ["1m", "5m"],
            "measures": {
                "n": {"kind": "count"},
                "ms": {"kind": "summary", "field": "duration", "histogram": "log2_v1"},
            },
        }
    },
}


def documents(count: int, seed: int = 1) -> Iterator[bytes]:
    """So many records, a hundred a second."""
    random = Random(seed)
    words = [*_WORDS, *(f"w{n}" for n in range(3000))]
    for at in range(count):
        yield msgspec.json.encode(
            {
                "timestamp": format_date(START_MS + STEP_MS * at),
                "level": random.choice(("info", "info", "info", "warn", "error")),
                "service": random.choice(("checkout", "billing", "search", "gateway")),
                "requestId": f"req_{random.getrandbits(32):08x}",
                "method": random.choice(("GET", "POST")),
                "path": f"/v1/orders/{random.randrange(1000)}",
                "status": random.choice((200, 200, 200, 404, 500)),
                "duration": round(random.expovariate(0.02), 1),
                "message": " ".join(random.choices(words, k=5)),
            }
        )
