"""Deletes name seqs: those that are live and visible at the call, and no others."""

from __future__ import annotations

from headrace.core import deletion
from headrace.core.entry import Delete
from support.samples import RECORD_BYTES, add, new_log, remove


def test_below_a_seq() -> None:
    log = new_log(cap_records=5)
    add(log, 6)
    remove(log, [3, 3])
    assert deletion.live_below(log, 5, visible=6) == [2, 2, 4, 4]
    assert deletion.live_below(log, 100, visible=5) == [2, 2, 4, 5]
    assert deletion.live_below(log, 2, visible=6) == ()


def test_given_seqs() -> None:
    log = new_log()
    add(log, 5)
    remove(log, [2, 2])
    sizes = [(seq, RECORD_BYTES) for seq in (1, 2, 3, 5)]
    assert deletion.delete_seqs(log, sizes, before=5) == Delete(
        log.id, [1, 1, 3, 3], 2, 2 * RECORD_BYTES
    )


def test_nothing_to_delete_is_no_entry() -> None:
    assert deletion.delete_ranges(new_log(), (), 0) is None
    assert deletion.delete_seqs(new_log(), [], 5) is None
