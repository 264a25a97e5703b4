"""Secrets: who can read the key that the server signs with, and what its children are told."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.formats import layout
from headrace.processes.manifest_messages import FilesParsed, ParseFiles
from headrace.processes.manifest_process import ManifestProcess
from headrace.processes.pipeline_process import PipelineProcess
from headrace.processes.seal_process import ProcessSealer
from headrace.processes.subprocesses import environment
from headrace.processes.sync_process import SyncProcess
from headrace.storage.disk import RealDisk
from headrace.storage.keys import signing_key

SECRETS = {
    "TOPICS_API_KEYS": "root,reader:read",
    "HEADRACE_API_KEYS": "root,reader:read",
    "HEADRACE_CONFIG": "headrace.toml",
    "NOTIFICATIONS_CONFIG": "notifications.yaml",
    "HEADRACE_API_KEY": "root",
    "HEADRACE_ADMIN_TOKEN": "root",
    "HEADRACE_JWT_SECRET": "root",
    "HEADRACE_USERS": "ann:root",
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "AWS_SESSION_TOKEN": "t0ken",
}
OF_THE_BUCKET = {"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def loose_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("loose_umask")
def test_nobody_else_reads_the_signing_key(tmp_path: Path) -> None:
    key = signing_key(RealDisk(tmp_path))
    assert mode_of(tmp_path / layout.SIGNING_KEY) == 0o600
    assert signing_key(RealDisk(tmp_path)) == key


@pytest.mark.usefixtures("loose_umask")
def test_nobody_else_could_read_it_while_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    rename = RealDisk.rename

    def look(disk: RealDisk, old: str, new: str) -> None:
        modes.append(mode_of(tmp_path / old))
        rename(disk, old, new)

    monkeypatch.setattr(RealDisk, "rename", look)
    signing_key(RealDisk(tmp_path))
    assert modes == [0o600]


def test_one_that_others_could_read_is_mended_at_the_start(tmp_path: Path) -> None:
    key = signing_key(RealDisk(tmp_path))
    (tmp_path / layout.SIGNING_KEY).chmod(0o640)
    assert signing_key(RealDisk(tmp_path)) == key
    assert mode_of(tmp_path / layout.SIGNING_KEY) == 0o600


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    monkeypatch.setenv("AWS_REGION", "here")


@pytest.mark.usefixtures("secrets")
def test_children_are_told_no_more_than_they_need() -> None:
    for bucket, told in ((False, set()), (True, OF_THE_BUCKET)):
        given = environment(bucket=bucket)
        assert SECRETS.keys() & given.keys() == told
        assert ("AWS_REGION" in given) is bucket
        assert (given["PATH"], given["JAVA_HOME"]) == (os.environ["PATH"], "/opt/java")


def told(pid: int) -> set[str]:
    """Secrets in the environment of a process.

    It reads as empty until the program is in place, which is after `Popen` returned; and for good
    when the process has ended.
    """
    environ = Path(f"/proc/{pid}/environ")
    while not (names := environ.read_bytes()):
        assert ") Z" not in Path(f"/proc/{pid}/stat").read_text(), "it has ended"
    return {name.partition(b"=")[0].decode() for name in names.split(b"\0")} & SECRETS.keys()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc")
@pytest.mark.usefixtures("secrets")
def test_the_sync_process_is_told_nothing() -> None:
    with closing(SyncProcess()) as sync:
        assert told(sync._process.pid) == set()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc")
@pytest.mark.usefixtures("secrets")
def test_the_sealing_process_is_told_nothing(tmp_path: Path) -> None:
    async def look() -> None:
        RealDisk(tmp_path).make_folder("journal")
        sealer = ProcessSealer(tmp_path)
        try:
            await sealer.blank("journal/spare", 1)
            assert sealer._process is not None
            assert told(sealer._process.pid) == set()
        finally:
            await sealer.close()

    asyncio.run(look())


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc")
@pytest.mark.usefixtures("secrets")
def test_the_manifest_process_is_told_nothing() -> None:
    async def look() -> None:
        process = ManifestProcess()
        run = asyncio.create_task(process.run())
        try:
            ask = ParseFiles({})
            await process.converse("t", lambda conversation: conversation.ask(ask, FilesParsed))
            assert process.pid is not None
            assert told(process.pid) == set()
        finally:
            run.cancel()
            await asyncio.wait([run])
            await process.close()

    asyncio.run(look())


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc")
@pytest.mark.usefixtures("secrets")
@pytest.mark.parametrize(
    ("objects", "expected"), [(None, set()), ("s3://bucket/there", OF_THE_BUCKET)]
)
def test_the_pipeline_is_told_of_its_bucket_alone(
    tmp_path: Path, objects: str | None, expected: set[str]
) -> None:
    async def look() -> None:
        program = "import sys; print('{}', flush=True); sys.stdin.read()"
        pipeline = PipelineProcess(tmp_path, objects, (sys.executable, "-c", program))
        living = asyncio.create_task(pipeline._live())
        try:
            while pipeline.state != "running" and not living.done():  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert pipeline._process is not None
            assert told(pipeline._process.pid) == expected
        finally:
            await pipeline.close()
            await living

    asyncio.run(look())
