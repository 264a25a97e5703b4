from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import SETTINGS, ConfigError, load
from headrace.config.listing import describe
from headrace.delivery.addresses import is_loopback


def test_nothing_set_gives_the_documented_defaults() -> None:
    settings = load({})
    assert (settings.server.host, settings.server.port, settings.server.port_file) == (
        "127.0.0.1",
        4000,
        None,
    )
    assert settings.storage.data_dir == Path("data")
    assert len(settings.server.api_keys) == 0
    assert settings.server.cors_origins == ()
    assert settings.server.max_batch_records == 10_000
    assert settings.server.max_record_bytes == 1 << 20
    assert settings.server.max_body_bytes == 64 << 20
    assert settings.server.max_meta_bytes == 16 << 10
    assert settings.topics.max_topics == 100_000
    assert settings.storage.max_total_bytes == 0
    assert settings.topics.session_ttl_ms == 300_000


def test_every_variable_is_described_with_its_default() -> None:
    lines = describe().splitlines()
    assert len(lines) == 1 + len(SETTINGS)
    assert any("TOPICS_MAX_BODY_BYTES" in line and "64MiB" in line for line in lines)


def test_the_command_line_wins_over_the_environment() -> None:
    environ = {"TOPICS_PORT": "5000", "TOPICS_HOST": "::1", "PATH": "/bin"}
    settings = load(environ, {"TOPICS_PORT": "0"})
    assert (settings.server.host, settings.server.port) == ("::1", 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1), ("65536", 65536), ("64KiB", 64 << 10), ("2 mib", 2 << 20), ("1GiB", 1 << 30)],
)
def test_sizes_have_units(text: str, expected: int) -> None:
    assert load({"HEADRACE_SEAL_BYTES": text}).storage.seal_bytes == expected


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
    assert load({"TOPICS_MAX_TOPICS": "0"}).topics.max_topics == 0


@pytest.mark.parametrize("text", ["https://a.example, http://localhost:5173", "*", ""])
def test_origins(text: str) -> None:
    assert ", ".join(load({"TOPICS_CORS_ORIGINS": text}).server.cors_origins) == text


@pytest.mark.parametrize(
    ("text", "hosts"),
    [("my_app, APP.internal.", ("my_app", "app.internal")), ("[::1]", ("::1",)), ("*", ("*",))],
)
def test_allowed_hosts(text: str, hosts: tuple[str, ...]) -> None:
    assert load({"TOPICS_ALLOWED_HOSTS": text}).server.allowed_hosts == hosts


@pytest.mark.parametrize("text", ["a..b", "app:4000", "*, app", "http://app"])
def test_allowed_hosts_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="TOPICS_ALLOWED_HOSTS"):
        load({"TOPICS_ALLOWED_HOSTS": text})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LocalHost"])
def test_a_loopback_address_needs_no_keys(host: str) -> None:
    assert is_loopback(host)
    assert load({"TOPICS_HOST": host}).server.host == host


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.8", "example.com", "localhost.evil", "0"]
)
def test_a_public_address_needs_keys_or_a_word(host: str) -> None:
    with pytest.raises(ConfigError, match="HEADRACE_ALLOW_INSECURE_NO_AUTH"):
        load({"TOPICS_HOST": host})
    assert load({"TOPICS_HOST": host, "TOPICS_API_KEYS": "s3cret"}).server.api_keys
    assert load({"TOPICS_HOST": host, "TOPICS_ALLOW_INSECURE_NO_AUTH": "1"}).server.host == host


@pytest.mark.parametrize("keys", ["", " , ", "s3cret:raed", "s3cret,s3cret"])
def test_keys_that_cannot_be_read_stop_the_start_and_stay_unsaid(keys: str) -> None:
    with pytest.raises(ConfigError, match="TOPICS_API_KEYS: ") as refusal:
        load({"TOPICS_API_KEYS": keys})
    assert "s3cret" not in str(refusal.value)


