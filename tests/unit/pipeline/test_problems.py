"""Problems are counted, and a few of them kept."""

from __future__ import annotations

import pyarrow as pa

from headrace.pipeline.problems import ProblemKind, Tally, _Tallying


def test_problems_are_told_by_kind_the_worst_first() -> None:
    tally = Tally(2)
    for n in range(3):
        tally.add(ProblemKind.POSTINGS, f"key {n}:\n  wrong")
    other = Tally(2)
    other.add(ProblemKind.SEGMENT, "gone")
    other.add(ProblemKind.POSTINGS, "key 3")
    tally.join(other)
    assert tally.total == 5
    assert list(tally.lines()) == [
        f"{ProblemKind.SEGMENT}: 1",
        "  gone",
        f"{ProblemKind.POSTINGS}: 4, 2 of them",
        "  key 0: wrong",
        "  key 1: wrong",
    ]


def test_a_task_tells_a_few_of_many() -> None:
    def tell(row: dict[str, int]) -> tuple[ProblemKind, str] | None:
        return (ProblemKind.MISSING, f"seq {row['seq']}") if row["seq"] % 2 else None

    rows = pa.RecordBatch.from_pydict({"seq": list(range(1000))})
    (told,) = _Tallying(tell, 3)(iter([rows] * 5))
    assert told.to_pylist() == [
        {"kind": str(ProblemKind.MISSING), "what": "seq 1\nseq 3\nseq 5", "n": 2500}
    ]
