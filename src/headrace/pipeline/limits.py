"""Bounds of the pipeline, by name."""

from __future__ import annotations

GRACE_S = 3600.0
"""How long readers of an older manifest may go on before the objects it names are removed."""
MERGE = 8
"""Builds of a level that become one of the next."""
MERGE_BYTES_MAX = 256 << 20
"""Builds that come to more are large enough."""
DEAD_SHARE_MAX = 0.3
"""A merged build goes when more than this part of its segments is gone; the rest is made anew."""
EXAMPLES_MAX = 5
"""Problems of one kind that an audit shows."""
PROBLEMS_MAX = 1000
"""The same when it is asked for all of them."""
FORMATS = ("parquet", "csv", "jsonl")
"""What an export may be."""
EXPORT_GROUP_ROWS = 131_072
"""Rows in a row group of an exported Parquet file."""
EXPORT_GROUP_BYTES = 64 << 20
"""A row group is shorter when its records come to this."""
PROBES = 8
"""Tasks that look for the target of an export, before any work, where Spark runs elsewhere."""
ANSWER_BYTES_MAX = 16 << 10
"""Of the answer of a task that goes to the driver through Spark; larger ones are stored."""
INDEX_GROUP = 8
"""Segments indexed with one commit."""
TASK_ITEMS_MAX, TASK_BYTES = 64, 16 << 20
"""What one task takes on of items that are small: a Python task costs some 20 ms by itself."""
ATTEMPTS = 3
"""How often a task is tried."""
POLL_S = 1.0
"""How often a follower looks for a new manifest."""
