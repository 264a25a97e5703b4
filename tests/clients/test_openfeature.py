"""OpenFeature's SDK with its OFREP provider, as published, against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import FlagEvaluationDetails, Reason

from headrace.flags.archive import compress_tar, write_tar
from headrace_bench.process import ServerProcess

pytestmark = pytest.mark.system

ADMIN = {"Authorization": "Bearer token-of-the-superadmin"}
TENANT = "/api/v1/tenants/acme"
NAMESPACE = f"{TENANT}/namespaces/billing"
STAFF = EvaluationContext("ann", {"user": {"email": "ann@example.com"}})
GUEST = EvaluationContext("bob", {"user": {"email": "bob@elsewhere.example"}})


def flag(kind: str, **variants: str) -> str:
    values = "\n".join(f"{name} = {value}" for name, value in variants.items())
    first, second = variants
    return f"""
schema_version = "0.1"
[flag]
type = "{kind}"
[flag.variants]
{values}
[flag.environments._]
variant = "{first}"
[[flag.environments._.rules]]
segment = "employees"
variant = "{second}"
"""


FILES = {
    "flags/redesign.toml": flag("boolean", off="false", on="true"),
    "flags/greeting.toml": flag("string", plain='"Hello"', warm='"Dear Ann"'),
    "flags/limit.toml": flag("integer", low="3", high="10"),
    "flags/ratio.toml": flag("float", none="0", half="0.5"),
    "flags/theme.toml": flag("json", plain="{}", dark='{ colour = "black", sizes = [1, 2] }'),
    "flags/production.toml": """
schema_version = "0.1"
[flag]
type = "boolean"
[flag.variants]
off = false
on = true
[flag.environments._]
variant = "off"
[flag.environments.production]
variant = "on"
""",
    "flags/trial.toml": """
schema_version = "0.1"
[flag]
type = "boolean"
[flag.variants]
off = false
on = true
[flag.environments._]
variant = "off"
rules = [{ variant = "on", predicate = { attribute = "targetingKey", op = "eq", value = "ann" } }]
""",
    "segments/employees.toml": """
schema_version = "0.1"
[segment.predicate]
attribute = "user.email"
op = "ends_with"
value = "@example.com"
""",
}


class Site:
    """A server with a namespace, and tokens for it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, headers=ADMIN, timeout=60, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def post(self, path: str, body: object) -> Any:
        return self._http.post(path, json=body).raise_for_status().json()

    def upload(self, files: dict[str, str]) -> int:
        packed = compress_tar(write_tar({path: text.encode() for path, text in files.items()}))
        reply = self._http.put(f"{NAMESPACE}/manifest", files={"archive": packed})
        version: int = reply.raise_for_status().json()["version"]
        return version

    def token(self, **about: str) -> str:
        made = self.post(f"{TENANT}/tokens", {"name": "test", "namespace": "billing", **about})
        secret: str = made["secret"]
        return secret


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    env = {"HEADRACE_ADMIN_TOKEN": "token-of-the-superadmin"}
    with ServerProcess(tmp_path_factory.mktemp("ofrep") / "data", env=env) as server:
        site = Site(server.url)
        site.post("/api/v1/tenants", {"slug": "acme"})
        site.post(f"{TENANT}/namespaces", {"slug": "billing"})
        site.upload(FILES)
        yield site
        site.close()


@pytest.fixture(scope="module")
def reader(site: Site) -> str:
    return site.token(type="namespace-read")


@contextmanager
def provided(base_url: str, **headers: str) -> Iterator[OpenFeatureClient]:
    """A client of the SDK over a provider that sends these headers."""
    provider = OFREPProvider(base_url, headers_factory=lambda: headers, timeout=60.0)
    api.set_provider(provider)
    try:
        yield api.get_client()
    finally:
        api.clear_providers()
        provider.session.close()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_every_type_of_flag(site: Site, reader: str) -> None:
    with provided(site.url, **bearer(reader)) as client:
        assert client.get_boolean_value("redesign", False, STAFF) is True
        assert client.get_boolean_value("redesign", True, GUEST) is False
        assert client.get_string_value("greeting", "", STAFF) == "Dear Ann"
        assert client.get_integer_value("limit", 0, STAFF) == 10
        assert client.get_float_value("ratio", 1.0, STAFF) == 0.5
        whole = client.get_float_details("ratio", 1.0, GUEST)
        assert (whole.value, whole.error_code) == (0.0, None)  # a whole number is a float here
        theme = client.get_object_value("theme", {}, STAFF)
        assert theme == {"colour": "black", "sizes": [1, 2]}


