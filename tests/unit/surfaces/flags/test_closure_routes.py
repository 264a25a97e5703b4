"""Closures over HTTP: the same bytes always, to who may have them, and every way to be refused."""

from __future__ import annotations

import asyncio
import gzip
from sys import getsizeof
from unittest import mock

import pytest

from headrace.core.limits import CLOSURE_TOKEN_S, TARBALLS_AT_ONCE
from headrace.flags.closure import hash_files
from headrace.flags.subscription import encode_subscription, parse_flag_list
from headrace.surfaces.flags import tarballs
from headrace.surfaces.flags.permissions import TokenType
from headrace.surfaces.flags.versions import Retention
from support.flag_streams import ADMIN, FlagsSite, events, flag, run, segment, settled

FILES = {
    "flags/a.toml": flag("s"),
    "flags/b.toml": flag(),
    "namespace.toml": b'schema_version = "0.1"\n[namespace]\nslug = "billing"\n',
    "segments/s.toml": segment(),
    "segments/orphan.toml": segment(),
}
KEYED = {"HEADRACE_ADMIN_TOKEN": ADMIN}
ROOT = {"authorization": f"Bearer {ADMIN}"}


def target(
    version: object = 1, flags: str = "*", tenant: str = "acme", slug: str = "billing", **more: str
) -> str:
    encoded = encode_subscription(parse_flag_list(flags))
    extra = "".join(f"&{name}={value}" for name, value in more.items())
    return (
        f"/api/v1/tenants/{tenant}/namespaces/{slug}/closure"
        f"?version={version}&subscription={encoded}{extra}"
    )


async def snapshot_url(server: FlagsSite, **headers: str) -> str:
    """The link of a stream's first event, for flag `a`."""
    prefix = "" if headers and headers != ROOT else "acme/"
    line = await server.follow(f"{prefix}billing:a", **headers)
    url: str = events(line)[0].data["snapshot_url"]
    line.close()
    return url


def test_the_files_of_a_subscription_come_as_a_tarball() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        reply = await server.fetch(target(flags="a"))
        expected = {path: FILES[path] for path in FILES if path not in (
            "flags/b.toml", "segments/orphan.toml"
        )}  # fmt: skip
        assert reply.status == 200
        assert reply.files == expected
        assert list(reply.files) == sorted(expected)
        assert reply.headers["content-type"] == "application/x-tar"
        assert reply.headers["cache-control"] == "private, max-age=60"
        assert reply.headers["etag"] == f'"v1-{hash_files(expected)}"'
        assert int(reply.headers["content-length"]) == len(reply.body)
        assert "content-encoding" not in reply.headers
        assert (await server.fetch(target())).files == FILES

    run(story)


def test_the_bytes_are_the_same_whenever_they_are_made() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        first = await server.fetch(target(flags="b,a"))
        again = await server.fetch(target(flags="a,b"), accept_encoding="gzip")
        server.app._flags.store().tarballs._kept.clear()
        await asyncio.sleep(5000)
        await server.put({})
        later = await server.fetch(target(flags="a,b"))
        assert first.body == again.body == later.body
        assert gzip.decompress(first.body)
        counts = server.app._flags.stream_metrics._tarballs
        assert counts == {("made",): 2, ("cached",): 1}

    run(story)


@pytest.mark.parametrize("known", ["{tag}", '"x", W/{tag} ,"y"', "*"])
def test_who_has_it_is_told_so(known: str) -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        tag = (await server.fetch(target())).headers["etag"]
        reply = await server.fetch(target(), if_none_match=known.format(tag=tag))
        assert (reply.status, reply.body) == (304, b"")
        assert reply.headers["etag"] == tag
        assert reply.headers["cache-control"] == "private, max-age=60"
        await server.put(FILES)  # another version is another tag
        reply = await server.fetch(target(2), if_none_match=tag)
        assert reply.status == 200

    run(story)


@pytest.mark.parametrize(
    "query",
    [
        "subscription=Kg",
        "version=&subscription=Kg",
        "version=0&subscription=Kg",
        "version=-1&subscription=Kg",
        "version=one&subscription=Kg",
        "version=%D9%A1&subscription=Kg",
        "version=99999999999999999999999&subscription=Kg",
        "version=1",
        "version=1&subscription=",
        "version=1&subscription=Kg%3D%3D",
        "version=1&subscription=K",
        "version=1&subscription=KiwqLCo",
        "version=1&subscription=!!!",
        "version=1&subscription=" + "A" * 9000,
    ],
)
@pytest.mark.parametrize("token", ["", "&token=x.y.z"])
def test_what_makes_no_sense_is_refused(query: str, token: str) -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        path = "/api/v1/tenants/acme/namespaces/billing/closure"
        reply = await server.fetch(f"{path}?{query}{token}", **ROOT)
        assert (reply.status, reply.code) == (400, "invalid_request"), reply.body

    run(story, **KEYED)


