"""The one place where parts are chosen and joined; owns the tasks that run beside requests."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop

from headrace import __version__
from headrace.config import Settings
from headrace.core.cap import Cap
from headrace.core.errors import Corrupt
from headrace.core.limits import DRAIN_S, SEARCH_TIMEOUT_MS, WEBHOOKS_PER_KEY_AT_ONCE
from headrace.core.owners import FEEDS, STREAMS, SUBSCRIPTIONS, TOPICS, TRACKERS, WEBHOOKS
from headrace.delivery.addresses import is_loopback
from headrace.delivery.signing import Signer
from headrace.delivery.webhooks import Webhooks
from headrace.engine.caps import Caps, KeyCaps
from headrace.engine.engine import EngineParts
from headrace.engine.flow.loop_lag import LoopLag
from headrace.engine.ports import RandomIds, SystemClock, ThreadPool
from headrace.engine.start import Started, start, stop
from headrace.engine.upkeep.cycle import Upkeep, UpkeepPace
from headrace.formats import layout
from headrace.formats.arrow import leave_pandas_out
from headrace.observe import log_line
from headrace.processes.manifest_process import ManifestChecker, ManifestProcess
from headrace.processes.pipeline_process import PipelineProcess
from headrace.processes.scheduling import SHORT_NS, ask_for_turns
from headrace.processes.seal_process import ProcessSealer
from headrace.processes.sync_process import best_writer
from headrace.storage.disk import RealDisk, passes
from headrace.storage.keys import signing_key
from headrace.storage.objects import StoreError
from headrace.storage.stores import open_objects
from headrace.surfaces.bulk import mount as bulk
from headrace.surfaces.bulk.chunks import ChunkLimits
from headrace.surfaces.bulk.routes import Bulk
from headrace.surfaces.feeds.delivery_format import FeedDeliveryFormat
from headrace.surfaces.feeds.routes import FeedLimits
from headrace.surfaces.feeds.server import Feeds
from headrace.surfaces.flags.server import Flags, FlagsLimits
from headrace.surfaces.notifications.server import (
    NotificationLimits,
    Notifications,
    configuration_without_file,
)
from headrace.surfaces.operations import mount as operations
from headrace.surfaces.operations.probes import Probes
from headrace.surfaces.streams import mount as streams
from headrace.surfaces.streams.control import Control
from headrace.surfaces.streams.routes import StreamLimits
from headrace.surfaces.streams.server import ServerLimits, ServerRoutes
from headrace.surfaces.topics import mount as topics
from headrace.surfaces.topics.drafts import AppendLimits
from headrace.surfaces.topics.errors import REFUSALS as TOPIC_REFUSALS
from headrace.surfaces.topics.following import FollowLimits
from headrace.surfaces.topics.metrics import read_samples
from headrace.surfaces.topics.queues import QueueLimits, QueueRoutes
from headrace.surfaces.topics.routes import Topics
from headrace.surfaces.topics.sessions import Sessions
from headrace.surfaces.topics.trackers import TrackerRoutes
from headrace.surfaces.topics.watch import WatchRoutes
from headrace.surfaces.topics.webhook_format import TopicWebhookFormat
from headrace.surfaces.topics.websocket import SocketLimits
from headrace.surfaces.topics.work import WorkRoutes
from headrace.web import docs_page, openapi
from headrace.web.calls import Gate
from headrace.web.concurrency import Slots
from headrace.web.connection import Connections
from headrace.web.credential_store import CredentialStore
from headrace.web.descriptors import backlog, raise_limit, room_for_connections
from headrace.web.origin_check import OriginCheck
from headrace.web.responder import Responder
from headrace.web.server import HttpServer
from headrace.web.surface import Surface

if TYPE_CHECKING:
    from headrace.surfaces.feeds.grpc_server import GrpcServer

SWITCH_INTERVAL_S = 0.0005
"""How long a pool thread that reads segments may keep the interpreter from the event loop."""
LONG_POLL_MARGIN_MS = 100
"""How long before its time is up a reader that waits gets an empty answer."""
LOOK_MS, LOOK_REMOTE_MS = 2000, 5000
"""How often to look for newer manifests, in the data directory and in a bucket."""
GC_THRESHOLDS = (50_000, 20, 1_000)
"""Full collections walk every log; young ones catch what requests leave behind."""


_ADVICE = {
    errno.EACCES: "give it to the user who runs the server",
    errno.EPERM: "give it to the user who runs the server",
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there",
}


class StartError(Exception):
    """The server cannot start; the message says why and what to do."""


def _wants_pipeline(upkeep: Upkeep) -> bool:
    """Whether there is anything to keep in order. Spark is started when a job needs it: servers
    that nobody searches, with few segments in which nothing is dead, do without.
    """
    return bool(upkeep.manifest.segments)


def build_web(
    settings: Settings,
    gate: Gate,
    loop_lag: LoopLag,
    control: Control,
    server: ServerRoutes,
    notifications: Notifications,
    flags: Flags,
    feeds: Feeds,
    pipeline: PipelineProcess | None,
) -> Responder:
    """All surfaces, complete but for the engine behind the gate."""
    limits = AppendLimits(
        settings.server.max_batch_records,
        settings.server.max_record_bytes,
        settings.server.max_meta_bytes,
        settings.server.max_tag_bytes,
        settings.server.max_node_bytes,
    )
    sessions = Sessions(
        Slots(
            total=Cap("max_watch_sessions", settings.topics.max_watch_sessions),
            per_key=Cap("max_watch_sessions_per_key", settings.topics.max_watch_sessions_per_key),
        ),
        settings.topics.session_ttl_ms,
        lambda: gate.wheel.time(),
    )
    jobs = QueueLimits(settings.topics.max_claim, settings.server.max_node_bytes)
    follow = FollowLimits(settings.topics.max_watch_topics, settings.topics.max_limit)
    chunks = ChunkLimits(
        settings.server.max_batch_records,
        settings.server.max_record_bytes,
        settings.server.max_meta_bytes,
        settings.server.max_tag_bytes,
        settings.server.max_node_bytes,
    )
    surfaces = [
        topics.surface(
            Topics(limits, settings.topics.max_limit),
            QueueRoutes(jobs),
            WorkRoutes(jobs),
            WatchRoutes(sessions, follow),
            TrackerRoutes(settings.server.max_node_bytes),
            SocketLimits(limits, follow, settings.server.max_body_bytes),
            lambda principal: read_samples(gate, len(sessions), principal),
        ),
        bulk.surface(Bulk(chunks, settings.server.max_body_bytes), TOPIC_REFUSALS),
        streams.surface(gate, settings.streams.dialect, _stream_limits(settings), control, server),
        flags.surface,  # before notifications: below /api/v1 everything else is theirs
        notifications.surface,
        feeds.surface,
    ]
    probes = Probes(gate, loop_lag, surfaces, pipeline)
    base_url = f"http://{settings.server.host}:{settings.server.port}"
    documents = _documents(surfaces, base_url)
    about = operations.surface(probes, documents, probes_need_key=settings.server.probe_auth)
    surfaces.insert(0, about)
    return Responder(gate, surfaces)


def _documents(surfaces: list[Surface], base_url: str) -> dict[str, Callable[[], bytes]]:
    """Documents of all surfaces together and of each, by path."""

    def describe(*described: Surface) -> dict[str, Any]:
        title = described[0].title if len(described) == 1 else ""
        return openapi.build(f"Headrace {title}".strip(), __version__, described)

    documents: dict[str, Callable[[], bytes]] = {
        "/openapi.json": lambda: msgspec.json.encode(describe(*surfaces)),
        "/docs": lambda: docs_page.render(describe(*surfaces), base_url).encode(),
    }
    for surface in surfaces:
        make = partial(lambda surface: msgspec.json.encode(describe(surface)), surface)
        documents[f"/openapi/{surface.name}.json"] = make
        if surface.openapi_path is not None:
            documents[surface.openapi_path] = make
    return documents


def _stream_limits(settings: Settings) -> StreamLimits:
    request_ms = settings.streams.request_timeout_ms
    return StreamLimits(
        settings.streams.max_body_bytes, request_ms, request_ms - LONG_POLL_MARGIN_MS
    )


def _server_limits(settings: Settings) -> ServerLimits:
    return ServerLimits(
        tail_bytes=settings.storage.tail_bytes,
        block_cache_bytes=settings.storage.block_cache_bytes,
        seal_bytes=settings.storage.seal_bytes,
        inflight_per_key=settings.server.max_inflight_per_key,
        body_bytes=settings.streams.max_body_bytes,
        append_ms=settings.streams.append_timeout_ms,
        search_ms=SEARCH_TIMEOUT_MS,
        request_ms=settings.streams.request_timeout_ms,
        pipeline=settings.storage.pipeline == "local",
    )


def _caps(settings: Settings) -> Caps:
    per_key = KeyCaps(
        logs={
            TOPICS: settings.topics.max_topics_per_key,
            STREAMS: settings.streams.max_per_key,
            SUBSCRIPTIONS: settings.streams.max_subscriptions_per_key,
            TRACKERS: settings.topics.max_trackers_per_key,
            WEBHOOKS: settings.topics.max_webhooks_per_key,
        },
        routers=settings.topics.max_routers_per_key,
        webhooks=WEBHOOKS_PER_KEY_AT_ONCE,
    )
    return Caps(
        logs={
            TOPICS: settings.topics.max_topics,
            STREAMS: settings.streams.max,
            SUBSCRIPTIONS: settings.streams.max_subscriptions,
            TRACKERS: settings.topics.max_trackers,
            WEBHOOKS: settings.topics.max_webhooks,
            FEEDS: settings.feeds.max_tenants,
        },
        per_key=KeyCaps() if settings.development else per_key,
        routers=settings.topics.max_routers,
        total_bytes=settings.storage.max_total_bytes,
        tail_bytes=settings.storage.tail_bytes,
    )


def _credentials(settings: Settings) -> CredentialStore:
    """All credentials, those of a surface's own file too: one store knows who asks."""
    server, own = settings.server, settings.notifications.config
    auth = None if own is None else own.auth
    mode = None if auth is None else auth.mode
    jwt = server.jwt_secret or server.jwks
    return CredentialStore(
        server.api_keys + server.admin_token,
        users=auth.users if auth is not None and mode == "static" else server.users,
        jwt=auth.verifier if auth is not None and mode == "trusted_proxy" else jwt,
        asks_elsewhere=mode == "direct",
    )


