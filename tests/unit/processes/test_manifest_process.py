"""The manifest process: what becomes of conversations when it stalls, dies or talks nonsense."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import uvloop

from headrace.core.errors import Code, Refused
from headrace.processes.manifest_messages import (
    FilesFetched,
    FilesParsed,
    FileSummary,
    ParseFiles,
)
from headrace.processes.manifest_process import (
    Conversation,
    ManifestProcess,
    ManifestProcessCounts,
    ProcessConfused,
    open_reply,
)

SCRIPT = """
import os, sys
from headrace.processes.message_pipe import read_message, write_message
from headrace.processes.manifest_messages import *
requests, replies = sys.stdin.buffer, sys.stdout.buffer
while (body := read_message(requests)) is not None:
    files = decode_request(body).files
    summaries = [FileSummary(path, (), content) for path, content in files.items()]
    reply = encode(FilesParsed(summaries, 1))
    if "stall" in files:
        sys.stdin.buffer.read()
    elif "die" in files:
        os._exit(3)
    elif "die once" in files and not os.path.exists(files["die once"]):
        open(files["die once"], "w").close()
        os._exit(3)
    elif "half" in files:
        replies.write(len(reply).to_bytes(4, "little") + reply[:3])
        replies.flush()
        os._exit(0)
    elif "garbage" in files:
        reply = b"\\xc1 no msgpack"
    elif "other" in files:
        reply = encode(FilesFetched([], []))
    elif "endless" in files:
        replies.write(b"\\xff" * 4)
        replies.flush()
        continue
    elif "unfinished" in files:
        reply = encode(CheckUnfinished(1, 10.0))
    elif "refuse" in files:
        reply = encode(NotTaken("conflict", "not so", {"field": "x"}))
    write_message(replies, reply)
