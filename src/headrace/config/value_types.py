"""Types of settings: text to value, or a ValueError that says what is accepted."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from headrace.delivery.addresses import AllowedHosts, is_host_name, parse_address
from headrace.storage.stores import split_bucket
from headrace.surfaces.notifications.configuration import (
    NotificationsConfiguration,
    read_configuration,
)
from headrace.web.credentials import Keyring
from headrace.web.json_web_tokens import Verifier
from headrace.web.users import UserTable

WHOLE_MAX = (1 << 63) - 1
_UNITS = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,19}) ?(|KiB|MiB|GiB)", re.IGNORECASE)
_WHOLE = re.compile(r"[0-9]{1,19}")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_ORIGIN = re.compile(r"https?://[^\s/?#@,]+", re.IGNORECASE)
_PUBLIC_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[A-Za-z0-9._~/-]*)?")
_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")


class ValueType(NamedTuple):
    """A type of value: how its text is read, what is accepted, and what it is in a file."""

    parse: Callable[[str], Any]
    accepts: str
    in_file: tuple[type, ...] = (str,)
    """Types of TOML; a list is one of texts, joined by commas everywhere else."""


def whole(minimum: int, maximum: int = WHOLE_MAX) -> ValueType:
    """Whole numbers between two bounds, both included."""
    accepts = f"a whole number from {minimum} to {maximum}"

    def parse(text: str) -> int:
        number = int(text) if _WHOLE.fullmatch(text) else -1
        if not minimum <= number <= maximum:
            raise ValueError(accepts)
        return number

    return ValueType(parse, accepts, (int,))


def size(minimum: int, maximum: int = WHOLE_MAX) -> ValueType:
    """Byte sizes between two bounds, both included."""
    upto = f" and at most {maximum}" if maximum < WHOLE_MAX else ""
    accepts = f"bytes, at least {minimum}{upto}, as 65536, 64KiB or 64MiB"

    def parse(text: str) -> int:
        match = _SIZE.fullmatch(text)
        bytes_ = int(match[1]) * _UNITS[match[2].lower()] if match else -1
        if not minimum <= bytes_ <= maximum:
            raise ValueError(accepts)
        return bytes_

    return ValueType(parse, accepts, (int, str))


def one_of(*words: str) -> ValueType:
    """One of a few words, in any case."""
    accepts = "one of " + ", ".join(words)

    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(accepts)
        return text.lower()

    return ValueType(parse, accepts)


def _parse_switch(text: str) -> bool:
    if text.lower() not in _ON + _OFF:
        raise ValueError(SWITCH.accepts)
    return text.lower() in _ON


def _parse_host(text: str) -> str:
    if parse_address(text) is None and not _HOST_NAME.fullmatch(text):
        raise ValueError(HOST.accepts)
    return text


def _parse_path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError(PATH.accepts)
    return Path(text)


def _parse_objects(text: str) -> str:
    split_bucket(text)
    return text


def _parse_origins(text: str) -> tuple[str, ...]:
    origins = tuple(origin.lower() for origin in map(str.strip, text.split(",")) if origin)
    if origins != ("*",) and not all(map(_ORIGIN.fullmatch, origins)):
        raise ValueError(ORIGINS.accepts)
    return origins


def _parse_hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(host.lower().strip("[]") for host in map(str.strip, text.split(",")) if host)
    if hosts != ("*",) and not all(parse_address(h) or is_host_name(h) for h in hosts):
        raise ValueError(HOSTS.accepts)
    return tuple(host.removesuffix(".") for host in hosts)


def _read_notifications(text: str) -> NotificationsConfiguration:
    return read_configuration(Path(text))


def _parse_public_url(text: str) -> str:
    if not _PUBLIC_URL.fullmatch(text):
        raise ValueError(PUBLIC_URL.accepts)
    return text.rstrip("/")


SWITCH = ValueType(_parse_switch, "1 or 0, true or false, yes or no, on or off", (bool,))
HOST = ValueType(_parse_host, "an IP address or a host name, without port or brackets")
PATH = ValueType(_parse_path, "a path")
OBJECTS = ValueType(_parse_objects, "s3://bucket/prefix")
ORIGINS = ValueType(
    _parse_origins,
    "origins as https://app.example.com, without a path, joined by commas, or * alone",
    (list,),
)
HOSTS = ValueType(
    _parse_hosts,
    "host names and addresses without ports, joined by commas, or * alone",
    (list,),
)
KEYS = ValueType(Keyring.parse, "secret[:scopes[:prefixes]], joined by commas", (list,))
ADMIN_TOKEN = ValueType(Keyring.parse_admin, "visible characters of ASCII")
JWT_SECRET = ValueType(Verifier.of_secret, "at least 32 bytes")
JWKS = ValueType(Verifier.of_file, "a file with public keys as a JWKS document")
USERS = ValueType(UserTable.parse, "name:password[:realm[:role+role]], joined by commas", (list,))
NOTIFICATIONS_FILE = ValueType(
    _read_notifications, "a YAML file as docs/surfaces/notifications-configuration.md tells"
)
PUBLIC_URL = ValueType(_parse_public_url, "an address as https://events.example.com")
RECEIVERS = ValueType(
    AllowedHosts.parse, "networks, addresses and host names, joined by commas", (list,)
)
