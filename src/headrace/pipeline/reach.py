"""Whether somebody answers where Spark is said to be: Spark itself would try for minutes."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

from headrace.pipeline.errors import CannotRun

CONNECT_S = 5.0
_MASTER = re.compile(
    r"local(\[(\*|[1-9][0-9]*)(,[0-9]+)?\])?|local-cluster\[.*\]|spark://.+|yarn|k8s://.+"
)
_REMOTE = re.compile(r"sc://([^/;]+)(/.*)?")
_PORT = 15002
"""Of a Connect server that names none."""


def check_master(url: str) -> None:
    """Refuse what is no master, and one with an address at which nobody answers."""
    if not _MASTER.fullmatch(url):
        forms = "local[2,3], spark://host:7077, yarn or k8s://…"
        raise CannotRun(f"--master {url}: a master is {forms}")
    if url.startswith("spark://"):
        hosts = url.removeprefix("spark://").split(",")
        _check(f"no Spark master answers at {url}", [_address(host, 7077, url) for host in hosts])
    if url.startswith("k8s://"):
        scheme, separator, rest = url.removeprefix("k8s://").partition("://")
        host = (rest if separator else scheme).partition("/")[0]
        port = 80 if separator and scheme == "http" else 443
        _check(f"no Kubernetes answers at {url}", [_address(host, port, url)])


def check_remote(url: str) -> None:
    """Refuse what is no Connect server, and one that does not answer."""
    found = _REMOTE.fullmatch(url)
    if found is None:
        raise CannotRun(f"--remote {url}: a Spark Connect server is sc://host:15002")
    _check(f"no Spark Connect server answers at {url}", [_address(found[1], _PORT, url)])


def _address(text: str, port: int, url: str) -> tuple[str, int]:
    host, colon, number = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text.strip("[]"), port
    if not number.isdigit():
        raise CannotRun(f"{url}: {number!r} is no port")
    return host.strip("[]"), int(number)


def _check(problem: str, addresses: Sequence[tuple[str, int]]) -> None:
    """One of them is enough."""
    said = ""
    for address in addresses:
        try:
            socket.create_connection(address, CONNECT_S).close()
        except (OSError, OverflowError) as error:
            said = said or str(error)
        else:
            return
    raise CannotRun(f"{problem}: {said}")
