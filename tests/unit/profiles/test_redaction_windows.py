"""Secrets in long texts: found window by window, as in one search."""

from __future__ import annotations

import random
import re

import pytest

from headrace.profiles import redaction
from headrace.profiles.redaction import Redactor

PARTS = (
    "password=hunter2 ", 'token: "a\\"b c" ', "Authorization: Bearer abc123def456\n", "cookie=",
    "=",
    "bearer abcdefgh12345678 ", "https://user:pass@host/ ", "eyJhbGciOi.eyJzdWIiOi.sig ", "\n", " ",
    "sk_live_abcdefgh1234 ", "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n",
    "-----END RSA PRIVATE KEY-----",
    "akia0123456789abcdef", "tokens: 17 ", "ghp_abcdefghijklmnopqrstuvwx", "İ", "ünï ", '"',
    "my_secret",
)  # fmt: skip


def text(dice: random.Random) -> str:
    return "".join(dice.choices(PARTS, k=dice.randint(1, 40)))


@pytest.mark.parametrize("window", [1, 7, 100])
def test_windows_find_what_one_search_finds(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice, redactor = random.Random(window), Redactor(["my_secret"])
    monkeypatch.setattr(redaction, "_WINDOW", window)
    for _ in range(150):
        plain = text(dice)
        at_once = redactor._pattern.sub(redaction._replace, plain)
        if redactor._sights.search(plain.lower()) is None:
            assert redactor.clean_text(plain) is None
        else:
            assert redactor.clean_text(plain) == (at_once if redaction.MARK in at_once else None)


def test_no_search_looks_at_more_than_a_window_and_its_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []

    class Counted:
        def __init__(self, real: re.Pattern[str]) -> None:
            self._real = real
            self.match = real.match

        def search(self, text: str, start: int, stop: int) -> re.Match[str] | None:
            looks.append(min(stop, len(text)) - start)
            return self._real.search(text, start, stop)

    redactor = Redactor()
    monkeypatch.setattr(redactor, "_pattern", Counted(redactor._pattern))
    monkeypatch.setattr(redactor, "_sights", Counted(redactor._sights))
    length = 20 * redaction._WINDOW
    assert redactor.clean_text("x " * (length // 2) + "password=p") is not None
    assert max(looks) <= redaction._WINDOW + redaction._REACH
    assert len(looks) <= 2 * (length // redaction._WINDOW + 2)
    longest = "password='" + "y" * length
    assert redactor.clean_text(longest) == "password='[REDACTED]"
