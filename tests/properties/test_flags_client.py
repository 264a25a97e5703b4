"""A client of flags holds the closure of the newest version, whatever happens on the way."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.flags.subscription import EVERY_FLAG, FlagSet
from support import flag_trees
from support.flag_stream_world import StreamWorld
from support.flag_trees import FLAG_KEYS, Files, ManifestMaker
from support.soak import Seeds

STEPS = (0, 20, 100, 400)


def run(history: list[Files], flags: FlagSet, seed: int, steps: int) -> StreamWorld:
    """Versions come over a line that drops, reorders, damages and cuts; then over a good one."""
    world = StreamWorld(history, flags, Random(seed))
    for _ in range(steps):
        world.step()
    world.finish()
    return world


@given(
    flag_trees.histories(versions_max=8),
    flag_trees.flag_sets(),
    st.integers(0, 2**32 - 1),
    st.sampled_from(STEPS),
)
def test_a_client_holds_the_newest_closure(
    history: list[Files], flags: FlagSet, seed: int, steps: int
) -> None:
    run(history, flags, seed, steps)


def test_most_versions_are_served_on_a_good_line() -> None:
    history = ManifestMaker(7).history(20)
    world = StreamWorld(history, EVERY_FLAG, Random(1))
    world.faulty = False
    changes = 1
    world.settle()
    for version in range(2, 21):
        changes += world.closures[version] != world.closures[version - 1]
        world.commit()
        world.settle()
    assert len(world.served) == changes
    assert world.served == sorted(set(world.served))


@pytest.mark.soak
def test_fresh_histories(fresh_seeds: Seeds) -> None:
    for seed in fresh_seeds:
        random = Random(seed)
        history = ManifestMaker(seed).history(random.randint(1, 30))
        some = FlagSet(tuple(sorted(random.sample(FLAG_KEYS, 2))))
        run(history, random.choice([EVERY_FLAG, some]), seed, random.randrange(500))
