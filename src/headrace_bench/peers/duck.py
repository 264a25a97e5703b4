"""DuckDB in this process, over the segments of a data directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.formats import layout
from headrace.storage import manifests
from headrace.storage.disk import RealDisk
from headrace.storage.objects import LocalObjects

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NAME = "DuckDB"


class Duck:
    """Asks about the records of one log."""

    def __init__(self, connection: DuckDBPyConnection, data_dir: Path, log: str) -> None:
        self._connection = connection
        self._store = data_dir / layout.OBJECTS
        self._data_dir = data_dir
        self._log = log

    def look(self) -> int:
        """From now on, the records of the log are those in segments now; says how many."""
        segments = manifests.load(LocalObjects(RealDisk(self._data_dir))).segments
        if not segments:
            return 0
        files = ", ".join(f"'{self._store / segment.name}'" for segment in segments)
        self._connection.execute(
            "create or replace view records as select seq, data, decode(data) as doc "
            f"from read_parquet([{files}]) where log = '{self._log}'"
        )
        ((count,),) = self.ask("select count(*) from records")
        return int(count)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()


@contextmanager
def open_duck(data_dir: Path, log: str) -> Iterator[Duck]:
    import duckdb

    with duckdb.connect() as connection:
        yield Duck(connection, data_dir, log)


def describe() -> str:
    """The version that is installed, for the report."""
    import duckdb

    return str(duckdb.__version__)
