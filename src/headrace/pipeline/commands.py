"""`headrace pipeline …`: one command for each job."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from headrace.pipeline.errors import CannotRun, JobFailed, NotSealed, Unexpected
from headrace.pipeline.failures import failure
from headrace.pipeline.limits import EXAMPLES_MAX, FORMATS, GRACE_S, PROBLEMS_MAX
from headrace.pipeline.report import Report, show_progress
from headrace.pipeline.reports.report import Period
from headrace.pipeline.reports.studies import STUDIES
from headrace.pipeline.server import API_KEY, ask_to_seal
from headrace.pipeline.session import session
from headrace.pipeline.settings import KERNELS, LOCAL, SQL, Target, Weight, parse_given
from headrace.pipeline.store_location import StoreLocation, check
from headrace.pipeline.terminal import (
    Stopped,
    find_stop,
    keep,
    obey_signals,
    obeying_signals,
    quiet,
    show,
)
from headrace.printing import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.export import Selection
    from headrace.pipeline.reports.run import ReportOptions

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_TIME = "time, as 2026-01-31T12:00:00Z or in milliseconds"

FAILED = 1
CANNOT_RUN = 2

Job = Callable[[Any, StoreLocation, argparse.Namespace], Report]

_DESCRIPTION = """\
Spark jobs over the published segments of a data directory. A server may run on it meanwhile: jobs
read only what a manifest names, publish by the next manifest version, and the server takes it over.
Records that are not sealed yet are not seen; `seal` asks a running server to seal them now.
"""
_EPILOG = f"""\
examples:
  headrace pipeline seal                              what was written until now can be seen by jobs
  headrace pipeline follow --data-dir data            keep indexes up to date until stopped
  headrace pipeline follow --once                     index what is there and end
  headrace pipeline compact                           many small segments into few large ones
  headrace pipeline erase --now                       deleted records leave the bytes
  headrace pipeline audit                             is everything what it should be?
  headrace pipeline export --log orders --to orders.jsonl
  headrace pipeline report latency --chart latency.html

Spark runs inside the command ({LOCAL}) unless --master names a cluster or --remote a Connect
server; there every node needs this package, the same Python and the same path to the data.

exit status:
  0  done    1  something is wrong with the data, or the job failed    2  could not run
  130, 143  stopped by Ctrl-C or SIGTERM
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe every job to the command line."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    jobs = parser.add_subparsers(required=True, metavar="JOB")
    _add_seal(jobs)
    _add_follow(jobs)
    _add_backfill(jobs)
    _add(
        jobs,
        "merge",
        "merge builds, eight of a level into one",
        "Merge index companions: eight neighbouring builds of a level become one of the next, so\n"
        "that a lookup opens few files. `follow` does this as it goes.",
        _merge,
        KERNELS,
    )
    _add_compact(jobs)
    _add_erase(jobs)
    _add(
        jobs,
        "retain",
        "drop segments in which nothing is live",
        "Take segments in which nothing is live out of the manifest, with their builds.\n"
        "The janitor removes their objects.",
        _retain,
        KERNELS,
    )
    _add_audit(jobs)
    _add_export(jobs)
    _add_report(jobs)
    _add_janitor(jobs)
    _add_maintain(jobs)
    _add_history(jobs)
    _add_certificate(jobs)


def run(options: argparse.Namespace, data_dir: Path, objects: str | None) -> int:
    """Run the job that was chosen; print what it says. Whatever goes wrong is told in one line."""
    # Tasks may be in other folders, on this machine too.
    place = StoreLocation(data_dir.absolute(), objects)
    try:
        with quiet(options.debug), obeying_signals():
            report = _do(options, place)
    except Stopped as stopped:
        return _fail(f"stopped by {stopped.signal.name}", stopped.status)
    except Exception as error:
        if (signalled := find_stop(error)) is not None:
            return _fail(f"stopped by {signalled.signal.name}", signalled.status)
        if options.debug:
            traceback.print_exc()
        return _tell(failure(error), options.name, error)
    show(report.lines())
    return FAILED if report.problems else 0


