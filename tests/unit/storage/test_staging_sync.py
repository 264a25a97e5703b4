"""Staged files over power losses: what a call has returned from is true afterwards."""

from __future__ import annotations

from random import Random

from headrace.core.transaction import Commit, CommitPart
from headrace.formats import layout
from headrace.storage.staging import StagedAtStart, Staging
from support.hostile import HostileDisk, Survival

COMMIT = Commit("t", 1, [CommitPart("c", 1, 1)], 1)


def found_after_power_loss(disk: HostileDisk) -> StagedAtStart:
    return Staging(disk.copy().lose_power(Survival.NOTHING, Random(0))).load()


def test_a_finished_batch_stays_finished() -> None:
    disk = HostileDisk()
    staging = Staging(disk)
    staging.decide(COMMIT)
    assert found_after_power_loss(disk).done == set()
    staging.finish([COMMIT])
    assert found_after_power_loss(disk).done == {"t"}


def test_a_revoked_batch_stays_revoked() -> None:
    disk = HostileDisk()
    staging = Staging(disk)
    staging.decide(COMMIT)
    assert len(found_after_power_loss(disk).commits) == 1
    staging.revoke(COMMIT)
    assert found_after_power_loss(disk).commits == []


def test_a_transaction_that_was_given_up_stays_so() -> None:
    disk = HostileDisk()
    staging = Staging(disk)
    staging.decide(COMMIT)
    staging.finish([COMMIT])
    staging.forget("t")
    assert found_after_power_loss(disk).commits == []


def test_what_a_start_has_seen_stays() -> None:
    """A process that was killed right behind the rename: the name is there, and not durable."""

    class Hasty(HostileDisk):
        def sync_folder(self, folder: str) -> None:
            if folder != layout.STAGED:
                super().sync_folder(folder)

    disk = HostileDisk()
    Staging(disk)
    Staging(Hasty(disk.world)).decide(COMMIT)
    assert found_after_power_loss(disk).commits == []
    assert len(Staging(disk).load().commits) == 1
    assert len(found_after_power_loss(disk).commits) == 1
