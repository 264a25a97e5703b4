"""Semantic versions: the examples of semver.org, and texts that are no version."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headrace.flags.semver import Semver, parse_semver

ASCENDING = [
    "0.0.0", "0.0.1", "0.0.2", "0.0.10", "0.1.0", "0.10.0", "1.0.0-0", "1.0.0-1",
    "1.0.0-10", "1.0.0-99999999999999999999999", "1.0.0--", "1.0.0-0a", "1.0.0-A", "1.0.0-alpha",
    "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11",
    "1.0.0-rc.1", "1.0.0", "1.0.1-rc", "1.0.1", "2.0.0", "2.1.0", "2.1.1", "10.0.0",
    "99999999999999999999999.0.0",
]  # fmt: skip


def parsed(text: str) -> Semver:
    version = parse_semver(text)
    assert version is not None, text
    return version


def test_versions_are_ordered() -> None:
    for lower, higher in pairwise(ASCENDING):
        assert parsed(lower) < parsed(higher), (lower, higher)


def test_what_a_version_was_built_from_does_not_count() -> None:
    assert parsed("1.0.0+a.001") == parsed("1.0.0+b") == parsed("1.0.0")
    assert parsed("1.0.0-rc+a") == parsed("1.0.0-rc")


@pytest.mark.parametrize(
    "text",
    [
        "", "1", "1.2", "1.2.3.4", "v1.2.3", "01.2.3", "1.02.3", "1.2.03", "1.2.3-", "1.2.3+",
        "1.2.3-01", "1.2.3-a..b", "1.2.3-a.", "1.2.3-ä", "1.2.3+a+b", "1.2.3+.", "-1.2.3", " 1.2.3",
        "1.2.3\n", "1.2.3 ", "1.2.x", "١.2.3", "1.2.3-" + "a" * 300, "1." * 100,
    ],
)  # fmt: skip
def test_what_is_no_version(text: str) -> None:
    assert parse_semver(text) is None
