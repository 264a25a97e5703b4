"""What the documentation shows, as somebody would paste it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEREDOC = re.compile(r"python - <<'END'\n(.*?)\nEND\n", re.DOTALL)


def blocks(page: str, changes: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """(language, text) of every block of a page that says what it is; addresses may be changed."""
    text = (ROOT / page).read_text()
    for here, there in (changes or {}).items():
        assert here in text, f"{page} does not show {here}"
        text = text.replace(here, there)
    return _BLOCK.findall(text)


def programs(page: str) -> list[str]:
    """The Python that a page gives to an interpreter of the shell."""
    return [text for _, block in blocks(page) for text in _HEREDOC.findall(block)]


def run(program: str, page: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run Python; returns the names it leaves behind."""
    exec(compile(program, page, "exec"), names)
    return names


def run_shell(block: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block], cwd=folder, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
