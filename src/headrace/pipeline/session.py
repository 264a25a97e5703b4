"""Spark sessions: how they are started, where their files are, and how they end."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64_hexdigest

from headrace.pipeline import crash_points, reach
from headrace.pipeline.errors import CannotRun, JobFailed, NoSpark
from headrace.pipeline.failures import SPARK_FAILED, failure, is_of_spark
from headrace.pipeline.java import Java, find_java
from headrace.pipeline.settings import (
    BATCHES,
    LOCAL,
    REQUIRED,
    SparkSettings,
    Target,
    Weight,
    load_settings,
    our_defaults,
    store_variables,
)
from headrace.printing import install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE_S = 180.0
"""How long a job waits for the class archive that it makes."""
ARCHIVE_AGAIN_S = 86_400.0
"""How long no job makes one after that failed: where it takes too long it does so every time."""
END_S = 30.0
"""How long a JVM may take to end."""
DEBUG = "HEADRACE_PIPELINE_DEBUG"
"""Set, what Spark prints is not kept in a file."""
_LOG4J = Path(__file__).with_name("log4j2.properties")
_LIGHT = "-XX:TieredStopAtLevel=1"
"""Where Python does the work, the JVM starts faster and stays smaller without its second compiler.
Spark SQL over many rows is nearly three times slower so."""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC")
_SAID_MAX = 3
_ASIDE = re.compile(r"^\s*at |ERROR SparkContext: ")
"""Where it happened, and that something did."""
_WORDS = re.compile(r"[Ee]rror|ERROR|Exception|[Ii]nvalid|No space left")
_BURIAL_S = 2.0
_UNAVAILABLE = "UNAVAILABLE"
"""What gRPC says when nobody is there."""
_RETRIES_MAX = 5
"""Of a request to a Connect server, ever later: a quarter of a minute in all. Spark would try for
ten minutes, though a server that comes back knows nothing of the session."""


@contextmanager
def session(name: str, target: Target, weight: Weight) -> Iterator[SparkSession]:
    """A session that ends with the block, and leaves no files behind.

    What Spark raises in the block leaves it as a `JobFailed`, read while its JVM lives.
    """
    _require()
    if target.remote is not None:
        spark = _remote(target.remote, target.given)
        try:
            with told(remote=target.remote):
                yield spark
        finally:
            _give_up_after(spark, 0)
            with suppress(Exception):
                spark.stop()
        return
    java, settings = find_java(), load_settings(target)
    with scratch_folder() as scratch:
        spark = start(name, settings, weight, java, scratch)
        try:
            with told(scratch):
                yield spark
        except BaseException as error:
            _end(spark, asked=isinstance(error, Exception))
            raise
        _end(spark)


@contextmanager
def told(scratch: Path | None = None, remote: str = "") -> Iterator[None]:
    """What Spark raises in the block leaves it in one line."""
    try:
        yield
    except JobFailed:
        raise
    except Exception as error:
        if scratch is not None and (status := _ended(error)) is not None:
            how = f"signal {-status}" if status < 0 else f"status {status}"
            said = "; ".join([f"ended by {how}", *errors_in(scratch)])
            raise JobFailed(f"Spark's JVM is gone: {said}") from None
        if remote and _UNAVAILABLE in str(error):
            raise JobFailed(f"the Spark server at {remote} does not answer any more") from None
        if is_of_spark(error):
            raise failure(error) from None
        raise


def start(
    name: str,
    settings: SparkSettings,
    weight: Weight,
    java: Java,
    scratch: Path,
    flags: str = "",
) -> SparkSession:
    """Start a JVM and a session in it; what the JVM prints goes to a file in `scratch`."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # It would print what it raises as well.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    master = settings.get("spark.master") or LOCAL
    local = master.startswith("local")
    reach.check_master(master)
    for line in settings.overruled():
        sys.stderr.write(f"headrace: {line}\n")
    archive = class_archive(java) if local and not flags else None
    options = " ".join(_java_options(settings, weight, scratch, archive, flags))
    python = settings.get("spark.pyspark.python") or sys.executable
    environ = {
        "JAVA_HOME": str(java.home_for_spark(scratch)),
        # Workers would take whatever `python3` is on the path.
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
        **({"SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")} if local else {}),
    }
    builder = SparkSession.builder.master(master).appName(f"headrace {name}")
    cores = settings.get("spark.executor.cores")
    chosen = settings.with_defaults(our_defaults(scratch, weight, local=local, cores=cores))
    # Before what the user adds to them.
    for key, value in (chosen | {"spark.driver.defaultJavaOptions": options}).items():
        builder = builder.config(key, value)
    others = _children()
    try:
        with _environment(environ), _printing_to(scratch / "spark.log"):
            spark = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        said = "; ".join([str(failure(error)).removeprefix(SPARK_FAILED), *errors_in(scratch)])
        end_gateway(asked=False)
        where = "" if local else f" on {master}"
        raise CannotRun(f"Spark did not start{where}: {said}") from None
    except BaseException:
        # A JVM that nobody has heard of yet would stay.
        for pid in _children() - others:
            os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        raise
    # It would print that it lost its JVM, which whoever waits for one hears as well.
    spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    # With every function that a worker runs: neither in Spark's settings, which its pages show,
    # nor on the command line of a JVM.
    passed = {name: os.environ[name] for name in {crash_points.VARIABLE} & os.environ.keys()}
    spark.sparkContext.environment.update(passed | ({} if local else store_variables()))
    return spark