def test_details(site: Site, reader: str) -> None:
    with provided(site.url, **bearer(reader)) as client:
        details = client.get_boolean_details("redesign", False, STAFF)
        assert (details.variant, details.reason) == ("on", Reason.TARGETING_MATCH)
        assert details.flag_metadata["rule_matched"] == "rule:0"
        details = client.get_boolean_details("redesign", True, GUEST)
        assert (details.variant, details.reason) == ("off", Reason.DEFAULT)
        details = client.get_boolean_details("production", True)
        assert (details.value, details.reason, details.error_code) == (False, Reason.STATIC, None)


def test_the_targeting_key_is_an_attribute(site: Site, reader: str) -> None:
    with provided(site.url, **bearer(reader)) as client:
        assert client.get_boolean_value("trial", False, EvaluationContext("ann")) is True
        assert client.get_boolean_value("trial", True, EvaluationContext("bob")) is False


def test_an_api_key_is_as_good(site: Site, reader: str) -> None:
    with provided(site.url, **{"X-API-Key": reader}) as client:
        assert client.get_boolean_value("redesign", False, STAFF) is True


def test_a_client_token_is_of_one_environment(site: Site) -> None:
    token = site.token(type="namespace-client", environment="production")
    with provided(site.url, **bearer(token)) as client:
        assert client.get_boolean_value("production", False) is True
    token = site.token(type="namespace-client", environment="staging")
    with provided(site.url, **bearer(token)) as client:
        assert client.get_boolean_value("production", True) is False


def test_who_is_bound_to_no_namespace_names_it_in_the_url(site: Site) -> None:
    with provided(site.url, **ADMIN) as client:
        details = client.get_boolean_details("redesign", False, STAFF)
        assert (details.value, details.error_code) == (False, ErrorCode.GENERAL)
        assert "/api/v1/tenants/" in (details.error_message or "")
    with provided(site.url + NAMESPACE, **ADMIN) as client:
        assert client.get_boolean_value("redesign", False, STAFF) is True


def problem(details: FlagEvaluationDetails[Any]) -> tuple[object, ErrorCode | None]:
    assert details.reason == Reason.ERROR
    return details.value, details.error_code


def test_what_goes_wrong_yields_the_default(site: Site, reader: str) -> None:
    with provided(site.url, **bearer(reader)) as client:
        missing = client.get_boolean_details("nowhere", True)
        assert problem(missing) == (True, ErrorCode.FLAG_NOT_FOUND)
        assert "nowhere" in (missing.error_message or "")
        mistaken = client.get_string_details("redesign", "default", STAFF)
        assert problem(mistaken) == ("default", ErrorCode.TYPE_MISMATCH)
        large = EvaluationContext("ann", {"text": "x" * 100_000})
        assert problem(client.get_boolean_details("redesign", True, large)) == (
            True,
            ErrorCode.INVALID_CONTEXT,
        )
    with provided(site.url, **bearer("unknown")) as client:
        unknown = client.get_boolean_details("redesign", True)
        assert problem(unknown) == (True, ErrorCode.GENERAL)
        assert unknown.error_message == "unauthorized"
    with provided(f"{site.url}{TENANT}/namespaces/other", **bearer(reader)) as client:
        other = client.get_boolean_details("redesign", True)
        assert problem(other) == (True, ErrorCode.GENERAL)
        assert other.error_message == "forbidden"


def test_a_new_version_counts_at_once(site: Site, reader: str) -> None:
    with provided(site.url, **bearer(reader)) as client:
        before = client.get_string_details("greeting", "", GUEST)
        assert before.value == "Hello"
        changed = FILES | {
            "flags/greeting.toml": FILES["flags/greeting.toml"].replace("Hello", "Hi")
        }
        version = site.upload(changed)
        try:
            after = client.get_string_details("greeting", "", GUEST)
            assert (after.value, after.flag_metadata["version"]) == ("Hi", version)
        finally:
            site.upload(FILES)
