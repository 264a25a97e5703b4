"""Who follows a stream is found without asking every subscription, and is the same as if all were
asked.
"""

from __future__ import annotations

from unittest import mock

from headrace.core.entry import Following
from headrace.core.glob import Glob
from headrace.core.subscription import PULL
from headrace.engine.start import stop
from headrace.engine.streams.active_subscriptions import id_of
from headrace.engine.streams.subscriptions import Subscriptions
from support.engine_harness import boot, small
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

MANY = 40
NAMES = ["acme", "acme/1", "acme/1/x", "other/7", "7/acme", "named/3", "named/4", "wakes", "zoo"]


def following(pattern: str | None, *names: str) -> Following:
    return Following(PULL, pattern, list(names), None, "wakes", 1000, None, "", 0)


def check(subscriptions: Subscriptions) -> None:
    """Whatever is kept of it, it is what everybody says who is asked."""
    for name in NAMES:
        asked = [each for each in subscriptions.active if each.follows(name)]
        found = subscriptions.active.followers(name)
        assert [*map(id_of, found)] == [*map(id_of, asked)], name


def test_everybody_who_follows_a_stream_is_found(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk = HostileDisk()
        started = await boot(disk, VirtualClock(loop))
        all_of = started.engine.subscriptions
        for id, pattern in enumerate(["**", "acme/**", "acme/*", "*/acme", "other/7", "wakes"]):
            await all_of.put(f"p{id}", following(pattern))
            check(all_of)
        await all_of.put("n", following(None, "named/3", "zoo"))
        await all_of.put("both", following("named/*", "named/3", "acme"))
        check(all_of)
        await all_of.link("n", ["named/4", "acme/1"])
        check(all_of)
        await all_of.unlink("n", "zoo")
        await all_of.unlink("both", "named/3")
        check(all_of)
        await all_of.delete("p1")
        await all_of.delete("both")
        check(all_of)
        await stop(started)
        disk.world.locked.clear()
        started = await boot(disk, VirtualClock(loop))
        check(started.engine.subscriptions)
        for id in ("p0", "p2", "p3", "p4", "p5", "n"):
            await started.engine.subscriptions.delete(id)
        index = started.engine.subscriptions.active._index
        assert not index._named
        assert not index._patterns
        assert not index._lengths
        await stop(started)

    with small():
        loop.run(story())


def test_only_those_are_asked_whose_names_begin_so(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        all_of = started.engine.subscriptions
        for id in range(MANY):
            await all_of.put(f"p{id}", following(f"tenant{id}/*", f"named/{id}"))
        with mock.patch.object(Glob, "matches", autospec=True, side_effect=Glob.matches) as asked:
            followers = all_of.active.followers("tenant7/a")
        assert [*map(id_of, followers)] == ["p7"]
        assert asked.call_count <= 2
        with mock.patch.object(type(followers[0]), "follows", return_value=True) as asked:
            assert [*map(id_of, all_of.active.followers("named/9"))] == ["p9"]
        assert asked.call_count == 1
        await stop(started)

    with small():
        loop.run(story())
