"""Whether anything says who we are to a bucket, before a library looks for it for minutes."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_OTHER_WAYS = (
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_SKIP_SIGNATURE",
)
_PROFILES = (
    ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
    ("AWS_CONFIG_FILE", ".aws/config"),
)
_METADATA = "http://169.254.169.254"
_ROLE_S = 1.0
"""Such an address is near, or not there."""


def missing_credentials(environ: Mapping[str, str]) -> str | None:
    """What is not there, in words; None if something may say who we are."""
    missing = [name for name in KEYS if not environ.get(name)]
    if not missing or any(environ.get(name) for name in _OTHER_WAYS):
        return None
    if len(missing) == len(KEYS) and _has_roles(environ):
        return None
    verb = "is" if len(missing) == 1 else "are"
    named = " and ".join(missing)
    return f"no credentials, {named} {verb} not set, and this machine has no role"


def has_profiles(environ: Mapping[str, str], home: Path) -> bool:
    """Whether there are files in which libraries that know of them may find some."""
    return any((home / environ.get(name, usual)).exists() for name, usual in _PROFILES)


def _has_roles(environ: Mapping[str, str]) -> bool:
    """Whether somebody answers where machines of AWS are told their roles."""
    url = urlsplit(environ.get("AWS_METADATA_ENDPOINT") or _METADATA)
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        socket.create_connection((url.hostname or "", port), _ROLE_S).close()
    except OSError:
        return False
    return True
