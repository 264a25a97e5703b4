"""Plans: which logs want index companions, and which ones. A JSON document."""

from __future__ import annotations

import msgspec
from xxhash import xxh3_64_hexdigest

from headrace.core.errors import Corrupt

FORMAT = 1


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one log wants."""

    log_id: int
    log: str
    search: msgspec.Raw
    """The log's search configuration: a JSON object."""
    hash: str
    """XXH3-64 of the configuration, in hex, however it was written: companions made by another
    one are to be made anew.
    """


class Plans(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all logs want, sorted by log id; those that want nothing are not listed."""

    format: int = FORMAT
    plans: tuple[Plan, ...] = ()

    def of(self, log_id: int) -> Plan | None:
        return next((plan for plan in self.plans if plan.log_id == log_id), None)


def plan(log_id: int, log: str, search: bytes) -> Plan:
    """The plan of a log with this search configuration, which is JSON."""
    canonical = msgspec.json.encode(msgspec.json.decode(search), order="deterministic")
    return Plan(
        log_id=log_id, log=log, search=msgspec.Raw(search), hash=xxh3_64_hexdigest(canonical)
    )


def encode_plans(plans: Plans) -> bytes:
    return msgspec.json.encode(plans) + b"\n"  # configurations stay as they were sent


def decode_plans(raw: bytes, where: str) -> Plans:
    try:
        plans = msgspec.json.decode(raw, type=Plans)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(where, 0, f"not plans: {error}") from None
    if plans.format != FORMAT:
        raise Corrupt(where, 0, f"format {plans.format} is not one this version reads")
    return plans
