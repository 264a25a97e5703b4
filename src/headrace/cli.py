"""The command line: serve, config, inspect, verify, keys, pipeline, bench."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import __version__, config
from headrace.config import listing, loading

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_EPILOG = """\
examples:
  headrace serve                      run on 127.0.0.1:4000 with data in ./data
  headrace serve --port 8080 --data-dir /var/lib/headrace
  headrace config                     every setting, its value and where it comes from
  headrace inspect --data-dir data    what a data directory holds (read-only)
  headrace verify --data-dir data     check every checksum and invariant
  headrace keys rotate                change the key that signs URLs of closures
  headrace pipeline audit             run a Spark job over the sealed segments
  headrace bench --quick              measure against Redis Streams
"""
_INSPECT_EPILOG = """\
examples:
  headrace inspect                          sizes, positions, the largest logs
  headrace inspect logs --limit 0 --json    every log, for a program to read
  headrace inspect segments --log orders    where the sealed records of a log lie
  headrace inspect journal --limit 20       the newest frames and what they say
"""
_KEYS_EPILOG = """\
examples:
  headrace keys make superadmin --name "on call"
  headrace keys make tenant-admin --tenant acme --name ops
  headrace keys make namespace-read --tenant acme --namespace billing --name checkout
  headrace keys make feed --tenant acme --role reader --name shop
  headrace keys list --tenant acme          with --feed: API keys of its feed
  headrace keys revoke tok_1a2b3c --tenant acme
  headrace keys rotate                      URLs of the key before hold for their minute
