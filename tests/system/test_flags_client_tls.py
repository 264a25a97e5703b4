"""The client of flags over TLS: real sockets, and certificates that are believed or not."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headrace.client.flags import FlagGroup, FlagState, RefreshPolicy
from support.flag_history import flag_file, format_event, pack, snapshot_event
from support.memory_server import format_head, parse_request

pytestmark = pytest.mark.system

FILES = {"flags/a.toml": flag_file((), 1)}
WAIT_S = 60.0
POLICY = RefreshPolicy(pause_s=0.01, pause_s_max=0.05)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody vouches for, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "flags.test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, private


class TlsServer:
    """Announces one version, and has its snapshot."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.requests: list[str] = []
        self.url = ""
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate, key)
        self._started, self._stop = Event(), asyncio.Event()
        self._thread = Thread(target=lambda: asyncio.run(self._serve()))

    @contextmanager
    def running(self) -> Iterator[TlsServer]:
        self._thread.start()
        assert self._started.wait(WAIT_S)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(WAIT_S)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda loop, context: None)  # handshakes that fail
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self._tls)
        async with server:
            self.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            self._started.set()
            await self._stop.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = parse_request(await reader.readuntil(b"\r\n\r\n"))
        self.requests.append(request.target)
        assert request.headers["authorization"] == "Bearer secret"
        if request.path.endswith("/events"):
            event = format_event("version", snapshot_event(1, FILES, self.url))
            writer.write(format_head(200, {"content-type": "text/event-stream"}) + event)
            await reader.read()
        else:
            body = pack(FILES)
            writer.write(format_head(200, {"content-length": str(len(body))}) + body)
            await writer.drain()
        writer.transport.abort()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return make_certificate(tmp_path)


def test_a_certificate_that_is_believed(certificate: tuple[Path, Path]) -> None:
    tls = ssl.create_default_context(cafile=certificate[0])
    follow = {"billing": "*"}
    with (
        TlsServer(*certificate).running() as server,
        FlagGroup(server.url, token="secret", namespaces=follow, policy=POLICY, tls=tls) as group,
    ):
        group.wait_ready(WAIT_S)
        assert group.namespace("billing").files == FILES
        assert len(server.requests) == 2


def test_a_certificate_that_nobody_vouches_for(certificate: tuple[Path, Path]) -> None:
    follow = {"billing": "*"}
    with TlsServer(*certificate).running() as server:
        group = FlagGroup(server.url, token="secret", namespaces=follow, policy=POLICY)
        failed = Event()
        mirror = group._group.session.mirrors["billing"]
        stream_ended = mirror.stream_ended

        def note(*about: object, **more: object) -> None:
            stream_ended(*about, **more)  # type: ignore[arg-type]
            failed.set()

        mirror.stream_ended = note  # type: ignore[method-assign]
        with group:
            assert failed.wait(WAIT_S)
            assert "certificate" in str(group.namespace("billing").last_refresh_error()).lower()
            assert group.namespace("billing").state is FlagState.NOT_READY
        assert server.requests == []
