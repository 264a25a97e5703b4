"""The manifest of the benchmark: a good one, of which every edition changes every closure."""

from __future__ import annotations

from headrace.flags.closure import SegmentGraph, closure_paths
from headrace.flags.lint import lint_files
from headrace.flags.subscription import parse_flag_list
from headrace.processes.manifest_messages import CheckArchive, ManifestChecked
from headrace.processes.manifest_worker import ManifestWorker
from headrace_bench import manifests


def test_it_is_clean_and_as_large_as_it_says() -> None:
    files = manifests.make_manifest(1)
    report, parsed = lint_files(files)
    assert not report.errors
    assert len(files) == 1 + manifests.FLAGS + manifests.SEGMENTS
    wanted = list(map(parse_flag_list, manifests.list_subscriptions()))
    assert len(set(wanted)) == manifests.SUBSCRIPTIONS
    other = manifests.make_manifest(2)
    changed = {path for path in files if files[path] != other[path]}
    assert len(changed) == 1
    graph = SegmentGraph.of(parsed)
    assert all(changed <= set(closure_paths(graph, True, flags)) for flags in wanted)


def test_an_upload_is_what_the_server_takes() -> None:
    head, _, body = manifests.format_upload(3).partition(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    assert int(fields[b"Content-Length"]) == len(body)
    request = CheckArchive(
        content_type=fields[b"Content-Type"].decode(),
        body=body,
        archive_bytes_max=1 << 20,
        manifest_bytes_max=8 << 20,
    )
    checked = ManifestWorker().answer(request)
    assert isinstance(checked, ManifestChecked)
    assert checked.flag_count == manifests.FLAGS