def test_settings_hold_no_secret() -> None:
    settings = load({"TOPICS_API_KEYS": "s3cret:read"})
    assert "s3cret" not in repr(settings)
    assert len(settings.server.api_keys) == 1


# --- other names ----------------------------------------------------------------------------------


def test_both_names_of_a_setting_are_the_same_setting() -> None:
    for setting in SETTINGS:
        if setting.also and setting.default:
            assert load({setting.also: setting.default}) == load({setting.name: setting.default})
    assert load({"HEADRACE_PORT": "5000"}).server.port == 5000
    assert load({"HEADRACE_PORT": "5000", "TOPICS_PORT": "5000"}).server.port == 5000
    same = {"HEADRACE_MAX_BODY_BYTES": "1MiB", "TOPICS_MAX_BODY_BYTES": "1048576"}
    assert load(same).server.max_body_bytes == 1 << 20
    assert load({"HEADRACE_PORT": "5000"}, {"TOPICS_PORT": "1"}).server.port == 1


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (("HEADRACE_PORT", "TOPICS_PORT"), ("5000", "5001")),
        (("HEADRACE_API_KEYS", "TOPICS_API_KEYS"), ("s3cret1", "s3cret2")),
    ],
)
def test_both_names_with_different_values_are_refused(
    names: tuple[str, str], values: tuple[str, str]
) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(dict(zip(names, values, strict=True)))
    [problem] = refusal.value.problems
    assert all(name in problem for name in names)
    assert not any(value in problem for value in values)


def test_names_are_unique() -> None:
    names = [name for setting in SETTINGS for name in setting.names]
    assert len(names) == len(set(names))


def test_a_problem_names_the_variable_that_was_set() -> None:
    with pytest.raises(ConfigError, match=r"^HEADRACE_PORT='x' is not accepted"):
        load({"HEADRACE_PORT": "x"})
    with pytest.raises(ConfigError, match=r"^HEADRACE_HOST='0.0.0.0' can be reached from outside"):
        load({"HEADRACE_HOST": "0.0.0.0"})


# --- credentials ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEADRACE_ADMIN_TOKEN", "s3cret"),
        ("HEADRACE_USERS", "ann:s3cret"),
        ("HEADRACE_JWT_SECRET", "s3cret" * 6),
    ],
)
def test_each_credential_ends_development_mode(name: str, value: str) -> None:
    assert load({}).server.development
    settings = load({"TOPICS_HOST": "0.0.0.0", name: value})
    assert not settings.server.development
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEADRACE_ADMIN_TOKEN", "s3cret s3cret"),
        ("HEADRACE_ADMIN_TOKEN", ""),
        ("HEADRACE_USERS", "s3cret"),
        ("HEADRACE_JWT_SECRET", "s3cret"),
        ("HEADRACE_JWKS", "nowhere"),
    ],
)
def test_credentials_that_cannot_be_read_are_named_and_stay_unsaid(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as refusal:
        load({name: value})
    assert "s3cret" not in str(refusal.value)


def test_credentials_that_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match="one of HEADRACE_API_KEYS"):
        load({"TOPICS_API_KEYS": "a,s3cret:read", "HEADRACE_ADMIN_TOKEN": "s3cret"})
    with pytest.raises(ConfigError, match="choose one"):
        load({"HEADRACE_JWT_SECRET": "x" * 32, "HEADRACE_JWKS": "nowhere"})


def test_a_mistake_in_the_file_of_notifications_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "n.yaml"
    with pytest.raises(ConfigError) as refusal:
        load({"NOTIFICATIONS_CONFIG": str(file)})
    unread = f"NOTIFICATIONS_CONFIG={str(file)!r} cannot be read: No such file or directory"
    assert refusal.value.problems == [unread]
    file.write_text("application: {}\nmetrcis: {}\n")
    with pytest.raises(ConfigError) as refusal:
        load({"NOTIFICATIONS_CONFIG": str(file)})
    [problem] = refusal.value.problems
    assert problem.startswith(f"{file}:2: metrcis: is not a key here; there are application, ")
