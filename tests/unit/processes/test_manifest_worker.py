"""What the manifest process does with what it is given: parsed once, refused with a code, told."""

from __future__ import annotations

import asyncio
import gzip
import io
import resource
import sys
import tarfile
from hashlib import sha256

import msgspec
import pytest

from headrace.core.errors import Code
from headrace.core.limits import MANIFEST_PROCESS_BYTES
from headrace.flags.archive import compress_tar, write_tar
from headrace.flags.closure import hash_files
from headrace.flags.model import Definition, FlagDefinition, SegmentDefinition
from headrace.processes.manifest_messages import (
    CheckArchive,
    CheckUnfinished,
    FetchFiles,
    FilesFetched,
    FilesParsed,
    ManifestChecked,
    NotTaken,
    ParseFiles,
    decode_reply,
    encode,
)
from headrace.processes.manifest_process import COMMAND, Conversation, ManifestProcess
from headrace.processes.manifest_worker import ManifestWorker, ParsedFiles, serve
from headrace.processes.message_pipe import read_message, write_message

FLAG = b"""
schema_version = "0.1"
[flag]
type = "boolean"
[flag.variants]
on = true
off = false
[flag.environments._]
variant = "off"
[[flag.environments._.rules]]
segment = "employees"
variant = "on"
"""
SEGMENT = b"""
schema_version = "0.1"
[segment.predicate]
attribute = "user.email"
op = "ends_with"
value = "@example.com"
"""
FILES = {"flags/a.toml": FLAG, "segments/employees.toml": SEGMENT}


def form(archive: bytes, field: str = "archive") -> bytes:
    head = f'--x\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n'.encode()
    return head + archive + b"\r\n--x--\r\n"


def check(
    body: bytes, archive_bytes_max: int = 5_000_000, manifest_bytes_max: int = 50_000_000
) -> CheckArchive:
    content_type = "multipart/form-data; boundary=x"
    return CheckArchive(content_type, body, archive_bytes_max, manifest_bytes_max)


def packed(files: dict[str, bytes]) -> CheckArchive:
    return check(form(compress_tar(write_tar(files))))


def checked(worker: ManifestWorker, files: dict[str, bytes]) -> ManifestChecked:
    reply = worker.answer(packed(files))
    assert isinstance(reply, ManifestChecked), reply
    return reply


def test_an_archive_is_told_of_and_then_fetched_as_far_as_somebody_wants_it() -> None:
    worker = ManifestWorker()
    reply = checked(worker, FILES | {"README.md": b"passed over"})
    digests = {path: sha256(content).digest() for path, content in FILES.items()}
    assert {file.path: file.digest for file in reply.files} == digests
    assert [file.size for file in reply.files] == [len(FLAG), len(SEGMENT)]
    assert (reply.flag_count, reply.segment_count, reply.files_parsed) == (1, 1, 2)
    assert reply.closure_hash == hash_files(FILES)
    assert reply.report.is_clean
    fetched = worker.answer(
        FetchFiles(
            [digests["segments/employees.toml"]], ["flags/a.toml", "segments/employees.toml"]
        )
    )
    assert isinstance(fetched, FilesFetched)
    assert fetched.contents == [SEGMENT]
    flag, segment = (
        msgspec.msgpack.decode(each.definition, type=Definition) for each in fetched.parsed
    )
    assert isinstance(flag, FlagDefinition)
    assert isinstance(segment, SegmentDefinition)
    assert (flag.key, segment.key) == ("a", "employees")
    assert [each.segments_used for each in fetched.parsed] == [("employees",), ()]


def test_of_many_files_of_which_one_changed_one_is_parsed() -> None:
    worker = ManifestWorker()
    files = {f"flags/f{number}.toml": FLAG for number in range(1000)}
    files |= {f"segments/s{number}.toml": SEGMENT for number in range(199)}
    files["segments/employees.toml"] = SEGMENT
    assert checked(worker, files).files_parsed == 1200
    assert checked(worker, files).files_parsed == 0
    assert checked(worker, files | {"flags/f7.toml": FLAG + b"# changed"}).files_parsed == 1
    assert checked(worker, files).files_parsed == 0


def test_what_takes_long_is_parsed_in_turns() -> None:
    """At least one file in each, and what was parsed before is known."""
    worker = ManifestWorker()
    files = FILES | {f"flags/f{number}.toml": FLAG for number in range(3)}
    request = msgspec.structs.replace(packed(files), parse_s=-1.0)
    for _ in range(len(files) - 1):
        unfinished = worker.answer(request)
        assert isinstance(unfinished, CheckUnfinished)
        assert (unfinished.files_parsed, unfinished.processor_s > 0) == (1, True)
        with pytest.raises(KeyError):
            worker.answer(FetchFiles([], ["flags/a.toml"]))
    reply = worker.answer(request)
    assert isinstance(reply, ManifestChecked)
    assert (reply.files_parsed, reply.flag_count) == (1, 4)


def test_what_is_parsed_for_the_server_is_known_when_it_is_uploaded() -> None:
    worker = ManifestWorker()
    reply = worker.answer(ParseFiles(FILES))
    assert isinstance(reply, FilesParsed)
    assert (reply.files_parsed, [file.path for file in reply.files]) == (2, list(FILES))
    assert checked(worker, FILES).files_parsed == 0


def test_the_same_content_under_another_path_is_another_file() -> None:
    worker = ManifestWorker()
    reply = checked(worker, FILES | {"flags/b.toml": FLAG})
    assert reply.files_parsed == 3
    assert len({file.digest for file in reply.files}) == 2
    fetched = worker.answer(FetchFiles([], ["flags/b.toml"]))
    assert isinstance(fetched, FilesFetched)
    assert b"employees" in fetched.parsed[0].definition


