"""Manifests: the list of segments, as JSON a person can read."""

from __future__ import annotations

import pytest

from headrace.core.errors import Corrupt
from headrace.formats.manifest import Manifest, decode_manifest, encode_manifest


def test_a_manifest_comes_back() -> None:
    manifest = Manifest(version=3, next_number=2, sealed_to=500)
    raw = encode_manifest(manifest)
    assert decode_manifest(raw, "m") == manifest
    assert raw.startswith(b"{\n")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"version":"x"}', b"\xff", b'{"format":99}'])
def test_anything_else_is_damage(raw: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_manifest(raw, "m")


def test_a_manifest_cut_short_is_damage() -> None:
    raw = encode_manifest(Manifest(version=3))
    for stop in range(len(raw.rstrip())):
        with pytest.raises(Corrupt):
            decode_manifest(raw[:stop], "m")
