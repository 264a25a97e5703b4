"""The handlers of manifests: upload, lint, download, versions."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.core.cap import Cap
from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    LIST_PAGE_MAX,
    MANIFEST_FORM_BYTES_MAX,
    MANIFEST_UPLOADS_MAX,
    MANIFEST_UPLOADS_PER_KEY,
    MANIFEST_UPLOADS_PER_TENANT,
    U64_MAX,
)
from headrace.engine.open_log import OpenLog
from headrace.flags.delta import Closure
from headrace.flags.model import LintReport
from headrace.flags.subscription import EVERY_FLAG
from headrace.formats.multipart import parse_boundary
from headrace.processes.manifest_messages import CheckArchive
from headrace.surfaces.flags import wire
from headrace.surfaces.flags.errors import MANIFEST_NOT_FOUND
from headrace.surfaces.flags.manifest_store import ManifestStore
from headrace.surfaces.flags.names import parse_version
from headrace.surfaces.flags.permissions import require_manifest_read, require_manifest_write
from headrace.surfaces.flags.tenants import find_namespace, parse_names
from headrace.surfaces.flags.version_rows import VersionHead
from headrace.surfaces.flags.versions import version_conflict
from headrace.web.answers import Answer, Headers, json_answer
from headrace.web.calls import Call, parse_whole
from headrace.web.concurrency import Slots
from headrace.web.entity_tags import tag_matches
from headrace.web.request import Request

ARCHIVE = "application/octet-stream"


class ManifestRoutes:
    """The handlers, over what there is once the engine is."""

    def __init__(
        self,
        store: Callable[[], ManifestStore],
        archive_bytes_max: int,
        manifest_bytes_max: int,
    ) -> None:
        self._store = store
        self._archive_bytes_max = archive_bytes_max
        self._manifest_bytes_max = manifest_bytes_max
        self._uploads = Slots(
            total=Cap("max_manifest_uploads", MANIFEST_UPLOADS_MAX),
            per_key=Cap("max_manifest_uploads_per_key", MANIFEST_UPLOADS_PER_KEY),
        )
        self._of_tenants = Slots(
            per_key=Cap("max_manifest_uploads_per_tenant", MANIFEST_UPLOADS_PER_TENANT)
        )
        """However many keys a tenant has, there is room for others."""

    # --- uploads ----------------------------------------------------------------------------------

    async def put(self, call: Call) -> Answer:
        tenant, slug = parse_names(call)
        require_manifest_write(call.principal, tenant, slug)
        live = await find_namespace(call, tenant, slug)
        if_version = parse_if_version(call.req)
        if if_version is not None and if_version not in (live.visible, live.log.head):
            raise version_conflict(live.visible, if_version)
        with self._uploads.take(call.principal), self._of_tenants.take_share(tenant):
            archive = await self._read_archive(call)
            row, checked = await self._store().uploads.store(
                live, archive, call.principal.id, if_version
            )
        return _reply(
            wire.UploadReply(
                row.version,
                row.uploaded_at,
                row.flag_count,
                row.segment_count,
                row.closure_hash,
                _describe_report(checked.report),
                call.req.id,
            )
        )

    async def lint(self, call: Call) -> Answer:
        """What an upload would say, whether it has errors or not."""
        tenant, slug = parse_names(call)
        require_manifest_read(call.principal, tenant, slug)
        live = await find_namespace(call, tenant, slug)
        with self._uploads.take(call.principal), self._of_tenants.take_share(tenant):
            archive = await self._read_archive(call)
            checked = await self._store().uploads.lint(live, archive)
        return _reply(
            wire.LintedReply(
                checked.flag_count,
                checked.segment_count,
                checked.closure_hash,
                _describe_report(checked.report),
                call.req.id,
            )
        )

    async def _read_archive(self, call: Call) -> CheckArchive:
        content_type = call.req.content_type or ""
        parse_boundary(content_type)  # what is no form need not be read
        body = await call.raw_body(self._archive_bytes_max + MANIFEST_FORM_BYTES_MAX)
        return CheckArchive(content_type, body, self._archive_bytes_max, self._manifest_bytes_max)

    # --- downloads --------------------------------------------------------------------------------

    async def get(self, call: Call) -> Answer:
        """The files of the current version, unless the client has them."""
        live = await _find_readable(call)
        version = live.visible
        if not version:
            raise MANIFEST_NOT_FOUND.refused("the namespace has no manifest yet")
        tag = f'"v{version}"'
        headers: Headers = [("etag", tag), ("cache-control", "private, no-cache")]
        if tag_matches(call.req.get_header("if-none-match"), tag):
            return Answer(304, headers)
        store = self._store()
        digests = await store.versions.tree(live, version)
        whole = Closure(version, digests, (await store.versions.row(live, version)).closure_hash)
        packed = await store.tarballs.get(call.hub.tasks, live, EVERY_FLAG, whole)
        return Answer(200, [("content-type", ARCHIVE), *headers], packed)

    # --- versions ---------------------------------------------------------------------------------

    async def list_versions(self, call: Call) -> Answer:
        live = await _find_readable(call)
        limit = parse_whole(call.req, "limit", LIST_PAGE_MAX, LIST_PAGE_MAX)
        before = None
        if call.req.get_param("before") is not None:
            before = parse_whole(call.req, "before", 1, U64_MAX)
        versions = self._store().versions
        found = await versions.rows(live, before, limit)
        oldest = await versions.oldest(live)
        listed = [_describe(head, oldest) for head in found]
        more = listed[-1].version if listed and listed[-1].version > 1 else None
        return _reply(wire.VersionListReply(listed, call.req.id, more))

    async def get_version(self, call: Call) -> Answer:
        live = await _find_readable(call)
        versions = self._store().versions
        row = await versions.row(live, parse_version(call.param("version")))
        about = _describe(row, await versions.oldest(live))
        detail = wire.VersionDetail(**msgspec.structs.asdict(about), files=row.files)
        return _reply(wire.VersionReply(detail, call.req.id))


def parse_if_version(req: Request) -> int | None:
    """The version that is to be the current one; None: whichever is."""
    text = req.get_header("if-version")
    if text is None:
        return None
    version = parse_digits(text.strip(), U64_MAX)
    if version is None:
        raise Refused(
            Code.INVALID, "If-Version is a whole number, 0 before the first", field="If-Version"
        )
    return version


async def _find_readable(call: Call) -> OpenLog:
    tenant, slug = parse_names(call)
    require_manifest_read(call.principal, tenant, slug)
    return await find_namespace(call, tenant, slug)


def _describe(head: VersionHead, oldest: int) -> wire.Version:
    return wire.Version(
        head.version,
        head.uploaded_at,
        head.uploaded_by,
        head.closure_hash,
        head.flag_count,
        head.segment_count,
        available=head.version >= oldest,
    )


def _describe_report(report: LintReport) -> wire.LintReply:
    return wire.LintReply(report.errors, report.warnings)


def _reply(body: msgspec.Struct) -> Answer:
    return json_answer(msgspec.json.encode(body))