def test_lint_errors_are_an_answer() -> None:
    reply = checked(ManifestWorker(), {"flags/a.toml": FLAG})
    assert [problem.code for problem in reply.report.errors] == ["E005"]
    reply = checked(ManifestWorker(), {"flags/a.toml": b'schema_version = "7.1"'})
    assert reply.report.unsupported_version == "7.1"


def test_a_link_is_a_lint_error() -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        link = tarfile.TarInfo("flags/a.toml")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    reply = ManifestWorker().answer(check(form(raw.getvalue())))
    assert isinstance(reply, ManifestChecked)
    assert [(each.code, each.path) for each in reply.report.errors] == [("E018", "flags/a.toml")]
    assert (reply.files, reply.flag_count) == ([], 0)


@pytest.mark.parametrize(
    ("request_", "code", "reason"),
    [
        (check(b"no form"), Code.INVALID, None),
        (CheckArchive("text/plain", b"", 1, 1), Code.MEDIA_TYPE, None),
        (check(form(b"", "another")), Code.INVALID, None),
        (check(b"--x--"), Code.INVALID, None),
        (check(form(b"no gzip")), Code.INVALID, "not_gzip"),
        (check(form(gzip.compress(b"no tar" * 1000))), Code.INVALID, "malformed"),
        (check(form(compress_tar(write_tar(FILES))[:-10])), Code.INVALID, "truncated"),
        (check(form(compress_tar(write_tar(FILES))), 10), Code.BODY_TOO_LARGE, "too_large"),
        (
            check(form(compress_tar(write_tar(FILES))), manifest_bytes_max=600),
            Code.BODY_TOO_LARGE,
            "too_large",
        ),
        (packed({"../a.toml": b""}), Code.INVALID, "unsafe_path"),
    ],
)
def test_what_is_no_archive_is_refused_with_a_code(
    request_: CheckArchive, code: Code, reason: str | None
) -> None:
    worker = ManifestWorker()
    reply = worker.answer(request_)
    assert isinstance(reply, NotTaken)
    assert (reply.code, reply.detail.get("reason")) == (code.value, reason)
    assert checked(worker, FILES).report.is_clean  # it is ready for the next


def test_nothing_of_the_one_before_is_left_behind() -> None:
    worker = ManifestWorker()
    checked(worker, FILES)
    worker.answer(check(form(b"no gzip")))
    with pytest.raises(KeyError):
        worker.answer(FetchFiles([], ["flags/a.toml"]))


def test_parsed_files_that_were_not_used_for_long_go_first() -> None:
    size = len("flags/a.toml") + len(FLAG) + 512
    parsed = ParsedFiles(bytes_max=2 * size)
    for path in ("flags/a.toml", "flags/b.toml", "flags/a.toml", "flags/c.toml", "flags/a.toml"):
        parsed.get(path, b"digest", FLAG)
    assert parsed.parsed == 3
    parsed.get("flags/b.toml", b"digest", FLAG)
    assert parsed.parsed == 4
    parsed.get("flags/b.toml", b"another", FLAG)
    assert parsed.parsed == 5


def test_it_answers_until_its_input_ends() -> None:
    requests, replies = io.BytesIO(), io.BytesIO()
    for request in (packed(FILES), FetchFiles([], ["flags/a.toml"])):
        write_message(requests, encode(request))
    requests.write(b"\x05\0\0\0hal")  # the server died in the middle of a request
    requests.seek(0)
    serve(requests, replies)
    replies.seek(0)
    answered = [decode_reply(read_message(replies) or b"") for _ in range(2)]
    assert [type(reply) for reply in answered] == [ManifestChecked, FilesFetched]
    assert read_message(replies) is None


def test_without_memory_it_says_so_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(worker: ManifestWorker, request: object) -> object:
        raise MemoryError

    monkeypatch.setattr(ManifestWorker, "answer", exhausted)
    requests, replies = io.BytesIO(), io.BytesIO()
    for _ in range(2):
        write_message(requests, encode(packed(FILES)))
    requests.seek(0)
    serve(requests, replies)
    replies.seek(0)
    reply = decode_reply(read_message(replies) or b"")
    assert isinstance(reply, NotTaken)
    assert reply.code == Code.BODY_TOO_LARGE.value
    assert read_message(replies) is None


def test_the_real_one_has_no_more_memory_than_it_may_have() -> None:
    async def story() -> None:
        process = ManifestProcess(COMMAND)
        run = asyncio.create_task(process.run())

        async def talk(conversation: Conversation) -> int:
            reply = await conversation.ask(packed(FILES), ManifestChecked)
            return reply.flag_count

        try:
            assert await process.converse("t", talk) == 1
            assert process.pid is not None
            limits = resource.prlimit(process.pid, resource.RLIMIT_AS)
            assert limits == (MANIFEST_PROCESS_BYTES, MANIFEST_PROCESS_BYTES)
        finally:
            run.cancel()
            await asyncio.wait([run])
            await process.close()

    asyncio.run(story())


def test_it_imports_little() -> None:
    """It is started while somebody waits, and its memory is bounded."""
    program = "import sys, headrace.processes.manifest_worker; print(*sorted(sys.modules))"

    async def story() -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
        )
        return (await process.communicate())[0]

    modules = set(asyncio.run(story()).decode().split())
    assert not modules & {"asyncio", "numpy", "pyarrow", "httptools", "uvloop", "headrace.engine"}
