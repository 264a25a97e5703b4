"""One word, one meaning: no two public classes of the package have the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import headrace

ROOT = Path(headrace.__file__).parent
SHARED = {
    "ErrorBody": "of the envelope and of streams: both are named in the OpenAPI documents",
    "Route": "a journal entry, whose name `headrace inspect journal` prints, and a route of HTTP",
}
"""Names with two meanings, and why both keep them."""


def test_no_two_public_classes_share_a_name() -> None:
    modules = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        # What a surface's wire is made of is named by the protocol: surfaces may share a word.
        of = f"{path.parent.name}." if path.name == "wire.py" else ""
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[of + node.name].append(str(path.relative_to(ROOT)))
    shared = {name: where for name, where in modules.items() if len(where) > 1}
    assert {name: where for name, where in shared.items() if name not in SHARED} == {}
    assert shared.keys() == SHARED.keys(), "an exception that is none any more"
