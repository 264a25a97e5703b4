"""Records in columns: one byte string of payloads, cut by cumulative ends."""

from __future__ import annotations

from headrace.core.record import block, cut, draft, join, live_parts


def test_drafts_become_a_block() -> None:
    drafts = draft([b"1", b"[2]"], metas=[None, b"{}"])
    assert (drafts.count, drafts.size_bytes) == (2, 1 + 3 + 2 + 2 * 16)
    whole = block(drafts, 5, 1000)
    assert (whole.first, whole.last, whole.ts_ms, whole.count) == (5, 6, 1000, 2)
    assert (whole.data_at(0), whole.data_at(1)) == (b"1", b"[2]")
    assert whole.sizes() == [17, 21]
    assert whole.size_bytes == drafts.size_bytes


def test_finding_by_seq() -> None:
    whole = block(draft([b"1", b"2", b"3"]), 5, 0)
    assert [whole.index(seq) for seq in (1, 5, 7, 9)] == [0, 0, 2, 3]
    assert [whole.stop_index(seq) for seq in (1, 5, 7, 9)] == [0, 1, 3, 3]


def test_a_cut_shares_the_bytes() -> None:
    whole = block(draft([b"1", b"22", b"333"], tags=["a", None, "b"]), 5, 0)
    part = cut(whole, 1, 3)
    assert part.data is whole.data
    assert (part.first, part.last, part.tags) == (6, 7, [None, "b"])
    assert [part.data_at(at) for at in range(2)] == [b"22", b"333"]
    assert part.measure(0, 1) == 18
    assert cut(whole, 0, 3) is whole


def test_single_records_join_to_a_block() -> None:
    singles = [
        block(draft([b"1"]), 5, 1000),
        block(draft([b"22"], [b"{}"], ["t"], ["n"], ["k"]), 6, 1001, ns=7),
        cut(block(draft([b"0", b"333", b"4"]), 8, 1002), 1, 2),
    ]
    whole = join(singles)
    assert (whole.first, whole.last, whole.count) == (5, 9, 3)
    assert [whole.data_at(at) for at in range(3)] == [b"1", b"22", b"333"]
    assert [whole.seq_at(at) for at in range(3)] == [5, 6, 9]
    assert [whole.ns_at(at) for at in range(3)] == [1000000000, 1001000007, 1002000000]
    assert whole.metas == [None, b"{}", None]
    assert (whole.tags, whole.nodes, whole.keys) == (
        [None, "t", None],
        [None, "n", None],
        [None, "k", None],
    )
    assert whole.sizes() == [single.size_bytes for single in singles]
    plain = join([block(draft([b"1"]), 5, 1000), block(draft([b"2"]), 6, 1000)])
    assert (plain.metas, plain.tags, plain.nodes, plain.keys, plain.nanos) == (None,) * 5


def test_what_is_left_of_a_block() -> None:
    whole = block(draft([b"1"] * 6), 1, 0)
    parts = list(live_parts(whole, [4, 4], floor=2))
    assert [(part.first, part.last) for part in parts] == [(2, 3), (5, 6)]
