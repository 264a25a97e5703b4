from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import VARIABLES, ConfigError, Settings, describe, load
from headrace.delivery.addresses import is_loopback


def test_nothing_set_gives_the_documented_defaults() -> None:
    settings = load({})
    assert (settings.host, settings.port, settings.port_file) == ("127.0.0.1", 4000, None)
    assert settings.data_dir == Path("data")
    assert len(settings.api_keys) == 0
    assert settings.cors_origins == ()
    assert settings.max_batch_records == 10_000
    assert settings.max_record_bytes == 1 << 20
    assert settings.max_body_bytes == 64 << 20
    assert settings.max_meta_bytes == 16 << 10
    assert settings.max_topics == 100_000
    assert settings.max_total_bytes == 0
    assert settings.session_ttl_ms == 300_000


def test_every_field_has_its_variable_and_every_variable_its_field() -> None:
    assert sorted(variable.field for variable in VARIABLES) == sorted(Settings.__struct_fields__)


def test_every_variable_is_described_with_its_default() -> None:
    lines = describe().splitlines()
    assert len(lines) == len(VARIABLES)
    assert any("TOPICS_MAX_BODY_BYTES" in line and "64MiB" in line for line in lines)


def test_the_command_line_wins_over_the_environment() -> None:
    environ = {"TOPICS_PORT": "5000", "TOPICS_HOST": "::1", "PATH": "/bin"}
    settings = load(environ, {"TOPICS_PORT": "0"})
    assert (settings.host, settings.port) == ("::1", 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1), ("65536", 65536), ("64KiB", 64 << 10), ("2 mib", 2 << 20), ("1GiB", 1 << 30)],
)
def test_sizes_have_units(text: str, expected: int) -> None:
    assert load({"HEADRACE_SEAL_BYTES": text}).seal_bytes == expected


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TOPICS_MAX_BODY_BYTES", "129MiB"),
        ("STREAMS_MAX_BODY_BYTES", "129MiB"),
        ("TOPICS_MAX_RECORD_BYTES", "129MiB"),
        ("TOPICS_MAX_META_BYTES", "129MiB"),
        ("TOPICS_MAX_TAG_BYTES", "65KiB"),
        ("TOPICS_MAX_NODE_BYTES", "65KiB"),
        ("TOPICS_MAX_BATCH_RECORDS", "1000001"),
        ("TOPICS_MAX_CLAIM", "1000001"),
        ("HEADRACE_SEAL_BYTES", "1025MiB"),
    ],
)
def test_no_setting_allows_what_the_journal_or_a_segment_cannot_hold(
    variable: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=f"{variable}=.*at most|{variable}=.*from 1 to"):
        load({variable: text})


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TOPICS_PORT", "70000"),
        ("TOPICS_PORT", "-1"),
        ("TOPICS_PORT", ""),
        ("TOPICS_PORT", "4_000"),
        ("TOPICS_PORT", "٤٠٠٠"),
        ("TOPICS_HOST", ""),
        ("TOPICS_HOST", "[::1]"),
        ("TOPICS_HOST", "127.0.0.1:80"),
        ("TOPICS_DATA_DIR", ""),
        ("TOPICS_PROBE_AUTH", "maybe"),
        ("TOPICS_CORS_ORIGINS", "app.example.com"),
        ("TOPICS_CORS_ORIGINS", "https://a.example,*"),
        ("TOPICS_CORS_ORIGINS", "https://a.example/path"),
        ("TOPICS_MAX_BATCH_RECORDS", "0"),
        ("TOPICS_MAX_BODY_BYTES", "64MB"),
        ("TOPICS_MAX_BODY_BYTES", "1.5MiB"),
        ("TOPICS_MAX_BODY_BYTES", "9" * 19 + "GiB"),
        ("TOPICS_MAX_TOPICS", "9" * 5000),
        ("HEADRACE_DISK_SYNC_MS", "0"),
        ("HEADRACE_LOG_LEVEL", "loud"),
    ],
)
def test_a_wrong_value_is_refused_by_name(variable: str, text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load({variable: text})
    [problem] = refusal.value.problems
    assert problem.startswith(f"{variable}={text!r} is not accepted: expected ")


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as refusal:
        load({"TOPICS_PORT": "x", "TOPICS_MAX_LIMIT": "y", "TOPICS_HOST": "0.0.0.0"})
    assert len(refusal.value.problems) == 3
    assert str(refusal.value).count("\n") == 2


def test_an_override_that_is_no_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match="TOPICS_PROT is not a setting"):
        load({}, {"TOPICS_PROT": "1"})