def _notifications(settings: Settings, gate: Gate) -> Notifications:
    own = settings.notifications
    return Notifications(
        own.config or configuration_without_file(guarded=not settings.development),
        NotificationLimits(own.max_body_bytes, own.max_types),
        public_url=settings.server.public_url,
        takes_passwords=len(settings.server.users) > 0,
        time=lambda: gate.wheel.time(),
    )


def _flags(settings: Settings, checker: ManifestChecker) -> Flags:
    own = settings.flags
    return Flags(
        FlagsLimits(
            tenants=own.max_tenants,
            namespaces=own.max_namespaces,
            namespaces_per_tenant=own.max_namespaces_per_tenant,
            tokens_per_tenant=own.max_tokens_per_tenant,
            archive_bytes=own.max_archive_bytes,
            manifest_bytes=own.max_manifest_bytes,
            retention_versions=own.retention_versions,
            retention_ms=own.retention_ms,
            connections_per_token=own.max_connections_per_token,
            keepalive_ms=own.keepalive_ms,
            idle_close_ms=own.idle_close_ms,
            inline_files=own.max_inline_files,
        ),
        checker,
        settings.server.public_url,
    )


def _feeds(settings: Settings) -> Feeds:
    own = settings.feeds
    return Feeds(
        FeedLimits(
            retention_ms=own.retention_ms,
            id_window_ms=own.id_window_ms,
            event_bytes=settings.server.max_record_bytes,
        )
    )


