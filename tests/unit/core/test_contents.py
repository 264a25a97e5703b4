"""Contents by digest: references counted, rows that go, and what a snapshot holds of it."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from random import Random
from unittest import mock

import pytest

from headrace.core import contents as core_contents
from headrace.core.cap import Cap
from headrace.core.contents import Contents
from headrace.core.entry import Delete, Refer
from headrace.core.errors import Code, Refused

STORE, BY = 7, 9
A, B, C = (sha256(text).digest() for text in (b"a", b"b", b"c"))


def filled(*added: bytes, taken: tuple[bytes, ...] = ()) -> Contents:
    held = Contents()
    held.refer(core_contents.name(None, STORE, BY, taken or added, added, 5, [20] * len(added)))
    return held


def test_a_version_names_what_is_there_and_what_comes() -> None:
    held = filled(A, B, taken=(A, B, A))
    assert (held.seq_of(A), held.seq_of(B), held.seq_of(C)) == (5, 6, None)
    assert (held.references(A), held.references(B), held.references(C)) == (2, 1, 0)
    assert held.held_from == {BY: 1}
    held.refer(core_contents.name(held, STORE, BY + 1, [B, C], [C], 7, [30]))
    assert (held.references(B), held.references(C), held.seq_of(C)) == (2, 1, 7)
    assert held.held_from == {BY: 1, BY + 1: 1}
    assert core_contents.missing(held, [A, b"?" * 32]) == {b"?" * 32}
    assert core_contents.missing(None, [A]) == {A}


def test_the_last_reference_takes_the_record_with_it() -> None:
    held = filled(A, B, C, taken=(A, A, B, C))
    entry, delete = core_contents.release(held, STORE, BY, [A, B], 4)
    assert delete == Delete(STORE, [6, 6], 1, 20)
    held.refer(entry)
    assert B not in held
    assert (held.references(A), held.held_from[BY]) == (1, 4)
    entry, delete = core_contents.release(held, STORE, BY, [], 5)
    assert delete is None
    held.refer(entry)
    assert held.held_from == {BY: 5}
    entry, delete = core_contents.release(held, STORE, BY, [C, A], 0)
    assert delete == Delete(STORE, [5, 5, 7, 7], 2, 40)
    held.refer(entry)
    assert (len(held), held.held_from) == (0, {})


def test_a_version_after_a_release_keeps_what_is_held() -> None:
    held = filled(A)
    held.refer(core_contents.release(held, STORE, BY, [], 8)[0])
    assert core_contents.name(held, STORE, BY, [A], [], 0, []).held_from == 8


def test_there_are_only_so_many() -> None:
    held = filled(A, B)
    with mock.patch("headrace.core.contents._CAP", Cap("max_contents", 3)):
        core_contents.name(held, STORE, BY, [C], [C], 7, [20])
        with pytest.raises(Refused) as refused:
            core_contents.name(held, STORE, BY, [C], [C, b"?" * 32], 7, [20, 20])
        # What adds nothing is not held back by what others have.
        core_contents.name(held, STORE, BY, [A, B] * 9, [], 0, [])
    assert refused.value.code is Code.THROTTLED


def test_rows_are_found_whichever_go() -> None:
    """Against dictionaries, for many orders of coming and going."""
    for seed in range(20):
        random, held, model, seq = Random(seed), Contents(), dict[bytes, tuple[int, int, int]](), 1
        for step in range(200):
            if model and random.random() < 0.5:
                gone = random.choice(list(model))
                at, size, count = model.pop(gone)
                entry, delete = core_contents.release(held, STORE, BY, [gone] * count, 1)
                assert delete == Delete(STORE, [at, at], 1, size)
            else:
                new, size, count = sha256(b"%d" % step).digest(), step + 1, random.randint(1, 3)
                entry = core_contents.name(held, STORE, BY, [new] * count, [new], seq, [size])
                model[new] = (seq, size, count)
                seq += 1
            held.refer(entry)
            held = Contents.load(*held.dump()) if random.random() < 0.1 else held
        assert {
            each: (held.seq_of(each), held.size_of(each), held.references(each)) for each in held
        } == model
        assert Counter(held.seqs()) == Counter(at for at, _, _ in model.values())


def test_columns_that_do_not_fit_are_no_contents() -> None:
    columns, held_from = filled(A, B).dump()
    for at in range(4):
        broken = [column[:-8] if at == place else column for place, column in enumerate(columns)]
        with pytest.raises(ValueError, match=r"length|digests"):
            Contents.load(broken, held_from)


def test_digests_that_are_not_whole_are_no_entry() -> None:
    with pytest.raises(ValueError, match="digests"):
        Contents().refer(Refer(STORE, BY, 1, released=A[1:]))