def _do(options: argparse.Namespace, place: StoreLocation) -> Report:
    check(place)
    options.check(options)
    job: Job = options.job
    if options.weight is None:
        return job(None, place, options)
    if options.name == "erase" and options.url and not options.subject:
        # Before anything is counted: afterwards only segments hold what is dead.
        ask_to_seal(options.url, options.api_key, retire_journal=True)
    notes = _tell_unseen(place, options)
    with session(options.name, _target(options), options.weight) as spark:
        obey_signals()  # Spark put in something of its own
        try:
            report = job(spark, place, options)
        except NotSealed as error:
            raise NotSealed("; ".join([str(error), *notes])) from None
    report.notes += notes
    return report


def _tell_unseen(place: StoreLocation, options: argparse.Namespace) -> list[str]:
    """What a job that reads history does not see of it; one that goes on, or has the server seal
    as it works, will see it.
    """
    if (options.name == "follow" and not options.once) or (
        options.name == "erase" and options.subject
    ):
        return []
    from headrace.pipeline.unseen import tell_unseen

    return tell_unseen(place)


def _target(options: argparse.Namespace) -> Target:
    """Where Spark runs; beside a server it is here, whatever a file of Spark's says."""
    beside = getattr(options, "tied", False) and options.remote is None
    master = options.master or (LOCAL if beside else None)
    return Target(master, options.remote, parse_given(options.conf))


def _tell(failed: JobFailed, job: str, error: Exception) -> int:
    line = str(failed)
    if isinstance(failed, Unexpected) and (kept := keep(job, error, failed.details)):
        line += f"; details are in {kept}"
    return _fail(line, CANNOT_RUN if isinstance(failed, CannotRun) else FAILED)


def _fail(problem: str, status: int) -> int:
    print(f"headrace: {problem}", file=sys.stderr)
    return status


# --- the jobs ---


def _add(
    jobs: Commands,
    name: str,
    help: str,
    description: str,
    job: Job,
    weight: Weight | None,
) -> argparse.ArgumentParser:
    parser = jobs.add_parser(
        name,
        help=help,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_argument_group("where")
    where.add_argument(
        "--data-dir",
        metavar="DIR",
        type=Path,
        help="the data directory (default: HEADRACE_DATA_DIR or ./data)",
    )
    where.add_argument(
        "--objects",
        metavar="WHERE",
        help="its object store, s3://bucket/prefix (default: HEADRACE_OBJECTS or in the directory)",
    )
    spark = where.add_mutually_exclusive_group()
    spark.add_argument("--master", metavar="URL", help=f"where Spark runs (default {LOCAL})")
    spark.add_argument("--remote", metavar="URL", help="a Spark Connect server, as sc://host:15002")
    where.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[],
        help="a setting of Spark, as spark.driver.memory=4g; may be given again",
    )  # fmt: skip
    where.add_argument(
        "--debug", action="store_true", help="show what Spark prints, and tracebacks"
    )
    parser.set_defaults(job=job, weight=weight, name=name, check=lambda _: None)
    return parser


