"""Which logs a job is about: names and prefixes, held against what is sealed."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from headrace.core.limits import NAMES_COMPARED_MAX
from headrace.core.name_patterns import STAR, NamePatterns, parse_patterns, unsealed_log
from headrace.core.owners import HIDDEN, is_hidden
from headrace.formats.manifest import Manifest
from headrace.formats.marks import Marks
from headrace.pipeline.errors import CannotRun, NotSealed
from headrace.pipeline.index_backlog import load_plans
from headrace.pipeline.rows import NUMBER, is_live_log, read
from headrace.pipeline.store_location import StoreLocation

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


def parse_logs(texts: tuple[str, ...]) -> NamePatterns:
    """Names and prefixes from the command line."""
    try:
        return parse_patterns(texts)
    except ValueError as error:
        raise CannotRun(f"--log: {error}") from None


def parse_readable_logs(texts: tuple[str, ...]) -> NamePatterns:
    """The same of logs whose records may leave the store."""
    patterns = parse_logs(texts)
    if any(map(is_hidden, (*patterns.names, *patterns.prefixes))):
        raise CannotRun(f"--log: logs that begin with {', '.join(HIDDEN)} are the server's own")
    return patterns


def each(patterns: NamePatterns) -> dict[str, Column]:
    """A condition on rows for each name and prefix."""
    from pyspark.sql import functions as F  # noqa: N812

    log = F.col("log")
    return {name: log == name for name in patterns.names} | {
        prefix + STAR: F.startswith(log, F.lit(prefix)) for prefix in patterns.prefixes
    }


def is_meant(patterns: NamePatterns) -> Column:
    """A condition on rows: they are of logs that are meant; of any, if nothing is named."""
    from pyspark.sql import functions as F  # noqa: N812

    exact = [F.col("log").isin(*patterns.names)] if patterns.names else []
    begins = [F.startswith(F.col("log"), F.lit(prefix)) for prefix in patterns.prefixes]
    return reduce(or_, [*exact, *begins]) if patterns else F.lit(True)


def is_readable(patterns: NamePatterns) -> Column:
    """The same of logs that are not for the server alone: what leaves the store."""
    from pyspark.sql import functions as F  # noqa: N812

    hidden = (F.startswith(F.col("log"), F.lit(prefix)) for prefix in HIDDEN)
    return is_meant(patterns) & ~reduce(or_, hidden)


def check_logs(
    spark: SparkSession,
    place: StoreLocation,
    manifest: Manifest,
    patterns: NamePatterns,
    marks: Marks | None = None,
) -> None:
    """Refuse names and prefixes that no log has; with marks, of logs that are there still."""
    from pyspark.sql import functions as F  # noqa: N812

    if not patterns:
        return
    conditions = each(patterns)
    logs = read(spark, place, manifest.segments, ("log", "log_id")).drop(NUMBER).distinct()
    if marks is not None:
        logs = logs.where(is_live_log(marks))
    found = (
        logs.where(is_meant(patterns))
        .agg(*(F.max(is_one).alias(str(at)) for at, is_one in enumerate(conditions.values())))
        .collect()[0]
    )
    missing = [pattern for pattern, there in zip(conditions, found, strict=True) if not there]
    if not missing:
        return
    # Logs with a search configuration are there, though nothing of them may be sealed.
    planned = [plan.log for plan in load_plans(place.open(), manifest).plans]
    missing = [
        pattern for pattern in missing if not any(map(parse_patterns([pattern]).takes, planned))
    ]
    if missing:
        known = logs.select("log").distinct().orderBy("log").limit(NAMES_COMPARED_MAX).collect()
        raise NotSealed(unsealed_log(missing[0], [row.log for row in known], place))
