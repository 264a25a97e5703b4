"""The command line: serve, inspect, verify, bench."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace import __version__, config

_EPILOG = """\
examples:
  headrace serve                      run on 127.0.0.1:4000 with data in ./data
  headrace serve --port 8080 --data-dir /var/lib/headrace
  headrace inspect --data-dir data    what a data directory holds (read-only)
  headrace verify --data-dir data     check every checksum and invariant
  headrace bench --quick              measure against Redis Streams
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command; exits with 0 when it did what was asked."""
    parser = _parser()
    options = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        sys.exit(run(options))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # somebody's `head` has seen enough
        sys.exit(0)


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="headrace",
        description="One durable event engine that speaks five protocols.",
        epilog=_EPILOG,
        formatter_class=raw,
    )
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = commands.add_parser(
        "serve",
        help="run the server",
        description="Run the server until a signal stops it.",
        epilog=f"environment:\n{config.describe()}",
        formatter_class=raw,
    )
    serve.add_argument("--host", metavar="ADDRESS", help="address to listen on (TOPICS_HOST)")
    serve.add_argument("--port", metavar="PORT", help="port to listen on, 0 for any (TOPICS_PORT)")
    serve.add_argument("--data-dir", metavar="DIR", help="where the data lives (TOPICS_DATA_DIR)")
    serve.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    serve.set_defaults(run=_serve)

    for name, run, text in (
        ("inspect", _inspect, "show the logs, segments and journal of a data directory, read-only"),
        ("verify", _verify, "check every checksum and invariant of a data directory"),
    ):
        command = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        command.add_argument(
            "--data-dir", metavar="DIR", type=Path, default=Path("data"), help="default: ./data"
        )
        command.set_defaults(run=run)
        if name == "inspect":
            command.add_argument(
                "what", nargs="?", choices=("summary", "logs", "segments", "journal")
            )
            command.add_argument("--log", metavar="NAME", help="only this log")
            command.add_argument("--limit", type=int, default=50, help="rows at the most (50)")

    from headrace.bench import main as bench

    measure = commands.add_parser(
        "bench",
        help="measure the server, beside Redis Streams in one run",
        description="Start the server and Redis as processes of their own and measure both in one run.",
    )
    bench.add_arguments(measure)
    measure.set_defaults(run=bench.run)
    return parser


def _serve(options: argparse.Namespace) -> int:
    from headrace import app, observe

    given = {
        "TOPICS_HOST": options.host,
        "TOPICS_PORT": options.port,
        "TOPICS_DATA_DIR": options.data_dir,
        "HEADRACE_LOG_LEVEL": options.log_level,
    }
    overrides = {name: value for name, value in given.items() if value is not None}
    try:
        settings = config.load(overrides=overrides)
        observe.start_log(settings.log_level)
        app.serve(settings)
    except config.ConfigError as error:
        return _fail(*error.problems)
    except app.StartError as error:
        return _fail(str(error))
    return 0


def _fail(*problems: str) -> int:
    for problem in problems:
        print(f"headrace: {problem}", file=sys.stderr)
    return 2


def _inspect(options: argparse.Namespace) -> int:
    from headrace import tools

    return tools.inspect(options)


def _verify(options: argparse.Namespace) -> int:
    from headrace import tools

    return tools.verify(options)
