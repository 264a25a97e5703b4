"""Webhooks are called where that is safe, and what they answer is bounded in time and size."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headrace.core.errors import Code, Refused
from headrace.core.limits import WEBHOOK_REPLY_BYTES_MAX
from headrace.delivery import webhooks as module
from headrace.delivery.addresses import Address, AllowedHosts
from headrace.delivery.resolver import LookupFailed, Resolver
from headrace.delivery.webhooks import Webhooks
from headrace.engine.callbacks.sender import DeliveryFailed

GOOD = ["https://example.com/hook", "https://example.com:8443/", "https://8.8.8.8/x",
        "https://[2606:4700::1]/", "https://xn--bcher-kva.example/"]  # fmt: skip
LOCAL = [
    "http://localhost/x",
    "https://localhost/x",
    "http://127.0.0.1:99/x",
    "http://127.0.0.77/",
    "https://[::1]/",
]
BAD = [
    "", "x", "https://", "ftp://example.com", "http://example.com", "http://8.8.8.8/",
    "https://10.0.0.1/", "https://172.16.0.1/", "https://192.168.0.1/", "https://[::]/",
    "https://169.254.169.254/", "https://[::2]/", "https://[fe80::1]/", "https://[fd00::1]/",
    "https://[::ffff:127.0.0.1]/", "https://0.0.0.0/", "https://224.0.0.1/", "https://user@a.com/",
    "https://@a.com/", "https://a.com:99999/", "http://localhost.example.com/",
    "https://a.com/ x", "https://a b.com/", "https://a.com/\u00fc", "https://a.com/\n",
    "https://a..com/", f"https://{'a' * 64}.com/", f"https://a.com/{'x' * 2048}",
    "https://a%2ecom/", "https://167772161/", "https://0x0a000001/", "https://012.0.0.1/",
    "https://10.1/", "https://1.2.3.0x4/", "https://8.8.2056./", "https://134744072/",
    "https://[fe80::1%25eth0]/", "https://\\a.com/", "\thttps://a.com/",
]  # fmt: skip
THIS_MACHINE = AllowedHosts.parse("localhost,127.0.0.0/8,::1")
NOBODY = AllowedHosts()


@pytest.mark.parametrize("url", GOOD)
def test_urls_that_are_called(url: str) -> None:
    Webhooks(NOBODY).check_url(url)


@pytest.mark.parametrize("url", LOCAL)
def test_private_hosts_are_called_when_the_operator_names_them(url: str) -> None:
    Webhooks(THIS_MACHINE).check_url(url)
    with pytest.raises(Refused, match=r"not (a )?public.*allow it with HEADRACE_WEBHOOK_HOSTS"):
        Webhooks(NOBODY).check_url(url)


@pytest.mark.parametrize("url", BAD)
def test_urls_that_are_not(url: str) -> None:
    for allowed in (NOBODY, AllowedHosts.parse("localhost"), AllowedHosts(frozenset({""}))):
        with pytest.raises(Refused) as refused:
            Webhooks(allowed).check_url(url)
        assert refused.value.code is Code.URL_REJECTED


def test_a_long_url_is_refused_before_it_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(url: str) -> None:
        raise AssertionError("it was")

    monkeypatch.setattr(module, "urlsplit", never)
    with pytest.raises(Refused):
        Webhooks(NOBODY).check_url(f"https://{'a' * 500_000}/")


class Names(Resolver):
    """Says what each name means, one answer after the other."""

    def __init__(self, *answers: list[str]) -> None:
        super().__init__()
        self.answers = list(answers)

    async def resolve(self, host: str, port: int) -> list[Address]:
        return [ip_address(text) for text in self.answers.pop(0)]


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def receiver(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Takes one request after the other; gives its port."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def answering(*replies: bytes, requests: list[bytes] | None = None) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(2)
        if requests is not None:
            requests.append(head + body)
        for reply in replies:
            writer.write(reply)
            await writer.drain()

    return talk


async def post(port: int, webhooks: Webhooks | None = None, host: str = "127.0.0.1") -> bytes:
    own = None if webhooks else Webhooks(THIS_MACHINE)
    scheme = "http" if host == "127.0.0.1" else "https"
    url = f"{scheme}://{host}:{port}/hook?a=b"
    try:
        caller = webhooks or own or Webhooks(NOBODY)
        return (await caller.post(url, b"{}", {"webhook-signature": "s"})).body
    finally:
        if own is not None:
            own.close()


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def tell() -> None:
        await story()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(tell())


def test_a_request_arrives_and_its_reply_comes_back() -> None:
    async def story() -> None:
        requests: list[bytes] = []
        reply = b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{"done":true}'
        async with receiver(answering(reply, requests=requests)) as port:
            assert await post(port) == b'{"done":true}'
        assert requests == [
            f"POST /hook?a=b HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: 2\r\n"
            "connection: keep-alive\r\nwebhook-signature: s\r\n\r\n{}".encode()
        ]

    run(story)


@pytest.mark.parametrize(
    ("replies", "body"),
    [
        ([b"HTTP/1.1 204 No\r\n\r\n"], b""),
        ([b"HTTP/1.1 200 OK\r\n\r\nuntil", b" the end"], b"until the end"),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"], b"ab"),
        ([b"HTTP/1.1 100 Go on\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx"], b"x"),
    ],
)
def test_replies_of_every_form(replies: list[bytes], body: bytes) -> None:
    async def story() -> None:
        async with receiver(answering(*replies)) as port:
            assert await post(port) == body

    run(story)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (b"HTTP/1.1 302 There\r\nlocation: http://127.0.0.1:1/\r\n\r\n", "status 302"),
        (b"HTTP/1.1 400 No\r\ncontent-length: 0\r\n\r\n", "status 400"),
        (b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", "status 500"),
        (
            b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            "MalformedResponse",
        ),
        (b"HTTP/1.1 100 Go on\r\n\r\n", "no answer"),
        (b"", "no answer"),
        (b"HTTP/1.1 200", "no answer"),
        (b"SSH-2.0-OpenSSH\r\n", "MalformedResponse"),
    ],
)
def test_anything_but_success_is_a_failure(reply: bytes, problem: str) -> None:
    async def story() -> None:
        async with receiver(answering(reply)) as port:
            with pytest.raises(DeliveryFailed, match=problem):
                await post(port)

    run(story)


async def pour(head: bytes, piece: bytes) -> int:
    """How many bytes a receiver that never ends is rid of before nobody takes more."""
    poured = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal poured
        writer.write(head)
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            poured += len(piece)

    async with receiver(talk) as port:
        await post(port)
    return poured


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 4096),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 700),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n" * 700),
    ],
)
def test_a_reply_without_end_is_cut(head: bytes, piece: bytes) -> None:
    async def story() -> None:
        read = 0
        feed = asyncio.StreamReader.read

        async def counted(self: asyncio.StreamReader, n: int = -1) -> bytes:
            nonlocal read
            data = await feed(self, n)
            read += len(data)
            return data

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.StreamReader, "read", counted)
            await pour(head, piece)
        assert read == WEBHOOK_REPLY_BYTES_MAX

    run(story)


@pytest.mark.parametrize("piece", [b"HTTP/1.1 100 Go on\r\n\r\n" * 200, b"a: b\r\n" * 700])
def test_a_head_without_end_is_a_failure(piece: bytes) -> None:
    async def story() -> None:
        head = b"" if piece.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n"
        with pytest.raises(DeliveryFailed):
            await pour(head, piece)

    run(story)


def test_a_receiver_that_drips_is_given_up_with_all_it_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A byte now and then keeps every single read alive, but not the exchange."""
    monkeypatch.setattr(module, "WEBHOOK_TIMEOUT_S", 0.2)

    async def story() -> None:
        heard, hung_up = 0, 0
        over = asyncio.Event()

        async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal heard, hung_up
            heard += 1
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while not writer.is_closing():
                writer.write(b".")
                await asyncio.sleep(0.01)
            hung_up += 1
            if hung_up == 20:
                over.set()

        threads = threading.active_count()
        async with receiver(drip) as port:
            webhooks = Webhooks(THIS_MACHINE)
            calls = [post(port, webhooks) for _ in range(20)]
            ends = await asyncio.gather(*calls, return_exceptions=True)
            await over.wait()  # each of them sees its connection end
        assert {type(end) for end in ends} == {DeliveryFailed}
        assert heard == 20, "none of them waits for another"
        assert threading.active_count() == threads

    run(story)


