"""What a right server says of versions of a namespace, and what changes make wrong of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from headrace.flags.archive import compress_tar, write_tar

Files = dict[str, bytes]
TENANT = "acme"


def flag_file(segments: tuple[str, ...] = (), value: int = 0, *, valid: bool = True) -> bytes:
    """A flag of whole numbers: `value` where a segment matches, else `-value`."""
    rules = "".join(
        f'\n[[flag.environments._.rules]]\nsegment = "{segment}"\nvariant = "on"\n'
        for segment in segments
    )
    version = "0.1" if valid else "9.9"
    return (
        f'schema_version = "{version}"\n[flag]\ntype = "integer"\n'
        f"[flag.variants]\non = {value}\noff = {-value}\n"
        f'[flag.environments._]\nvariant = "off"\n{rules}'
    ).encode()


def segment_file(segments: tuple[str, ...] = (), value: int = 0) -> bytes:
    """A segment of those with `plan = value`, or who are in one of these."""
    own = f'{{attribute = "plan", op = "eq", value = {value}}}'
    terms = ", ".join([own, *(f'{{segment = "{segment}"}}' for segment in segments)])
    return (
        f'schema_version = "0.1"\n[segment]\ndescription = "v{value}"\n'
        f"[segment.predicate]\nor = [{terms}]\n"
    ).encode()


def namespace_file(note: str = "") -> bytes:
    return (
        f'schema_version = "0.1"\n[namespace]\nslug = "billing"\ndescription = "{note}"\n'.encode()
    )


def closure_hash(files: Mapping[str, bytes]) -> str:
    rows = b"".join(
        len(path.encode()).to_bytes(4, "big") + path.encode() + sha256(files[path]).digest()
        for path in sorted(files, key=str.encode)
    )
    return "sha256:" + sha256(rows).hexdigest()


def pack(files: Mapping[str, bytes]) -> bytes:
    return compress_tar(write_tar(files))


def etag(version: int, files: Mapping[str, bytes]) -> str:
    return f'"v{version}-{closure_hash(files)}"'


def delta_entries(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """How one closure becomes another; whether files came or entered makes no difference."""
    entries: list[dict[str, Any]] = [
        {
            "path": path,
            "op": "modified" if path in old else "added",
            "sha256": sha256(content).hexdigest(),
            "content_b64": base64.b64encode(content).decode(),
        }
        for path, content in new.items()
        if old.get(path) != content
    ]
    entries += [{"path": path, "op": "removed"} for path in old if path not in new]
    return sorted(entries, key=lambda entry: entry["path"].encode())


def inline_event(
    version: int, old: Mapping[str, bytes], new: Mapping[str, bytes], /, **changes: Any
) -> dict[str, Any]:
    """A delta as a right server announces it; `changes` make it a wrong one."""
    return {
        "protocol": "v2",
        "namespace": "billing",
        "version": version,
        "prev_version": version - 1,
        "prev_closure_hash": closure_hash(old),
        "closure_hash": closure_hash(new),
        "delivery": "inline",
        "files": delta_entries(old, new),
    } | changes


def snapshot_event(
    version: int, files: Mapping[str, bytes], base: str = "http://flags.test", /, **changes: Any
) -> dict[str, Any]:
    """A snapshot as a right server announces it; `changes` make it a wrong one."""
    namespace = changes.get("namespace", "billing")
    return {
        "protocol": "v2",
        "namespace": namespace,
        "version": version,
        "prev_version": None,
        "prev_closure_hash": None,
        "closure_hash": closure_hash(files),
        "delivery": "snapshot",
        "snapshot_url": f"{base}{closure_path(namespace)}?version={version}&token=signed",
        "snapshot_size_bytes": len(write_tar(files)),
    } | changes


def resync_event(
    version: int, reason: str = "version_too_old", /, **changes: Any
) -> dict[str, Any]:
    return {
        "protocol": "v2",
        "namespace": "billing",
        "current_version": version,
        "reason": reason,
        "snapshot_url": f"http://flags.test{closure_path('billing')}?version={version}&token=signed",
    } | changes


def closure_path(namespace: str) -> str:
    return f"/api/v1/tenants/{TENANT}/namespaces/{namespace}/closure"


def format_event(name: str, data: Mapping[str, Any]) -> bytes:
    """An event on the wire."""
    id = f"{data.get('namespace')}:{data.get('version', data.get('current_version'))}"
    return f"event: {name}\nid: {id}\ndata: {json.dumps(data)}\n\n".encode()
