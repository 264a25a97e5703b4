"""Names that manifests and subscriptions use: slugs, keys, environments and variants."""

from __future__ import annotations

import re

_SLUG = re.compile(r"[a-z][a-z0-9-]{0,62}\Z")
_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")

SLUG_RULE = "1 to 63 characters of a-z 0-9 -, a letter first"
KEY_RULE = "1 to 63 characters of a-z 0-9 _ -, a letter first"
LABEL_RULE = "1 to 63 characters of A-Z a-z 0-9 . _ -, a letter or digit first"


def is_slug(text: str) -> bool:
    """Whether a tenant or a namespace may be called so."""
    return _SLUG.match(text) is not None


def is_key(text: str) -> bool:
    """Whether a flag or a segment may be called so."""
    return _KEY.match(text) is not None


def is_label(text: str) -> bool:
    """Whether an environment or a variant may be called so; `_` is no environment's own name."""
    return _LABEL.match(text) is not None
