"""Property tests are the same on every run; `--hypothesis-profile=explore` looks further.

All tests that need Spark share one session. Soak tests take fresh seeds (see `soak`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from support.parallel import pytest_itemcollected, pytest_make_parametrize_id
from support.soak import fresh_seeds, pytest_collection_modifyitems, pytest_runtest_makereport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "fresh_seeds",
    "pytest_collection_modifyitems",
    "pytest_itemcollected",
    "pytest_make_parametrize_id",
    "pytest_runtest_makereport",
]

# How fast examples are made says something about the machine, which may be held up.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeat", settings.get_profile("any speed"), derandomize=True)
settings.register_profile(
    "explore", settings.get_profile("any speed"), max_examples=2000, print_blob=True
)
settings.load_profile("repeat")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A small local session whose tasks are tried three times.

    Spark compiles no code for its queries, which costs more than such few rows are worth; jobs that
    tests start elsewhere, as users do, leave that to Spark.
    """
    from headrace.pipeline.session import session
    from headrace.pipeline.settings import Target, Weight

    with session("tests", Target(), Weight(sql=False, partitions=1)) as spark:
        spark.conf.set("spark.sql.codegen.wholeStage", "false")
        spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        yield spark