def test_every_other_refusal_by_credential() -> None:
    async def story(server: FlagsSite) -> None:
        for n in range(5):
            await server.put(FILES | {"flags/a.toml": flag(note=str(n))})
        await server.make("growth")
        found = {}
        reader = await server.issue(TokenType.NAMESPACE_READ, "billing")
        client = await server.issue(TokenType.NAMESPACE_CLIENT, "billing")
        other = await server.issue(TokenType.TENANT_ADMIN, tenant="other")
        asked = {
            "nobody": (target(5), {}),
            "wrong": (target(5), {"authorization": "Bearer wrong"}),
            "reader": (target(5), {"authorization": reader.authorization}),
            "client": (target(5), {"authorization": client.authorization}),
            "other tenant": (target(5), {"authorization": other.authorization}),
            "reader elsewhere": (
                target(5, slug="growth"), {"authorization": reader.authorization},
            ),
            "no manifest": (target(1, slug="growth"), ROOT),
            "unknown namespace": (target(1, slug="nothing"), ROOT),
            "unknown tenant": (target(1, tenant="nobody"), ROOT),
            "to come": (target(6), ROOT),
            "pruned": (target(2), ROOT),
            "kept": (target(3), ROOT),
        }  # fmt: skip
        for name, (where, headers) in asked.items():
            reply = await server.fetch(where, **headers)
            found[name] = reply.status, "" if reply.status == 200 else reply.code
        assert found == {
            "nobody": (401, "unauthorized"),
            "wrong": (401, "unauthorized"),
            "reader": (200, ""),
            "client": (403, "forbidden"),
            "other tenant": (403, "forbidden"),
            "reader elsewhere": (403, "forbidden"),
            "no manifest": (404, "namespace_not_found"),
            "unknown namespace": (404, "namespace_not_found"),
            "unknown tenant": (404, "namespace_not_found"),
            "to come": (404, "namespace_not_found"),
            "pruned": (410, "closure_unavailable"),
            "kept": (200, ""),
        }

    run(story, retention=Retention(3, 0), **KEYED)


# --- signed links ---------------------------------------------------------------------------------


def test_a_link_opens_its_closure_for_a_minute_and_nothing_else() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        await server.put(FILES)
        await server.put(FILES, "growth")
        url = await snapshot_url(server, **ROOT)
        assert (await server.fetch(url)).status == 200
        flags_a = encode_subscription(parse_flag_list("a"))
        flags_b = encode_subscription(parse_flag_list("b"))
        for changed in (
            url.replace("version=2", "version=1"),
            url.replace("/billing/", "/growth/"),
            url.replace("/acme/", "/other/"),
            url.replace(f"subscription={flags_a}", f"subscription={flags_b}"),
            url[:-1] + ("0" if url[-1] != "0" else "1"),
            url.partition("&token=")[0] + "&token=",
            url.partition("&token=")[0] + "&token=a.b",
            url.partition("&token=")[0] + "&token=%C3%A9.1.%F0%9F%8E%89",
            url + "&token=x",
        ):
            for headers in ({}, ROOT):  # a good credential does not make up for it
                reply = await server.fetch(changed, **headers)
                assert (reply.status, reply.code) == (401, "closure_token_invalid"), changed
        assert (await server.fetch(url, authorization="Bearer wrong")).status == 200
        assert (await server.fetch(url, **ROOT)).status == 200
        await asyncio.sleep(CLOSURE_TOKEN_S - 5)
        assert (await server.fetch(url)).status == 200
        await asyncio.sleep(5)
        reply = await server.fetch(url)
        assert (reply.status, reply.code) == (401, "closure_token_invalid")

    run(story, **KEYED)


def test_a_link_and_a_credential_must_be_of_one_principal() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        one = await server.issue(TokenType.NAMESPACE_READ, "billing")
        two = await server.issue(TokenType.NAMESPACE_READ, "billing")
        url = await snapshot_url(server, authorization=one.authorization)
        assert (await server.fetch(url, authorization=one.authorization)).status == 200
        for other in (two.authorization, ROOT["authorization"]):
            reply = await server.fetch(url, authorization=other)
            assert (reply.status, reply.code) == (401, "closure_token_invalid")

    run(story, **KEYED)


