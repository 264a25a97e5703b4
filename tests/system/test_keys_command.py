"""`headrace keys` beside a server: tokens that are made, listed and revoked, and a new key."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from headrace_bench.process import ServerProcess

pytestmark = pytest.mark.system
ROOT = "the-superadmin"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("keys") / "data"
    with ServerProcess(data, env={"HEADRACE_ADMIN_TOKEN": ROOT}) as running:
        yield running


def keys(
    server: ServerProcess, *words: str, key: str | None = ROOT
) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": "/usr/bin:/bin"} | ({"HEADRACE_ADMIN_TOKEN": key} if key else {})
    command = [sys.executable, "-m", "headrace", "keys", *words, "--url", server.url]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environ, check=False
    )


def ask(server: ServerProcess, method: str, path: str, secret: str, body: object = None) -> int:
    request = urllib.request.Request(
        f"{server.url}/api/v1/{path}",
        None if body is None else json.dumps(body).encode(),
        {"authorization": f"Bearer {secret}", "content-type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


def test_a_token_is_made_listed_and_revoked(server: ServerProcess) -> None:
    assert ask(server, "POST", "tenants", ROOT, {"slug": "acme"}) == 201
    assert ask(server, "POST", "tenants/acme/namespaces", ROOT, {"slug": "billing"}) == 201
    made = keys(
        server, "make", "namespace-client", "--tenant", "acme", "--namespace", "billing",
        "--environment", "production", "--name", "the page", "--expires-at", "2099-01-01T00:00:00Z",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("exd_client_")
    id = made.stderr.partition(":")[0]
    listed = keys(server, "list", "--tenant", "acme")
    assert listed.stdout.split() == [
        *("id", "type", "namespace", "environment", "expires", "name"),
        *(id, "namespace-client", "billing", "production", "2099-01-01T00:00:00.000Z"),
        *("the", "page"),
    ]
    (as_json,) = json.loads(keys(server, "list", "--tenant", "acme", "--json").stdout)
    assert (as_json["id"], as_json["name"]) == (id, "the page")
    revoked = keys(server, "revoke", id, "--tenant", "acme")
    assert (revoked.returncode, revoked.stdout) == (0, f"{id} is revoked\n")
    again = keys(server, "revoke", id, "--tenant", "acme")
    assert again.returncode == 2
    assert "there is no such token here" in again.stderr


def test_a_superadmin_that_was_made_is_one(server: ServerProcess) -> None:
    made = keys(server, "make", "superadmin", "--name", "on call")
    secret = made.stdout.strip()
    assert secret.startswith("exd_admin_")
    assert ask(server, "GET", "tokens", secret) == 200
    listed = keys(server, "list", key=secret)
    assert "on call" in listed.stdout
    assert secret not in listed.stdout


@pytest.mark.parametrize(
    ("words", "key", "told"),
    [
        (["list"], None, "set HEADRACE_API_KEY or HEADRACE_ADMIN_TOKEN, or give --api-key"),
        (["list"], "wrong", "unknown key"),
        (["make", "tenant-admin", "--name", "a"], ROOT, "say with --tenant of which"),
        (["make", "namespace_read", "--name", "a"], ROOT, "'namespace-read', 'namespace-write'"),
        (["list", "--tenant", "a/../b"], ROOT, "tenant has 1 to 63 characters"),
    ],
)
def test_what_is_refused_says_what_to_do(
    server: ServerProcess, words: list[str], key: str | None, told: str
) -> None:
    done = keys(server, *words, key=key)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_the_admin_of_a_tenant_is_told_to_name_it(server: ServerProcess) -> None:
    assert ask(server, "POST", "tenants", ROOT, {"slug": "other"}) == 201
    made = keys(server, "make", "tenant-admin", "--tenant", "other", "--name", "ops")
    told = keys(server, "list", key=made.stdout.strip())
    assert told.returncode == 2
    assert "--tenant" in told.stderr


def test_a_key_of_a_feed_is_made_listed_and_revoked(server: ServerProcess) -> None:
    made = keys(
        server, "make", "feed", "--tenant", "acme-corp", "--role", "reader", "--role", "editor",
        "--name", "shop",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    secret, id = made.stdout.strip(), made.stderr.partition(":")[0]
    resource = {"resourceType": "theme", "resourceId": "a"}
    event = {"type": "theme.created", "resourceRef": resource}
    url = f"{server.url}/tenants/acme-corp/events"
    assert status_of(url, secret, event) == 201
    listed = keys(server, "list", "--feed", "--tenant", "acme-corp")
    assert [line.split() for line in listed.stdout.splitlines()][-1] == [
        id, "reader,editor", "never", "shop",
    ]  # fmt: skip
    revoked = keys(server, "revoke", id, "--feed", "--tenant", "acme-corp")
    assert revoked.returncode == 0, revoked.stderr
    assert status_of(url, secret, event) == 401


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("--role", "reader"), "--tenant"),
        (("--tenant", "acme-corp"), "--role"),
        (("--tenant", "acme-corp", "--role", "tenant_control"), "invalid choice"),
    ],
)
def test_a_key_of_a_feed_that_cannot_be(
    server: ServerProcess, words: tuple[str, ...], advice: str
) -> None:
    refused = keys(server, "make", "feed", "--name", "shop", *words)
    assert refused.returncode != 0
    assert advice in refused.stderr


def status_of(url: str, secret: str, body: object) -> int:
    request = urllib.request.Request(
        url,
        json.dumps(body).encode(),
        {"x-api-key": secret, "content-type": "application/json"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code
