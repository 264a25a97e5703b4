"""Settings that no server should start with."""

from __future__ import annotations


class ConfigError(Exception):
    """Settings nobody should start with; holds every problem, one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
