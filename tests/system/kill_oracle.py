"""What a crash may do to a topic, and what it must not. Knows facts only: no server, no clock.

acknowledged ⊆ survived ⊆ offered, in order and byte for byte; nothing deleted returns; no seq is
used twice; every loss is an explicit gap; a retried key appends once; floors never move back.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from .kill_history import (
    Answer,
    Append,
    Being,
    Delete,
    Existence,
    Gap,
    Page,
    Payload,
    Round,
    Seen,
    Terms,
    Walk,
)
from .kill_spans import (
    Reading,
    Rising,
    Span,
    covered,
    format_page,
    format_payload,
    format_seqs,
    format_spans,
    split,
)

REASONS_OF_CAP = ("cap", "mixed")
COMPLAINTS_MAX = 20


@dataclass(slots=True)
class Fate:
    """What is known of one seq that was given to a record."""

    append: Append
    payload: Payload
    placed_at: int
    deleted_at: int | None = None
    deletable: bool = False
    seen: bool = False


class Oracle:
    """Judges rounds one after the other; no `complaints` means the server kept its word."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self._ledgers: dict[tuple[str, int], Ledger] = {}
        self._epochs: dict[str, dict[int, int]] = defaultdict(dict)

    def open(self, topic: str, instance: int, terms: Terms, run: int) -> None:
        """An instance of a topic is offered; facts about it may follow."""
        key = (topic, instance)
        assert key not in self._ledgers, f"{key} is already open"
        self._ledgers[key] = Ledger(topic, instance, terms, run, self.complaints)

    def judge(self, round_: Round) -> None:
        """Take in a round's facts, then check everything that was seen in it."""
        shares: dict[tuple[str, int], Round] = defaultdict(Round)
        for append in round_.appends:
            shares[append.topic, append.instance].appends.append(append)
        for append, answer in round_.answers:
            shares[append.topic, append.instance].answers.append((append, answer))
        for delete in round_.deletes:
            shares[delete.topic, delete.instance].deletes.append(delete)
        for walk in round_.walks:
            shares[walk.topic, walk.instance].walks.append(walk)
        for key, share in shares.items():
            self._ledgers[key].judge(share)
        for walk in round_.walks:
            self._judge_epoch(walk)

    def judge_existence(self, being: Being, found: bool) -> None:
        """Compare whether a topic is there with what its owner was told."""
        if being.existence is Existence.PRESENT and not found:
            self.complaints.append(f"{being.topic}#{being.instance}: an acknowledged topic is gone")
        if being.existence is Existence.ABSENT and found:
            self.complaints.append(f"{being.topic}#{being.instance}: a deleted topic returned")

    def judge_twice(self, once: Walk, twice: Walk) -> None:
        """Two quiet walks with nothing but a restart between them must agree in everything."""
        where = f"{once.topic}#{once.instance}"
        if once.state != twice.state:
            self.complaints.append(
                f"{where}: a second restart changed the state: {once.state} -> {twice.state}"
            )
        if once.records != twice.records:
            before, after = ({seen.seq for seen in walk.records} for walk in (once, twice))
            self.complaints.append(
                f"{where}: a second restart changed the records: "
                f"lost {format_seqs(before - after)}, gained {format_seqs(after - before)}"
            )
        if covered(once.gaps) != covered(twice.gaps):
            self.complaints.append(
                f"{where}: a second restart changed the gaps: {once.gaps} -> {twice.gaps}"
            )

    def _judge_epoch(self, walk: Walk) -> None:
        if walk.state is None:
            return
        epochs = self._epochs[walk.topic]
        known = epochs.setdefault(walk.instance, walk.state.epoch)
        if known != walk.state.epoch:
            self.complaints.append(
                f"{walk.topic}#{walk.instance}: epoch {known} became {walk.state.epoch}"
            )
        if list(epochs.values()).count(known) > 1:
            self.complaints.append(f"{walk.topic}: epoch {known} names two instances: {epochs}")


