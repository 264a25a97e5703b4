"""The one exception of the benchmark."""

from __future__ import annotations


class BenchError(Exception):
    """Something did not run as it must, so its numbers would mean nothing."""
