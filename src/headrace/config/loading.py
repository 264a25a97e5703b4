"""Values of settings: command line, environment, file, default; the first that has one wins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from headrace.config.declarations import SECTIONS, SETTINGS, Setting, Settings
from headrace.config.errors import ConfigError
from headrace.config.file import read_file
from headrace.config.given import Given
from headrace.delivery.addresses import is_loopback
from headrace.web.credentials import Keyring

_CREDENTIALS = {
    f"server.{name}" for name in ("api_keys", "admin_token", "jwt_secret", "jwks", "users")
}
"""Settings of which each ends development mode, on all surfaces."""


_JWT = {"server.jwt_secret", "server.jwks"}


FILE_VARIABLE = "HEADRACE_CONFIG"
COMMAND_LINE, DEFAULT = "command line", "default"


def load(
    environ: Mapping[str, str] | None = None, overrides: Mapping[str, str] | None = None
) -> Settings:
    """Read every setting, overrides first; raise `ConfigError` with all problems at once."""
    return parse(gather(environ, overrides))


def gather(
    environ: Mapping[str, str] | None = None, overrides: Mapping[str, str] | None = None
) -> dict[str, Given]:
    """What is given for each setting, by key; nothing for one that is unset."""
    environ = os.environ if environ is None else environ
    overrides = overrides or {}
    known = {name for setting in SETTINGS for name in setting.names} | {FILE_VARIABLE}
    problems = [f"{name} is not a setting" for name in overrides if name not in known]
    filed: dict[str, Given] = {}
    path = overrides.get(FILE_VARIABLE, environ.get(FILE_VARIABLE))
    try:
        if path is not None:
            filed = read_file(path)
    except OSError as error:
        problems.append(f"{FILE_VARIABLE}={path!r} cannot be read: {error.strerror}")
    except ConfigError as error:
        problems += error.problems
    given = {}
    for setting in SETTINGS:
        try:
            found = (
                _find(setting, overrides, COMMAND_LINE)
                or _find(setting, environ)
                or filed.get(setting.key)
            )
        except ValueError as problem:
            problems.append(str(problem))
            continue
        if found is None and setting.default is not None:
            found = Given(setting, setting.default, DEFAULT, setting.name)
        if found is not None:
            given[setting.key] = found
    if problems:
        raise ConfigError([*problems, *_parse_all(given)[1]])
    return given


def _find(setting: Setting, names: Mapping[str, str], origin: str = "") -> Given | None:
    """What variables say; both names of a setting may be there if they say the same."""
    found = [
        Given(setting, names[name], origin or name, name)
        if setting.secret
        else Given(setting, names[name], origin or name, f"{name}={names[name]!r}")
        for name in setting.names
        if name in names
    ]
    if len({each.text for each in found}) == 2 and found[0].parse() != found[1].parse():
        raise ValueError(
            f"{setting.name} and {setting.also} are names of the same setting and have different"
            " values: set one of them"
        )
    return found[0] if found else None


def parse(given: Mapping[str, Given]) -> Settings:
    """The settings of what is given; raises `ConfigError` with all problems at once."""
    values, problems = _parse_all(given)
    if problems:
        raise ConfigError(problems)
    fields: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for key, value in values.items():
        setting = given[key].setting
        fields[setting.section][setting.field] = value
    return Settings(**{section: SECTIONS[section](**fields[section]) for section in SECTIONS})


def _parse_all(given: Mapping[str, Given]) -> tuple[dict[str, Any], list[str]]:
    """Values by key, and what is wrong with others."""
    values, problems = {}, []
    for key, each in given.items():
        try:
            values[key] = each.parse()
        except ValueError as problem:
            problems.append(str(problem))
    own = values.get("notifications.config")
    auth = None if own is None else own.auth
    if auth is None and given.keys().isdisjoint(_CREDENTIALS) and _is_open_door(values):
        problems.append(
            f"{given['server.host'].label} can be reached from outside, and HEADRACE_API_KEYS is "
            "not set: set keys, listen on 127.0.0.1, or set HEADRACE_ALLOW_INSECURE_NO_AUTH=1 "
            "(or TOPICS_ALLOW_INSECURE_NO_AUTH)"
        )
    if "server.jwt_secret" in given and "server.jwks" in given:
        problems.append("HEADRACE_JWT_SECRET and HEADRACE_JWKS are both set: choose one")
    if auth is not None and auth.mode == "trusted_proxy" and not given.keys().isdisjoint(_JWT):
        problems.append(
            "HEADRACE_JWT_SECRET or HEADRACE_JWKS is set, and so is auth.jwt_secret in"
            " NOTIFICATIONS_CONFIG: choose one"
        )
    if auth is not None and auth.mode == "static" and "server.users" in given:
        problems.append(
            "HEADRACE_USERS is set, and so is auth.users in NOTIFICATIONS_CONFIG: choose one"
        )
    admin = values.get("server.admin_token", Keyring())
    if values.get("server.api_keys", Keyring()).shares(admin):
        problems.append("HEADRACE_ADMIN_TOKEN is one of HEADRACE_API_KEYS: give it another secret")
    return values, problems


def _is_open_door(values: Mapping[str, Any]) -> bool:
    host = values.get("server.host", "localhost")
    return not is_loopback(host) and not values.get("server.allow_insecure_no_auth", False)


def read(key: str, overrides: Mapping[str, str] | None = None) -> Any:
    """One setting alone, for who needs no other; None when it is unset and has no default."""
    given = gather(overrides=overrides).get(key)
    try:
        return given.parse() if given else None
    except ValueError as problem:
        raise ConfigError([str(problem)]) from None
