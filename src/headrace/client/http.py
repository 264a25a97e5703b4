"""The calls of the bulk surface, for programs that read and write much. Blocking.

Every call can be made twice without harm, so all of them are tried again while the server cannot be
reached, is starting, or is busy.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pyarrow as pa

from headrace.client.http_address import HttpAddress
from headrace.core.limits import SEAL_WAIT_S
from headrace.formats.ipc import encode_stream
from headrace.formats.log_plan import LogPlan

ARROW = "application/vnd.apache.arrow.stream"
_JSON = "application/json"
_NAMES_AT_ONCE = 25
"""With 10,000 segments, an answer has room for all ranges of so many logs."""
_TRY_AGAIN = frozenset((429, 503))
_COMMIT_S = 600.0
"""How long a commit may take: all of a batch goes into its logs."""
_SEAL_S = 2 * SEAL_WAIT_S
"""How long the server may be silent that was asked to seal: it answers before."""
_PAUSE_S = (0.1, 0.2, 0.5, 1.0, 2.0)


class Failed(Exception):
    """The server said no, or said nothing for too long."""

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message, status, code)
        self.message = message
        self.status = status
        self.code = code

    def __str__(self) -> str:
        return self.message


class RecordPage(msgspec.Struct):
    """Records of one log in the columns of a segment."""

    table: pa.Table
    next: int
    """Where to go on: every record up to here was in this page, or is not there."""
    head: int
    epoch: int
    gap: tuple[int, int, str] | None
    """(first, last, why) of what was lost before the first record."""


class _Logs(msgspec.Struct):
    logs: list[LogPlan]
    next_cursor: str | None = None
    store: str | None = None


class _ErrorBody(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Error(msgspec.Struct):
    error: _ErrorBody


class _Deleted(msgspec.Struct):
    deleted: int


class _Staged(msgspec.Struct):
    staged: bool


class _Transaction(msgspec.Struct):
    committed: int | None


class Committed(msgspec.Struct):
    """What became of a commit."""

    committed: int
    records: int
    repeated: bool


class Sealed(msgspec.Struct):
    """What the server sealed, and the manifest version in which it is."""

    records: int
    segments: int
    manifest: int


class Server:
    """One server, over one connection that is kept open."""

    def __init__(self, url: str, key: str | None = None, timeout_s: float = 60.0) -> None:
        self.url = url
        self._address = HttpAddress.parse(url)
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self.store: str | None = None
        """Whose object store the extents that were told lie in: the directory of its owner."""

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- reading ---------------------------------------------------------------------------------

    def logs(self, names: Sequence[str], *, extents: bool) -> list[LogPlan]:
        """These logs, in this order; those that are not there are left out."""
        found: list[LogPlan] = []
        for start in range(0, len(names), _NAMES_AT_ONCE):
            some = names[start : start + _NAMES_AT_ONCE]
            try:
                found += self._logs([("name", name) for name in some], extents=extents).logs
            except Failed as failed:
                if failed.code != "topic_not_found":
                    raise
                if len(some) > 1:
                    for name in some:
                        found += self.logs([name], extents=extents)
        return found

    def logs_of(self, prefix: str, *, extents: bool) -> list[LogPlan]:
        """All logs whose names begin with this."""
        found: list[LogPlan] = []
        query = [("prefix", prefix), ("page_size", "1000")]
        while True:
            page = self._logs(query, extents=extents)
            found += page.logs
            if page.next_cursor is None:
                return found
            query = [*query[:2], ("cursor", page.next_cursor)]

    def some_names(self) -> list[str]:
        """Names of logs, not more than one page has."""
        return [plan.log for plan in self._logs([("page_size", "1000")], extents=False).logs]

    def _logs(self, query: list[tuple[str, str]], *, extents: bool) -> _Logs:
        if extents:
            query = [*query, ("extents", "true")]
        body, _ = self._call("GET", f"/v0/logs?{urlencode(query)}")
        found = msgspec.json.decode(body, type=_Logs)
        self.store = found.store or self.store
        return found

    def page(self, name: str, after: int, upto: int, epoch: int) -> RecordPage:
        """The records behind `after`, as many as one page holds, and none behind `upto`."""
        query = {"name": name, "after": after, "upto": upto, "epoch": epoch}
        body, headers = self._call("GET", f"/v0/logs/records?{urlencode(query)}")
        gap = None
        if told := headers.get("headrace-gap"):
            span, _, reason = told.partition(" ")
            first, _, last = span.partition("-")
            gap = int(first), int(last), reason
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
        return RecordPage(
            table,
            int(headers["headrace-next-seq"]),
            int(headers["headrace-head-seq"]),
            int(headers["headrace-epoch"]),
            gap,
        )

    # --- sealing ---------------------------------------------------------------------------------

    def seal(self, *, retire_journal: bool = False) -> Sealed:
        """Have everything sealed that was written before. Not tried again: whoever asks waits."""
        body = self.ask("POST", "/v0/logs/seal", {"retire_journal": retire_journal}, _SEAL_S)
        return msgspec.json.decode(body, type=Sealed)

    # --- deleting --------------------------------------------------------------------------------

    def delete(self, log: str, epoch: int, ranges: Sequence[tuple[int, int]]) -> int:
        """Delete records by their seqs; says how many there were."""
        request = {"log": log, "epoch": epoch, "ranges": ranges}
        body, _ = self._call("POST", "/v0/logs/delete", msgspec.json.encode(request), _JSON)
        return msgspec.json.decode(body, type=_Deleted).deleted

    # --- anything --------------------------------------------------------------------------------

    def ask(
        self, method: str, target: str, request: object = None, timeout_s: float | None = None
    ) -> bytes:
        """Make a call that may not be made twice: it is not tried again."""
        raw = None if request is None else msgspec.json.encode(request)
        headers = {**self._headers, "content-type": _JSON}
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            return self._once(method, target, raw, headers, timeout_s)[0]
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Failed(f"{self.url} cannot be reached: {error}") from None

    # --- transactions ----------------------------------------------------------------------------

    def committed(self, transaction: str) -> int | None:
        """The highest batch of a transaction that is committed."""
        body, _ = self._call("GET", f"/v0/transactions/{quote(transaction)}")
        return msgspec.json.decode(body, type=_Transaction).committed

    def stage(self, transaction: str, batch: int, chunk: str, log: str, table: pa.Table) -> bool:
        """Have a chunk kept for its commit; False when the batch is committed already."""
        target = f"/v0/transactions/{quote(transaction)}/{batch}/{chunk}?{urlencode({'log': log})}"
        body, _ = self._call("PUT", target, encode_stream(table), ARROW)
        return msgspec.json.decode(body, type=_Staged).staged

    def commit(
        self, transaction: str, batch: int, chunks: Sequence[str], *, create: bool, once: bool
    ) -> Committed:
        """Bring these chunks into their logs, unless the batch was committed before."""
        request = {"chunks": list(chunks), "create": create, "once": once}
        target = f"/v0/transactions/{quote(transaction)}/{batch}"
        timeout_s = max(self._timeout_s, _COMMIT_S)
        body, _ = self._call("POST", target, msgspec.json.encode(request), _JSON, timeout_s)
        return msgspec.json.decode(body, type=Committed)

    def abort(self, transaction: str, batch: int) -> None:
        self._call("DELETE", f"/v0/transactions/{quote(transaction)}/{batch}")

    # --- the wire --------------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        media: str = "",
        timeout_s: float | None = None,
    ) -> tuple[bytes, Mapping[str, str]]:
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        headers = {**self._headers, **({"content-type": media} if media else {})}
        tries = 0
        while True:
            try:
                return self._once(method, target, body, headers, timeout_s)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                failed = Failed(f"{self.url} cannot be reached: {error}")
            except Failed as error:
                if error.status not in _TRY_AGAIN:
                    raise
                failed = error
            pause_s = _PAUSE_S[min(tries, len(_PAUSE_S) - 1)]
            tries += 1
            if time.monotonic() + pause_s > deadline:
                raise failed
            time.sleep(pause_s)

    def _once(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: dict[str, str],
        timeout_s: float,
    ) -> tuple[bytes, Mapping[str, str]]:
        connection = self._connection = self._connection or self._connect()
        connection.timeout = max(1.0, timeout_s)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        connection.request(method, self._address.path + target, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise _failure(method, target, answer.status, content)
        return content, {name.lower(): value for name, value in answer.getheaders()}

    def _connect(self) -> http.client.HTTPConnection:
        kind: Any = http.client.HTTPConnection
        if self._address.scheme == "https":
            kind = http.client.HTTPSConnection
        made: http.client.HTTPConnection = kind(self._address.host, self._address.port)
        return made


def _failure(method: str, target: str, status: int, content: bytes) -> Failed:
    try:
        error = msgspec.json.decode(content, type=_Error).error
    except msgspec.MsgspecError:
        error = _ErrorBody()
    what = error.message or f"status {status}"
    return Failed(f"{method} {target.partition('?')[0]}: {what}", status, error.code)
