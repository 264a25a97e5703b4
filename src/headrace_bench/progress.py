"""How far the benchmark is: a bar on a terminal, a line for each scenario elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from tqdm import tqdm


class Progress:
    def __init__(self, scenarios: int) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._bar = tqdm(
            total=scenarios,
            unit="scenario",
            file=sys.stderr,
            disable=not self._on_terminal,
            leave=False,
            bar_format="{n}/{total} |{bar:20}| {elapsed} {desc}",
        )

    def begin(self, scenario: str) -> None:
        self.say(scenario)
        if not self._on_terminal:
            print(f"running {scenario}", file=sys.stderr, flush=True)

    def say(self, what: str) -> None:
        self._bar.set_description_str(what)

    def end(self) -> None:
        self._bar.update()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()
