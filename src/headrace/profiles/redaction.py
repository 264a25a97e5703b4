"""Secrets that have no place in a log, and how they are taken out.

By name: a member of an object whose key is a secret's loses its whole value. By sight: in texts,
what follows such a name and a sign of assignment, and what looks like credentials by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

MARK = "[REDACTED]"
SECRETS = ("password", "token", "secret", "authorization", "cookie", "apikey")

_SIGHTS = (
    r"bearer|basic|://|eyj|[spr]k_|sk-|gh[pousr]_|github_pat_|xox|akia|private key|\[redacted\]"
)
"""A text without any of these, or the name of a secret, is not looked at more closely."""
_WINDOW = 16 << 10
_REACH = 16 << 10
"""Where a secret may begin that one search looks for, and how far behind it may be told."""
_WHOLE_LINES = frozenset(("authorization", "cookie"))
"""Names whose values go to the end of the line: they have spaces in them."""
_CREDENTIALS = r"""
    \b(?P<scheme>(?:bearer|basic)\s{1,8})(?=\S{0,4096}[0-9=])[a-z0-9._~+/=-]{8,}
  | (?P<url>://[^\s/:@]{0,256}:)[^\s/@]{1,256}(?=@)
  | (?<![\w-])eyj[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?
  | \b(?:[spr]k_(?:live|test)_[a-z0-9]{8,}|sk-[\w-]{20,}|gh[pousr]_[a-z0-9]{20,}
        |github_pat_\w{20,}|xox[abeprs]-[\w-]{10,}|akia[0-9a-z]{16}\b)
  | -----begin\ [a-z ]{0,32}private\ key-----[^-]*(?:-----end\ [a-z ]{0,32}private\ key-----)?
"""


class Redactor:
    """Takes out what goes by these names, and in texts by sight."""

    def __init__(self, more: Iterable[str] = (), *, texts: bool = True) -> None:
        self._names = frozenset((*SECRETS, *more))
        self._texts = texts
        words = {re.escape(each) for name in self._names for each in _spellings(name)}
        self._longest = max(map(len, (*words, _SIGHTS)))
        self._sights = re.compile("|".join((*sorted(words), _SIGHTS)))
        self._pattern = _compile(words)

    def clean_text(self, text: str) -> str | None:
        """A text with marks where it had secrets; None when it has none."""
        if not self._texts or not self._has_sights(text.lower()):
            return None
        if len(text) <= _WINDOW:
            cleaned = self._pattern.sub(_replace, text)
        else:
            cleaned = "".join(self._cleaned(text))
        return cleaned if MARK in cleaned else None

    def _has_sights(self, text: str) -> bool:
        if len(text) <= _WINDOW:
            return self._sights.search(text) is not None
        return any(
            self._sights.search(text, start, start + _WINDOW + self._longest)
            for start in range(0, len(text), _WINDOW)
        )

    def _cleaned(self, text: str) -> Iterator[str]:
        """The text in parts. A search keeps the interpreter, so it goes on from window to window;
        what begins in one may end behind it.
        """
        at = start = 0
        while start < len(text):
            stop = start + _WINDOW
            found = self._pattern.search(text, start, stop + _REACH)
            if found is None or found.start() >= stop:
                start = stop
                continue
            if found.end() == stop + _REACH:
                found = self._pattern.match(text, found.start()) or found
            yield text[at : found.start()]
            yield _replace(found)
            at = start = found.end()
        yield text[at:]

    def clean(self, tree: Any, found: list[str], path: str = "") -> None:
        """Take out what is below this object or array; adds where that was."""
        for key, value in tree.items() if type(tree) is dict else enumerate(tree):
            if type(key) is str and key.lower() in self._names:
                tree[key] = MARK
                found.append(f"{path}{key}")
            elif type(value) is dict or type(value) is list:
                self.clean(value, found, f"{path}{key}.")
            elif type(value) is str and (cleaned := self.clean_text(value)) is not None:
                tree[key] = cleaned
                found.append(f"{path}{key}")


def _spellings(name: str) -> tuple[str, ...]:
    return ("apikey", "api_key", "api-key") if name == "apikey" else (name,)


def _compile(words: set[str]) -> re.Pattern[str]:
    """Names may begin with more (`access_token`) but end as they are: `tokens: 17` is no secret."""
    lines = "|".join(sorted(words & _WHOLE_LINES))
    values = "|".join(sorted(words - _WHOLE_LINES, key=len, reverse=True))
    sign = r"""(?:\\?["'])?\s{0,8}[=:]\s{0,8}"""
    return re.compile(
        rf"""
        (?P<line>(?:{lines}){sign})[^\r\n]+
      | (?P<name>(?:{values}){sign}(?P<quote>\\?["'])?(?:(?:bearer|basic)\s{{1,8}})?)
        (?(quote)(?:(?!(?P=quote))(?:\\.|[^\\\r\n]))+|[^\s&"'<>,;]+)
      | {_CREDENTIALS}
        """,
        re.IGNORECASE | re.VERBOSE,
    )


def _replace(match: re.Match[str]) -> str:
    kept = match["line"] or match["name"] or match["scheme"] or match["url"] or ""
    return f"{kept}{MARK}"
