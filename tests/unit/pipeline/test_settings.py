"""The user's settings win, but for what jobs count on."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline.errors import CannotRun
from headrace.pipeline.settings import (
    KERNEL_MIB,
    KERNELS,
    REQUIRED,
    Target,
    load_settings,
    our_defaults,
    parse_given,
    store_variables,
)

SHUFFLE, ADAPTIVE = "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled"
OVERHEAD = "spark.executor.memoryOverhead"
ZONE, MEMORY = "spark.sql.session.timeZone", "spark.driver.memory"
DEFAULTS = f"""\
# of the site
{SHUFFLE}   7
spark.driver.extraJavaOptions=-Da=b \\
  -Dc=d
{ZONE} : Europe/Berlin
{MEMORY}  2g
spark.master spark://site:7077
not.of.spark  1
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS)
    return {"SPARK_CONF_DIR": str(tmp_path)}


def test_nothing_said(tmp_path: Path) -> None:
    settings = load_settings(Target(), {"SPARK_CONF_DIR": str(tmp_path)})
    ours = our_defaults(tmp_path, KERNELS, local=True)
    assert settings.with_defaults(ours) == ours | REQUIRED
    assert (ours[SHUFFLE], ours[ADAPTIVE], ours[MEMORY]) == ("2", "false", "1g")


def test_a_cluster_shuffles_by_the_size_of_the_data(tmp_path: Path) -> None:
    there = our_defaults(tmp_path, KERNELS, local=False)
    assert there.keys().isdisjoint({SHUFFLE, "spark.driver.host"})
    assert there[ADAPTIVE] == "true"


def test_python_workers_of_a_cluster_have_memory(tmp_path: Path) -> None:
    def asked(given: dict[str, str]) -> dict[str, str]:
        settings = load_settings(Target(given=given), {"SPARK_CONF_DIR": str(tmp_path)})
        cores = settings.get("spark.executor.cores")
        ours = our_defaults(tmp_path, KERNELS, local=False, cores=cores)
        return {k: v for k, v in settings.with_defaults(ours).items() if "Overhead" in k}

    assert asked({}) == {OVERHEAD: f"{384 + KERNEL_MIB}m"}
    assert asked({"spark.executor.cores": "4"}) == {OVERHEAD: f"{384 + 4 * KERNEL_MIB}m"}
    for theirs in ({OVERHEAD: "9g"}, {f"{OVERHEAD}Factor": "0.4"}):
        assert asked(theirs) == theirs
    assert OVERHEAD not in our_defaults(tmp_path, KERNELS, local=True)


def test_who_comes_last_wins(environ: dict[str, str], tmp_path: Path) -> None:
    def memory(given: dict[str, str], **more: str) -> str | None:
        return load_settings(Target(given=given), environ | more).get(MEMORY)

    assert memory({}) == "2g"
    assert memory({}, SPARK_DRIVER_MEMORY="9g") == "2g"  # a file comes before a variable
    args = "--driver-memory 3g --conf spark.x=1 pyspark-shell"
    assert memory({}, PYSPARK_SUBMIT_ARGS=args) == "3g"
    assert memory({MEMORY: "4g"}, PYSPARK_SUBMIT_ARGS=args) == "4g"
    other = tmp_path / "other.conf"
    other.write_text(f"{MEMORY}=5g\n")
    assert memory({}, PYSPARK_SUBMIT_ARGS=f"--properties-file={other} pyspark-shell") == "5g"


def test_what_spark_is_told(environ: dict[str, str], tmp_path: Path) -> None:
    environ["PYSPARK_SUBMIT_ARGS"] = f"-c {ADAPTIVE}=true pyspark-shell"
    settings = load_settings(Target(given={"spark.ui.enabled": "true"}), environ)
    told = settings.with_defaults(our_defaults(tmp_path, KERNELS, local=True))
    # Spark finds what is in its files and arguments by itself.
    assert told.keys().isdisjoint({SHUFFLE, ADAPTIVE, MEMORY})
    assert (told["spark.ui.enabled"], told[ZONE]) == ("true", "UTC")
    assert settings.get("spark.driver.extraJavaOptions") == "-Da=b -Dc=d"
    assert settings.get("spark.master") == "spark://site:7077"
    assert load_settings(Target("local[1]"), environ).get("spark.master") == "local[1]"


def test_what_jobs_count_on(environ: dict[str, str]) -> None:
    (line,) = load_settings(Target(), environ).overruled()
    assert f"spark-defaults.conf sets {ZONE} to Europe/Berlin; jobs count on UTC" in line
    with pytest.raises(CannotRun, match="jobs count on false"):
        parse_given(["spark.sql.files.ignoreCorruptFiles=true"])
    assert parse_given([f"{ZONE}=UTC", "spark.a=b=c"]) == {ZONE: "UTC", "spark.a": "b=c"}


def test_what_cannot_be_read(environ: dict[str, str]) -> None:
    with pytest.raises(CannotRun, match="PYSPARK_SUBMIT_ARGS cannot be read"):
        load_settings(Target(), environ | {"PYSPARK_SUBMIT_ARGS": "--conf 'x"})


def test_what_goes_to_workers_elsewhere() -> None:
    own = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "x", "AWS_EXECUTION_ENV": "x", "HOME": "/root"}
    bucket = {
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_ENDPOINT_URL": "http://x",
    }
    assert store_variables(own | bucket) == bucket
