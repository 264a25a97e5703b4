"""Fills a server, and tells what is in it by the plain API."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from conformance.archives import FORM_TYPE, make_form, pack_files
from headrace.spark.catalog import Catalog
from headrace.spark.options import Where
from headrace_bench.process import ServerProcess

PATIENCE_S = 300.0

Row = tuple[str, int, int, str | None, str | None, str | None, str, str | None]


class ServerFixture:
    """One server, as a user sees it."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        self.path = str(process.data_dir)

    @property
    def url(self) -> str:
        return self.process.url

    def call(self, method: str, path: str, body: object = None) -> Any:
        raw = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        with urlopen(Request(self.url + path, raw, headers, method=method)) as answer:
            return json.loads(answer.read())

    def upload(self, tenant: str, namespace: str, files: Mapping[str, str]) -> None:
        """Make these files the next version of a manifest."""
        path = f"/api/v1/tenants/{tenant}/namespaces/{namespace}/manifest"
        form = make_form("archive", pack_files(files))
        headers = {"content-type": FORM_TYPE}
        with urlopen(Request(self.url + path, form, headers, method="PUT")):
            pass

    def append(self, topic: str, *records: dict[str, Any], **more: Any) -> Any:
        return self.call("POST", f"/v0/topics/{topic}", {"records": list(records), **more})

    def numbers(self, topic: str, start: int, stop: int, pad: int = 0) -> None:
        """Records with a number each, and everything a record may have."""
        for low in range(start, stop, 500):
            records = [
                {
                    "data": {"n": n, "pad": "x" * pad},
                    "tag": f"t{n % 3}",
                    "node": f"n{n % 2}" if n % 5 else None,
                    "group": f"k{n % 7}" if n % 4 else None,
                    **({"meta": {"m": n}} if n % 11 == 0 else {}),
                }
                for n in range(low, min(low + 500, stop))
            ]
            self.append(topic, *records)

    def drop(self, topic: str) -> None:
        self.call("DELETE", f"/v0/topics/{topic}")

    def head(self, topic: str) -> int:
        return int(self.call("GET", f"/v0/topics/{topic}")["head_seq"])

    def rows(self, topic: str) -> list[Row]:
        """All that `diff` tells, in the columns of the data source; times in milliseconds."""
        found: list[Row] = []
        after = 0
        while True:
            page = self.call(
                "POST", f"/v0/topics/{topic}/diff",
                {"from_seq": after, "limit": 1000, "include_tags": True},
            )  # fmt: skip
            for record in page["records"]:
                meta = record.get("meta")
                found.append(
                    (
                        topic, record["$seq"], record["$ts"], record.get("$group"),
                        record.get("$tag"), record.get("$node"), json.dumps(record["data"]),
                        None if meta is None else json.dumps(meta),
                    )
                )  # fmt: skip
            after = page["next_from_seq"]
            if page["caught_up"]:
                return found

    def wait_sealed(self, topic: str, count: int) -> None:
        """Until a log has records in so many segments."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            (plan,) = self.call("GET", f"/v0/logs?name={topic}&extents=true")["logs"]
            if len(plan["sealed"]) >= count:
                return
            assert time.monotonic() < deadline, f"{topic} is not sealed: {plan}"
            time.sleep(0.05)

    def segments(self) -> int:
        return len(Catalog(Where(None, self.path, None, 0.0)).manifest().segments)


def uncommit(checkpoint: str, batch: int) -> None:
    """Let Spark forget that it finished a batch, as a driver that dies just before does."""
    commits = Path(checkpoint) / "commits"
    (commits / str(batch)).unlink()
    (commits / f".{batch}.crc").unlink(missing_ok=True)