def _children() -> set[int]:
    """Processes that we started and that are still there."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found.update(map(int, path.read_text().split()))
    return found


def _java_options(
    settings: SparkSettings, weight: Weight, scratch: Path, archive: Path | None, flags: str
) -> Iterator[str]:
    """Of the driver's JVM; two collectors would be one too many."""
    theirs = settings.get("spark.driver.defaultJavaOptions") or ""
    if not _COLLECTOR.search(f"{theirs} {settings.get('spark.driver.extraJavaOptions') or ''}"):
        yield "-XX:+UseSerialGC"
    yield f"-Dlog4j2.configurationFile=file:{_LOG4J}"
    yield f"-Dderby.system.home={scratch}"
    yield "-Duser.timezone=UTC"
    if not weight.sql:
        yield _LIGHT
    if archive is not None:
        yield f"-XX:SharedArchiveFile={archive}"
        yield "-Xlog:cds=off"
    yield from filter(None, (flags, theirs))


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that whatever starts inside finds."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _remote(url: str, given: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    reach.check_remote(url)
    try:
        spark = SparkSession.builder.remote(url).getOrCreate()
        _give_up_after(spark, _RETRIES_MAX)
        known = spark.conf.getAll
        ours = {key: value for key, value in BATCHES.items() if key not in known}
        for name, value in (ours | dict(given) | REQUIRED).items():
            spark.conf.set(name, value)
    except (PySparkException, ImportError) as error:
        first = str(error).strip().splitlines()[0]
        raise JobFailed(f"cannot use the Spark server at {url}: {first}") from None
    return spark  # type: ignore[no-any-return,unused-ignore]


def _give_up_after(spark: Any, retries: int) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    spark.client.set_retry_policies([DefaultPolicy(max_retries=retries)])


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


def _ended(error: Exception) -> int | None:
    """What the JVM ended with, if that is why something failed; None while it lives."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import SparkContext

    cut = isinstance(error, Py4JError | ConnectionError | EOFError)
    if not cut or isinstance(error, Py4JJavaError):
        return None

    gateway = SparkContext._gateway
    process = gateway.proc if gateway is not None else None
    if process is None:
        return None
    try:
        # Whoever lost a connection may know before the process is buried.
        status: int = process.wait(timeout=_BURIAL_S)
    except subprocess.TimeoutExpired:
        return None
    return status


def _end(spark: SparkSession, *, asked: bool = True) -> None:
    """End a session with its JVM: in order, or without a word where the line may be cut."""
    if asked:
        # It may be gone, or have given up the session by itself.
        with suppress(Exception):
            spark.stop()
    end_gateway(asked=asked)


def end_gateway(*, asked: bool = True) -> None:
    """End the JVM with its session: the next one may want other flags."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = gateway.proc
    if asked:
        gateway.shutdown()
    else:
        process.terminate()
    SparkContext._gateway = SparkContext._jvm = None
    process.stdin.close()
    try:
        process.wait(timeout=END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Whatever starts inside has this file for its output and its errors."""
    if os.environ.get(DEBUG):
        yield
        return
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


def errors_in(scratch: Path) -> list[str]:
    """What a JVM printed that says why it failed; else the last that it printed."""
    try:
        lines = (scratch / "spark.log").read_text(errors="replace").splitlines()
    except OSError:
        return []
    lines = [line.strip() for line in lines if not _ASIDE.search(line)]
    said = dict.fromkeys(line for line in lines if _WORDS.search(line))
    return list(said)[:_SAID_MAX] or lines[-1:]


# --- files of our own ---


def cache_folder() -> Path:
    """Where the class archive and the scratch folders of running sessions are."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headrace" / "spark"


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _no_folder(error) from None
    return folder


def _no_folder(error: OSError) -> CannotRun:
    return CannotRun(f"{error}; XDG_CACHE_HOME may name a folder that can be written")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that ends with the block; or, should we be killed, when the next one begins."""
    folder = _made(cache_folder() / "scratch")
    _sweep(folder)
    try:
        path = Path(mkdtemp(prefix=f"{os.getpid()}-", dir=folder))
    except OSError as error:
        raise _no_folder(error) from None
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

    It fits one Java and one set of jars, hence its name. Whatever goes wrong, Spark starts without;
    so does a job that begins while another makes it.
    """
    import pyspark

    if not java.archivable:
        return None
    jars = Path(pyspark.__file__).parent / "jars"
    fits = xxh3_64_hexdigest(f"{java.home} {java.version} {jars} {pyspark.__version__}".encode())
    path = _made(cache_folder()) / f"classes-{fits}.jsa"
    failed = path.with_suffix(".failed")
    if path.exists():
        return path
    if _is_recent(failed):
        return None
    with open(path.with_suffix(".lock"), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return None
        if not path.exists():
            _make_archive(path)
        if not path.exists():
            failed.touch()
            return None
        failed.unlink(missing_ok=True)
    return path


def _is_recent(failed: Path) -> bool:
    try:
        return time.time() - failed.stat().st_mtime < ARCHIVE_AGAIN_S
    except FileNotFoundError:
        return False


def _make_archive(path: Path) -> None:
    made = path.with_suffix(".jsa.part")
    made.unlink(missing_ok=True)
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
