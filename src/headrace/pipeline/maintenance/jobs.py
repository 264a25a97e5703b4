"""The jobs of upkeep: how each is run by its policy, and whether there can be anything to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headrace.formats.manifest import Manifest
from headrace.pipeline.maintenance.history import Run
from headrace.pipeline.maintenance.policy import (
    CompactPolicy,
    ErasePolicy,
    JanitorPolicy,
    JobPolicy,
    SealPolicy,
)
from headrace.pipeline.report import Report
from headrace.pipeline.store_location import StoreLocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class JobBudget:
    """How long a run may go on beginning new steps, and what it left for the next one."""

    def __init__(self, deadline_s: float | None, clock: Callable[[], float]) -> None:
        self._deadline_s = deadline_s
        self._clock = clock
        self.left = 0

    def progress(self, items: Sequence[T], unit: str) -> Iterable[T]:
        """The items, as many as there is time to begin with."""
        return self._within(list(items))

    def _within(self, items: list[T]) -> Iterator[T]:
        for at, item in enumerate(items):
            if self._deadline_s is not None and self._clock() >= self._deadline_s and at:
                self.left += len(items) - at
                return
            yield item


class RunContext(msgspec.Struct, frozen=True):
    """What a run of a job is given."""

    place: StoreLocation
    spark: Callable[[], SparkSession]
    """Started by the first job that needs it."""
    budget: JobBudget
    api_key: str | None


class MaintenanceJob(msgspec.Struct, frozen=True):
    """A job that upkeep runs."""

    run: Callable[[RunContext, Any], Report]
    is_idle: Callable[[Manifest, Run | None, JobPolicy], bool] = lambda *_: False
    """Whether there can be nothing to do, since that run or ever."""


def _unchanged(manifest: Manifest, done: Run | None, policy: JobPolicy) -> bool:
    return done is not None and manifest.version <= done.manifest


def _nothing_died(manifest: Manifest, done: Run | None, policy: JobPolicy) -> bool:
    """No marks are newer, and no segment that a job of before them may have written."""
    return _unchanged(manifest, done, policy) or manifest.marks is None


def _nothing_small(manifest: Manifest, done: Run | None, policy: JobPolicy) -> bool:
    from headrace.pipeline.compact import find_runs

    assert isinstance(policy, CompactPolicy)
    return not find_runs(manifest.segments, _sizes(policy))


def _seal(context: RunContext, policy: SealPolicy) -> Report:
    from headrace.pipeline.server import ask_to_seal
    from headrace.printing import count

    done = ask_to_seal(policy.url, context.api_key, retire_journal=policy.retire_journal)
    what = f"{count(done.records, 'record')} sealed into {count(done.segments, 'segment')}"
    return Report("", [], f"{policy.url}: {what}")


def _retain(context: RunContext, policy: JobPolicy) -> Report:
    from headrace.pipeline.retain import retain

    return retain(context.spark(), context.place)


def _sizes(policy: CompactPolicy) -> Any:
    from headrace.pipeline.compact import Sizes

    return Sizes(output_bytes=policy.target_mib << 20, run_min=policy.min_run)


def _compact(context: RunContext, policy: CompactPolicy) -> Report:
    from headrace.pipeline.compact import compact

    return compact(context.spark(), context.place, _sizes(policy), context.budget.progress)


def _merge(context: RunContext, policy: JobPolicy) -> Report:
    from headrace.pipeline.merge import merge

    return merge(context.spark(), context.place)


def _erase(context: RunContext, policy: ErasePolicy) -> Report:
    from headrace.pipeline.erase import erase

    return erase(
        context.spark(),
        context.place,
        now=policy.now,
        logs=policy.logs,
        progress=context.budget.progress,
    )


def _audit(context: RunContext, policy: JobPolicy) -> Report:
    from headrace.pipeline.audit import audit

    return audit(context.spark(), context.place)


def _janitor(context: RunContext, policy: JanitorPolicy) -> Report:
    from headrace.pipeline.janitor import clean, removal_report

    return removal_report(context.place, clean(context.place, float(policy.grace)))


MAINTENANCE_JOBS = {
    "seal": MaintenanceJob(_seal),
    "retain": MaintenanceJob(_retain, _nothing_died),
    "compact": MaintenanceJob(_compact, _nothing_small),
    "merge": MaintenanceJob(_merge, _unchanged),
    "erase": MaintenanceJob(_erase, _nothing_died),
    "audit": MaintenanceJob(_audit),
    "janitor": MaintenanceJob(_janitor),
}