def test_a_receiver_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WEBHOOK_TIMEOUT_S", 0.1)

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
            call = Webhooks(THIS_MACHINE).post(url, b"x" * (8 << 20), {})
            (problem,) = await asyncio.gather(call, return_exceptions=True)
        assert str(problem).startswith("no answer in")

    run(story)


def test_nobody_there_is_a_failure() -> None:
    async def story() -> None:
        with pytest.raises(DeliveryFailed, match="cannot connect"):
            await post(1)

    run(story)


@pytest.mark.parametrize("addresses", [["10.0.0.7"], ["8.8.8.8", "127.0.0.1"], ["64:ff9b::a00:7"]])
def test_a_name_that_leads_home_is_not_followed(addresses: list[str]) -> None:
    async def story() -> None:
        webhooks = Webhooks(AllowedHosts.parse("192.168.0.0/16"), Names(addresses))
        with pytest.raises(DeliveryFailed, match=r"not a public address; .*WEBHOOK_HOSTS"):
            await webhooks.post("https://example.com/", b"", {})

    run(story)


def test_plain_http_goes_to_allowed_networks_alone() -> None:
    async def story() -> None:
        async with receiver(answering(b"HTTP/1.1 200 OK\r\n\r\n")) as port:
            names = Names(["127.0.0.1"], ["8.8.8.8"])
            webhooks = Webhooks(AllowedHosts.parse("127.0.0.0/8"), names)
            url = f"http://hooks.internal:{port}/"
            webhooks.check_url(url)
            assert (await webhooks.post(url, b"{}", {})).body == b""
            with pytest.raises(DeliveryFailed, match=r"over http; .* HEADRACE_WEBHOOK_HOSTS"):
                await webhooks.post(url, b"{}", {})

    run(story)


