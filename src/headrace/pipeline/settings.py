"""Spark's settings: ours are defaults and the user's win, but for what jobs count on."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from headrace.pipeline.errors import CannotRun

LOCAL = "local[2,3]"
"""Two tasks at a time, each tried three times: plain `local[2]` would not try again."""
HEAP = "1g"
KERNEL_MIB = 1024
"""What a Python worker takes at most that indexes, merges or rewrites, beside the JVM's heap."""
_OVERHEAD_MIB = 384
"""What the JVM of an executor takes beside its heap; Spark's own least value."""
_OVERHEADS = ("spark.executor.memoryOverhead", "spark.executor.memoryOverheadFactor")
REQUIRED = {
    "spark.sql.session.timeZone": "UTC",
    # A rewrite that passes over what it cannot read would publish the loss.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
"""What jobs count on, also in a session of somebody else's server."""
BATCHES = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
}
"""What Python workers hold at a time, also behind somebody else's server."""
_SUBMITTED = {
    "--master": "spark.master",
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
}
_EXPORTED = {
    "SPARK_DRIVER_MEMORY": "spark.driver.memory",
    "PYSPARK_PYTHON": "spark.pyspark.python",
}
_PROPERTY = re.compile(r"([^\s=:]+)\s*[=:\s]\s*(.*)")
_NO_STORE = ("AWS_CONTAINER_", "AWS_EXECUTION_", "AWS_LAMBDA_", "AWS_WEB_IDENTITY_")
"""What AWS tells a machine about itself is not true of another."""


class SparkSetting(msgspec.Struct, frozen=True):
    """What the user wants, and where it is said."""

    value: str
    source: str


class Target(msgspec.Struct, frozen=True):
    """Where Spark runs: here, on a cluster, or behind a Connect server; and how."""

    master: str | None = None
    remote: str | None = None
    given: Mapping[str, str] = {}
    """Settings that were given on the command line."""


class Weight(msgspec.Struct, frozen=True):
    """What a job asks of the JVM."""

    sql: bool
    """Rows go through the JVM; else Python kernels do everything."""
    partitions: int = 2
    """Of a shuffle on this machine; a cluster has its own."""


KERNELS = Weight(sql=False)
SQL = Weight(sql=True)


def parse_given(texts: Sequence[str]) -> dict[str, str]:
    """`key=value` each, of Spark's; what is ours alone is refused."""
    given: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise CannotRun(f"--conf {text} is not spark.something=value")
        given[key] = value
        if REQUIRED.get(key, value) != value:
            raise CannotRun(f"--conf {key}: jobs count on {REQUIRED[key]}")
    return given


class SparkSettings(msgspec.Struct, frozen=True):
    """Everything the user says about Spark; the last to say something wins."""

    of_user: Mapping[str, SparkSetting]
    given: Mapping[str, str] = {}

    def get(self, key: str) -> str | None:
        found = self.of_user.get(key)
        return found.value if found else None

    def says(self, key: str) -> bool:
        return key in self.of_user

    def overruled(self) -> list[str]:
        """A line for each of the user's settings that cannot be."""
        return [
            f"{setting.source} sets {key} to {setting.value}; jobs count on {value}, and use it"
            for key, value in REQUIRED.items()
            if (setting := self.of_user.get(key)) is not None
            and setting.value.lower() != value.lower()
        ]

    def with_defaults(self, defaults: Mapping[str, str]) -> dict[str, str]:
        """What Spark is told: what is ours where the user says nothing."""
        ours = {key: value for key, value in defaults.items() if not self.says(key)}
        if any(map(self.says, _OVERHEADS)):
            ours = {key: value for key, value in ours.items() if key not in _OVERHEADS}
        return ours | dict(self.given) | REQUIRED


def load_settings(target: Target, environ: Mapping[str, str] = os.environ) -> SparkSettings:
    """Settings as spark-submit would find them: environment, files, command line."""
    found: dict[str, SparkSetting] = {}
    arguments = _arguments(environ)
    replaced = [Path(value) for key, value in arguments if key == "--properties-file"]
    for path in replaced or [_folder(environ) / "spark-defaults.conf"]:
        found |= {key: SparkSetting(value, str(path)) for key, value in _properties(path)}
    for name, key in _EXPORTED.items():
        if value := environ.get(name):
            found.setdefault(key, SparkSetting(value, name))
    for key, value in arguments:
        if key in _SUBMITTED:
            found[_SUBMITTED[key]] = SparkSetting(value, "PYSPARK_SUBMIT_ARGS")
        elif key in ("--conf", "-c"):
            name, _, value = value.partition("=")
            found[name] = SparkSetting(value.strip(), "PYSPARK_SUBMIT_ARGS")
    found |= {key: SparkSetting(value, "--conf") for key, value in target.given.items()}
    if target.master is not None:
        found["spark.master"] = SparkSetting(target.master, "--master")
    return SparkSettings(found, target.given)


def _folder(environ: Mapping[str, str]) -> Path:
    if folder := environ.get("SPARK_CONF_DIR"):
        return Path(folder)
    if home := environ.get("SPARK_HOME"):
        return Path(home) / "conf"
    import pyspark

    return Path(pyspark.__file__).parent / "conf"


def _properties(path: Path) -> Iterator[tuple[str, str]]:
    """Properties of Java, as far as Spark's settings need them."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    for line in re.sub(r"\\\r?\n\s*", "", text).splitlines():
        found = _PROPERTY.fullmatch(line.strip())
        if found and found[1].startswith("spark."):
            yield found[1], found[2].strip()


def _arguments(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Options of PYSPARK_SUBMIT_ARGS with their values."""
    try:
        words = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    except ValueError as error:
        raise CannotRun(f"PYSPARK_SUBMIT_ARGS cannot be read: {error}") from None
    found = []
    for at, word in enumerate(words):
        if word.startswith("-"):
            option, equals, value = word.partition("=")
            found.append((option, value if equals else "".join(words[at + 1 : at + 2])))
    return found


def our_defaults(
    scratch: Path, weight: Weight, *, local: bool, cores: str | None = None
) -> dict[str, str]:
    """What we would choose; on a cluster for executors of so many cores."""
    here = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(weight.partitions),
        "spark.sql.adaptive.enabled": "false",
        # Small enough that two cores have something to do for a few segments.
        "spark.sql.files.maxPartitionBytes": "16m",
        # A file costs a fraction of a task to open: many small ones share one.
        "spark.sql.files.openCostInBytes": "256k",
    }
    there = {
        "spark.executor.memoryOverhead": f"{_OVERHEAD_MIB + _cores(cores) * KERNEL_MIB}m",
        "spark.sql.adaptive.enabled": "true",
        # Many, which Spark joins to partitions of `advisoryPartitionSizeInBytes` when it knows how
        # large they are: 200 would be too few for a terabyte.
        "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "1000",
    }
    return {
        "spark.driver.memory": HEAP,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        **BATCHES,
        # A tenth of the time of everything that goes through Python, against TCP.
        "spark.python.unix.domain.socket.enabled": "true",
        # Both ends are here: who is late was held up, and comes.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "spark.cleaner.periodicGC.interval": "5min",
        **(here if local else there),
    }


def _cores(said: str | None) -> int:
    """Of an executor: one, as YARN and Kubernetes have it, where nobody says otherwise."""
    return max(1, int(said)) if said is not None and said.isdecimal() else 1


def store_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a worker elsewhere needs of our environment to use the same bucket."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith("AWS_") and not name.startswith(_NO_STORE)
    }