"""
_VERIFY_EPILOG = """\
exit status:
  0  everything is as it should be; notes tell of torn tails and of files nobody needs
  1  something is wrong
  2  could not run: no such directory, or a server runs on it
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command; exits with 0 when it did what was asked."""
    argv = sys.argv[1:] if argv is None else argv
    options = _parser(wants_jobs="pipeline" in argv).parse_args(argv)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        sys.exit(run(options))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # somebody's `head` has seen enough
        sys.exit(0)


def _parser(*, wants_jobs: bool = True) -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="headrace",
        description="One durable event engine that speaks several protocols.",
        epilog=_EPILOG,
        formatter_class=raw,
    )
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = commands.add_parser(
        "serve",
        help="run the server",
        description="Run the server until a signal stops it.",
        epilog=f"environment:\n{listing.describe()}",
        formatter_class=raw,
    )
    _add_settings(serve)
    serve.set_defaults(run=_serve)
    shown = commands.add_parser(
        "config",
        help="show every setting, its value and where it comes from",
        description="Show what `headrace serve` would run with: every setting, its value and\n"
        "where it comes from, as a file for HEADRACE_CONFIG. Secrets are left out.",
        formatter_class=raw,
    )
    _add_settings(shown)
    shown.set_defaults(run=_show_config)

    _add_inspect(commands)
    _add_verify(commands)

    _add_keys(commands)

    jobs = commands.add_parser("pipeline", help="run a Spark job over the sealed segments")
    if wants_jobs:  # dozens of modules that no other command needs
        from headrace.pipeline import commands as pipeline

        pipeline.add_arguments(jobs)
    jobs.set_defaults(run=_pipeline)

    # Whose words these are: the benchmark is no part of an installed Headrace.
    bench = commands.add_parser(
        "bench",
        help="measure the server, beside Redis Streams in one run",
        add_help=False,
        prefix_chars="\0",
    )
    bench.add_argument("words", nargs="*")
    bench.set_defaults(run=_bench)
    return parser


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", metavar="FILE", help="file with settings (HEADRACE_CONFIG)")
    command.add_argument("--host", metavar="ADDRESS", help="address to listen on (HEADRACE_HOST)")
    command.add_argument(
        "--port", metavar="PORT", help="port to listen on, 0 for any (HEADRACE_PORT)"
    )
    command.add_argument(
        "--data-dir", metavar="DIR", help="where the data lives (HEADRACE_DATA_DIR)"
    )
    command.add_argument("--objects", metavar="WHERE", help="object store (HEADRACE_OBJECTS)")
    command.add_argument(
        "--pipeline", metavar="WHERE", help="local or off: who indexes (HEADRACE_PIPELINE)"
    )
    command.add_argument(
        "--notifications", metavar="FILE", help="event types and their rules (NOTIFICATIONS_CONFIG)"
    )
    command.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")


def _add_inspect(commands: _Commands) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="show the logs, segments and journal of a data directory",
        description="Show what a data directory holds, as a server would start from it.\n"
        "Reads only: a running server is not disturbed, and nothing is locked or changed.",
        epilog=_INSPECT_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inspect.add_argument(
        "what",
        nargs="?",
        default="summary",
        choices=("summary", "logs", "segments", "journal"),
        metavar="WHAT",
        help="summary (default), logs, segments or journal",
    )
    _add_data_dir(inspect)
    inspect.add_argument("--log", metavar="NAME", help="only this log, its segments, its frames")
    inspect.add_argument(
        "--limit",
        metavar="N",
        type=_count,
        default=50,
        help="rows at the most, 0 for all (default 50): the first logs, the newest of the others",
    )
    inspect.add_argument("--json", action="store_true", help="print JSON instead of a table")
    inspect.set_defaults(run=_inspect)


def _add_verify(commands: _Commands) -> None:
    verify = commands.add_parser(
        "verify",
        help="check every checksum and invariant of a data directory",
        description="Check every checksum and invariant of a data directory and say what is\n"
        "wrong where, one line each. Takes the lock, so no server may run on it; changes nothing.",
        epilog=_VERIFY_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_data_dir(verify)
    verify.set_defaults(run=_verify)


_TOKEN_TYPES = (
    "namespace-read",
    "namespace-write",
    "namespace-client",
    "tenant-admin",
    "superadmin",
    "feed",
)


_FEED_ROLES = ("reader", "editor", "generator", "manager")


def _add_keys(commands: _Commands) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    keys = commands.add_parser(
        "keys",
        help="make, list and revoke tokens of flags and keys of feeds; change the signing key",
        description="Ask a running server to make, list or revoke tokens of flags and API keys of\n"
        "feeds, or to sign URLs of closures with another key.",
        epilog=_KEYS_EPILOG,
        formatter_class=raw,
    )
    verbs = keys.add_subparsers(required=True, metavar="VERB", dest="verb")
    rotate = verbs.add_parser("rotate", help="sign URLs of closures with a new key from now on")
    make = verbs.add_parser("make", help="make a token; its secret is printed, once")
    make.add_argument("type", choices=_TOKEN_TYPES, metavar="TYPE", help=", ".join(_TOKEN_TYPES))
    make.add_argument("--name", required=True, metavar="NAME", help="what it is called in lists")
    make.add_argument("--namespace", metavar="SLUG", help="the namespace it is for")
    make.add_argument("--environment", metavar="NAME", help="the environment it is for")
    make.add_argument(
        "--role", action="append", default=[], metavar="ROLE", choices=_FEED_ROLES,
        help="of a key of a feed: reader, editor, generator or manager; may be given again",
    )  # fmt: skip
    make.add_argument("--expires-at", metavar="TIME", help="until when it holds, RFC 3339")
    listed = verbs.add_parser("list", help="list tokens, without their secrets")
    listed.add_argument("--json", action="store_true", help="print JSON instead of a table")
    revoke = verbs.add_parser("revoke", help="end a token, and what was opened with it")
    revoke.add_argument("id", metavar="ID", help="its id, as tok_1a2b3c")
    for verb in (listed, revoke):
        verb.add_argument("--feed", action="store_true", help="API keys of the tenant's feed")
    for verb in (make, listed, revoke):
        text = "of this tenant (default: tokens of superadmins)"
        verb.add_argument("--tenant", metavar="SLUG", help=text)
    for verb in (rotate, make, listed, revoke):
        text = "the server (default: where HEADRACE_HOST and HEADRACE_PORT say)"
        verb.add_argument("--url", metavar="URL", help=text)
        text = "a token of an admin (better: HEADRACE_API_KEY or HEADRACE_ADMIN_TOKEN)"
        verb.add_argument("--api-key", metavar="KEY", help=text)
    keys.set_defaults(run=_keys)


def _add_data_dir(command: argparse.ArgumentParser) -> None:
    text = "the data directory (default: HEADRACE_DATA_DIR or ./data)"
    command.add_argument("--data-dir", metavar="DIR", type=Path, help=text)
    text = "its object store, s3://bucket/prefix (default: HEADRACE_OBJECTS or in the directory)"
    command.add_argument("--objects", metavar="WHERE", help=text)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def _overrides(options: argparse.Namespace) -> dict[str, str]:
    given = {
        config.FILE_VARIABLE: options.config,
        "HEADRACE_HOST": options.host,
        "HEADRACE_PORT": options.port,
        "HEADRACE_DATA_DIR": options.data_dir,
        "HEADRACE_OBJECTS": options.objects,
        "HEADRACE_PIPELINE": options.pipeline,
        "NOTIFICATIONS_CONFIG": options.notifications,
        "HEADRACE_LOG_LEVEL": options.log_level,
    }
    return {name: value for name, value in given.items() if value is not None}


def _serve(options: argparse.Namespace) -> int:
    # Modules stay as long as the process: to look at them again and again while they are loaded,
    # and once more when the server is ready, would take a fifth of the start.
    gc.disable()
    from headrace import app, observe

    gc.freeze()
    gc.enable()

    try:
        settings = config.load(overrides=_overrides(options))
        observe.start_log(settings.server.log_level)
        app.serve(settings)
    except config.ConfigError as error:
        return _fail(*error.problems)
    except app.StartError as error:
        return _fail(str(error))
    return 0


def _show_config(options: argparse.Namespace) -> int:
    try:
        given = loading.gather(overrides=_overrides(options))
        loading.parse(given)
    except config.ConfigError as error:
        return _fail(*error.problems)
    print(listing.format_toml(given))
    return 0


def _fail(*problems: str) -> int:
    for problem in problems:
        print(f"headrace: {problem}", file=sys.stderr)
    return 2


def _inspect(options: argparse.Namespace) -> int:
    from headrace import offline

    return _run_offline(options, lambda root, objects: offline.inspect(root, objects, options))


def _verify(options: argparse.Namespace) -> int:
    from headrace import offline

    return _run_offline(options, offline.verify)


def _keys(options: argparse.Namespace) -> int:
    from headrace import keys

    try:
        return keys.run(options, options.url or _server_url())
    except config.ConfigError as error:
        return _fail(*error.problems)
    except keys.KeysFailed as error:
        return _fail(str(error))


def _pipeline(options: argparse.Namespace) -> int:
    from headrace.pipeline import commands

    if options.name == "seal":
        try:
            return commands.seal(options, options.url or _server_url())
        except config.ConfigError as error:
            return _fail(*error.problems)
    return _run_offline(options, lambda root, objects: commands.run(options, root, objects))


def _bench(options: argparse.Namespace) -> int:
    try:
        from headrace_bench.main import main
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("headrace_bench"):
            raise
        return _fail("the benchmark is not installed; run `make bench` in a copy of the repository")
    return main(options.words)


def _server_url() -> str:
    """Where a server of this environment listens."""
    host, port = config.read("server.host"), config.read("server.port")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _run_offline(options: argparse.Namespace, run: Callable[[Path, str | None], int]) -> int:
    from headrace.offline import CommandFailed

    try:
        given = {"HEADRACE_OBJECTS": options.objects} if options.objects else {}
        objects = config.read("storage.objects", given)
        return run(options.data_dir or config.load().storage.data_dir, objects)
    except config.ConfigError as error:
        return _fail(*error.problems)
    except CommandFailed as error:
        return _fail(str(error))
    except PermissionError as error:
        return _fail(f"{error}; run this as the user who runs the server")
