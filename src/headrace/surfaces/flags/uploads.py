"""Uploads: archives become versions, once the manifest process has found nothing wrong in them."""

from __future__ import annotations

import msgspec

from headrace.core.batching import batches
from headrace.core.errors import Code, Refused
from headrace.core.limits import MANIFEST_BATCH_BYTES, MANIFEST_BATCH_FILES, UPLOAD_TRIES
from headrace.engine.contents import ContentsMissing
from headrace.engine.open_log import OpenLog
from headrace.flags.model import LintReport
from headrace.processes.manifest_messages import (
    CheckArchive,
    FetchFiles,
    FilesFetched,
    ManifestChecked,
)
from headrace.processes.manifest_process import Conversation, GiveWay, ManifestChecker
from headrace.surfaces.flags import wire
from headrace.surfaces.flags.errors import LINT_FAILED, SCHEMA_VERSION_MISMATCH
from headrace.surfaces.flags.manifest_metrics import ManifestMetrics
from headrace.surfaces.flags.manifests import ManifestFile, Manifests
from headrace.surfaces.flags.names import parse_log
from headrace.surfaces.flags.version_rows import Paths, VersionRow, VersionSummary
from headrace.surfaces.flags.versions import ManifestVersions


class _Upload(msgspec.Struct, frozen=True):
    """A manifest without errors, with all that the server did not have of it."""

    checked: ManifestChecked
    tree: Paths
    contents: dict[bytes, bytes]
    files: dict[str, ManifestFile]


class Uploads:
    """Takes archives."""

    def __init__(
        self,
        versions: ManifestVersions,
        manifests: Manifests,
        checker: ManifestChecker,
        metrics: ManifestMetrics,
    ) -> None:
        self._versions = versions
        self._manifests = manifests
        self._checker = checker
        self._metrics = metrics

    async def lint(self, live: OpenLog, archive: CheckArchive) -> ManifestChecked:
        """What is in an archive and what is wrong with it; nothing changes."""

        return await self._checker.converse(
            _tenant(live), lambda conversation: self._check(conversation, archive)
        )

    async def store(
        self, live: OpenLog, archive: CheckArchive, uploaded_by: str, if_version: int | None
    ) -> tuple[VersionRow, ManifestChecked]:
        """Make an archive the next version; refuses one with errors."""
        for _ in range(UPLOAD_TRIES):
            upload = await self._checker.converse(
                _tenant(live), lambda conversation: self._take(conversation, archive)
            )
            checked = upload.checked
            about = VersionSummary(
                uploaded_by, checked.closure_hash, checked.flag_count, checked.segment_count
            )
            try:
                row = await self._versions.put(
                    live, upload.tree, upload.contents, about, if_version
                )
            except ContentsMissing:  # they went with the last version of another namespace
                continue
            self._manifests.add(live, row.version, upload.tree, upload.files)
            return row, checked
        raise Refused(Code.NOT_READY, "files that others had went again and again; try again")

    async def _check(self, conversation: Conversation, archive: CheckArchive) -> ManifestChecked:
        """Have an archive checked, in several turns if that takes long."""
        try:
            checked = await conversation.ask(archive, ManifestChecked)
        except GiveWay as unfinished:
            self._metrics.files_parsed.add(unfinished.files_parsed)
            raise
        self._metrics.files_parsed.add(checked.files_parsed)
        self._metrics.files_checked.add(len(checked.files))
        return checked

    async def _take(self, conversation: Conversation, archive: CheckArchive) -> _Upload:
        """Have an archive checked, and get what the server lacks of it."""
        checked = await self._check(conversation, archive)
        check_report(checked.report)
        tree = {file.path: file.digest for file in checked.files}
        files = await self._manifests.known_files(tree)
        wanted = self._versions.missing(tree)
        contents: dict[bytes, bytes] = {}
        for batch in batches(
            checked.files, lambda file: file.size, MANIFEST_BATCH_BYTES, MANIFEST_BATCH_FILES
        ):
            missing = ({file.digest for file in batch} & wanted) - contents.keys()
            unparsed = [file.path for file in batch if file.path not in files]
            if missing or unparsed:
                asked = list(missing)
                fetched = await conversation.ask(FetchFiles(asked, unparsed), FilesFetched)
                contents |= zip(asked, fetched.contents, strict=True)
                files |= self._manifests.make_files(tree, fetched.parsed)
        return _Upload(checked, tree, contents, files)


def check_report(report: LintReport) -> None:
    """Refuse a manifest that has errors."""
    lint = wire.LintReply(report.errors, report.warnings)
    if report.unsupported_version is not None:
        message = f"schema version {report.unsupported_version} is not known here"
        raise SCHEMA_VERSION_MISMATCH.refused(
            message, schema_version=report.unsupported_version, lint=lint
        )
    if report.errors:
        count = len(report.errors)
        message = f"the manifest has {count} error{'s' if count > 1 else ''}"
        raise LINT_FAILED.refused(message, lint=lint)


def _tenant(live: OpenLog) -> str:
    return parse_log(live.log.name)[0]
