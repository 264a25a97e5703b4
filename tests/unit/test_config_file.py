"""The configuration file, and settings as people read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import cli
from headrace.config import SETTINGS, ConfigError, load
from headrace.config.listing import format_reference, format_toml
from headrace.config.loading import gather

REFERENCE = Path(__file__).parents[2] / "docs" / "SETTINGS.md"


def written(folder: Path, text: str) -> dict[str, str]:
    path = folder / "headrace.toml"
    path.write_text(text)
    return {"HEADRACE_CONFIG": str(path)}


def problems_of(environ: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as refusal:
        load(environ)
    return [
        problem.replace(environ["HEADRACE_CONFIG"], "FILE") for problem in refusal.value.problems
    ]


EVERY_TYPE = """
[server]
port = 5000
probe_auth = true
log_level = "Debug"
cors_origins = ["https://a.example", "http://b.example"]
api_keys = ["s3cret:read", "other"]

[storage]
seal_bytes = "2MiB"
tail_bytes = 4096

[topics]
max_topics = 7
"""


def test_a_file_holds_values_of_every_type(tmp_path: Path) -> None:
    settings = load(written(tmp_path, EVERY_TYPE))
    server, storage = settings.server, settings.storage
    assert (server.port, server.probe_auth, server.log_level) == (5000, True, "debug")
    assert server.cors_origins == ("https://a.example", "http://b.example")
    assert len(server.api_keys) == 2
    assert (storage.seal_bytes, storage.tail_bytes) == (2 << 20, 4096)
    assert settings.topics.max_topics == 7
    assert settings.streams == load({}).streams


def test_the_environment_wins_over_the_file_and_the_command_line_over_both(tmp_path: Path) -> None:
    environ = written(tmp_path, EVERY_TYPE)
    assert load(environ | {"TOPICS_PORT": "5001"}).server.port == 5001
    assert load(environ | {"HEADRACE_PORT": "5001"}).server.port == 5001
    assert load({"TOPICS_PORT": "5001"} | environ, {"TOPICS_PORT": "5002"}).server.port == 5002
    other = tmp_path / "other.toml"
    other.write_text("server.port = 6000\n")
    assert load(environ, {"HEADRACE_CONFIG": str(other)}).server.port == 6000


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[server]\nprot = 1\n", "FILE:2: server.prot is not a setting"),
        ("[topics]\n\nport = 1\n", "FILE:3: topics.port is not a setting; there is server.port"),
        ("port = 1\n", "FILE:1: port is not a setting; there is server.port"),
        ("[mails]\n", "FILE:1: mails is not a setting"),
        ("[server.port]\nx = 1\n", "FILE: server.port is not accepted: expected a number"),
        ("[[server]]\nport = 1\n", "FILE: server is not a setting"),
        ("server = {prot = 1}\n", "FILE: server.prot is not a setting"),
        ("[server]\nport = '4000'\n", "FILE:2: server.port = '4000' is not accepted: expected a n"),
        (
            "[server]\nport = true\n",
            "FILE:2: server.port = true is not accepted: expected a number",
        ),
        ("[server]\nport = 4.0\n", "FILE:2: server.port is not accepted: expected a number"),
        ("[server]\nport = 70000\n", "FILE:2: server.port = 70000 is not accepted: expected a who"),
        ("[server]\nport = -1\n", "FILE:2: server.port = -1 is not accepted: expected a whole"),
        ("[server]\nprobe_auth = 1\n", "FILE:2: server.probe_auth = 1 is not accepted: expected t"),
        ("[storage]\nseal_bytes = '64MB'", "FILE:2: storage.seal_bytes = '64MB' is not accepted"),
        (
            "[server]\ncors_origins = '*'\n",
            "FILE:2: server.cors_origins = '*' is not accepted: exp",
        ),
        (
            "[server]\ncors_origins = [1]\n",
            "FILE:2: server.cors_origins = [1] is not accepted: exp",
        ),
        ("[server]\nport = \n", "FILE:2: Invalid value"),
        ("[server]\nport = 1\nport = 2\n", "FILE:3: Cannot overwrite a value"),
        (f"[server]\nport = {'9' * 5000}\n", "FILE: holds a number that is too long"),
        ("[server]\nhost = '0.0.0.0'\n", "FILE:2: server.host = '0.0.0.0' can be reached from out"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, text: str, problem: str) -> None:
    [told] = problems_of(written(tmp_path, text))
    assert told.startswith(problem)


def test_a_wrong_value_is_refused_even_if_the_environment_wins(tmp_path: Path) -> None:
    environ = written(tmp_path, "[server]\nport = 70000\n") | {"HEADRACE_PORT": "1"}
    assert len(problems_of(environ)) == 1


def test_problems_of_file_and_environment_are_told_at_once(tmp_path: Path) -> None:
    environ = written(tmp_path, "[server]\nprot = 1\nport = 'x'\n") | {"TOPICS_MAX_LIMIT": "y"}
    assert len(problems_of(environ)) == 3


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("nothing.toml", None, "HEADRACE_CONFIG='FILE' cannot be read: No such file or directory"),
        (".", None, "HEADRACE_CONFIG='FILE' cannot be read: Is a directory"),
        ("latin.toml", b"# \xe9\n", "FILE: is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read(
    tmp_path: Path, name: str, content: bytes | None, problem: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert problems_of({"HEADRACE_CONFIG": str(path)}) == [problem]


def test_no_file_is_no_path() -> None:
    with pytest.raises(ConfigError, match="HEADRACE_CONFIG='' cannot be read: No such file"):
        load({"HEADRACE_CONFIG": ""})


def test_a_server_does_not_start_with_a_file_it_does_not_understand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "[server]\nprot = 1\nport = 'x'\n")["HEADRACE_CONFIG"]
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", "--config", path])
    assert ended.value.code == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"headrace: {path}:2: server.prot is not a setting"
    assert second.startswith(f"headrace: {path}:3: server.port = 'x' is not accepted")


@pytest.mark.parametrize(
    "line",
    [
        "api_keys = ['s3cret:raed']",
        "api_keys = 's3cret'",
        "api_keys = ['s3cret,x']",
        "api_keys = []",
    ],
)
def test_keys_of_a_file_stay_unsaid(tmp_path: Path, line: str) -> None:
    [problem] = problems_of(written(tmp_path, f"[server]\n{line}\n"))
    assert problem.startswith("FILE:2: server.api_keys")
    assert "s3cret" not in problem


# --- settings as people read them -----------------------------------------------------------------


def test_what_is_shown_is_a_file_that_says_the_same(tmp_path: Path) -> None:
    environ = {
        "TOPICS_PORT": "5000",
        "TOPICS_PROBE_AUTH": "yes",
        "TOPICS_CORS_ORIGINS": "https://a.example, http://b.example",
        "HEADRACE_SEAL_BYTES": "2 MiB",
        "TOPICS_DATA_DIR": 'with "quotes" and \\',
        "HEADRACE_OBJECTS": "s3://bucket/prefix",
        "HEADRACE_WEBHOOK_HOSTS": "10.0.0.0/8,localhost",
    }
    shown = format_toml(gather(environ))
    assert repr(load(written(tmp_path, shown))) == repr(load(environ))


def test_where_a_value_comes_from_is_shown_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = written(tmp_path, EVERY_TYPE) | {"TOPICS_PROBE_AUTH": "0"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        cli.main(["config", "--log-level", "error"])
    assert ended.value.code == 0
    path, shown = environ["HEADRACE_CONFIG"], capsys.readouterr().out
    lines = shown.splitlines()
    assert f"port = 5000  # {path}:3" in lines
    assert "probe_auth = false  # TOPICS_PROBE_AUTH" in lines
    assert 'log_level = "error"  # command line' in lines
    assert 'host = "127.0.0.1"  # default' in lines
    assert "# port_file =  # not set" in lines
    assert f"# api_keys = [...]  # {path}:7; not shown" in lines
    assert "s3cret" not in shown
    assert sum(" = " in line or " =  " in line for line in lines) == len(SETTINGS)


def test_settings_that_cannot_be_are_told_by_config_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOPICS_PORT", "x")
    with pytest.raises(SystemExit) as ended:
        cli.main(["config"])
    assert ended.value.code == 2
    assert "TOPICS_PORT='x' is not accepted" in capsys.readouterr().err


def test_the_reference_says_what_is_declared() -> None:
    expected = format_reference()
    head, _, _ = REFERENCE.read_text().partition("## `[")
    assert REFERENCE.read_text() == head + expected, "write format_reference() below the text"
