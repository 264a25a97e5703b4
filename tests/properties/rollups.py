"""A search configuration with rollups of every kind."""

from __future__ import annotations

from typing import Any

MINUTE = 60_000


def field(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "bindings": [{"version": 1, "jsonPointer": f"/{name}"}], **more}


CONFIG: dict[str, Any] = {
    "primaryTimestampField": "at",
    "fields": {
        "at": field("date", "at", column=True),
        "svc": field("keyword", "svc", exact=True, normalizer="lowercase_v1"),
        "code": field("integer", "code", exact=True, column=True),
        "ok": field("bool", "ok", exact=True),
        "ms": field("float", "ms", column=True, aggregatable=True),
    },
    "rollups": {
        "latency": {
            "dimensions": ["svc", "code", "ok"],
            "intervals": ["1m", "90s"],
            "measures": {
                "n": {"kind": "count"},
                "ms": {"kind": "summary", "field": "ms", "histogram": "log2_v1"},
                "plain": {"kind": "summary", "field": "ms"},
            },
        },
        "ready": {
            "intervals": ["1m"],
            "measures": {
                "v": {
                    "kind": "summary_parts",
                    "countJsonPointer": "/p/count",
                    "sumJsonPointer": "/p/sum",
                    "minJsonPointer": "/p/min",
                    "maxJsonPointer": "/p/max",
                    "histogramJsonPointer": "/p/hist",
                }
            },
        },
    },
}