"""
"""Answers with what it was given, unless a file has a name that means something else."""

Story = Callable[[ManifestProcess], Awaitable[None]]


@asynccontextmanager
async def working(**options: float) -> AsyncIterator[ManifestProcess]:
    process = ManifestProcess((sys.executable, "-c", SCRIPT), **options)
    run = asyncio.create_task(process.run())
    try:
        yield process
    finally:
        run.cancel()
        await asyncio.wait([run])
        await process.close()


def live(story: Story, **options: float) -> None:
    """Tell a story on the loop that the server has."""

    async def tell() -> None:
        async with working(**options) as process:
            await story(process)
        assert process.pid is None

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(tell())


async def echo(process: ManifestProcess, path: str, content: bytes = b"", tenant: str = "t") -> str:
    async def talk(conversation: Conversation) -> str:
        reply = await conversation.ask(ParseFiles({path: content}), FilesParsed)
        assert reply.files == [FileSummary(path, (), content)]
        return path

    return await process.converse(tenant, talk)


async def refusal_of(work: Awaitable[object]) -> Refused:
    with pytest.raises(Refused) as refused:
        await work
    return refused.value


def test_nothing_is_started_before_the_first_conversation() -> None:
    async def story(process: ManifestProcess) -> None:
        assert (process.pid, process.counts.starts) == (None, 0)
        assert await echo(process, "a", b"x" * 3_000_000) == "a"
        pid = process.pid
        assert await echo(process, "b") == "b"
        assert (process.pid, process.counts.starts) == (pid, 1)

    live(story)


def test_conversations_have_more_than_one_question_and_do_not_mix() -> None:
    async def story(process: ManifestProcess) -> None:
        order: list[str] = []

        async def talk(conversation: Conversation, name: str) -> None:
            for _ in range(3):
                await conversation.ask(ParseFiles({name: b""}), FilesParsed)
                order.append(name)

        async with asyncio.TaskGroup() as tasks:
            for name, tenant in (("a1", "a"), ("a2", "a"), ("b1", "b")):
                talking = process.converse(tenant, lambda with_it, n=name: talk(with_it, n))
                tasks.create_task(talking)
        assert order == ["a1"] * 3 + ["b1"] * 3 + ["a2"] * 3

    live(story)


def test_what_the_process_refuses_is_refused_and_it_goes_on() -> None:
    async def story(process: ManifestProcess) -> None:
        refused = await refusal_of(echo(process, "refuse"))
        assert (refused.code, refused.message) == (Code.CONFLICT, "not so")
        assert refused.detail == {"field": "x"}
        assert await echo(process, "a") == "a"
        assert (process.counts.starts, process.counts.failures) == (1, 0)

    live(story)


@pytest.mark.parametrize(
    ("path", "code", "failures"),
    [
        ("die", Code.NOT_READY, 2),
        ("half", Code.NOT_READY, 2),
        ("garbage", Code.INTERNAL, 1),
        ("other", Code.INTERNAL, 1),
        ("endless", Code.INTERNAL, 1),
    ],
)
def test_what_ends_the_process_is_refused_and_others_go_on(
    path: str, code: Code, failures: int
) -> None:
    async def story(process: ManifestProcess) -> None:
        async with asyncio.TaskGroup() as tasks:
            bad = tasks.create_task(refusal_of(echo(process, path)))
            good = [tasks.create_task(echo(process, f"{n}")) for n in range(5)]
        assert bad.result().code is code
        assert [each.result() for each in good] == ["0", "1", "2", "3", "4"]
        assert process.counts.failures == failures
        assert process.counts.starts == failures + 1

    live(story)


def test_one_that_ended_for_another_reason_is_asked_again(tmp_path: Path) -> None:
    async def story(process: ManifestProcess) -> None:
        mark = tmp_path / "died"
        assert await echo(process, "die once", bytes(mark)) == "die once"
        assert mark.exists()
        assert (process.counts.starts, process.counts.failures) == (2, 1)

    live(story)


def test_one_that_was_killed_meanwhile_is_started_again() -> None:
    async def story(process: ManifestProcess) -> None:
        await echo(process, "a")
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        assert await echo(process, "b") == "b"
        assert process.counts.starts == 2

    live(story)


def test_what_takes_too_long_is_refused_once_and_others_go_on() -> None:
    async def story(process: ManifestProcess) -> None:
        async def stall() -> Refused:
            refused = await refusal_of(echo(process, "stall"))
            process._job_s = 60.0  # from here on, however slow this machine is
            return refused

        async with asyncio.TaskGroup() as tasks:
            bad = tasks.create_task(stall())
            good = tasks.create_task(echo(process, "a"))
        refused = bad.result()
        assert (refused.code, refused.detail["max_s"]) == (Code.BODY_TOO_LARGE, 0.2)
        assert good.result() == "a"
        assert (process.counts.starts, process.counts.failures) == (2, 1)

    live(story, job_s=0.2)


def test_what_takes_several_turns_gives_way_to_others() -> None:
    async def story(process: ManifestProcess) -> None:
        order: list[str] = []

        async def talk(conversation: Conversation, name: str, turns: list[str]) -> None:
            order.append(name)
            await conversation.ask(ParseFiles({turns.pop(): b""}), FilesParsed)

        async with asyncio.TaskGroup() as tasks:
            for tenant, turns in (("a", 3), ("a", 1), ("b", 1), ("c", 2)):
                name = f"{tenant}{turns}"
                paths = ["done"] + ["unfinished"] * (turns - 1)
                talking = partial(talk, name=name, turns=paths)
                tasks.create_task(process.converse(tenant, talking))
        assert order == ["a3", "b1", "c2", "a3", "c2", "a3", "a1"]
        assert (process.counts.starts, process.counts.failures) == (1, 0)

    live(story)


def test_turns_come_to_an_end() -> None:
    """Each took ten seconds of a processor, as the process says."""

    async def story(process: ManifestProcess) -> None:
        refused = await refusal_of(echo(process, "unfinished"))
        assert (refused.code, refused.detail["max_s"]) == (Code.BODY_TOO_LARGE, 50.0)
        assert await echo(process, "a") == "a"
        assert process.counts == ManifestProcessCounts(conversations=6, starts=1, failures=0)

    live(story, job_s=50.0)


def test_it_ends_when_nobody_has_come_for_a_while() -> None:
    async def story(process: ManifestProcess) -> None:
        await echo(process, "a")
        while process.pid is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert await echo(process, "b") == "b"
        assert (process.counts.starts, process.counts.failures) == (2, 0)

    live(story, idle_s=0.01)


def test_a_conversation_that_fails_by_itself_hurts_nobody() -> None:
    async def story(process: ManifestProcess) -> None:
        async def talk(conversation: Conversation) -> None:
            await conversation.ask(ParseFiles({}), FilesParsed)
            raise LookupError("of the caller's own making")

        with pytest.raises(LookupError):
            await process.converse("t", talk)
        assert await echo(process, "a") == "a"
        assert process.counts.starts == 1

    live(story)


def test_whoever_waits_when_the_server_stops_is_told() -> None:
    async def tell() -> None:
        async with working() as process:
            waiting = [
                asyncio.create_task(refusal_of(echo(process, path))) for path in ("stall", "a")
            ]
            while process.pid is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        for each in waiting:
            assert (await each).code is Code.SHUTTING_DOWN
        assert (await refusal_of(echo(process, "b"))).code is Code.SHUTTING_DOWN

    asyncio.run(tell())


def test_nobody_who_gave_up_is_talked_for() -> None:
    async def story(process: ManifestProcess) -> None:
        async def never(conversation: Conversation) -> None:
            raise AssertionError("nobody waits for this")

        first = asyncio.create_task(echo(process, "a"))
        await asyncio.sleep(0)
        given_up = asyncio.create_task(process.converse("t", never))
        await asyncio.sleep(0)
        given_up.cancel()
        assert await first == "a"
        assert await echo(process, "b") == "b"
        assert process.counts.conversations == 2

    live(story)


@pytest.mark.parametrize("command", [(sys.executable, "-c", "raise SystemExit(1)"), ("/nowhere",)])
def test_a_program_that_cannot_start_refuses_and_does_not_hang(command: tuple[str, ...]) -> None:
    async def tell() -> None:
        process = ManifestProcess(command)
        run = asyncio.create_task(process.run())
        try:
            assert (await refusal_of(echo(process, "a"))).code is Code.NOT_READY
        finally:
            run.cancel()
            await asyncio.wait([run])
            await process.close()

    asyncio.run(tell())


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
def test_it_steps_back_behind_the_server() -> None:
    async def story(process: ManifestProcess) -> None:
        await echo(process, "a")
        assert process.pid is not None
        assert os.getpriority(os.PRIO_PROCESS, process.pid) >= 10

    live(story)


def test_an_answer_of_another_kind_is_told_by_its_name() -> None:
    with pytest.raises(ProcessConfused, match="FilesFetched instead of FilesParsed"):
        open_reply(FilesFetched([], []), FilesParsed)
