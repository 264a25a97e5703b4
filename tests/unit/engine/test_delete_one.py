"""One record is deleted by its seq, wherever it lies; once, and for good."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest

from headrace.core.config import Durability, LogConfig
from headrace.core.errors import Refused
from headrace.core.owners import NOTIFICATIONS, TOPICS
from headrace.core.record import draft
from support.virtual_server import Scene, stage

Tell = Callable[[Callable[[Scene], Awaitable[None]]], None]
NAME = "notify:storm"


@pytest.fixture
def tell() -> Iterator[Tell]:
    with stage(Scene) as tell:
        yield tell


async def fill(scene: Scene, **config: int) -> None:
    drafts = draft([b"%d" % n for n in range(1, 6)])
    create = LogConfig(durability=Durability.FSYNC, **config)  # type: ignore[arg-type]
    await scene.engine.appender.append(NAME, drafts, owner=NOTIFICATIONS, create=create)


async def left(scene: Scene) -> list[int]:
    live = scene.engine.live(NAME)
    page = await scene.engine.reader.read(live, 0, records_max=100, bytes_max=1 << 20)
    assert live.log.count == page.count
    return [piece.block.seq_at(at) for piece in page.slices for at in piece.picks]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("ttl_ms", [0, 1_000_000])
def test_a_record_is_deleted_once(tell: Tell, sealed: bool, ttl_ms: int) -> None:
    async def story(scene: Scene) -> None:
        await fill(scene, ttl_ms=ttl_ms)
        if sealed:
            await scene.seal()
        size_bytes = scene.engine.live(NAME).log.size_bytes
        deleter = scene.engine.deleter
        assert await deleter.delete_seq(NAME, 3, owner=NOTIFICATIONS)
        assert not await deleter.delete_seq(NAME, 3, owner=NOTIFICATIONS)
        assert await left(scene) == [1, 2, 4, 5]
        assert scene.engine.live(NAME).log.size_bytes == size_bytes // 5 * 4
        assert await deleter.delete_seq(NAME, 1, owner=NOTIFICATIONS)
        assert await left(scene) == [2, 4, 5]

    tell(story)


@pytest.mark.parametrize("seq", [0, 6, 1 << 62])
def test_there_is_nothing_there(tell: Tell, seq: int) -> None:
    async def story(scene: Scene) -> None:
        await fill(scene)
        assert not await scene.engine.deleter.delete_seq(NAME, seq, owner=NOTIFICATIONS)
        assert await left(scene) == [1, 2, 3, 4, 5]

    tell(story)


def test_only_its_owner_deletes(tell: Tell) -> None:
    async def story(scene: Scene) -> None:
        await fill(scene)
        with pytest.raises(Refused):
            await scene.engine.deleter.delete_seq(NAME, 1, owner=TOPICS)
        with pytest.raises(Refused):
            await scene.engine.deleter.delete_seq("notify:none", 1, owner=NOTIFICATIONS)
        assert await left(scene) == [1, 2, 3, 4, 5]

    tell(story)
