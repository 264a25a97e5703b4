"""Settings as people read them: help, a list of what counts and why, the reference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import attrgetter

from headrace.config.declarations import SECTIONS, SETTINGS, Setting
from headrace.config.given import Given
from headrace.config.loading import FILE_VARIABLE

_UNSHOWN = "not shown"


def describe() -> str:
    """Every setting with its help and default, for `--help`."""
    width = max(len(setting.name) for setting in SETTINGS)
    lines = [f"  {FILE_VARIABLE:<{width}}  file with settings (docs/SETTINGS.md); variables win"]
    lines += (f"  {setting.name:<{width}}  {setting.help}{_notes(setting)}" for setting in SETTINGS)
    return "\n".join(lines)


def _notes(setting: Setting) -> str:
    notes = [f"default {setting.default}"] if setting.default is not None else []
    notes += [f"also {setting.also}"] if setting.also else []
    return f" ({'; '.join(notes)})" if notes else ""


def _by_section() -> Iterator[tuple[str, list[Setting]]]:
    for section, settings in groupby(SETTINGS, attrgetter("section")):
        yield section, list(settings)


def format_toml(given: Mapping[str, Given]) -> str:
    """What counts and where it comes from, as a file that says the same; but for secrets."""
    lines = []
    for section, settings in _by_section():
        lines += ["", f"[{section}]"]
        for setting in settings:
            each = given.get(setting.key)
            if each is None:
                lines.append(f"# {setting.field} =  # not set")
            elif setting.secret:
                lines.append(f"# {setting.field} = [...]  # {each.origin}; {_UNSHOWN}")
            else:
                lines.append(f"{setting.field} = {_format_value(each)}  # {each.origin}")
    return "\n".join(lines[1:])


def _format_value(given: Given) -> str:
    value, text = given.parse(), given.text
    kinds = given.setting.type.in_file
    if bool in kinds:
        return "true" if value else "false"
    if list in kinds:
        return _quote([part for part in map(str.strip, text.split(",")) if part])
    return str(value) if int in kinds and text.isdigit() else _quote(text)


def _quote(value: object) -> str:
    # What is no text (a path may hold any byte) can be shown, but not be written to a file.
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def format_reference() -> str:
    """The tables of docs/SETTINGS.md."""
    lines = []
    for section, settings in _by_section():
        lines += [
            f"## `[{section}]`", "", SECTIONS[section].__doc__, "",
            "| In a file | In the environment | What it says | Accepted | Default |",
            "|---|---|---|---|---|",
        ]  # fmt: skip
        lines += map(_row, settings)
        lines.append("")
    return "\n".join(lines)


def _row(setting: Setting) -> str:
    names = ", ".join(f"`{name}`" for name in setting.names)
    default = f"`{setting.default}`" if setting.default is not None else ""
    return f"| `{setting.field}` | {names} | {setting.help} | {setting.type.accepts} | {default} |"
