"""Why a job failed, in one line: what Spark, its JVM and its workers raised, read for people."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.pipeline.errors import CannotRun, JobFailed, NoSpark, Unexpected
from headrace.storage.objects import NoCredentials, StoreError
from headrace.storage.replaced_objects import Vanished

LINE_MAX = 600
"""Characters of a line; some messages hold whole documents."""
SPARK_FAILED = "Spark failed: "
_AUDIT = "`headrace pipeline audit` lists everything that is wrong"
_RAISED = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")
_TRACEBACK = "Traceback (most recent call last):"
_READING = re.compile(r"\[FAILED_READ_FILE\.(\w+)\] Encountered error while reading file (\S+)\.\s")
_NO_PATH = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (\S+)\.\s")
_CAUSED = re.compile(r"^Caused by: ([\w.$]+)(?:: (.*))?$", re.MULTILINE)
_JAVA = re.compile(r"^(?::\s*)?(?:[a-z][\w$]*\.)+([A-Z][\w$]*)(?:: (.*))?$")
_ABORTED = "Job aborted due to stage failure"
_LOST = re.compile(r"most recent failure: Lost task [^:]*: ")
_ERRNO = re.compile(r"\[Errno (\d+)\] ([^:]*)(?:: '(.*)')?")
_MODULE = re.compile(r"No module named '([\w.]+)'")
_STATE = re.compile(r"\s*SQLSTATE: \w+\s*$")
_CALLING = "An error occurred while calling"
_MISSING = ("No such file or directory", "FileNotFoundException", "does not exist")
_FULL = "No space left on device"
_HEAP = "java.lang.OutOfMemoryError"
_WORKER = "Python worker exited unexpectedly"


def is_of_spark(error: BaseException) -> bool:
    """Whether Spark, its JVM or the way to it failed."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError)


def is_lost_task(error: BaseException) -> bool:
    """Whether a job of Spark failed because one of its tasks did, as often as it may be tried."""
    return is_of_spark(error) and _ABORTED in str(error)


def failure(error: BaseException) -> JobFailed:
    """The one line about an error, and whose fault it is. Asks the JVM, if it came from there."""
    if isinstance(error, JobFailed):
        return error
    kind = type(error)
    if not kind.__module__.startswith(("pyspark.", "py4j.")):
        return _raised(f"{kind.__module__}.{kind.__qualname__}", str(error))
    return failure_of(str(error))


def failure_of(text: str) -> JobFailed:
    """The same for what Spark says: pages of it, in which one line is of use."""
    raised = list(_raised_in(text))
    if raised:
        # The last to be raised is the one that knows most; what follows it is about the JVM.
        return _raised(*raised[-1], text)
    if found := _READING.search(text):
        reason = _reason(text)
        if found[1] == "FILE_NOT_EXIST" or any(word in reason for word in _MISSING):
            return _missing(_path(found[2]))
        return JobFailed(f"{_path(found[2])} cannot be read: {reason}; {_AUDIT}")
    if found := _NO_PATH.search(text):
        return _missing(_path(found[1]))
    if _FULL in text:
        return _no_space()
    if _HEAP in text:
        advice = "give it more with --conf spark.driver.memory=…, or spark.executor.memory"
        return JobFailed(f"Spark's JVM ran out of memory: {advice}")
    if _WORKER in text:
        advice = "killed for its memory, perhaps; Spark tried it again before it gave up"
        return JobFailed(f"a Python worker of Spark died: {advice}")
    return Unexpected(f"{SPARK_FAILED}{_first_line(text)}", text)


def _raised_in(text: str) -> Iterator[tuple[str, str]]:
    """What each traceback of Python in a text ends with."""
    lines = iter(text.splitlines())
    for line in lines:
        if not line.rstrip().endswith(_TRACEBACK):
            continue
        for line in lines:
            if line.startswith((" ", "\t")):
                continue
            if found := _RAISED.fullmatch(line):
                yield found[1], found[2] or ""
            break


def _raised(kind: str, said: str, text: str = "") -> JobFailed:
    """What Python raised, here or in a worker."""
    said = _one_line(said)
    if kind.startswith(f"{JobFailed.__module__}."):
        begun = kind not in (_named(CannotRun), _named(NoSpark))
        return JobFailed(said) if begun else CannotRun(said)
    name = kind.removeprefix("builtins.")
    match = _ERRNO.search(said)
    if kind == _named(Corrupt):
        return JobFailed(f"{said}; {_AUDIT}")
    if kind == _named(NoCredentials):
        return CannotRun(said)
    if kind == _named(Vanished):
        return JobFailed(f"{said}, though a manifest names it; {_AUDIT}")
    if kind == _named(StoreError):
        return JobFailed(f"the object store cannot be used: {said}")
    if name == "FileNotFoundError":
        return _missing(match[3] if match and match[3] else said)
    if match and match[2] == _FULL:
        return _no_space(match[3] or "")
    if match and name in ("PermissionError", "OSError", "IsADirectoryError", "NotADirectoryError"):
        where = f"{match[3]}: " if match[3] else ""
        return JobFailed(f"{where}{match[2].lower()}")
    if name == "ModuleNotFoundError" and (module := _MODULE.search(said)):
        advice = "install it there, or let PYSPARK_PYTHON name a Python that has it"
        return JobFailed(f"Python of Spark's workers has no {module[1]}: {advice}")
    if name == "MemoryError":
        return JobFailed("a Python worker of Spark ran out of memory")
    return Unexpected(f"{name.rpartition('.')[2]}: {said}" if said else name, text)


def _named(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _missing(where: str) -> JobFailed:
    if f"/{layout.OBJECTS}/" in f"/{where}" or where.startswith("s3://"):
        return JobFailed(f"{where} is missing, though a manifest names it; {_AUDIT}")
    return JobFailed(f"{where}: no such file or directory")


def _no_space(where: str = "") -> JobFailed:
    advice = "Spark's own files go below XDG_CACHE_HOME, or to --conf spark.local.dir=…"
    return JobFailed(f"no space left on device{f' for {where}' if where else ''}; {advice}")


def _reason(text: str) -> str:
    """What a JVM says at the end of its causes."""
    caused = _CAUSED.findall(text)
    if not caused:
        return "damaged"
    kind, said = caused[-1]
    return _one_line(said) or kind.rpartition(".")[2]


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    told = [line for line in lines if line and not line.startswith(_CALLING)]
    first = _LOST.split(told[0])[-1] if told else "nothing is known"
    java = _JAVA.match(first)
    return _one_line(_STATE.sub("", (java[2] or java[1]) if java else first))


def _path(url: str) -> str:
    return re.sub(r"^file:/+", "/", url)


def _one_line(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= LINE_MAX else f"{joined[:LINE_MAX]}…"
