"""Headrace as a Spark data source: `spark.read.format("headrace")`, and the same for streams and
writing.

Nothing here imports Spark before Spark imports it.
"""

from __future__ import annotations

from headrace.spark.native import segments

__all__ = ["segments"]
