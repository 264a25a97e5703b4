"""Environment and command line to frozen settings, once; the only reader of `os.environ`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headrace.core.limits import (
    BATCH_RECORDS_CEILING,
    BODY_BYTES_CEILING,
    NAME_BYTES_CEILING,
    SEAL_BYTES_CEILING,
    SEAL_MS_CEILING,
)
from headrace.delivery.addresses import AllowedHosts, is_host_name, is_loopback, parse_address
from headrace.storage.stores import split_bucket
from headrace.web.credentials import Keyring
from headrace.web.json_web_tokens import Verifier
from headrace.web.users import UserTable

_UNITS = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,19}) ?(|KiB|MiB|GiB)", re.IGNORECASE)
_WHOLE = re.compile(r"[0-9]{1,19}")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_ORIGIN = re.compile(r"https?://[^\s/?#@,]+", re.IGNORECASE)
_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")
_PLAIN_PREFIXES = ("topics", "headrace")
DIALECTS = ("native", "base")
PIPELINES = ("local", "off")
CREDENTIALS = (
    "TOPICS_API_KEYS",
    "HEADRACE_ADMIN_TOKEN",
    "HEADRACE_JWT_SECRET",
    "HEADRACE_JWKS_FILE",
    "HEADRACE_USERS",
)
"""Variables of which each ends development mode, on all surfaces."""
LOG_LEVELS = ("debug", "info", "warning", "error")


class ConfigError(Exception):
    """Settings nobody should start with; holds every problem, one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be configured; each field is named after its variable."""

    host: str
    port: int
    port_file: Path | None = None
    data_dir: Path
    objects: str | None = None

    api_keys: Keyring = Keyring()
    admin_token: Keyring = Keyring()
    users: UserTable = UserTable()
    jwt_secret: Verifier | None = None
    jwks_file: Verifier | None = None
    allow_insecure_no_auth: bool
    probe_auth: bool
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()

    max_batch_records: int
    max_record_bytes: int
    max_body_bytes: int
    max_meta_bytes: int
    max_tag_bytes: int
    max_node_bytes: int
    max_limit: int
    max_claim: int
    max_watch_topics: int

    max_topics: int
    max_topics_per_key: int
    max_routers: int
    max_routers_per_key: int
    max_watch_sessions: int
    max_watch_sessions_per_key: int
    max_sse_connections: int
    max_sse_connections_per_key: int
    max_inflight_per_key: int
    max_total_bytes: int
    session_ttl_ms: int

    max_connections: int
    head_timeout_ms: int
    body_timeout_ms: int

    streams_dialect: str
    streams_max: int
    streams_max_per_key: int
    streams_max_subscriptions: int
    streams_max_subscriptions_per_key: int
    streams_max_body_bytes: int
    streams_request_timeout_ms: int
    streams_append_timeout_ms: int
    streams_metrics_ms: int
    webhook_hosts: AllowedHosts = AllowedHosts()

    seal_bytes: int
    seal_ms: int
    tail_bytes: int
    block_cache_bytes: int
    disk_sync_ms: int
    pipeline: str
    log_level: str

    @property
    def development(self) -> bool:
        """Whether no credential is configured, and everyone may do everything."""
        return not (
            len(self.api_keys)
            or len(self.admin_token)
            or len(self.users)
            or self.jwt_secret
            or self.jwks_file
        )


# --- parsers: text to value, or a ValueError that says what is accepted ---


def whole(minimum: int, maximum: int = (1 << 63) - 1) -> Callable[[str], int]:
    """Make a parser for whole numbers between two bounds, both included."""

    def parse_whole(text: str) -> int:
        number = int(text) if _WHOLE.fullmatch(text) else -1
        if not minimum <= number <= maximum:
            raise ValueError(f"a whole number from {minimum} to {maximum}")
        return number

    return parse_whole


def size(minimum: int, maximum: int = (1 << 63) - 1) -> Callable[[str], int]:
    """Make a parser for byte sizes between two bounds, both included."""
    upto = f" and at most {maximum}" if maximum < (1 << 63) - 1 else ""

    def parse_size(text: str) -> int:
        match = _SIZE.fullmatch(text)
        bytes_ = int(match[1]) * _UNITS[match[2].lower()] if match else -1
        if not minimum <= bytes_ <= maximum:
            raise ValueError(f"bytes, at least {minimum}{upto}, as 65536, 64KiB or 64MiB")
        return bytes_

    return parse_size


def parse_switch(text: str) -> bool:
    """Read 1 or 0, true or false, yes or no, on or off."""
    if text.lower() not in _ON + _OFF:
        raise ValueError("1 or 0, true or false, yes or no, on or off")
    return text.lower() in _ON


def parse_host(text: str) -> str:
    """Read an IP address or a host name."""
    if parse_address(text) is None and not _HOST_NAME.fullmatch(text):
        raise ValueError("an IP address or a host name, without port or brackets")
    return text


def parse_path(text: str) -> Path:
    """Read a path, absolute or seen from the working directory."""
    if not text or "\0" in text:
        raise ValueError("a path")
    return Path(text)


def parse_objects(text: str) -> str:
    """Read where the object store is."""
    split_bucket(text)
    return text


def parse_origins(text: str) -> tuple[str, ...]:
    """Read a comma-separated list of origins, or `*` for every origin."""
    origins = tuple(origin.lower() for origin in map(str.strip, text.split(",")) if origin)
    if origins != ("*",) and not all(map(_ORIGIN.fullmatch, origins)):
        raise ValueError(
            "origins as https://app.example.com, without a path, joined by commas, or * alone"
        )
    return origins


def parse_hosts(text: str) -> tuple[str, ...]:
    """Read a comma-separated list of names and addresses without ports, or `*` for any."""
    hosts = tuple(host.lower().strip("[]") for host in map(str.strip, text.split(",")) if host)
    if hosts != ("*",) and not all(parse_address(h) or is_host_name(h) for h in hosts):
        raise ValueError("host names and addresses without ports, joined by commas, or * alone")
    return tuple(host.removesuffix(".") for host in hosts)


def parse_dialect(text: str) -> str:
    """Read the name of a dialect of streams."""
    if text.lower() not in DIALECTS:
        raise ValueError("one of " + ", ".join(DIALECTS))
    return text.lower()


def parse_pipeline(text: str) -> str:
    """Read who makes index companions."""
    if text.lower() not in PIPELINES:
        raise ValueError("one of " + ", ".join(PIPELINES))
    return text.lower()


def parse_level(text: str) -> str:
    """Read the name of a log level."""
    if text.lower() not in LOG_LEVELS:
        raise ValueError("one of " + ", ".join(LOG_LEVELS))
    return text.lower()


# --- the table ---


class Variable(NamedTuple):
    """One row: a default is written as a user would write it; `None` leaves the field's own."""

    name: str
    parse: Callable[[str], Any]
    default: str | None
    help: str
    secret: bool = False

    @property
    def field(self) -> str:
        """The field of `Settings` that this variable fills."""
        surface, _, rest = self.name.lower().partition("_")
        return rest if surface in _PLAIN_PREFIXES else f"{surface}_{rest}"

    def problem(self, text: str, accepted: Exception) -> str:
        """Say what is wrong with a value, without the value where it is a secret."""
        if self.secret:
            return f"{self.name}: {accepted}"
        return f"{self.name}={text!r} is not accepted: expected {accepted}"


