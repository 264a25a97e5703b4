"""How feeds are searched: the search configuration of the log of every tenant."""

from __future__ import annotations

import msgspec

from headrace.search.config import FieldKind

_KEYWORD = ("exact", "prefix", "exists", "sortable", "aggregatable")
_FIELDS = {
    "id": (FieldKind.KEYWORD, "/id", ("exact",)),
    "type": (FieldKind.KEYWORD, "/type", _KEYWORD),
    "timestamp": (FieldKind.DATE, "/timestamp", ("column", "exists", "sortable")),
    "sequenceNumber": (FieldKind.INTEGER, "/sequenceNumber", ("column", "exists", "sortable")),
    "resourceType": (FieldKind.KEYWORD, "/resourceRef/resourceType", _KEYWORD),
    "resourceId": (FieldKind.KEYWORD, "/resourceRef/resourceId", _KEYWORD),
    "templateId": (FieldKind.KEYWORD, "/resourceRef/parentRefs/templateId", _KEYWORD),
    "variantId": (FieldKind.KEYWORD, "/resourceRef/parentRefs/variantId", _KEYWORD),
    "environmentId": (FieldKind.KEYWORD, "/resourceRef/parentRefs/environmentId", _KEYWORD),
    "actorType": (FieldKind.KEYWORD, "/actor/type", _KEYWORD),
    "actor": (FieldKind.KEYWORD, "/actor/identifier", _KEYWORD),
}
_ROLLUP = {
    "timestampField": "timestamp",
    "dimensions": ["type", "resourceType", "actor"],
    "intervals": ["1h", "1d"],
    "measures": {"events": {"kind": "count"}},
}


def _field(kind: FieldKind, pointer: str, flags: tuple[str, ...]) -> dict[str, object]:
    bindings = [{"version": 1, "jsonPointer": pointer}]
    return {"kind": kind, "bindings": bindings, **dict.fromkeys(flags, True)}


SEARCH = msgspec.json.encode(
    {
        "primaryTimestampField": "timestamp",
        "fields": {name: _field(*how) for name, how in _FIELDS.items()},
        "rollups": {"audit": _ROLLUP},
    }
)
