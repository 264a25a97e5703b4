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
"""Segments indexed with one commit, and groups of builds that are merged with one."""
ROUND_GROUPS = 4
"""Groups that a follower indexes for each at work, until it looks again what waits."""
WHOLE_SHARE = 0.5
"""A segment of which more is needed to index it is read whole."""
ASKED_HERE_MAX = 8
"""Builds that the driver asks itself whether plans outdate them; more are asked by tasks."""
TASK_ITEMS_MAX, TASK_BYTES = 64, 16 << 20
"""What one task takes on of items that are small: a Python task costs some 20 ms by itself."""
OUTPUT_BYTES = 128 << 20
"""Record bytes of a segment that compaction makes, about."""
SEGMENT_BYTES = 2 * OUTPUT_BYTES
"""The same of one that is rewritten by itself: a larger one becomes several, each by a task."""
GROUP_BYTES, GROUP_SEGMENTS_MAX = 1 << 30, 256
"""Segments that are rewritten together, through one shuffle: record bytes, and how many."""
GROUP_OUTPUTS_MAX = 64
"""Outputs of a group, about: Spark compares rows with the cuts between them, in compiled code."""
POINTS, POINTS_MAX = 8, 1024
"""Points of each segment for an output, so that outputs are of one size; and of a segment at most.
"""
GROUP_TASKS = 8
"""Tasks that a group keeps at work: as many as it has outputs."""
GROUPS_MAX = 128
"""Groups at work at a time, however large a cluster is."""
ATTEMPTS = 3
"""How often a task is tried."""
POLL_S = 1.0
"""How often a follower looks for a new manifest."""
TELL_S = 1.0
"""How often it tells how it is doing while it works."""
