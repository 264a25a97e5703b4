"""Names on the flags surface: a namespace is a log, a tenant an empty one, both called by slugs."""

from __future__ import annotations

from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import U64_MAX
from headrace.core.owners import FLAGS_PREFIX
from headrace.flags.keys import LABEL_RULE, SLUG_RULE, is_label, is_slug

PREFIX = "flags:"
TENANTS = f"{FLAGS_PREFIX}tenants/"
"""A tenant is there while its log is; nothing is ever written to that."""

_SHOWN = 100


def parse_slug(text: str, field: str = "slug") -> str:
    """The name of a tenant or of a namespace; refuses everything else."""
    if not is_slug(text):
        raise Refused(
            Code.INVALID,
            f"{field} has {SLUG_RULE}",
            field=field,
            value=text[:_SHOWN],
        )
    return text


def parse_environment(text: str) -> str:
    """The name of an environment; refuses everything else."""
    if not is_label(text):
        raise Refused(
            Code.INVALID,
            f"environment has {LABEL_RULE}",
            field="environment",
            value=text[:_SHOWN],
        )
    return text


def parse_version(text: str | None) -> int:
    """The number of a version; refuses everything else."""
    version = parse_digits(text or "", U64_MAX)
    if not version:
        raise Refused(Code.INVALID, "version is a whole number from 1 on", field="version")
    return version


def log_of(tenant: str, namespace: str) -> str:
    """The log of a namespace."""
    return f"{PREFIX}{tenant}:{namespace}"


def namespaces_of(tenant: str) -> str:
    """How the logs of all namespaces of a tenant begin."""
    return f"{PREFIX}{tenant}:"


def parse_log(name: str) -> tuple[str, str]:
    """The tenant and the namespace of a log of ours."""
    _, tenant, namespace = name.split(":")
    return tenant, namespace


def tenant_log(tenant: str) -> str:
    """The log that stands for a tenant."""
    return TENANTS + tenant
