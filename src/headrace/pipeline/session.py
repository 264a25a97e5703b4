"""Spark sessions: the only place that knows how Spark is configured."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import msgspec
from xxhash import xxh3_64_hexdigest

from headrace.pipeline import crash
from headrace.pipeline.errors import CannotRun, JobFailed, NoSpark
from headrace.pipeline.java import Java, find_java
from headrace.printing import install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[2,3]"
"""Two tasks at a time, each tried three times: plain `local[2]` would not try again."""
HEAP = "1g"
ARCHIVE_S = 180.0
_LOG4J = Path(__file__).with_name("log4j2.properties")
_LIGHT = "-XX:TieredStopAtLevel=1"
"""Where Python does the work, the JVM starts faster and stays smaller without its second compiler.
Spark SQL over many rows is nearly three times slower so."""


_SQL_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
}
"""What jobs count on, also in a session of somebody else's server."""
_PASSED_ON = {crash.VARIABLE}
"""What workers on other machines must know of our environment."""


class Target(msgspec.Struct, frozen=True):
    """Where Spark runs: here, on a cluster, or behind a Connect server."""

    master: str | None = None
    remote: str | None = None

    @property
    def local(self) -> bool:
        return self.remote is None and (self.master or LOCAL).startswith("local")


class Weight(msgspec.Struct, frozen=True):
    """What a job asks of the JVM."""

    sql: bool
    """Rows go through the JVM; else Python kernels do everything."""
    partitions: int = 2


KERNELS = Weight(sql=False)
SQL = Weight(sql=True)


@contextmanager
def session(name: str, target: Target, weight: Weight) -> Iterator[SparkSession]:
    """A session that ends with the block, and leaves no files behind."""
    _require()
    if target.remote is not None:
        yield _remote(target.remote)
        return
    java = find_java()
    with scratch_folder() as scratch:
        archive = class_archive(java) if target.local else None
        spark = start(name, target, weight, java, scratch, archive)
        try:
            yield spark
        finally:
            spark.stop()
            end_gateway()


def start(
    name: str,
    target: Target,
    weight: Weight,
    java: Java,
    scratch: Path,
    archive: Path | None = None,
    flags: str = "",
) -> SparkSession:
    """Start a JVM and a session in it; what the JVM prints goes to a file in `scratch`."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # It would print what it raises as well.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    os.environ["JAVA_HOME"] = str(java.home)
    # Workers would take whatever `python3` is on the path.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1" if target.local else "")
    if not os.environ["SPARK_LOCAL_IP"]:
        del os.environ["SPARK_LOCAL_IP"]
    options = [
        "-XX:+UseSerialGC",
        f"-Dlog4j2.configurationFile=file:{_LOG4J}",
        f"-Dderby.system.home={scratch}",
        *([] if weight.sql else [_LIGHT]),
        *([f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"] if archive else []),
        *([flags] if flags else []),
    ]
    builder = SparkSession.builder.master(target.master or LOCAL).appName(f"headrace {name}")
    settings = _settings(scratch, weight) | {"spark.driver.extraJavaOptions": " ".join(options)}
    if target.local:
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _printing_to(scratch / "spark.log"):
            spark = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise JobFailed(f"Spark did not start: {_last_words(scratch, error)}") from None
    return spark


def _settings(scratch: Path, weight: Weight) -> dict[str, str]:
    return {
        "spark.driver.memory": HEAP,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        **_SQL_SETTINGS,
        "spark.sql.shuffle.partitions": str(weight.partitions),
        "spark.sql.adaptive.enabled": "false",
        # Small enough that two cores have something to do for a few segments.
        "spark.sql.files.maxPartitionBytes": "16m",
        # A tenth of the time of everything that goes through Python, against TCP.
        "spark.python.unix.domain.socket.enabled": "true",
        # Both ends are here: who is late was held up, and comes.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "4",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        **{
            f"spark.executorEnv.{name}": os.environ[name] for name in _PASSED_ON & os.environ.keys()
        },
        "spark.cleaner.periodicGC.interval": "5min",
    }


def _remote(url: str) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        spark = SparkSession.builder.remote(url).getOrCreate()
        for name, value in _SQL_SETTINGS.items():
            spark.conf.set(name, value)
    except (PySparkException, ImportError) as error:
        first = str(error).strip().splitlines()[0]
        raise JobFailed(f"cannot use the Spark server at {url}: {first}") from None
    return spark  # type: ignore[no-any-return,unused-ignore]


def is_remote(spark: SparkSession) -> bool:
    """Whether functions that Spark calls by itself run elsewhere, in copies."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(spark: SparkSession) -> bool:
    """Whether tasks run on this machine, with the same files."""
    return not is_remote(spark) and str(spark.sparkContext.master).startswith("local")


def _require() -> None:
    missing = [name for name in ("pyspark", "pandas", "duckdb", "numpy") if find_spec(name) is None]
    if missing:
        what = " and ".join(missing)
        raise NoSpark(f"the pipeline needs {what}: {install('spark')}")


def end_gateway() -> None:
    """End the JVM with its session: the next one may want other flags."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process.stdin.close()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Whatever starts inside has this file for its output and its errors."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    try:
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for number in (fd, *kept):
            os.close(number)


def _last_words(scratch: Path, error: Exception) -> str:
    said = str(error).strip().splitlines()
    with suppress(OSError):
        lines = (scratch / "spark.log").read_text(errors="replace").splitlines()
        said += [line for line in lines if "rror" in line][:3]
    return "; ".join(line.strip() for line in said if line.strip())


# --- files of our own ---


def cache_folder() -> Path:
    """Where the class archive and the scratch folders of running sessions are."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headrace" / "spark"


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotRun(f"{error}; XDG_CACHE_HOME may name a folder that can be written") from None
    return folder


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that ends with the block; or, should we be killed, when the next one begins."""
    folder = _made(cache_folder() / "scratch")
    _sweep(folder)
    path = Path(mkdtemp(prefix=f"{os.getpid()}-", dir=folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _sweep(folder: Path) -> None:
    for path in folder.iterdir():
        pid = path.name.partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(path, ignore_errors=True)


def class_archive(java: Java) -> Path | None:
    """Classes as the JVM wants them in memory: half the time to start. Made once, kept in a cache.

    It fits one Java and one set of jars, hence its name. Whatever goes wrong, Spark starts without.
    """
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    fits = xxh3_64_hexdigest(f"{java.home} {java.version} {jars} {pyspark.__version__}".encode())
    folder = _made(cache_folder())
    path = folder / f"classes-{fits}.jsa"
    if path.exists():
        return path
    with open(folder / "archive.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path
        for old in folder.glob("classes-*.jsa*"):
            if old.stem[8:24] == fits:
                old.unlink(missing_ok=True)
        made = path.with_suffix(".jsa.part")
        command = [sys.executable, "-m", "headrace.pipeline.archive", str(made)]
        if sys.stderr.isatty():
            sys.stderr.write("making a class archive of Spark; only the first job waits\n")
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                command,
                check=True,
                timeout=ARCHIVE_S,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            made.rename(path)
    return path if path.exists() else None
