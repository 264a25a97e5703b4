"""The budget of an update of a schema: so many steps, and so long."""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.errors import Code, Refused
from headrace.core.limits import PROOF_STEPS_MAX


class ProofBudget:
    """The steps and the time that an update has left. A step takes some milliseconds at most."""

    def __init__(self, late: Callable[[], bool] = lambda: False) -> None:
        self._late = late
        self._steps = 0

    def spend(self) -> None:
        """Take a step, if there is one left and it is not too late."""
        self._steps += 1
        if self._steps > PROOF_STEPS_MAX or self._late():
            raise Refused(Code.INVALID, "the schemas are too complicated for a lens to be proven")
