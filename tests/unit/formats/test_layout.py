"""File names of a data directory."""

from __future__ import annotations

from headrace.formats import layout


def test_names_sort_as_their_numbers_do() -> None:
    assert layout.journal_file(5) < layout.journal_file(40) < layout.journal_file(2**63)
    assert layout.snapshot_file(9) < layout.snapshot_file(10)
    assert layout.manifest(9) < layout.manifest(10)


def test_the_number_comes_back() -> None:
    for name in (layout.journal_file(123), layout.snapshot_file(123), layout.manifest(123)):
        assert layout.number_of(name) == 123


def test_a_stranger_s_file_has_no_number() -> None:
    for name in ("journal/notes.txt", "journal/.log", "٣.log", "lost+found"):
        assert layout.number_of(name) is None