VARIABLES = (
    Variable("TOPICS_HOST", parse_host, "127.0.0.1", "address to listen on"),
    Variable("TOPICS_PORT", whole(0, 65535), "4000", "port to listen on; 0 picks a free one"),
    Variable("TOPICS_PORT_FILE", parse_path, None, "file to write the bound port to"),
    Variable("TOPICS_DATA_DIR", parse_path, "./data", "directory that holds all data"),
    Variable(
        "TOPICS_API_KEYS",
        Keyring.parse,
        None,
        "bearer keys as secret[:scopes[:prefixes]], joined by commas; unset: no keys",
        secret=True,
    ),
    Variable(
        "HEADRACE_ADMIN_TOKEN",
        Keyring.parse_admin,
        None,
        "bearer token of the superadmin, who may do everything; unset: there is none",
        secret=True,
    ),
    Variable(
        "HEADRACE_JWT_SECRET",
        Verifier.of_secret,
        None,
        "secret of JSON Web Tokens (HS256), at least 32 bytes; unset: none are taken",
        secret=True,
    ),
    Variable(
        "HEADRACE_JWKS_FILE",
        Verifier.of_file,
        None,
        "file with the public keys of JSON Web Tokens (JWKS), in place of a secret",
    ),
    Variable(
        "HEADRACE_USERS",
        UserTable.parse,
        None,
        "users who send a password, as name:password[:realm[:role+role]], joined by commas",
        secret=True,
    ),
    Variable(
        "TOPICS_ALLOW_INSECURE_NO_AUTH",
        parse_switch,
        "0",
        "1 allows a public address without any credential",
    ),
    Variable("TOPICS_PROBE_AUTH", parse_switch, "0", "1 asks for a key on health and ready too"),
    Variable(
        "TOPICS_ALLOWED_HOSTS",
        parse_hosts,
        None,
        "without keys: hosts, without ports, that requests may come for beside loopback ones,"
        " joined by commas; * for any",
    ),
    Variable(
        "TOPICS_CORS_ORIGINS",
        parse_origins,
        None,
        "origins of pages that may call, as https://app.example.com, joined by commas; * for any;"
        " unset: none, with keys all for streams",
    ),
    # What one request may carry.
    Variable(
        "TOPICS_MAX_BATCH_RECORDS",
        whole(1, BATCH_RECORDS_CEILING),
        "10000",
        "most records in one write",
    ),
    Variable(
        "TOPICS_MAX_RECORD_BYTES",
        size(1, BODY_BYTES_CEILING),
        "1MiB",
        "largest data and meta of a record together",
    ),
    Variable(
        "TOPICS_MAX_BODY_BYTES",
        size(1, BODY_BYTES_CEILING),
        "64MiB",
        "largest request body, also once unzipped",
    ),
    Variable(
        "TOPICS_MAX_META_BYTES", size(1, BODY_BYTES_CEILING), "16KiB", "largest meta of a record"
    ),
    Variable("TOPICS_MAX_TAG_BYTES", size(1, NAME_BYTES_CEILING), "256", "largest tag"),
    Variable("TOPICS_MAX_NODE_BYTES", size(1, NAME_BYTES_CEILING), "128", "largest node id"),
    Variable("TOPICS_MAX_LIMIT", whole(1), "1000", "most records in one read"),
    Variable(
        "TOPICS_MAX_CLAIM",
        whole(1, BATCH_RECORDS_CEILING),
        "1000",
        "most jobs in one claim, ack, nack or extend",
    ),
    Variable("TOPICS_MAX_WATCH_TOPICS", whole(1), "256", "most topics in one watch"),
    # What the instance, or one key, may hold.
    Variable("TOPICS_MAX_TOPICS", whole(0), "100000", "most topics; 0: unlimited"),
    Variable(
        "TOPICS_MAX_TOPICS_PER_KEY",
        whole(0),
        "25000",
        "most topics that one key made; 0: unlimited",
    ),
    Variable("TOPICS_MAX_ROUTERS", whole(0), "10000", "most routers; 0: unlimited"),
    Variable(
        "TOPICS_MAX_ROUTERS_PER_KEY",
        whole(0),
        "2500",
        "most routers that one key made; 0: unlimited",
    ),
    Variable("TOPICS_MAX_WATCH_SESSIONS", whole(0), "10000", "most watch sessions; 0: unlimited"),
    Variable(
        "TOPICS_MAX_WATCH_SESSIONS_PER_KEY",
        whole(0),
        "1000",
        "most watch sessions of one key; 0: unlimited",
    ),
    Variable("TOPICS_MAX_SSE_CONNECTIONS", whole(0), "10000", "most open streams; 0: unlimited"),
    Variable(
        "TOPICS_MAX_SSE_CONNECTIONS_PER_KEY",
        whole(0),
        "1000",
        "most open streams of one key; 0: unlimited",
    ),
    Variable(
        "TOPICS_MAX_INFLIGHT_PER_KEY",
        whole(0),
        "1000",
        "most requests of one key at a time; 0: unlimited",
    ),
    Variable("TOPICS_MAX_TOTAL_BYTES", size(0), "0", "most live record bytes in all; 0: unlimited"),
    Variable("TOPICS_SESSION_TTL_MS", whole(1), "300000", "how long an unused watch session lives"),
    # What a connection may do.
    Variable(
        "HEADRACE_MAX_CONNECTIONS",
        whole(0),
        "0",
        "most connections at a time; 0: as many as the limit of open files leaves room for",
    ),
    Variable(
        "HEADRACE_HEAD_TIMEOUT_MS",
        whole(1, 3_600_000),
        "30000",
        "longest time until the head of a request has come on a connection",
    ),
    Variable(
        "HEADRACE_BODY_TIMEOUT_MS",
        whole(1, 3_600_000),
        "30000",
        "longest time that nothing comes of a body",
    ),
    # Streams.
    Variable(
        "STREAMS_DIALECT",
        parse_dialect,
        "native",
        "how /v1/stream answers: native, or base as /ds/v1/stream always does",
    ),
    Variable("STREAMS_MAX", whole(0), "0", "most streams; 0: unlimited"),
    Variable(
        "STREAMS_MAX_PER_KEY",
        whole(0),
        "100000",
        "most streams that one key made; 0: unlimited",
    ),
    Variable("STREAMS_MAX_SUBSCRIPTIONS", whole(0), "10000", "most subscriptions; 0: unlimited"),
    Variable(
        "STREAMS_MAX_SUBSCRIPTIONS_PER_KEY",
        whole(0),
        "1000",
        "most subscriptions that one key made; 0: unlimited",
    ),
    Variable(
        "STREAMS_MAX_BODY_BYTES",
        size(1, BODY_BYTES_CEILING),
        "10MiB",
        "largest body of a write to a stream",
    ),
    Variable(
        "STREAMS_REQUEST_TIMEOUT_MS",
        whole(200, 3_600_000),
        "5000",
        "longest time a request may take; readers that wait are answered just before",
    ),
    Variable(
        "STREAMS_APPEND_TIMEOUT_MS",
        whole(1, 3_600_000),
        "3000",
        "longest time a writer waits for its append to be stored",
    ),
    Variable(
        "STREAMS_METRICS_MS",
        whole(0, 3_600_000),
        "10000",
        "how often the server writes its metrics to __stream_metrics__; 0: never",
    ),
    Variable(
        "HEADRACE_WEBHOOK_HOSTS",
        AllowedHosts.parse,
        None,
        "private receivers that webhooks may call, over http too: networks, addresses and host "
        "names, joined by commas; unset: public addresses only",
    ),
    # How the engine uses the machine.
    Variable(
        "HEADRACE_OBJECTS",
        parse_objects,
        None,
        "where segments go: s3://bucket/prefix (with the AWS_* variables); unset: the data "
        "directory",
    ),
    Variable(
        "HEADRACE_SEAL_BYTES",
        size(1, SEAL_BYTES_CEILING),
        "64MiB",
        "journal bytes sealed into one segment",
    ),
    Variable(
        "HEADRACE_SEAL_MS",
        whole(0, SEAL_MS_CEILING),
        "300000",
        "how long records wait for a segment, however few they are; 0: until they are many",
    ),
    Variable("HEADRACE_TAIL_BYTES", size(0), "256MiB", "memory for records kept hot"),
    Variable("HEADRACE_BLOCK_CACHE_BYTES", size(0), "64MiB", "memory for blocks read from disk"),
    Variable(
        "HEADRACE_DISK_SYNC_MS",
        whole(1, 3_600_000),
        "1000",
        "longest time until bytes of class disk are synced",
    ),
    Variable(
        "HEADRACE_PIPELINE",
        parse_pipeline,
        "local",
        "local runs the Spark pipeline beside the server; off leaves it to others",
    ),
    Variable("HEADRACE_LOG_LEVEL", parse_level, "info", "one of " + ", ".join(LOG_LEVELS)),
)


