"""Why a job ended without doing what it was asked to."""

from __future__ import annotations

from collections.abc import Sequence


class JobFailed(Exception):
    """One clear sentence for whoever started the job."""


class CannotRun(JobFailed):
    """The job did not even begin."""


class NoSpark(CannotRun):
    """Spark or its Java is not here; says how to get it."""


class NotSealed(CannotRun):
    """A log is named of which nothing is sealed; that it is not there, nobody here can say."""


class Unexpected(JobFailed):
    """Nobody thought of this; the details are for whoever mends it."""

    def __init__(self, problem: str, details: str = "") -> None:
        super().__init__(problem)
        self.details = details


class Unpublished(JobFailed):
    """What a job made was removed before it counted; nothing changed, and it can be made again."""


class Damaged(JobFailed):
    """Files that a job was to read are not what they were; each is named."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


class Overtaken(Exception):
    """Somebody changed what a plan was made for; plan again."""
