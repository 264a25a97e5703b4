"""The configuration file: TOML with a table for each section."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from headrace.config.declarations import SECTIONS, SETTINGS, Setting
from headrace.config.errors import ConfigError
from headrace.config.given import Given

_BY_KEY = {setting.key: setting for setting in SETTINGS}
_TABLE = re.compile(r"\s*\[\s*([\w-]+)\s*\]")
_ENTRY = re.compile(r"\s*([\w.-]+)\s*=")
_LINE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)


def read_file(path: str) -> dict[str, Given]:
    """What the file says, by key; raises `ConfigError` with all that cannot be understood, and
    OSError if it cannot be read.
    """
    import tomllib  # only who has a file pays for it

    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        tables = tomllib.loads(text)
    except UnicodeDecodeError:
        raise ConfigError([f"{path}: is not UTF-8"]) from None
    except tomllib.TOMLDecodeError as error:
        match = _LINE.fullmatch(str(error))
        where, problem = (f"{path}:{match[2]}", match[1]) if match else (path, str(error))
        raise ConfigError([f"{where}: {problem}"]) from None
    except ValueError:  # the limit of Python for numbers
        raise ConfigError([f"{path}: holds a number that is too long"]) from None
    lines = _lines(text)
    given, problems = {}, []
    for key, value in _entries(tables):
        where = f"{path}:{lines[key]}" if key in lines else path
        setting = _BY_KEY.get(key)
        if setting is None:
            problems.append(f"{where}: {key} is not a setting{_advice(key)}")
            continue
        try:
            given[key] = _read(setting, value, where)
        except ValueError as problem:
            problems.append(str(problem))
    if problems:
        raise ConfigError(problems)
    return given


def _read(setting: Setting, value: Any, where: str) -> Given:
    label = f"{where}: {setting.key}"
    if not setting.secret and isinstance(value, bool | int | str | list):
        shown = f"{value!r}".lower() if isinstance(value, bool) else f"{value!r}"
        label += f" = {shown}"
    text = _text(value) if type(value) in setting.type.in_file else None
    if text is None:
        wanted = " or ".join(_TOML_NAMES[kind] for kind in setting.type.in_file)
        raise ValueError(f"{label} is not accepted: expected {wanted}, as in docs/SETTINGS.md")
    given = Given(setting, text, where, label)
    given.parse()
    return given


_TOML_NAMES = {
    int: "a number",
    str: "a text in quotes",
    bool: "true or false",
    list: "a list of texts without commas",
}


def _text(value: Any) -> str | None:
    """A value as it would be written in the environment."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, list):
        texts = [item for item in value if isinstance(item, str) and "," not in item]
        return ",".join(texts) if len(texts) == len(value) else None
    return str(value)


def _entries(tables: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, table in tables.items():
        if isinstance(table, dict):
            yield from ((f"{name}.{field}", value) for field, value in table.items())
            if not table and name not in SECTIONS:
                yield name, table
        else:
            yield name, table


def _advice(key: str) -> str:
    """Where a setting is, if it was looked for in the wrong section."""
    field = key.rpartition(".")[2].lower()
    found = [setting.key for setting in SETTINGS if field in (setting.field, setting.name.lower())]
    return f"; there is {' and '.join(found)}" if found else ""


def _lines(text: str) -> dict[str, int]:
    """The line of each key that stands at the beginning of one."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if match := _TABLE.match(line):
            table = match[1] + "."
            lines.setdefault(match[1], number)
        elif match := _ENTRY.match(line):
            lines.setdefault(table + match[1], number)
    return lines
