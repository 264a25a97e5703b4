"""Spark finds data sources in modules of this name: `spark.read.format("headrace")` just works."""

from headrace.spark.source import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]