class App:
    """One server over one data directory, from binding the port to the last snapshot."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        slots = Slots(per_key=Cap("max_inflight_per_key", settings.server.max_inflight_per_key))
        streams = Slots(
            total=Cap("max_sse_connections", settings.server.max_sse_connections),
            per_key=Cap("max_sse_connections_per_key", settings.server.max_sse_connections_per_key),
        )
        self.gate = Gate(
            _credentials(settings),
            slots,
            streams,
            settings.server.max_body_bytes,
            settings.server.cors_origins,
            OriginCheck(settings.server.allowed_hosts, settings.server.cors_origins)
            if settings.development
            else None,
        )
        self._webhooks = Webhooks(settings.server.webhook_hosts)
        self._control = Control(self._webhooks)
        self._server = ServerRoutes(self.gate, _server_limits(settings))
        self._notifications = _notifications(settings, self.gate)
        self._flags = _flags(settings, ManifestProcess())
        self._feeds = _feeds(settings)
        self._loop_lag = LoopLag()
        self._disk = RealDisk(settings.storage.data_dir)
        self._pool = ThreadPool()
        self._sealer = ProcessSealer(settings.storage.data_dir, settings.storage.objects)
        self._pipeline = (
            PipelineProcess(
                settings.storage.data_dir,
                settings.storage.objects,
                policy=settings.storage.pipeline_policy,
            )
            if settings.storage.pipeline == "local"
            else None
        )
        self._grpc: GrpcServer | None = None
        self._started: Started | None = None
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Serve until asked to stop.

        The port is bound before recovery, so that probes can watch it.
        """
        self._lock()
        descriptors = raise_limit()
        listener = self._bind(backlog(descriptors))
        self._grpc = await self._start_grpc()
        respond = build_web(
            self._settings,
            self.gate,
            self._loop_lag,
            self._control,
            self._server,
            self._notifications,
            self._flags,
            self._feeds,
            self._pipeline,
        )
        server = HttpServer(respond, self._connections(descriptors), DRAIN_S)
        tasks = [
            asyncio.create_task(self._guard(work, server))
            for work in (self._open(), self._loop_lag.run())
        ]
        try:
            await server.serve(listener, backlog(descriptors), self.drain)
        finally:
            for task in tasks:
                task.cancel()
            if self._grpc is not None:
                await self._grpc.stop()
            # Nobody may hold up the stop: what does not end now ends with the loop.
            await asyncio.wait(tasks, timeout=DRAIN_S)
            await self._close()
        if self._failure is not None:
            raise self._failure

    def drain(self) -> None:
        """Turn new requests away and answer those that wait."""
        self.gate.stopping = True
        self._feeds.consumers.shutdown()
        if self._started is not None:
            self._started.engine.drain()

    async def _guard(self, work: Coroutine[Any, Any, None], server: HttpServer) -> None:
        """A task that fails takes the server down with it: half a server is worse than none."""
        try:
            await work
        except Exception as error:
            self._failure = error
            self.drain()
            server.stop()

    def _parts(self) -> EngineParts:
        settings = self._settings
        return EngineParts(
            disk=self._disk,
            objects=open_objects(settings.storage.objects, self._disk),
            clock=SystemClock(),
            pool=self._pool,
            sealer=self._sealer,
            ids=RandomIds(),
            writer=best_writer,
            caps=_caps(settings),
            pace=UpkeepPace(
                settings.storage.seal_bytes,
                settings.storage.disk_sync_ms,
                LOOK_REMOTE_MS if settings.storage.objects else LOOK_MS,
                settings.storage.seal_ms,
            ),
            block_cache_bytes=settings.storage.block_cache_bytes,
            append_timeout_s=settings.streams.append_timeout_ms / 1000,
            metrics_ms=settings.streams.metrics_ms,
            deliver=self._control.deliver,
            receivers=self._webhooks,
            webhook_formats={"topics": TopicWebhookFormat(), "feeds": FeedDeliveryFormat()},
            is_gone=self.gate.credentials.is_gone,
        )

    async def _open(self) -> None:
        began = asyncio.get_running_loop().time()
        try:
            self._started = started = await start(self._parts(), self._note_progress)
            signer = Signer(signing_key(self._disk))
        except StoreError:
            raise
        except OSError as error:
            raise self._cannot_use(error) from None
        # What recovery built lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        self._loop_lag.reset()
        self._control.open(signer)
        await self._notifications.open(started.engine)
        self._flags.open(started.engine, self.gate.credentials.is_gone)
        await self._feeds.open(started.engine)
        self.gate.open(started.engine)
        if self._grpc is not None:
            await self._grpc.open()
        if self._settings.development and len(started.engine.tokens):
            problem = "no credential is configured: tokens and API keys have no effect"
            log_line("warning", problem)
        log_line(
            "info", "ready",
            logs=len(started.engine.state.logs), records=started.engine.state.count,
            frames_replayed=started.recovered.frames, last_stop=started.recovered.last_stop,
            seconds=round(asyncio.get_running_loop().time() - began, 3),
        )  # fmt: skip
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(started.upkeep.run())
            tasks.create_task(started.upkeep.run_timers())
            tasks.create_task(started.upkeep.run_exchange())
            tasks.create_task(started.engine.routers.forwarder.run())
            tasks.create_task(started.engine.scheduler.run(self._loop_lag))
            tasks.create_task(started.engine.streams.expiry.run())
            tasks.create_task(started.engine.subscriptions.run())
            tasks.create_task(started.engine.webhooks.delivery.run())
            tasks.create_task(started.engine.transactions.run())
            tasks.create_task(started.engine.top_streams.run())
            if started.engine.metering is not None:
                tasks.create_task(started.engine.metering.run())
            tasks.create_task(self._server.run(started.engine))
            tasks.create_task(self._flags.run())
            if self._pipeline is not None:
                tasks.create_task(self._pipeline.run(partial(_wants_pipeline, started.upkeep)))

    def _note_progress(self, share: float) -> None:
        self.gate.progress = min(share, 0.999)

    async def _close(self) -> None:
        if self._pipeline is not None:
            await self._pipeline.close()
        await self._flags.close()
        if self._started is not None:
            try:
                async with asyncio.timeout(DRAIN_S):
                    await stop(self._started)
            except OSError as error:  # also when the time is up, which has no text
                problem = str(error) or f"not within {DRAIN_S:g} s"
                log_line("error", "the last snapshot was not written", problem=problem)
        self._webhooks.close()
        await self._sealer.close()
        self._pool.close()
        log_line("info", "stopped")

    def _lock(self) -> None:
        try:
            self._disk.make_folder("")
            self._disk.lock(layout.LOCK)
        except BlockingIOError:
            raise StartError(
                f"{self._settings.storage.data_dir} is in use by another headrace process; "
                "stop that one or choose another HEADRACE_DATA_DIR"
            ) from None
        except OSError as error:
            raise self._cannot_use(error) from None

    def _cannot_use(self, error: OSError) -> StartError:
        advice = _ADVICE.get(error.errno or 0, "look at it")
        return StartError(
            f"cannot use {self._settings.storage.data_dir}: {error}; "
            f"{advice}, or choose another HEADRACE_DATA_DIR"
        )

    def _connections(self, descriptors: int) -> Connections:
        settings = self._settings
        room = room_for_connections(descriptors)
        return Connections(
            count_max=min(settings.server.max_connections or room, room),
            head_s=settings.server.head_timeout_ms / 1000,
            body_s=settings.server.body_timeout_ms / 1000,
        )

    def _bind(self, waiting_max: int) -> socket.socket:
        settings = self._settings.server
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
        except OSError as error:
            listener.close()
            raise StartError(
                f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; "
                "choose another with HEADRACE_HOST, HEADRACE_PORT or --port"
            ) from None
        listener.listen(waiting_max)
        listener.set_inheritable(False)
        port = listener.getsockname()[1]
        _write_port(port, settings.port_file, "HEADRACE_PORT_FILE")
        log_line(
            "info",
            f"listening on http://{settings.host}:{port}",
            data=self._settings.storage.data_dir,
        )
        if self._settings.development:
            where = "this machine" if is_loopback(settings.host) else "ANYONE WHO REACHES THIS PORT"
            log_line("warning", f"no API keys: authentication is off, {where} may do everything")
        return listener

    async def _start_grpc(self) -> GrpcServer | None:
        """The server of gRPC, if there is to be one: only then is its library loaded."""
        own, host = self._settings.feeds, self._settings.server.host
        if own.grpc_port is None:
            return None
        try:
            from headrace.surfaces.feeds.grpc_server import GrpcServer, PortTaken
        except ImportError as error:
            raise StartError(
                f"FEEDS_GRPC_PORT needs the extra grpc ({error}): pip install 'headrace[grpc]'"
            ) from None
        server = GrpcServer(self.gate, self._feeds.consumers)
        try:
            port = await server.start(host, own.grpc_port)
        except PortTaken:
            raise StartError(
                f"cannot listen on {host}:{own.grpc_port} for gRPC; choose another FEEDS_GRPC_PORT"
            ) from None
        _write_port(port, own.grpc_port_file, "FEEDS_GRPC_PORT_FILE")
        log_line("info", f"listening on grpc://{host}:{port}")
        return server


def _write_port(port: int, path: Path | None, setting: str) -> None:
    if path is not None:
        try:
            path.write_text(f"{port}\n")
        except OSError as error:
            raise StartError(f"cannot write {setting}: {error}") from None


def serve(settings: Settings) -> None:
    """Run a server until a signal stops it."""
    leave_pandas_out()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    ask_for_turns(0, SHORT_NS)
    os.umask(0o027)
    app = App(settings)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(app.run())
    except Corrupt as damage:
        raise StartError(
            f"the data directory is damaged: {damage}\n"
            "nothing was changed; `headrace verify` lists everything that is wrong"
        ) from None
    except StoreError as error:
        raise StartError(f"the object store cannot be used: {error}") from None
    except OSError as error:
        if not passes(error):
            raise
        raise StartError(f"the data directory cannot be written at the moment: {error}") from None
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
