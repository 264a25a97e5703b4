"""A manifest of a size that people have, subscriptions to parts of it, and uploads of it."""

from __future__ import annotations

from headrace.flags.archive import compress_tar, write_tar
from headrace_bench.wire import format_get

TENANT, NAMESPACE = "bench", "large"
FLAGS, SEGMENTS = 1000, 200
SUBSCRIPTIONS = 50
"""So many different ones; each but one, which wants all, names as many flags."""
_EACH = FLAGS // SUBSCRIPTIONS
_BOUNDARY = "a-boundary-that-nothing-contains"
PATH = f"/api/v1/tenants/{TENANT}/namespaces/{NAMESPACE}"


def make_manifest(edition: int) -> dict[str, bytes]:
    """One edition: they differ in one file, which every subscription needs."""
    head = 'schema_version = "0.1"\n'
    files = {
        "namespace.toml": f'{head}[namespace]\nslug = "{NAMESPACE}"\n'
        f'description = "edition {edition}"\n'
    }
    for n in range(SEGMENTS):
        files[f"segments/s{n}.toml"] = (
            f'{head}[segment]\ndescription = "{n}"\n[segment.predicate]\n'
            f'attribute = "user.email"\nop = "ends_with"\nvalue = "@{n}.example"\n'
        )
    for n in range(FLAGS):
        files[f"flags/f{n}.toml"] = (
            f'{head}[flag]\ntype = "boolean"\n[flag.variants]\non = true\noff = false\n'
            f'[flag.environments._]\nvariant = "off"\n[[flag.environments._.rules]]\n'
            f'segment = "s{n % SEGMENTS}"\nvariant = "on"\n'
        )
    return {path: text.encode() for path, text in files.items()}


def format_upload(edition: int) -> bytes:
    """A PUT of an edition."""
    archive = compress_tar(write_tar(make_manifest(edition)))
    body = (
        f"--{_BOUNDARY}\r\nContent-Disposition: form-data; name=archive; filename=m.tar.gz\r\n"
        "Content-Type: application/gzip\r\n\r\n"
    ).encode()
    body += archive + f"\r\n--{_BOUNDARY}--\r\n".encode()
    head = (
        f"PUT {PATH}/manifest HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: multipart/form-data; boundary={_BOUNDARY}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def list_subscriptions() -> list[str]:
    """Lists of flags, all different."""
    named = [
        ",".join(f"f{n}" for n in range(start, start + _EACH))
        for start in range(0, FLAGS - _EACH, _EACH)
    ]
    return ["*", *named]


def format_follow(flags: str) -> bytes:
    """A request for a stream of changes."""
    return format_get(f"/api/v1/events?ns={TENANT}/{NAMESPACE}:{flags}", "text/event-stream")