def _add_seal(jobs: Commands) -> None:
    parser = jobs.add_parser(
        "seal",
        help="have a running server seal what waits, so that jobs see it",
        description="Ask the server that runs to seal everything that was written until now, and\n"
        "wait until the segments are published. Needs no Spark. A server that does not run is not\n"
        "needed for what is sealed, but nobody else seals: start it for the rest.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_server(parser, "where the server is (default: HEADRACE_HOST and HEADRACE_PORT)")
    parser.add_argument(
        "--retire-journal", action="store_true",
        help="let the journal go of it, too: no file of it holds records of before",
    )  # fmt: skip
    parser.set_defaults(name="seal")


def add_server(where: argparse._ActionsContainer, help: str) -> None:
    """How to reach a running server."""
    where.add_argument("--url", metavar="URL", help=help)
    where.add_argument(
        "--api-key", metavar="KEY", help=f"a key with scope admin (better: {API_KEY})"
    )


def seal(options: argparse.Namespace, url: str) -> int:
    """Have the server at this address seal what waits; print what it did."""
    try:
        done = ask_to_seal(url, options.api_key, retire_journal=options.retire_journal)
    except JobFailed as failed:
        return _tell(failed, options.name, failed)
    what = f"{count(done.records, 'record')} sealed into {count(done.segments, 'segment')}"
    if not done.segments:
        what = "nothing waits to be sealed"
    if options.retire_journal:
        what += "; the journal holds no record of before"
    print(f"{url}: {what}; manifest version {done.manifest}")
    return 0


def _add_follow(jobs: Commands) -> None:
    parser = _add(
        jobs,
        "follow",
        "index every segment soon after it is published",
        "Make the index companions of every segment that has none, or outdated ones, oldest\n"
        "first, and go on as segments are published and plans change. May be stopped and killed\n"
        "at any time, and several may run: a segment is in one build at a time.",
        _follow,
        KERNELS,
    )
    parser.add_argument("--once", action="store_true", help="end when nothing is left to do")
    parser.add_argument("--no-merge", action="store_true", help="leave builds as they are made")
    parser.add_argument(
        "--json", action="store_true", help="print the status as a line of JSON when it changes"
    )
    parser.add_argument("--tied", action="store_true", help="stop when standard input ends")


def _follow(spark: SparkSession, place: StoreLocation, options: argparse.Namespace) -> Report:
    from headrace.pipeline.follow import follow, stop_on_signals, stop_with_input, telling

    stopping = Event()
    stop_on_signals(stopping)
    if options.tied:
        stop_with_input(stopping)
    with telling(options.json) as tell:
        return follow(
            spark,
            place,
            once=options.once,
            merging=not options.no_merge,
            stopping=stopping,
            tell=tell,
        )


def _add_backfill(jobs: Commands) -> None:
    parser = _add(
        jobs,
        "backfill",
        "index history as today's plans and formats want it",
        "Make the companions that history lacks: of a new plan, a new kind of index, a new\n"
        "format. Oldest segments first; started again it goes on where it ended.",
        _backfill,
        KERNELS,
    )
    parser.add_argument(
        "--max-segments", metavar="N", type=_positive, help="end after about so many segments"
    )


def _backfill(spark: SparkSession, place: StoreLocation, options: argparse.Namespace) -> Report:
    from headrace.pipeline.backfill import backfill

    return backfill(spark, place, options.max_segments, show_progress)


def _merge(spark: SparkSession, place: StoreLocation, options: argparse.Namespace) -> Report:
    from headrace.pipeline.merge import merge

    return merge(spark, place)


def _add_compact(jobs: Commands) -> None:
    parser = _add(
        jobs,
        "compact",
        "rewrite runs of small segments as large ones",
        "Rewrite runs of neighbouring small segments as large ones in which each log lies\n"
        "together. Dead records are left out. Each run is proved to hold exactly the live\n"
        "records of its sources before it is published, in one step of the manifest.",
        _compact,
        SQL,
    )
    parser.add_argument(
        "--target-mib", metavar="N", type=_positive, default=128,
        help="record bytes of a new segment, in MiB; segments under half of it are small (128)",
    )  # fmt: skip
    parser.add_argument(
        "--min-run", metavar="N", type=_positive, default=4,
        help="segments a run must have to be worth it (4)",
    )  # fmt: skip


def _compact(spark: SparkSession, place: StoreLocation, options: argparse.Namespace) -> Report:
    from headrace.pipeline.compact import Sizes, compact

    sizes = Sizes(output_bytes=options.target_mib << 20, run_min=options.min_run)
    return compact(spark, place, sizes, show_progress)


def _add_erase(jobs: Commands) -> None:
    parser = _add(
        jobs,
        "erase",
        "let deleted, expired and acked records leave the bytes",
        "Rewrite every segment that holds records marked as dead, without them, and let every\n"
        "index go that has seen them. New files are read again before they are published: none\n"
        "of the dead records may be in them, and none of the others missing.",
        _erase,
        SQL,
    )
    parser.add_argument(
        "--now", action="store_true",
        help="remove the old objects at once; else the janitor does after the grace period",
    )  # fmt: skip
    parser.add_argument(
        "--log", metavar="NAME", action="append", default=[],
        help="only segments with dead records of this log, or prefix and *; may be given again",
    )  # fmt: skip
    add_server(
        parser,
        "a running server, which is first to seal what waits, and to let its journal go of it",
    )

    parser.add_argument(
        "--subject", metavar="WHO",
        help="delete and erase every record of key=VALUE, tag=VALUE, tag=PREFIX* or query=QUERY, "
        "in all logs, and certify it; needs --url",
    )  # fmt: skip
    parser.add_argument(
        "--certificate", metavar="FILE", type=Path, help="where the certificate of --subject goes"
    )
    parser.add_argument(
        "--signing-key", metavar="FILE", type=Path,
        help="an Ed25519 key in PEM that signs it (default: that of the data directory)",
    )  # fmt: skip
    parser.set_defaults(check=_check_erase)


def _check_erase(options: argparse.Namespace) -> None:
    if options.subject is None:
        if options.certificate or options.signing_key:
            raise CannotRun("--certificate and --signing-key go with --subject")
        return
    from headrace.pipeline.erasure.run import check_options

    check_options(options)


def _erase(spark: SparkSession, place: StoreLocation, options: argparse.Namespace) -> Report:
    from headrace.pipeline.erase import erase

    if options.subject is not None:
        from headrace.pipeline.erasure.run import certify

        return certify(spark, place, options)
    return erase(spark, place, now=options.now, logs=tuple(options.log), progress=show_progress)


def _retain(spark: SparkSession, place: StoreLocation, options: argparse.Namespace) -> Report:
    from headrace.pipeline.retain import retain

    return retain(spark, place)


def _add_audit(jobs: Commands) -> None:
    parser = _add(
        jobs,
        "audit",
        "check that segments, companions and manifest agree",
        "Read everything and compare: seqs of each log without holes but for dead ones, counts\n"
        "against the manifest, checksums, companions against rows. What is damaged is named and\n"
        "passed over. Problems are told by kind, the worst first, with how many there are and a\n"
        "few of them with their places; the exit status is 1 if there is one.",
        _audit,
        SQL,
    )
    parser.add_argument(
        "--all", action="store_true",
        help=f"up to {PROBLEMS_MAX} problems of each kind instead of {EXAMPLES_MAX}",
    )  # fmt: skip


def _audit(spark: SparkSession, place: StoreLocation, options: argparse.Namespace) -> Report:
    from headrace.pipeline.audit import audit

    return audit(spark, place, show_progress, PROBLEMS_MAX if options.all else EXAMPLES_MAX)


def _add_export(jobs: Commands) -> None:
    parser = _add(
        jobs,
        "export",
        "write a log or a selection of records to files",
        "Write live, sealed records to Parquet, CSV or JSON lines, sorted by log and seq. A\n"
        "target that ends in .parquet, .csv or .jsonl becomes one file, any other a folder. On a\n"
        "cluster, name a folder that all its nodes share, or a path in a bucket.",
        _export,
        SQL,
    )
    parser.add_argument(
        "--to", metavar="WHERE", required=True, help="where to write: a path, or s3://bucket/path"
    )
    parser.add_argument(
        "--format", choices=FORMATS, help="default: what --to ends in, else parquet"
    )
    chosen = parser.add_argument_group("which records")
    more = "; may be given again"
    chosen.add_argument(
        "--log", metavar="NAME", action="append", default=[], help=f"a log, or a prefix and *{more}"
    )
    chosen.add_argument("--key", action="append", default=[], help=f"a routing key{more}")
    chosen.add_argument(
        "--tag", action="append", default=[], help=f"a tag, or a prefix and *{more}"
    )
    chosen.add_argument("--from-seq", metavar="N", type=_positive, help="first seq")
    chosen.add_argument("--to-seq", metavar="N", type=_whole, help="last seq")
    chosen.add_argument("--from-ts", metavar="TIME", type=_instant, help=f"first {_TIME}")
    chosen.add_argument("--to-ts", metavar="TIME", type=_instant, help="last time")
    parser.set_defaults(check=_check_export)


def _selection(options: argparse.Namespace) -> Selection:
    from headrace.pipeline.export import Selection

    return Selection(
        logs=tuple(options.log),
        from_seq=options.from_seq,
        to_seq=options.to_seq,
        from_ts=options.from_ts,
        to_ts=options.to_ts,
        keys=tuple(options.key),
        tags=tuple(options.tag),
    )


def _check_export(options: argparse.Namespace) -> None:
    from headrace.pipeline.export import check_export

    check_export(_selection(options), options.to, options.format)


def _export(spark: SparkSession, place: StoreLocation, options: argparse.Namespace) -> Report:
    from headrace.pipeline.export import export
    from headrace.pipeline.maintenance.history import note_export

    started_at_ms = int(time.time() * 1000)
    report = export(spark, place, _selection(options), options.to, options.format)
    problem = note_export(place.open(), started_at_ms, report.summary)
    report.notes += [problem] if problem else []
    return report


def _add_report(jobs: Commands) -> None:
    told = "\n".join(f"  {study.name:<10} {study.help}" for study in STUDIES.values())
    parser = _add(
        jobs,
        "report",
        "tell what happened: changes, churn, volume, failures, latency",
        f"Make a report of the published history, as a table, and draw it if asked to:\n\n{told}",
        _report,
        SQL,
    )
    parser.add_argument("study", choices=STUDIES, help="which report")
    parser.add_argument(
        "--log", metavar="NAME", action="append", default=[],
        help="a log, or a prefix and *; may be given again (default: all that it is about)",
    )  # fmt: skip
    parser.add_argument("--period", choices=get_args(Period), help="how finely it tells times")
    parser.add_argument(
        "--from-ts", metavar="TIME", type=_instant, help=f"first {_TIME}, of commits"
    )
    parser.add_argument("--to-ts", metavar="TIME", type=_instant, help="last time of commits")
    parser.add_argument("--chart", metavar="PATH", type=Path, help="a .png, .svg or .html to draw")
    parser.add_argument("--to", metavar="PATH", type=Path, help="a .csv or .jsonl for its rows")
    parser.set_defaults(check=_check_report)


def _report_options(options: argparse.Namespace) -> ReportOptions:
    from headrace.pipeline.reports.run import ReportOptions

    return ReportOptions(
        logs=tuple(options.log),
        from_ts=options.from_ts,
        to_ts=options.to_ts,
        period=options.period,
        chart=options.chart,
        to=options.to,
    )


def _check_report(options: argparse.Namespace) -> None:
    from headrace.pipeline.reports.run import check_options

    check_options(_report_options(options))


def _report(spark: SparkSession, place: StoreLocation, options: argparse.Namespace) -> Report:
    from headrace.pipeline.reports.run import run

    return run(spark, place, STUDIES[options.study], _report_options(options))


def _add_janitor(jobs: Commands) -> None:
    parser = _add(
        jobs,
        "janitor",
        "remove files of the pipeline that nobody needs",
        "Remove objects that jobs left behind or replaced, that no manifest names and that are\n"
        "older than the grace period. Needs no Spark.",
        _janitor,
        None,
    )
    parser.add_argument(
        "--grace", metavar="SECONDS", type=_seconds, default=GRACE_S,
        help=f"how long readers of older manifests may go on ({GRACE_S:.0f})",
    )  # fmt: skip


def _janitor(
    spark: SparkSession | None, place: StoreLocation, options: argparse.Namespace
) -> Report:
    from headrace.pipeline.janitor import clean, removal_report

    return removal_report(place, clean(place, options.grace))


def _add_maintain(jobs: Commands) -> None:
    parser = _add(
        jobs,
        "maintain",
        "keep a store in order: run every job when it is due",
        "Index what is published, and run compaction, erasure and the others when they are due,\n"
        "one at a time in a store, until stopped. A policy in TOML says which jobs run, how\n"
        "often, at what time of day and for how long; without one: compact, retain and janitor\n"
        "every hour, erase once a day. `headrace pipeline history` shows what became of them.",
        _maintain,
        None,
    )
    parser.add_argument(
        "--policy", metavar="FILE", type=Path, help="which jobs run when (docs/PIPELINE.md)"
    )
    parser.add_argument(
        "--once", action="store_true", help="run what is due now, and end; 1 if a job failed"
    )
    parser.add_argument(
        "--all", action="store_true", help="with --once: every job of the policy, due or not"
    )
    parser.add_argument("--no-index", action="store_true", help="leave indexing to others")
    parser.add_argument(
        "--json", action="store_true", help="print the status as a line of JSON when it changes"
    )
    parser.add_argument("--tied", action="store_true", help="stop when standard input ends")
    parser.add_argument(
        "--api-key", metavar="KEY", help=f"of the server that seals (better: {API_KEY})"
    )
    parser.set_defaults(check=_check_maintain)


def _check_maintain(options: argparse.Namespace) -> None:
    from headrace.pipeline.maintenance.policy import load_policy

    if options.all and not options.once:
        raise CannotRun("--all goes with --once")
    options.policy = load_policy(options.policy)
    if options.no_index:
        options.policy = msgspec.structs.replace(options.policy, index=False)


def _maintain(spark: None, place: StoreLocation, options: argparse.Namespace) -> Report:
    from headrace.pipeline.maintenance.run import maintain

    return maintain(place, options, _target(options))


def _add_certificate(jobs: Commands) -> None:
    parser = _add(
        jobs,
        "certificate",
        "check a certificate of erasure, or show the key that signs them",
        "Check the signature of a certificate of `erase --subject`, and show what it says.\n"
        "Without a file: the public key of the data directory, for those who check. No Spark.",
        _certificate,
        None,
    )
    parser.add_argument("file", metavar="FILE", type=Path, nargs="?", help="the certificate")
    parser.add_argument("--public-key", metavar="HEX", help="the key that must have signed it")
    parser.add_argument(
        "--subject", metavar="WHO", help="also check that it is of this subject, as key=VALUE"
    )


def _certificate(spark: None, place: StoreLocation, options: argparse.Namespace) -> Report:
    from headrace.pipeline.erasure.run import show_certificate, show_public_key

    if options.file is None:
        return show_public_key(place)
    return show_certificate(options.file, options.public_key, options.subject)


def _add_history(jobs: Commands) -> None:
    parser = _add(
        jobs,
        "history",
        "what became of the runs of `maintain`",
        "The last runs of upkeep: what ran when, how long it took, how much it did and why it\n"
        "failed. Needs no Spark.",
        _history,
        None,
    )
    parser.add_argument("--last", metavar="N", type=_positive, default=20, help="so many (20)")
    parser.add_argument("--only", metavar="JOB", help="only runs of this job")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each run")


def _history(spark: None, place: StoreLocation, options: argparse.Namespace) -> Report:
    from headrace.pipeline.maintenance.run import tell_history

    return tell_history(place, last=options.last, job=options.only, as_json=options.json)


# --- values ---

_DIGITS_MAX = 18
_SECONDS_MAX = 1e9


def _positive(text: str) -> int:
    return _whole(text, 1)


def _whole(text: str, least: int = 0) -> int:
    if not _is_digits(text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 on")
    return seconds


def _is_digits(text: str) -> bool:
    """Whether this is a number that Spark has room for."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _instant(text: str) -> int:
    """Milliseconds since 1970."""
    if _is_digits(text):
        return int(text)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a {_TIME}") from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return int(instant.timestamp() * 1000)