def test_what_a_name_meant_when_it_was_looked_at_is_what_is_called() -> None:
    """A name server may answer differently the second time: there is no second time."""

    async def story() -> None:
        names = Names(["127.0.0.2", "127.0.0.1"])
        webhooks = Webhooks(AllowedHosts.parse("hooks.internal"), names)
        async with receiver(answering(b"HTTP/1.1 200 OK\r\n\r\nhere")) as port:
            reply = await webhooks.post(f"http://hooks.internal:{port}/", b"{}", {})
        assert reply.body == b"here", "and the next address is tried when the first does not answer"
        assert names.answers == []

    run(story)


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a server of this name, and for who trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = folder / "server.pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    return server, ssl.create_default_context(cafile=pem)


def test_who_answers_must_be_who_was_called(tmp_path: Path) -> None:
    tls, trusting = certificate(tmp_path, "hooks.internal")

    async def story() -> None:
        async with receiver(answering(b"HTTP/1.1 200 OK\r\n\r\nsafe"), tls) as port:
            names = Names(*(["127.0.0.1"] for _ in range(3)))
            webhooks = Webhooks(AllowedHosts.parse("hooks.internal,other.internal"), names)
            with pytest.raises(DeliveryFailed, match="CERTIFICATE_VERIFY_FAILED"):
                await post(port, webhooks, "hooks.internal")
            webhooks._tls = trusting
            assert await post(port, webhooks, "hooks.internal") == b"safe"
            with pytest.raises(DeliveryFailed, match="ostname mismatch"):
                await post(port, webhooks, "other.internal")

    run(story)


def test_lookups_that_hang_are_bounded_and_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def look_up(host: str, port: int, **_: object) -> list[object]:
        if host.startswith("slow"):
            over.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr("headrace.delivery.resolver.WEBHOOK_LOOKUPS_MAX", 3)

    async def story() -> None:
        resolver = Resolver()
        slow = [asyncio.create_task(resolver.resolve(f"slow{n}", 1)) for n in range(2)]
        await asyncio.sleep(0)
        assert await resolver.resolve("fast", 1) == [ip_address("8.8.8.8")]
        slow.append(asyncio.create_task(resolver.resolve("slow2", 1)))
        await asyncio.sleep(0)
        for task in slow:
            task.cancel()
        with pytest.raises(LookupFailed):
            await resolver.resolve("fast", 1)
        assert await resolver.resolve("127.0.0.1", 1) == [ip_address("127.0.0.1")]
        over.set()
        for thread in threading.enumerate():
            if thread.name == "lookup":
                thread.join()
        await asyncio.sleep(0)
        assert await resolver.resolve("fast", 1) == [ip_address("8.8.8.8")]

    try:
        run(story)
    finally:
        over.set()


