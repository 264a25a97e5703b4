from itertools import pairwise

import numpy as np
import pytest

from headrace.formats import leb128


@pytest.mark.parametrize("numbers", [[], [0], [127, 128, 300, 2**63 - 1, 0], list(range(40_000))])
def test_numbers_come_back(numbers: list[int]) -> None:
    octets, starts = leb128.encode(np.array(numbers, np.int64))
    assert leb128.decode(octets.tobytes()).tolist() == numbers
    assert octets.tobytes() == b"".join(map(leb128.number, numbers))
    assert starts[-1] == len(octets)
    assert [octets[a:b].tobytes() for a, b in pairwise(starts)] == [
        leb128.number(n) for n in numbers
    ]


def test_the_bytes_are_leb128() -> None:
    assert leb128.number(624_485) == b"\xe5\x8e\x26"
