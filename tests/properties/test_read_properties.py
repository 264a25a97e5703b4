"""Paging: whatever the budgets, whatever is filtered or deleted, each record comes exactly once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.config import LogConfig
from headrace.core.match import TagPrefix
from headrace.core.read import Budget, Gap, Loss, plan

from .log_harness import LogHarness, drafts_of
from .naive import Record


@settings(max_examples=80)
@given(
    batches=st.lists(drafts_of, max_size=6),
    records=st.integers(1, 8),
    size_bytes=st.integers(0, 120),
    scanned=st.integers(1, 10),
    exclude=st.frozensets(st.sampled_from(["a", "ab", "b"])),
    tag=st.none() | st.sampled_from(["a", "b"]),
    dedupe_node=st.booleans(),
)
def test_paging_gives_each_record_once(
    batches: list[list[Record]],
    records: int,
    size_bytes: int,
    scanned: int,
    exclude: frozenset[str],
    tag: str | None,
    dedupe_node: bool,
) -> None:
    rig = LogHarness(LogConfig(dedupe_node=dedupe_node))
    for batch in batches:
        rig.append(batch)
    rig.visible = rig.log.head
    if tag is not None:
        rig.delete_tagged(TagPrefix(tag), rig.visible + 1)
    after, found = 0, list[Record]()
    while True:
        page, got = rig.read(after, Budget(records, size_bytes, scanned), exclude)
        assert len(got) <= records
        assert len(got) <= 1 or sum(record.size for record in got) <= size_bytes
        assert page.gap is None
        assert page.count == len(got)
        found += got
        if page.caught_up:
            break
        assert page.next > after, "a page that is not the last one moves the cursor"
        after = page.next
    mine = exclude if dedupe_node else ()
    assert found == [record for record in rig.naive.live if record.node not in mine]
    assert after <= rig.visible


@given(batches=st.lists(drafts_of, max_size=4), epoch=st.integers(1, 3), after=st.integers(0, 30))
def test_a_cursor_of_another_instance_starts_anew(
    batches: list[list[Record]], epoch: int, after: int
) -> None:
    rig = LogHarness(LogConfig())
    for batch in batches:
        rig.append(batch)
    head = rig.log.head
    found = plan(rig.log, head, after, epoch)
    if epoch != rig.log.id or after > head:
        assert (found.start, found.gap) == (1, Gap(1, head, Loss.RECREATED))
    else:
        assert (found.start, found.gap) == (after + 1, None)
    assert found.last == head
