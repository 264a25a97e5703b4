import numpy as np
import pytest

from headrace.core.errors import Corrupt
from headrace.formats import companion
from headrace.formats.companion import Descriptor, File, Part


def test_numbers_sort_as_their_keys_do() -> None:
    whole = [-(2**63), -5, -1, 0, 1, 7, 2**63 - 1]
    keys = companion.sortable(np.array(whole, np.int64)).to_pylist()
    assert keys == sorted(keys)
    assert keys == [companion.sortable_one(n) for n in whole]
    broken = [-1e300, -2.5, -1e-300, 0.0, 1e-300, 2.5, 1e300]
    keys = companion.sortable(np.array(broken)).to_pylist()
    assert keys == sorted(keys)
    assert keys == [companion.sortable_one(n) for n in broken]


def test_long_values_keep_their_beginning_and_a_digest() -> None:
    one, other = b"x" * 5000, b"x" * 4999 + b"y"
    assert companion.short(b"x" * 1024) == b"x" * 1024
    assert len(companion.short(one)) < 1024
    assert companion.short(one).startswith(b"x" * 1000)
    assert companion.short(one) != companion.short(other)


def test_the_least_key_above_a_prefix() -> None:
    assert companion.upper(b"ab") == b"ac"
    assert companion.upper(b"a\xff") == b"b"
    assert companion.upper(b"\xff") is None


def test_descriptors_come_back() -> None:
    descriptor = Descriptor(
        segments=(3,),
        plans=2,
        rows=10,
        parts=(Part(log=1, hash="h", spans=((1, 4), (9, 9)), rows=5, exact=("a",)),),
        files=(
            File(family="lex", name="builds/x.lex.parquet", rows=1, file_bytes=2, checksum="c"),
        ),
    )
    assert companion.decode_descriptor(companion.encode_descriptor(descriptor), "x") == descriptor
    assert descriptor.file("lex") == descriptor.files[0]
    assert descriptor.file("text") is None


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"format":9}', b"\xff"])
def test_what_is_no_build_is_corrupt(raw: bytes) -> None:
    with pytest.raises(Corrupt):
        companion.decode_descriptor(raw, "x")
