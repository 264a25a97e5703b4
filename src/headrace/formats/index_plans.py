"""Plans: which logs want index companions, and which ones. A JSON document."""

from __future__ import annotations

import msgspec
from xxhash import xxh3_64_hexdigest

from headrace.core.errors import Corrupt

FORMAT = 1
_NOTHING = msgspec.Raw()


class IndexPlan(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What one log wants."""

    log_id: int
    log: str
    search: msgspec.Raw
    """The log's search configuration: a JSON object."""
    hash: str
    """XXH3-64 of the configuration and the versions, in hex, however they were written: companions
    made by others are to be made anew.
    """
    versions: msgspec.Raw = _NOTHING
    """What older documents go through before they are indexed: a JSON object with the current
    schema version, the lenses that lead to it, and the records from which on each version counts;
    nothing where documents are indexed as they are.
    """


class IndexPlans(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all logs want, sorted by log id; those that want nothing are not listed."""

    format: int = FORMAT
    plans: tuple[IndexPlan, ...] = ()

    def of(self, log_id: int) -> IndexPlan | None:
        return next((plan for plan in self.plans if plan.log_id == log_id), None)


def plan(log_id: int, log: str, search: bytes, versions: bytes | None = None) -> IndexPlan:
    """The plan of a log with this search configuration and these schema versions, both JSON."""
    wanted = msgspec.json.decode(search)
    if versions is not None:
        wanted = [wanted, msgspec.json.decode(versions)]
    return IndexPlan(
        log_id=log_id,
        log=log,
        search=msgspec.Raw(search),
        hash=xxh3_64_hexdigest(msgspec.json.encode(wanted, order="deterministic")),
        versions=_NOTHING if versions is None else msgspec.Raw(versions),
    )


def encode_plans(plans: IndexPlans) -> bytes:
    return msgspec.json.encode(plans) + b"\n"  # configurations stay as they were sent


def decode_plans(raw: bytes, where: str) -> IndexPlans:
    try:
        plans = msgspec.json.decode(raw, type=IndexPlans)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(where, 0, f"not plans: {error}") from None
    if plans.format != FORMAT:
        raise Corrupt(where, 0, f"format {plans.format} is not one this version reads")
    return plans
