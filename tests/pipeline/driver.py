"""A driver in a process of its own that uses a JVM which is there already: `driver.py DIR JOB…`.

What dies with a driver is what runs in Python, so a JVM for each death would prove nothing more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from headrace.cli import main
from headrace.pipeline import commands

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def door(spark: SparkSession) -> Iterator[dict[str, str]]:
    """The environment in which drivers, one after another, find the JVM of this session."""
    jvm = spark._jvm
    opened = getattr(jvm, "org.apache.spark.api.python.Py4JServer")(spark.sparkContext._conf._jconf)
    opened.start()
    try:
        yield {
            "PYSPARK_GATEWAY_PORT": str(opened.getListeningPort()),
            "PYSPARK_GATEWAY_SECRET": opened.secret(),
        }
    finally:
        opened.shutdown()
        # Each driver said that its own session is everybody's.
        sessions = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")
        sessions.setDefaultSession(spark._jsparkSession)


@contextmanager
def attached(*_: object) -> Iterator[SparkSession]:
    """A session beside those of others in the JVM that the environment names."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()
    jvm = gateway.jvm
    java = jvm.JavaSparkContext(getattr(jvm, "org.apache.spark.SparkContext").getOrCreate())
    context = SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.sc().conf()))
    sessions = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")
    yield SparkSession(context, sessions.getDefaultSession().get().newSession())


if __name__ == "__main__":
    with mock.patch.object(commands, "session", attached):
        main(["pipeline", *sys.argv[2:], "--data-dir", sys.argv[1]])
