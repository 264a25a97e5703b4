"""The lease of a job: an object that says who is at work, stored again while it is.

How old it is says whether the job still is, by the store's clock. It only keeps the janitor from
the job's files; what keeps a job whose files are gone from publishing them is the manifest's fence.
"""

from __future__ import annotations

import msgspec

from headrace.core.errors import Corrupt

FORMAT = 1


class JobLease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is at work."""

    format: int = FORMAT
    job: str
    """What it does, for people."""
    host: str
    pid: int
    fence: int
    """The manifest's when the job began."""
    renewals: int = 0


def encode_lease(lease: JobLease) -> bytes:
    return msgspec.json.encode(lease)


def decode_lease(raw: bytes, where: str) -> JobLease:
    try:
        lease = msgspec.json.decode(raw, type=JobLease)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(where, 0, f"not a lease: {error}") from None
    if lease.format != FORMAT:
        raise Corrupt(where, 0, f"format {lease.format} is not one this version reads")
    return lease