def test_zero_lifts_a_cap() -> None:
    assert load({"TOPICS_MAX_TOPICS": "0"}).max_topics == 0


@pytest.mark.parametrize("text", ["https://a.example, http://localhost:5173", "*", ""])
def test_origins(text: str) -> None:
    assert ", ".join(load({"TOPICS_CORS_ORIGINS": text}).cors_origins) == text


@pytest.mark.parametrize(
    ("text", "hosts"),
    [("my_app, APP.internal.", ("my_app", "app.internal")), ("[::1]", ("::1",)), ("*", ("*",))],
)
def test_allowed_hosts(text: str, hosts: tuple[str, ...]) -> None:
    assert load({"TOPICS_ALLOWED_HOSTS": text}).allowed_hosts == hosts


@pytest.mark.parametrize("text", ["a..b", "app:4000", "*, app", "http://app"])
def test_allowed_hosts_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="TOPICS_ALLOWED_HOSTS"):
        load({"TOPICS_ALLOWED_HOSTS": text})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LocalHost"])
def test_a_loopback_address_needs_no_keys(host: str) -> None:
    assert is_loopback(host)
    assert load({"TOPICS_HOST": host}).host == host


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.8", "example.com", "localhost.evil", "0"]
)
def test_a_public_address_needs_keys_or_a_word(host: str) -> None:
    with pytest.raises(ConfigError, match="TOPICS_ALLOW_INSECURE_NO_AUTH"):
        load({"TOPICS_HOST": host})
    assert load({"TOPICS_HOST": host, "TOPICS_API_KEYS": "s3cret"}).api_keys
    assert load({"TOPICS_HOST": host, "TOPICS_ALLOW_INSECURE_NO_AUTH": "1"}).host == host


@pytest.mark.parametrize("keys", ["", " , ", "s3cret:raed", "s3cret,s3cret"])
def test_keys_that_cannot_be_read_stop_the_start_and_stay_unsaid(keys: str) -> None:
    with pytest.raises(ConfigError, match="TOPICS_API_KEYS: ") as refusal:
        load({"TOPICS_API_KEYS": keys})
    assert "s3cret" not in str(refusal.value)


def test_settings_hold_no_secret() -> None:
    settings = load({"TOPICS_API_KEYS": "s3cret:read"})
    assert "s3cret" not in repr(settings)
    assert len(settings.api_keys) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEADRACE_ADMIN_TOKEN", "s3cret"),
        ("HEADRACE_USERS", "ann:s3cret"),
        ("HEADRACE_JWT_SECRET", "s3cret" * 6),
    ],
)
def test_each_credential_ends_development_mode(name: str, value: str) -> None:
    assert load({}).development
    settings = load({"TOPICS_HOST": "0.0.0.0", name: value})
    assert not settings.development
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEADRACE_ADMIN_TOKEN", "s3cret s3cret"),
        ("HEADRACE_ADMIN_TOKEN", ""),
        ("HEADRACE_USERS", "s3cret"),
        ("HEADRACE_JWT_SECRET", "s3cret"),
        ("HEADRACE_JWKS_FILE", "nowhere"),
    ],
)
def test_credentials_that_cannot_be_read_are_named_and_stay_unsaid(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as refusal:
        load({name: value})
    assert "s3cret" not in str(refusal.value)


def test_credentials_that_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match="one of TOPICS_API_KEYS"):
        load({"TOPICS_API_KEYS": "a,s3cret:read", "HEADRACE_ADMIN_TOKEN": "s3cret"})
    with pytest.raises(ConfigError, match="choose one"):
        load({"HEADRACE_JWT_SECRET": "x" * 32, "HEADRACE_JWKS_FILE": "nowhere"})
