"""Which logs a job is about: names and prefixes, held against what is sealed."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from headrace.core.limits import NAMES_COMPARED_MAX
from headrace.core.name_patterns import STAR, NamePatterns, parse_patterns, unknown_log
from headrace.formats.manifest import Manifest
from headrace.formats.marks import Marks
from headrace.formats.plans import decode_plans
from headrace.pipeline.errors import CannotRun, NotSealed
from headrace.pipeline.place import Place, get_named
from headrace.pipeline.rows import NUMBER, is_live_log, read

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


def parse_logs(texts: tuple[str, ...]) -> NamePatterns:
    """Names and prefixes from the command line."""
    try:
        return parse_patterns(texts)
    except ValueError as error:
        raise CannotRun(f"--log: {error}") from None


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


def check_logs(
    spark: SparkSession,
    place: Place,
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
    planned = _planned(place, manifest)
    missing = [
        pattern for pattern in missing if not any(map(parse_patterns([pattern]).takes, planned))
    ]
    if missing:
        known = logs.select("log").distinct().orderBy("log").limit(NAMES_COMPARED_MAX).collect()
        said = unknown_log(missing[0], [row.log for row in known])
        raise NotSealed(f"{said} (in {place}, where only what is sealed is known)")


def _planned(place: Place, manifest: Manifest) -> list[str]:
    """Logs with a search configuration: they are there, though nothing of them may be sealed."""
    if manifest.plans is None:
        return []
    raw = get_named(place.open(), manifest.plans)
    return [plan.log for plan in decode_plans(raw, manifest.plans.name).plans]