def test_a_link_counts_only_for_the_text_that_was_signed() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        line = await server.follow("acme/billing:b,a")
        url: str = events(line)[0].data["snapshot_url"]
        assert encode_subscription(parse_flag_list("a,b")) in url
        assert (await server.fetch(url)).status == 200
        swapped = url.replace(encode_subscription(parse_flag_list("a,b")), "Yixh")
        assert (await server.fetch(swapped)).code == "closure_token_invalid"
        bare = swapped.partition("&token=")[0]  # without the token, any order will do
        assert (await server.fetch(bare)).status == 200

    run(story)


def test_a_link_to_what_is_gone_by_now() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        url = await snapshot_url(server)
        for _ in range(3):
            await server.put(FILES)
        assert (await server.fetch(url)).code == "closure_unavailable"
        await server.drop()
        assert (await server.fetch(url)).code == "namespace_not_found"

    run(story, retention=Retention(2, 0))


def test_a_changed_key_signs_and_the_one_before_holds_for_a_minute() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        before = await snapshot_url(server, **ROOT)
        await asyncio.sleep(30)
        url = "/api/v1/signing-keys/rotate"
        reader = await server.issue(TokenType.TENANT_ADMIN)
        line = await server.get(url, "POST", authorization=reader.authorization)
        assert line.statuses == [403]
        line = await server.get(url, "POST", **ROOT)
        assert line.statuses == [201]
        behind = await snapshot_url(server, **ROOT)
        assert before != behind
        assert [(await server.fetch(each)).status for each in (before, behind)] == [200, 200]
        await server.get(url, "POST", **ROOT)
        assert (await server.fetch(before)).code == "closure_token_invalid"  # two keys are kept
        assert (await server.fetch(behind)).status == 200

    run(story, **KEYED)


# --- tarballs -------------------------------------------------------------------------------------


def test_who_asks_at_a_time_gets_one_tarball() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        lines = [server.site.connect() for _ in range(5)]
        with mock.patch.object(tarballs, "_pack", wraps=tarballs._pack) as pack:
            room = server.app._flags.store().tarballs._room
            for _ in range(TARBALLS_AT_ONCE):
                await room.acquire()
            for line in lines:
                line.receive(f"GET {target()} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            await settled(lines[1])
            lines[0].close()  # whoever asked first does not stay
            await settled(lines[1])
            for _ in range(TARBALLS_AT_ONCE):
                room.release()
            await settled(lines[1])
        assert pack.call_count == 1
        assert [line.statuses for line in lines[1:]] == [[200]] * 4
        assert server.app._flags.store().tarballs._making == {}

    run(story)


def test_tarballs_are_kept_as_far_as_there_is_room() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        held = server.app._flags.store().tarballs
        held._kept._bytes_max = 2000
        for flags in ("a", "b", "a,b", "*", "c"):
            await server.fetch(target(flags=flags))
            assert held.size_bytes <= 2000
        assert server.app._flags.stream_metrics._tarballs == {("made",): 5}
        await server.fetch(target(flags="c"))
        assert server.app._flags.stream_metrics._tarballs[("cached",)] == 1

    run(story)


def test_a_tarball_that_cannot_be_made_is_tried_again() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        with mock.patch.object(server.engine.contents, "read", return_value={}):
            reply = await server.fetch(target(flags="a"))
        assert (reply.status, reply.code) == (410, "closure_unavailable")
        assert (await server.fetch(target(flags="a"))).status == 200

    run(story)


def test_what_somebody_names_counts_with_what_is_kept_for_it() -> None:
    """Names cost the one who sends them next to nothing: they must not be kept for nothing."""

    async def story(server: FlagsSite) -> None:
        await server.put({"flags/a.toml": flag()})
        store = server.app._flags.store()
        kept = store.closures._kept, store.tarballs._kept
        before = [each.size_bytes for each in kept]
        for number in range(10):
            names = ",".join(f"{number}{at}".rjust(63, "x") for at in range(64))
            assert (await server.fetch(target(flags=names))).status == 200
        for each, size_bytes in zip(kept, before, strict=True):
            assert each.size_bytes - size_bytes > 10 * 64 * getsizeof("x" * 63)

    run(story)
