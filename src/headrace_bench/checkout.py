"""Another commit of this repository, ready to serve beside the one at work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from headrace_bench.errors import BenchError

ROOT = Path(__file__).parents[2]
_TRY = "import headrace.app; print(headrace.__file__)"


class Checkout(NamedTuple):
    """A commit as files, and the interpreter that has what they need."""

    commit: str
    source: Path
    python: str

    @property
    def environ(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.source)}


@contextmanager
def check_out(commit: str, folder: Path) -> Iterator[Checkout]:
    """The files of a commit in a folder that does not exist yet; they go away afterwards.

    Its dependencies are those of this environment if they will do, else an environment of its own.
    """
    name = _git("rev-parse", "--verify", "--short", "--end-of-options", f"{commit}^{{commit}}")
    _git("worktree", "add", "--detach", "--force", str(folder), name)
    try:
        yield _install(Checkout(name, folder / "src", sys.executable), folder)
    finally:
        _git("worktree", "remove", "--force", str(folder))


def _install(checkout: Checkout, folder: Path) -> Checkout:
    if _serves(checkout):
        return checkout
    environment = folder / ".venv"
    _run(sys.executable, "-m", "venv", str(environment))
    python = str(environment / "bin" / "python")
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(folder))
    checkout = checkout._replace(python=python)
    if not _serves(checkout):
        raise BenchError(f"the server of {checkout.commit} cannot be imported, here nor installed")
    return checkout


def _serves(checkout: Checkout) -> bool:
    """Whether that server, and no other, would start; what it compiles is there from then on."""
    tried = subprocess.run(
        [checkout.python, "-c", _TRY],
        env=os.environ | checkout.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    return tried.returncode == 0 and Path(tried.stdout.strip()).is_relative_to(checkout.source)


def _git(*words: str) -> str:
    return _run("git", "-C", str(ROOT), *words)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BenchError(f"{command[0]} is not installed") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip() or f"status {done.returncode}"
        raise BenchError(f"{Path(command[0]).name} {' '.join(command[1:])}: {said}")
    return done.stdout.strip()
