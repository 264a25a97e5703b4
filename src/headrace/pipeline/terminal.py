"""A job and the terminal it was started from: what is shown there, and how it is stopped."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from headrace.pipeline.session import DEBUG, cache_folder

KEPT_MAX = 20
"""Files with details of failures."""
CAUSES_MAX = 64
"""Exceptions behind one another that are looked at."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """Somebody sent a signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = signal.Signals(number)
        self.status = 128 + number


def obey_signals() -> None:
    """Being asked to stop ends the block that we are in; being asked twice changes nothing."""
    for number in _SIGNALS:
        signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise Stopped(number)


def find_stop(error: BaseException) -> Stopped | None:
    """The signal that ended a job, if one did.

    Spark talks to its JVM on the way out, over a line that was interrupted in the middle of an
    answer: what it raises then takes the place of the signal.
    """
    cause: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if cause is None or isinstance(cause, Stopped):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


@contextmanager
def obeying_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    obey_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def quiet(debug: bool) -> Iterator[None]:
    """What libraries print by themselves, of threads and lost connections, is not shown."""
    if debug:
        os.environ[DEBUG] = "1"
        yield
        return
    root, nothing = logging.getLogger(), logging.NullHandler()
    hooks = threading.excepthook, sys.unraisablehook
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    root.addHandler(nothing)
    threading.excepthook = lambda _: None
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        threading.excepthook, sys.unraisablehook = hooks
        root.removeHandler(nothing)


def show(lines: Sequence[str]) -> None:
    """Print; whoever reads no further has read enough."""
    try:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def keep(job: str, error: Exception, details: str) -> Path | None:
    """Write down what nobody thought of; says where, unless that fails, too."""
    folder = cache_folder() / "failures"
    path = folder / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{job}-{os.getpid()}.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in sorted(folder.iterdir())[: -KEPT_MAX + 1]:
            old.unlink(missing_ok=True)
        path.write_text("".join(traceback.format_exception(error)) + "\n" + details)
    except OSError:
        return None
    return path