def refused(webhooks: Webhooks, url: str) -> str:
    with pytest.raises(Refused) as refusal:
        asyncio.run(webhooks.check(url))
    assert refusal.value.code is Code.URL_REJECTED
    return str(refusal.value)


def test_what_a_name_means_is_looked_at_when_it_is_registered() -> None:
    private = Webhooks(NOBODY, Names(["8.8.8.8", "10.0.0.1"]))
    assert "not a public address" in refused(private, "https://two-faced.example/")
    over_http = Webhooks(AllowedHosts.parse("10.0.0.0/8"), Names(["8.8.8.8"]))
    assert "over http" in refused(over_http, "http://public.example/")
    asyncio.run(Webhooks(NOBODY, Names(["8.8.8.8"])).check("https://public.example/"))
    named = AllowedHosts.parse("inside.example")
    asyncio.run(Webhooks(named, Names(["10.0.0.1"])).check("http://inside.example/"))


def test_a_name_that_means_nothing_yet_may_be_registered() -> None:
    class Unknown(Resolver):
        async def resolve(self, host: str, port: int) -> list[Address]:
            raise LookupFailed("no such name")

    asyncio.run(Webhooks(NOBODY, Unknown()).check("https://soon.example/"))


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def serving(*scripts: list[bytes], heads: list[bytes] | None = None) -> tuple[Talk, list[int]]:
    """Each connection answers by its script, then ends; counts the requests of each."""
    left, counts = list(scripts), list[int]()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = left.pop(0)
        counts.append(0)
        at = len(counts) - 1
        for reply in script:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return
            await reader.readexactly(2)
            if heads is not None:
                heads.append(head)
            counts[at] += 1
            writer.write(reply)
            await writer.drain()

    return talk, counts


def test_calls_share_a_connection_while_it_lasts() -> None:
    async def story() -> None:
        heads: list[bytes] = []
        talk, counts = serving([OK, OK, OK], [OK], heads=heads)
        webhooks = Webhooks(THIS_MACHINE)
        async with receiver(talk) as port:
            for _ in range(4):
                assert await post(port, webhooks) == b"ok"
        assert counts == [3, 1], "one that was closed meanwhile is noticed, and nothing is lost"
        assert all(b"connection: keep-alive" in head for head in heads)
        webhooks.close()
        assert len(webhooks._pool) == 0

    run(story)


@pytest.mark.parametrize(
    "reply",
    [
        OK.replace(b"content-length: 2", b"content-length: 2\r\nconnection: close"),
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno",
        OK + b"HTTP",
    ],
)
def test_a_connection_is_not_kept_when_it_cannot_be_trusted(reply: bytes) -> None:
    async def story() -> None:
        talk, counts = serving([reply, OK], [OK])
        webhooks = Webhooks(THIS_MACHINE)
        async with receiver(talk) as port:
            assert await post(port, webhooks) == b"ok"
            assert len(webhooks._pool) == 0
            assert await post(port, webhooks) == b"ok"
        assert counts == [1, 1]
        webhooks.close()

    run(story)


@pytest.mark.parametrize(
    ("header", "wait_ms"),
    [
        (b"", None), (b"retry-after: 120\r\n", 120_000), (b"retry-after: 0\r\n", 0),
        (b"retry-after: soon\r\n", None), (b"retry-after: -5\r\n", None),
        (b"retry-after: 99999999999999999999999\r\n", 86_400_000),
        (b"retry-after: Wed, 21 Oct 2015 07:28:00 GMT\r\n", 0),
        (b"retry-after: Fri, 21 Oct 2099 07:28:00 GMT\r\n", 86_400_000),
    ],
)  # fmt: skip
def test_a_failure_tells_its_status_and_how_long_to_wait(
    header: bytes, wait_ms: int | None
) -> None:
    async def story() -> None:
        reply = b"HTTP/1.1 429 Slow Down\r\n" + header + b"content-length: 0\r\n\r\n"
        webhooks = Webhooks(THIS_MACHINE)
        async with receiver(answering(reply)) as port:
            with pytest.raises(DeliveryFailed) as failure:
                await post(port, webhooks)
        assert (failure.value.status, failure.value.retry_after_ms) == (429, wait_ms)
        webhooks.close()

    run(story)
