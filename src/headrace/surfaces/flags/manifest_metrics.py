"""What is counted of manifests: files that were checked and parsed, and how the process does."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.contents import ContentStore
from headrace.observe import Counter, Gauge, Sample
from headrace.processes.manifest_process import ManifestProcessCounts


class ManifestMetrics:
    """The counters of one server."""

    def __init__(self, process: ManifestProcessCounts) -> None:
        self._process = process
        self.contents: ContentStore | None = None
        """What is stored; there when the engine is."""
        self.files_checked = Counter(
            "flags_manifest_files_checked_total", "Files in archives that were checked."
        )
        self.files_parsed = Counter(
            "flags_manifest_files_parsed_total",
            "Files that were parsed: those that were not known by their content.",
        )
        self.loads = Counter(
            "flags_manifest_loads_total", "Manifests that were asked for and not at hand."
        )

    def samples(self) -> Sequence[Sample]:
        """All of them as they stand."""
        process, contents = self._process, self.contents
        return [
            Gauge(
                "flags_contents", "Contents of manifests that are stored, each once.",
                len(contents) if contents is not None else 0,
            ),
            Gauge(
                "flags_contents_bytes", "Bytes of these contents.",
                contents.size_bytes if contents is not None else 0,
            ),
            self.files_checked,
            self.files_parsed,
            self.loads,
            Counter(
                "flags_manifest_conversations_total", "Conversations with the manifest process.",
                process.conversations,
            ),
            Counter(
                "flags_manifest_process_starts_total", "Starts of the manifest process.",
                process.starts,
            ),
            Counter(
                "flags_manifest_process_failures_total",
                "How often the process ended, or was ended, in the middle of a conversation.",
                process.failures,
            ),
        ]  # fmt: skip