class Ledger:
    """The facts of one topic instance."""

    def __init__(
        self, topic: str, instance: int, terms: Terms, run: int, complaints: list[str]
    ) -> None:
        self.where = f"{topic}#{instance} ({terms.durability}, cap {terms.cap_records})"
        self.terms = terms
        self.born = run
        self.fates: dict[int, Fate] = {}
        self.live: dict[int, Fate] = {}
        self.gone: dict[Span, int] = {}
        self.placed: list[int] = []
        self.offers: dict[bytes, tuple[Append, int]] = {}
        self.firsts: dict[Append, int] = {}
        self.loose: set[Append] = set()
        self.deletes: list[Delete] = []
        self.undecided: list[Delete] = []
        self.head = 0
        self.floor = 0
        self.reach = Rising(0, ())
        self._complaints = complaints

    def complain(self, text: str) -> None:
        if len(self._complaints) < COMPLAINTS_MAX:
            self._complaints.append(f"{self.where}: {text}")

    def judge(self, share: Round) -> None:
        """Facts first, whatever their order in time; then every page against all of them."""
        for append in share.appends:
            self._offer(append)
        for append, answer in sorted(share.answers, key=lambda pair: pair[1].ended):
            self._acknowledge(append, answer)
        for walk in share.walks:
            for page in walk.pages:
                self._find(page)
        for delete in share.deletes:
            self._delete(delete)
        self._check_never_back(share)
        self._note_reach(share)
        self.placed = sorted(self.fates)
        for walk in sorted(share.walks, key=lambda walk: walk.pages[0].started):
            self._check_walk(walk)

    # --- facts ---

    def _offer(self, append: Append) -> None:
        for index, payload in enumerate(append.payloads):
            assert payload.data not in self.offers, "the load must make every payload unique"
            self.offers[payload.data] = (append, index)
        self.loose.add(append)

    def _acknowledge(self, append: Append, answer: Answer) -> None:
        placed_at = self._placed_at(append)
        if answer.deduped and append.attempts == 1:
            self.complain(f"{append}: deduped, but it was offered once")
        if not answer.deduped and placed_at is not None and placed_at < answer.started:
            self.complain(f"{append}: appended again at {answer.first_seq} in run {answer.run}")
        self._place(append, answer.first_seq, answer.ended)

    def _find(self, page: Page) -> None:
        for seen in page.records:
            offer = self.offers.get(seen.payload.data)
            if offer is None:
                self.complain(f"seq {seen.seq} was never offered here: {seen.payload.data[:80]!r}")
                continue
            append, index = offer
            if append.payloads[index] != seen.payload:
                self.complain(
                    f"seq {seen.seq} is {format_payload(seen.payload)}, "
                    f"offered was {format_payload(append.payloads[index])}"
                )
            self._place(append, seen.seq - index, page.ended)

    def _place(self, append: Append, first: int, moment: int) -> None:
        known = self.firsts.setdefault(append, first)
        if known != first:
            self.complain(f"{append}: stands at {known} and at {first}")
            return
        self.loose.discard(append)
        for seq, payload in enumerate(append.payloads, first):
            fate = self.fates.get(seq)
            if fate is None:
                self.fates[seq] = self.live[seq] = Fate(append, payload, moment)
            elif fate.append is append:
                fate.placed_at = min(fate.placed_at, moment)
            else:
                self.complain(f"seq {seq} is used twice: by {fate.append} and by {append}")

    def _placed_at(self, append: Append) -> int | None:
        first = self.firsts.get(append)
        return None if first is None else self.fates[first].placed_at

    def _delete(self, delete: Delete) -> None:
        self.deletes.append(delete)
        if not delete.acked:
            self.undecided.append(delete)
            return
        for seq, fate in self.live.items():
            surely = fate.placed_at < delete.started
            if surely and delete.reaches(seq) and delete.names(fate.payload.tag):
                fate.deleted_at = min(fate.deleted_at or delete.ended, delete.ended)

    def _note_reach(self, share: Round) -> None:
        """How far the log may have grown at each moment, answered or not."""
        readings = []
        loose = 0
        for append in sorted(share.appends, key=lambda append: append.started):
            loose += len(append.payloads) if append in self.loose else 0
            first = self.firsts.get(append, 0)
            last = first + len(append.payloads) - 1 if first else self.head
            readings.append(Reading(append.started, append.started, last + loose))
        self.reach = Rising(self.head, readings)

    # --- checks ---

    def _check_never_back(self, share: Round) -> None:
        pages = [page for walk in share.walks for page in walk.pages]
        floors = [Reading(page.started, page.ended, page.earliest) for page in pages]
        heads = [Reading(page.started, page.ended, page.head) for page in pages]
        fresh = [answer for _, answer in share.answers if not answer.deduped]
        acks = [
            Reading(answer.started, answer.ended, answer.first_seq + len(append.payloads) - 1)
            for append, answer in share.answers
        ]
        lowest_floor = Rising(self.floor, floors)
        lowest_head = Rising(self.head, heads + acks)
        for page in pages:
            if page.earliest < (bound := lowest_floor.before(page.started)):
                self.complain(f"earliest_seq moved back from {bound} to {page.earliest}")
            if page.head < (bound := lowest_head.before(page.started)):
                self.complain(f"head_seq moved back from {bound} to {page.head}")
        for answer in fresh:
            if answer.first_seq <= (bound := lowest_head.before(answer.started)):
                self.complain(f"seq {answer.first_seq} was given out below the head {bound}")
        self.floor = lowest_floor.last
        self.head = lowest_head.last

    def _check_walk(self, walk: Walk) -> None:
        gaps = walk.gaps
        records = walk.records
        if walk.state is not None:
            self._check_quiet(walk, records)
        for page in walk.pages:
            self._check_page(page, walk, gaps)
        self._check_order(records)
        self._check_gaps(gaps, records, walk)

    def _check_page(self, page: Page, walk: Walk, gaps: list[Gap]) -> None:
        for seen in page.records:
            if not page.after < seen.seq <= page.next:
                self.complain(f"seq {seen.seq} is outside of the page ({page.after}, {page.next}]")
            self._check_present(seen, page, walk)
        present = {seen.seq for seen in page.records}
        silent: list[Span] = []
        unexcused: list[Span] = []
        for span in self._absent_spans(page, present):
            for part, explicit in split(span, gaps):
                if not self._is_excused(part, page, walk, explicit):
                    (unexcused if explicit else silent).append(part)
        self._complain_of(silent, "missing without a gap", page, walk)
        self._complain_of(unexcused, "lost, which nothing excuses", page, walk)

    def _absent_spans(self, page: Page, present: set[int]) -> Iterator[Span]:
        """What was examined and not returned: placed seqs one by one, others in one span."""
        low = bisect.bisect_right(self.placed, page.after)
        high = bisect.bisect_right(self.placed, page.next)
        start = page.after + 1
        for seq in self.placed[low:high]:
            if start < seq:
                yield start, seq - 1
            if seq not in present:
                yield seq, seq
            start = seq + 1
        if start <= page.next:
            yield start, page.next

    def _check_present(self, seen: Seen, page: Page, walk: Walk) -> None:
        fate = self.fates.get(seen.seq)
        if fate is None:
            return
        if self._was_gone(seen.seq, fate, page.started):
            self.complain(f"seq {seen.seq} was gone and is back")
        if fate.deleted_at is not None and fate.deleted_at < page.started:
            self.complain(f"seq {seen.seq} was deleted and is still there")
        if self.terms.durability == "ephemeral" and fate.append.run < walk.run:
            self.complain(f"seq {seen.seq} is ephemeral and outlived its process")

    def _was_gone(self, seq: int, fate: Fate, moment: int) -> bool:
        """Whether a read that ended before this moment had passed over the seq."""
        if self.gone.get((seq, seq), moment) < moment:
            return True
        if fate.seen:
            return False
        fate.seen = True
        return any(
            first <= seq <= last and gone_at < moment
            for (first, last), gone_at in self.gone.items()
            if first < last
        )

    def _is_excused(self, span: Span, page: Page, walk: Walk, explicit: bool) -> bool:
        self.gone[span] = min(self.gone.get(span, page.ended), page.ended)
        self.live.pop(span[0], None)
        first, last = span
        allowed = self._may_be_evicted(last, page, walk) or self._may_be_lost(first, walk)
        return (explicit and allowed) or self._may_be_deleted(span, page)

    def _complain_of(self, spans: list[Span], what: str, page: Page, walk: Walk) -> None:
        if not spans:
            return
        fate = self.fates.get(spans[0][0])
        given = f"the first was given to {fate.append}" if fate else "given to nobody we know"
        self.complain(
            f"{format_spans(spans)} {what}; {given}; seen in run {walk.run} by {format_page(page)}"
        )

    def _may_be_deleted(self, span: Span, page: Page) -> bool:
        fate = self.fates.get(span[0])
        if fate is not None and fate.deletable:
            return True
        found = any(
            delete.started < page.ended
            and delete.reaches(span[1])
            and self._could_mean(delete, fate)
            for delete in self.deletes
        )
        if found and fate is not None:
            fate.deletable = True
        return found

    def _could_mean(self, delete: Delete, fate: Fate | None) -> bool:
        """A delete takes what is there when it is called: nothing that was offered only later."""
        if fate is not None:
            return fate.append.started < delete.ended and delete.names(fate.payload.tag)
        return delete.names(None) or any(
            append.started < delete.ended and any(delete.names(p.tag) for p in append.payloads)
            for append in self.loose
        )

    def _may_be_evicted(self, seq: int, page: Page, walk: Walk) -> bool:
        """A cap may take what is as far behind the newest record, even one not committed yet."""
        cap = self.terms.cap_records
        grown = 0 if walk.state is not None else self.reach.before(page.ended)
        return cap > 0 and seq <= max(page.head, grown) - cap

    def _may_be_lost(self, seq: int, walk: Walk) -> bool:
        """A crash may take seqs that nobody was given, and what an earlier life held in memory."""
        if walk.run == self.born:
            return False
        fate = self.fates.get(seq)
        if fate is None:
            return True
        return self.terms.durability == "ephemeral" and fate.append.run < walk.run

    def _check_order(self, records: list[Seen]) -> None:
        for one, two in itertools.pairwise(records):
            if one.seq >= two.seq:
                self.complain(f"seq {two.seq} follows {one.seq}")
            if one.ts > two.ts:
                self.complain(f"$ts falls from seq {one.seq} to {two.seq}")

    def _check_gaps(self, gaps: list[Gap], records: list[Seen], walk: Walk) -> None:
        seqs = [seen.seq for seen in records]
        for gap in gaps:
            inside = bisect.bisect_left(seqs, gap.first) != bisect.bisect_right(seqs, gap.last)
            if gap.first > gap.last or (inside and walk.state is not None):
                self.complain(f"{gap} is empty or holds live records")
            elif not self._is_reason(gap, walk):
                self.complain(f"{gap} gives a reason that nothing supports (run {walk.run})")

    def _is_reason(self, gap: Gap, walk: Walk) -> bool:
        if gap.reason == "restart":
            return any(self._may_be_lost(seq, walk) for seq in range(gap.first, gap.last + 1))
        last = walk.pages[-1]
        return gap.reason in REASONS_OF_CAP and self._may_be_evicted(gap.first, last, walk)

    def _check_quiet(self, walk: Walk, records: list[Seen]) -> None:
        state = walk.state
        assert state is not None
        first, last = walk.pages[0], walk.pages[-1]
        expected = {
            "where the walk starts": (first.after, 0),
            "where the walk ends": (last.next, state.head),
            "caught_up": (last.caught_up, True),
            "head_seq of diff": (last.head, state.head),
            "earliest_seq of diff": (last.earliest, state.earliest),
            "next_seq": (state.next, state.head + 1),
            "earliest_seq": (state.earliest, records[0].seq if records else state.head + 1),
            "count": (state.count, len(records)),
            "bytes": (state.size_bytes, sum(seen.payload.size_bytes for seen in records)),
            "durability": (state.durability, self.terms.durability),
        }
        for name, (found, right) in expected.items():
            if found != right:
                self.complain(f"{name} is {found}, should be {right} (run {walk.run})")
        for page, following in itertools.pairwise(walk.pages):
            if page.next != following.after or page.next <= page.after:
                self.complain(f"the walk does not go on from ({page.after}, {page.next}]")
        placed = (seq for seq, fate in self.live.items() if fate.placed_at <= last.ended)
        if (reach := max(placed, default=0)) > state.head:
            self.complain(f"an append reaches to {reach}, the head is {state.head}")
        if 0 < self.terms.cap_records < len(records):
            self.complain(f"{len(records)} records are live")
        self._check_undecided(walk, {seen.seq for seen in records})

    def _check_undecided(self, walk: Walk, present: set[int]) -> None:
        """A delete nobody answered has happened or not; a crash must not leave half of one."""
        page = walk.pages[-1]
        for delete in self.undecided:
            others = [other for other in self.deletes if other is not delete]
            left, took = [], []
            for seq, fate in self.live.items():
                certain = (
                    fate.placed_at < delete.started
                    and delete.reaches(seq)
                    and delete.names(fate.payload.tag)
                    and not self._may_be_evicted(seq, page, walk)
                    and not self._may_be_lost(seq, walk)
                    and not any(o.reaches(seq) and self._could_mean(o, fate) for o in others)
                )
                if certain:
                    (left if seq in present else took).append(seq)
            if left and took:
                self.complain(
                    f"half of a delete survived: took {format_seqs(took)}, left {format_seqs(left)}"
                )
        self.undecided.clear()
