"""Whatever is sent to tenants, namespaces and tokens: an answer, and never a failure."""

from __future__ import annotations

from random import Random
from urllib.parse import quote

import pytest

from headrace.surfaces.flags.permissions import TokenType
from support.flags_server import FlagsServer, run

WORDS = [
    "", "a", "A", "acme", "billing", "other", "é", "\0", "\u2028", "a" * 63, "a" * 64, "a" * 5000,
    "..", "a/b", "acme/billing", "*", "flags:acme:billing", "%2e%2e", "a\r\nb", "tok_1", "tok_2",
    "production", "_", "2040-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z",
    "0000-01-01T00:00:00Z", "2040-01-01T00:00:00+99:99", "2040-13-01T00:00:00Z",
    "2040-01-01T24:00:00Z", "2016-12-31T23:59:60Z", "-2040-01-01T00:00:00Z",
    *(type.value for type in TokenType),
]  # fmt: skip
VALUES: list[object] = [*WORDS, None, 0, -1, 1.5, 1 << 70, True, [], {}, ["acme"], {"slug": "a"}]
MEMBERS = ("slug", "type", "name", "namespace", "environment", "expires_at", "tenant", "\0")
PATHS = ("tenants", "tenants/{}/namespaces", "tenants/{}/namespaces/{}", "tenants/{}/tokens",
         "tenants/{}/tokens/{}", "tokens", "tokens/{}", "signing-keys/rotate")  # fmt: skip
QUERIES = ("", "?page_size={}", "?cursor={}", "?prefix={}", "?prefix={}&page_size=1&cursor=e30=")
EXPECTED = {200, 201, 204, 400, 404, 405, 409, 413, 429}


@pytest.mark.parametrize("seed", range(4))
def test_every_request_is_answered(seed: int) -> None:
    random = Random(seed)

    def words(template: str) -> str:
        chosen = (quote(random.choice(WORDS), safe="") for _ in range(template.count("{}")))
        return template.format(*chosen)

    async def story(server: FlagsServer) -> None:
        for _ in range(300):
            path = words(random.choice(PATHS)) + words(random.choice(QUERIES))
            method = random.choice(("POST", "POST", "GET", "DELETE"))
            chosen = random.sample(MEMBERS, random.randrange(len(MEMBERS)))
            body = {name: random.choice(VALUES) for name in chosen}
            if random.random() < 0.5:
                body |= {"type": random.choice(list(TokenType)).value, "name": "a"}
            reply = await server.send(method, f"/api/v1/{path}", body if method == "POST" else None)
            assert reply.status in EXPECTED, (method, path, body, reply)
            assert reply.status == 204 or reply.json["request_id"]

    run(story)
