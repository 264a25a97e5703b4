"""Indexing between the jobs of upkeep, once some log wants an index."""

from __future__ import annotations

from threading import Event

from headrace.pipeline.follow import IndexFollower, Tell
from headrace.pipeline.maintenance.spark_on_demand import SparkOnDemand
from headrace.pipeline.store_location import StoreLocation
from headrace.storage import manifests


class Indexing:
    """A follower that is there when it is needed."""

    def __init__(
        self, place: StoreLocation, spark: SparkOnDemand, stopping: Event, tell: Tell
    ) -> None:
        self._place = place
        self._objects = place.open()
        self._spark = spark
        self._stopping = stopping
        self._tell = tell
        self._follower: IndexFollower | None = None

    @property
    def is_at_work(self) -> bool:
        return self._follower is not None

    def step(self) -> bool:
        """Index some of what waits; False when there was nothing to do."""
        if self._follower is None:
            manifest = manifests.load(self._objects)
            if manifest.plans is None or not manifest.segments:
                return False
            self._follower = IndexFollower(
                self._spark(), self._place, merging=True, stopping=self._stopping, tell=self._tell
            )
        return self._follower.step()

    def forget(self) -> None:
        """Its session ends; the next step has another follower."""
        self._follower = None
