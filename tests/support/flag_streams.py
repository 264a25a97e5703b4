"""A whole server with flags, without sockets, processes or real time, and readers of streams."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Callable, Coroutine, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import msgspec

from headrace.app import App, build_web
from headrace.config import load
from headrace.core.owners import FLAGS
from headrace.core.token import Grants
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.flags.closure import hash_files
from headrace.flags.delta import DeltaEntry, apply_delta
from headrace.surfaces.flags.names import log_of, tenant_log
from headrace.surfaces.flags.permissions import TokenType
from headrace.surfaces.flags.tenants import CONFIG
from headrace.surfaces.flags.versions import ManifestVersions, Retention
from headrace.web.connection import Connections
from headrace.web.credential_store import new_secret
from headrace.web.responder import Responder
from support import lines
from support.engine_harness import PACE, boot
from support.eventtext import Event, split_events, unchunk
from support.hostile import HostileDisk
from support.inline_checker import InlineChecker
from support.lines import Line, Site
from support.manifests import upload
from support.virtual import VirtualClock, VirtualLoop

TENANT = "acme"
ADMIN = "admin-token"


def flag(*segments: str, note: str = "") -> bytes:
    """A flag that names these segments."""
    rules = "".join(
        f'\n[[flag.environments._.rules]]\nsegment = "{segment}"\nvariant = "on"\n'
        for segment in segments
    )
    return (
        f'schema_version = "0.1"\n# {note}\n[flag]\ntype = "boolean"\n[flag.variants]\n'
        f'on = true\noff = false\n[flag.environments._]\nvariant = "off"\n{rules}'
    ).encode()


def segment(*segments: str, note: str = "") -> bytes:
    """A segment that names others."""
    if not segments:
        terms = 'attribute = "country"\nop = "eq"\nvalue = "ch"'
    else:
        listed = ", ".join(f'{{segment = "{each}"}}' for each in segments)
        terms = f"and = [{listed}]"
    return (
        f'schema_version = "0.1"\n# {note}\n[segment]\ndescription = "s"\n'
        f"[segment.predicate]\n{terms}\n"
    ).encode()


class FlagsSite:
    """What a test sees of the server."""

    def __init__(self, site: Site, app: App, engine: Engine, versions: ManifestVersions) -> None:
        self.site = site
        self.app = app
        self.engine = engine
        self.versions = versions

    # --- namespaces -------------------------------------------------------------------------------

    async def make(self, slug: str = "billing", tenant: str = TENANT) -> OpenLog:
        """A namespace without a manifest."""
        await self.engine.logs.put(tenant_log(tenant), "system", CONFIG)
        log, _ = await self.engine.logs.put(log_of(tenant, slug), FLAGS, CONFIG)
        return self.engine.open_logs[log.id]

    async def put(self, files: Mapping[str, bytes], slug: str = "billing") -> int:
        """The next version of a namespace."""
        live = await self.make(slug)
        return (await upload(self.versions, live, files)).version

    async def drop(self, slug: str = "billing") -> None:
        await self.versions.delete(await self.make(slug))

    async def issue(
        self,
        kind: TokenType = TokenType.NAMESPACE_READ,
        *namespaces: str,
        tenant: str = TENANT,
        expires_at_ms: int = 0,
    ) -> Credential:
        """A token of a tenant, for some of its namespaces or for all."""
        secret, digest = new_secret(kind.prefix)
        grants = Grants(
            tenants=(tenant,),
            namespaces=tuple(f"{tenant}/{each}" for each in namespaces),
            roles=(kind.role,),
            superadmin=kind is TokenType.SUPERADMIN,
        )
        token = await self.engine.tokens.issue(digest, grants, expires_at_ms=expires_at_ms)
        return Credential(token.id, f"Bearer {secret}")

    # --- requests ---------------------------------------------------------------------------------

    async def get(self, target: str, method: str = "GET", **headers: str) -> Line:
        """A request on a connection of its own; what it hears is there, as far as it has come."""
        line = self.site.connect()
        fields = {"host": "localhost"} | headers
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        await line.send(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode())
        await settled(line)
        return line

    async def follow(self, *namespaces: str, **headers: str) -> Line:
        """A stream of changes."""
        query = "&".join(f"ns={each}" for each in namespaces)
        return await self.get(f"/api/v1/events?{query}", **headers)

    async def fetch(self, url: str, **headers: str) -> Answered:
        """What is at a URL that an event named."""
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        return answered(await self.get(target, **headers))


class Credential(msgspec.Struct, frozen=True):
    """A token as its owner has it."""

    id: str
    authorization: str


class Answered(msgspec.Struct):
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """Of a refusal."""
        code: str = self.json["error"]["code"]
        return code

    @property
    def files(self) -> dict[str, bytes]:
        """Of a tarball."""
        with tarfile.open(fileobj=io.BytesIO(self.body), mode="r:gz") as tar:
            return {member.name: _read(tar, member) for member in tar}


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def answered(line: Line) -> Answered:
    """The answer on a connection."""
    head, _, body = line.heard.partition(b"\r\n\r\n")
    status, *fields = head.decode().split("\r\n")
    headers = dict(field.split(": ", 1) for field in fields)
    assert int(headers.get("content-length", len(body))) == len(body) or not body
    return Answered(int(status.split(" ")[1]), headers, body)


async def settled(line: Line) -> None:
    """Until everything that needs no more time than a moment has happened."""
    for _ in range(20):
        await asyncio.sleep(0.001)
        await line.settle()


def events(line: Line) -> list[Event]:
    """What came on a stream so far."""
    head, _, raw = line.heard.partition(b"\r\n\r\n")
    assert b" 200 " in head, line.heard
    found, rest = split_events(unchunk(raw)[0])
    assert not rest
    return found


def told(line: Line) -> list[str]:
    """The same in short."""
    return [
        f"{event.name} {event.id} {event.data.get('delivery') or event.data['reason']}"
        for event in events(line)
    ]


class Mirror:
    """A client of one namespace that believes nothing, and its files."""

    def __init__(self, server: FlagsSite, line: Line, slug: str = "billing") -> None:
        self._server = server
        self._line = line
        self._slug = slug
        self._seen = 0
        self.files: dict[str, bytes] = {}
        self.hash: str | None = None
        self.version = 0
        self.kinds: list[str] = []

    async def catch_up(self) -> dict[str, bytes]:
        """Apply what came meanwhile, with every check there is."""
        await settled(self._line)
        found = events(self._line)
        for event in found[self._seen :]:
            if event.data["namespace"] == self._slug:
                await self._apply(event)
        self._seen = len(found)
        return self.files

    async def _apply(self, event: Event) -> None:
        data = event.data
        assert data["protocol"] == "v2"
        if event.name == "resync":
            self.kinds.append(data["reason"])
            self.version = data["current_version"]
            self.files = (await self._fetch(data["snapshot_url"])).files
            self.hash = hash_files(self.files)
            return
        self.kinds.append(data["delivery"])
        assert event.id == f"{self._slug}:{data['version']}"
        assert (data["prev_version"] or 0) == self.version
        assert data["prev_closure_hash"] == self.hash
        assert data["version"] > self.version
        if data["delivery"] == "inline":
            entries = msgspec.convert(data["files"], list[DeltaEntry])
            self.files = apply_delta(self.files, entries)
        else:
            reply = await self._fetch(data["snapshot_url"])
            self.files = reply.files
            assert reply.headers["etag"] == f'"v{data["version"]}-{data["closure_hash"]}"'
        assert hash_files(self.files) == data["closure_hash"]
        self.hash, self.version = data["closure_hash"], data["version"]

    async def _fetch(self, url: str) -> Answered:
        reply = await self._server.fetch(url)
        assert reply.status == 200, reply.body
        return reply


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def run(
    story: Callable[[FlagsSite], Coroutine[Any, Any, None]],
    *,
    retention: Retention = Retention(),  # noqa: B008  (it never changes)
    disk: HostileDisk | None = None,
    pace: UpkeepPace = PACE,
    delay_s: Callable[[], float] = lambda: 0.0,
    **environ: str,
) -> None:
    """Tell a story of a server with these settings, whose disk takes so long for a sync."""
    about = {
        "TOPICS_DATA_DIR": "nowhere",
        "FLAGS_RETENTION_VERSIONS": str(retention.versions),
        "FLAGS_RETENTION_MS": str(retention.age_ms),
    }
    app = App(load(about | environ))
    app._flags._checker = InlineChecker()
    respond: Responder = build_web(
        app._settings,
        app.gate,
        app._loop_lag,
        app._control,
        app._server,
        app._notifications,
        app._flags,
        app._feeds,
        None,
    )

    async def serve(site: Site) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        clock = VirtualClock(loop)
        engine = (await boot(disk or HostileDisk(), clock, pace=pace, delay_s=delay_s)).engine
        app._flags.open(engine, app.gate.credentials.is_gone)
        app.gate.open(engine)
        await story(FlagsSite(site, app, engine, app._flags.store().versions))

    lines.run(serve, respond, Connections())
