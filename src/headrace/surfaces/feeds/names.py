"""Names on the feeds surface: a tenant is a log, a resource a key of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

from headrace.core.limits import TENANT_LENGTH_MAX, TENANT_LENGTH_MIN
from headrace.surfaces.feeds.errors import invalid_field

PREFIX = "feed:"
SURFACE = "feeds"
"""What the engine knows our consumers by."""

TENANT_PATTERN = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
_TENANT = re.compile(TENANT_PATTERN.removesuffix("$") + r"\Z")


def parse_tenant(text: str) -> str:
    """The slug of a tenant; refuses everything else."""
    return parse_slug(text, "tenantId")


def parse_slug(text: str, field: str) -> str:
    """The slug of a tenant, or of something of one; refuses everything else."""
    fits = TENANT_LENGTH_MIN <= len(text) <= TENANT_LENGTH_MAX
    if not fits or _TENANT.match(text) is None:
        raise invalid_field(
            field,
            f"is a slug of {TENANT_LENGTH_MIN} to {TENANT_LENGTH_MAX} characters of a-z 0-9, with"
            " single hyphens inside",
            text,
        )
    return text


def consumers_of(tenant: str) -> str:
    """How the names of a tenant's trackers and subscriptions begin in the engine."""
    return f"{SURFACE}/{tenant}/"


def log_of(tenant: str) -> str:
    """The log of a tenant."""
    return PREFIX + tenant


class EventResource(NamedTuple):
    """What a key of a record says: a resource and its ancestors."""

    type: str
    id: str
    parents: Mapping[str, str]


def format_key(resource: EventResource) -> str:
    """The key of a resource: `version/3?templateId=invoice&variantId=english`."""
    key = f"{resource.type}/{quote(resource.id, safe='')}"
    if not resource.parents:
        return key
    parents = sorted(resource.parents.items())
    return f"{key}?{'&'.join(f'{_quoted(name)}={_quoted(id)}' for name, id in parents)}"


def parse_key(key: str) -> EventResource:
    """The resource of a key of ours."""
    path, _, query = key.partition("?")
    type, _, id = path.partition("/")
    parents = {}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        parents[unquote(name)] = unquote(value)
    return EventResource(type, unquote(id), parents)


def resource_type_of(key: str) -> str:
    """The type of the resource of a key of ours."""
    return key.partition("/")[0]


def _quoted(text: str) -> str:
    return quote(text, safe="")