def load(
    environ: Mapping[str, str] | None = None, overrides: Mapping[str, str] | None = None
) -> Settings:
    """Read every variable, overrides first; raise `ConfigError` with all problems at once."""
    overrides = overrides or {}
    given = {**(os.environ if environ is None else environ), **overrides}
    known = {variable.name for variable in VARIABLES}
    problems = [f"{name} is not a setting" for name in overrides if name not in known]
    values: dict[str, Any] = {}
    for variable in VARIABLES:
        text = given.get(variable.name, variable.default)
        if text is None:
            continue
        try:
            values[variable.field] = variable.parse(text)
        except ValueError as accepted:
            problems.append(variable.problem(text, accepted))
    if given.keys().isdisjoint(CREDENTIALS) and _is_open_door(values):
        problems.append(
            f"TOPICS_HOST={values['host']!r} can be reached from outside, and TOPICS_API_KEYS is "
            "not set: set keys, listen on 127.0.0.1, or set TOPICS_ALLOW_INSECURE_NO_AUTH=1"
        )
    if "HEADRACE_JWT_SECRET" in given and "HEADRACE_JWKS_FILE" in given:
        problems.append("HEADRACE_JWT_SECRET and HEADRACE_JWKS_FILE are both set: choose one")
    if values.get("api_keys", Keyring()).shares(values.get("admin_token", Keyring())):
        problems.append("HEADRACE_ADMIN_TOKEN is one of TOPICS_API_KEYS: give it another secret")
    if problems:
        raise ConfigError(problems)
    return Settings(**values)


def read(name: str, overrides: Mapping[str, str] | None = None) -> Any:
    """One variable alone, for who needs no other; None when it is unset and has no default."""
    variable = next(variable for variable in VARIABLES if variable.name == name)
    text = {**os.environ, **(overrides or {})}.get(name, variable.default)
    if text is None:
        return None
    try:
        return variable.parse(text)
    except ValueError as accepted:
        raise ConfigError([variable.problem(text, accepted)]) from None


def describe() -> str:
    """List every variable with its help and default, for `--help` and the documentation."""
    width = max(len(variable.name) for variable in VARIABLES)
    return "\n".join(
        f"  {variable.name:<{width}}  {variable.help}"
        + (f" (default {variable.default})" if variable.default is not None else "")
        for variable in VARIABLES
    )


def _is_open_door(values: Mapping[str, Any]) -> bool:
    host = values.get("host", "localhost")
    return not is_loopback(host) and not values.get("allow_insecure_no_auth", False)
