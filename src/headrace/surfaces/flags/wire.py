"""The JSON of flags. Members of a request that are not known here are passed over."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.flags.evaluation import Evaluation
from headrace.flags.model import LintProblem
from headrace.surfaces.flags.permissions import TokenType
from headrace.surfaces.flags.version_rows import ChangedFile


class TenantRequest(msgspec.Struct):
    """A tenant to be made."""

    slug: str


class Tenant(msgspec.Struct):
    """A tenant."""

    slug: str
    created_at: str
    created_by: str


class TenantReply(msgspec.Struct):
    """The tenant is there."""

    tenant: Tenant
    request_id: str


class TenantListReply(msgspec.Struct, omit_defaults=True):
    """A page of tenants, by name."""

    tenants: list[Tenant]
    request_id: str
    next_cursor: str | None = None


class NamespaceRequest(msgspec.Struct):
    """A namespace to be made."""

    slug: str


class Namespace(msgspec.Struct):
    """A namespace, and the version of its manifest; 0 while it has none."""

    tenant: str
    slug: str
    version: int
    created_at: str
    created_by: str


class NamespaceReply(msgspec.Struct):
    """The namespace is there."""

    namespace: Namespace
    request_id: str


class NamespaceListReply(msgspec.Struct, omit_defaults=True):
    """A page of namespaces of a tenant, by name."""

    namespaces: list[Namespace]
    request_id: str
    next_cursor: str | None = None


class TokenRequest(msgspec.Struct):
    """A token to be made: what for, and until when."""

    type: TokenType
    name: str
    namespace: str | None = None
    environment: str | None = None
    expires_at: str | None = None


class TokenDescription(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A token without its secret."""

    id: str
    type: str
    name: str
    tenant: str | None = None
    namespace: str | None = None
    environment: str | None = None
    created_at: str
    created_by: str
    expires_at: str | None = None


class TokenReply(msgspec.Struct):
    """A new token. The secret is told here and never again."""

    token: TokenDescription
    secret: str
    request_id: str


class TokenListReply(msgspec.Struct, omit_defaults=True):
    """A page of tokens, oldest first; expired ones are among them."""

    tokens: list[TokenDescription]
    request_id: str
    next_cursor: str | None = None


# --- manifests ------------------------------------------------------------------------------------


class LintReply(msgspec.Struct):
    """What is wrong with a manifest, or might be: problems by path."""

    errors: tuple[LintProblem, ...]
    warnings: tuple[LintProblem, ...]


class ArchiveForm(msgspec.Struct):
    """The form that an archive comes in."""

    archive: bytes


class UploadReply(msgspec.Struct):
    """The archive is a version."""

    version: int
    uploaded_at: str
    flag_count: int
    segment_count: int
    closure_hash: str
    lint: LintReply
    request_id: str


class LintedReply(msgspec.Struct):
    """What an upload would say; nothing has changed."""

    flag_count: int
    segment_count: int
    closure_hash: str
    lint: LintReply
    request_id: str


class Version(msgspec.Struct):
    """A version of a manifest, and whether its files are still kept."""

    version: int
    uploaded_at: str
    uploaded_by: str
    closure_hash: str
    flag_count: int
    segment_count: int
    available: bool


class VersionListReply(msgspec.Struct, omit_defaults=True):
    """Versions, the newest first."""

    versions: list[Version]
    request_id: str
    next_before: int | None = None
    """There are more; ask for those before this one."""


class VersionDetail(Version):
    """A version with the files that it changed, by path."""

    files: tuple[ChangedFile, ...]


class VersionReply(msgspec.Struct):
    """A version and the files that it changed."""

    version: VersionDetail
    request_id: str


# --- evaluation -----------------------------------------------------------------------------------


class EvaluateRequest(msgspec.Struct):
    """A flag to be evaluated, and for whom."""

    flag: str
    context: dict[str, Any] = {}
    environment: str | None = None
    testing: bool = False


class EvaluateAllRequest(msgspec.Struct):
    """For whom all flags are to be evaluated."""

    context: dict[str, Any] = {}
    environment: str | None = None
    testing: bool = False


class EvaluateReply(msgspec.Struct):
    """The value of a flag, and why it is that."""

    flag: str
    value: Any
    variant: str
    rule_matched: str
    version: int
    request_id: str


class EvaluateAllReply(msgspec.Struct):
    """The values of all flags by key."""

    flags: dict[str, Evaluation]
    version: int
    request_id: str


# --- closures -------------------------------------------------------------------------------------


class SigningKeyReply(msgspec.Struct):
    """Links to closures are signed with a new key from now on."""

    created_at: str
    request_id: str
