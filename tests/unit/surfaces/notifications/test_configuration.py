"""The configuration file: what it may say, and where it is said to be wrong."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.core.limits import (
    CONFIGURATION_BYTES_MAX,
    ENUM_VALUES_MAX,
    EVENT_TYPES_MAX,
    IDENTIFIER_FIELDS_MAX,
)
from headrace.surfaces.notifications.access import AccessRules
from headrace.surfaces.notifications.configuration import (
    MemoryRules,
    NotificationsConfiguration,
    WatchRules,
    default_configuration,
    parse_configuration,
    read_configuration,
)
from headrace.surfaces.notifications.handlers import (
    DateHandler,
    EnumHandler,
    ExpverHandler,
    FieldHandler,
    FloatHandler,
    IntHandler,
    PolygonHandler,
    StringHandler,
    TimeHandler,
)
from headrace.surfaces.notifications.identifiers import parse_notified
from headrace.surfaces.notifications.quantities import parse_duration_ms, parse_size_bytes
from headrace.surfaces.notifications.schema import StoragePolicy
from headrace.surfaces.notifications.yaml_nodes import ConfigurationError

STORM = """\
notification_schema:
  storm:
    topic: {base: storm, key_order: [region, severity]}
    identifier:
      region: {type: EnumHandler, values: [north, south], required: true}
      severity: {type: IntHandler, range: [1, 7], required: false}
      polygon: {type: PolygonHandler, required: false, description: the area}
    payload: {required: true}
    storage_policy:
      retention_time: 7d
      max_messages: 500000
      max_size: 2Gi
      allow_duplicates: false
      compression: true
    max_historical_notifications: 20000
    wis2: {region: /properties/region, severity: /properties/a~1b}
"""
SECRET = "0123456789abcdef0123456789abcdef"


def parse(text: str) -> NotificationsConfiguration:
    return parse_configuration(dedent(text).encode(), "n.yaml")


def refuse(text: str | bytes) -> str:
    raw = text if isinstance(text, bytes) else dedent(text).encode()
    with pytest.raises(ConfigurationError) as error:
        parse_configuration(raw, "n.yaml")
    assert "\n" not in str(error.value)
    return str(error.value)


def with_field(field: str) -> str:
    return f"""\
notification_schema:
  t:
    topic: {{base: t, key_order: [f]}}
    identifier:
      f: {field}
"""


def test_a_schema() -> None:
    configuration = parse(STORM)
    storm = configuration.event_types["storm"]
    assert (storm.name, storm.base, storm.key_order) == ("storm", "storm", ("region", "severity"))
    assert {name: field.handler for name, field in storm.fields.items()} == {
        "region": EnumHandler(("north", "south")),
        "severity": IntHandler((1, 7)),
        "polygon": PolygonHandler(),
    }
    assert [field.required for field in storm.fields.values()] == [True, False, False]
    assert storm.fields["polygon"].description == "the area"
    assert storm.fields["region"].description is None
    assert storm.payload_required
    assert storm.storage == StoragePolicy(
        ttl_ms=7 * 86_400_000, records_max=500_000, bytes_max=2 << 30, newest_only=True
    )
    assert storm.history_max == 20_000
    assert storm.wis2 == {"region": ("properties", "region"), "severity": ("properties", "a/b")}
    assert storm.access is None
    assert configuration.strict
    assert configuration.warnings == (
        "n.yaml:14: notification_schema.storm.storage_policy.compression has no effect",
    )


@pytest.mark.parametrize("text", ["", "{}", "# nothing", "---", "notification_schema:"])
def test_nothing_is_a_configuration_without_types(text: str) -> None:
    configuration = parse(text)
    assert configuration == NotificationsConfiguration(event_types={}, strict=False)
    assert configuration.base_url == "http://localhost"
    assert configuration.watch == WatchRules(
        heartbeat_s=30,
        duration_max_s=3600,
        batch_size=100,
        batch_delay_ms=0,
        history_max=10_000,
        polygon_form="text",
    )


def test_strictness_can_be_chosen() -> None:
    assert not parse(f"{STORM}notification_schema_strict: false").strict
    assert parse("notification_schema_strict: true").strict


def test_streams() -> None:
    assert parse("""\
        watch_endpoint:
          sse_heartbeat_interval_sec: 5
          connection_max_duration_sec: 60
          replay_batch_size: 7
          replay_batch_delay_ms: 100
          max_historical_notifications: 1000000
          polygon_form: array
    """).watch == WatchRules(
        heartbeat_s=5,
        duration_max_s=60,
        batch_size=7,
        batch_delay_ms=100,
        history_max=1_000_000,
        polygon_form="array",
    )


def test_the_backend() -> None:
    assert parse("notification_backend: {kind: jetstream}").memory is None
    assert parse("notification_backend: {kind: in_memory}").memory == MemoryRules(
        per_subject_max=1, subjects_max=10_000
    )
    assert parse("""\
        notification_backend:
          kind: in_memory
          in_memory: {max_history_per_topic: 3, max_topics: 4}
    """).memory == MemoryRules(per_subject_max=3, subjects_max=4)


def test_what_has_no_effect_is_said() -> None:
    assert parse("""\
        application:
          base_url: https://n.example.org/
          host: 0.0.0.0
          port: 8000
          static_files_path: /app
        logging: {level: debug, format: [a, b]}
        metrics:
          enabled: true
        watch_endpoint: {concurrent_notification_processing: 15}
        notification_backend:
          jetstream: {nats_url: "nats://localhost:4222", anything: {at: all}}
          in_memory: {max_topics: 5, enable_metrics: true}
    """).warnings == (
        "n.yaml:6: logging has no effect",
        "n.yaml:7: metrics has no effect",
        "n.yaml:3: application.host has no effect",
        "n.yaml:4: application.port has no effect",
        "n.yaml:5: application.static_files_path has no effect",
        "n.yaml:9: watch_endpoint.concurrent_notification_processing has no effect",
        "n.yaml:11: notification_backend.jetstream has no effect",
        "n.yaml:12: notification_backend.in_memory.enable_metrics has no effect",
        "n.yaml:12: notification_backend.in_memory has no effect",
    )


def test_a_base_url_ends_without_a_slash() -> None:
    assert parse("application: {base_url: 'http://h:8000/'}").base_url == "http://h:8000"


def test_static_users() -> None:
    auth = parse("""\
        auth:
          enabled: true
          mode: static
          admin_roles: {localrealm: [admin], other: ["*"]}
          users:
            - {username: admin-user, password: "a:b", realm: localrealm, roles: [admin, 7]}
            - {username: reader-user, password: reader-pass, realm: localrealm}
    """).auth
    assert auth is not None
    assert auth.mode == "static"
    assert auth.timeout_ms == 5000
    assert auth.admin_roles == {"localrealm": ("admin",), "other": ("*",)}
    found = auth.users.identify(b64encode(b"admin-user:a:b").decode())
    assert (found.id, found.realm, found.roles) == (
        "user:localrealm/admin-user",
        "localrealm",
        ("admin", "7"),
    )
    assert auth.users.identify(b64encode(b"reader-user:reader-pass").decode()).roles == ()
    assert "a:b" not in repr(auth)


def test_users_of_another_mode_have_no_effect() -> None:
    users = "users: [{username: a, password: p, realm: r}]"
    configuration = parse(
        f"auth: {{enabled: true, mode: trusted_proxy, jwt_secret: {SECRET}, {users}}}"
    )
    assert configuration.warnings == ("n.yaml:1: auth.users has no effect",)
    assert configuration.auth is not None
    assert len(configuration.auth.users) == 0


@pytest.mark.parametrize(
    ("mode", "url", "warned"),
    [
        ("direct", "http://localhost:8080", []),
        ("trusted_proxy", None, ["n.yaml:5: auth.auth_o_tron_url has no effect"]),
    ],
)
def test_tokens(mode: str, url: str | None, warned: list[str]) -> None:
    configuration = parse(f"""\
        auth:
          enabled: true
          mode: {mode}
          jwt_secret: {SECRET}
          auth_o_tron_url: http://localhost:8080
    """)
    assert configuration.auth is not None
    assert configuration.auth.mode == mode
    assert configuration.auth.verifier is not None
    assert configuration.auth.auth_url == url
    assert list(configuration.warnings) == warned
    assert SECRET not in repr(configuration)


def test_auth_that_is_not_enabled_is_none() -> None:
    assert parse("auth: {mode: static}").auth is None
    assert parse("auth: {enabled: false, admin_roles: {r: [a]}}").auth is None


def test_rules_of_a_type() -> None:
    text = f"""\
auth: {{enabled: true, mode: trusted_proxy, jwt_secret: {SECRET}}}
{STORM}\
    auth:
      required: true
      read_roles: {{realm-a: ["*"]}}
      write_roles: {{realm-a: [producer]}}
"""
    assert parse(text).event_types["storm"].access == AccessRules(
        required=True, read_roles={"realm-a": ("*",)}, write_roles={"realm-a": ("producer",)}
    )


@pytest.mark.parametrize(
    ("field", "handler"),
    [
        ("{type: StringHandler, required: true}", StringHandler()),
        ("{type: StringHandler, max_length: 5, required: true}", StringHandler(5)),
        ("{type: DateHandler, required: true}", DateHandler("%Y%m%d")),
        (
            "{type: DateHandler, canonical_format: '%Y-%m-%d', required: true}",
            DateHandler("%Y-%m-%d"),
        ),
        ("{type: TimeHandler, required: true}", TimeHandler()),
        (
            "{type: EnumHandler, values: [no, Yes, 1, '~'], required: true}",
            EnumHandler(("no", "Yes", "1", "~")),
        ),
        ("{type: ExpverHandler, required: true}", ExpverHandler()),
        ("{type: ExpverHandler, default: 0001, required: true}", ExpverHandler("0001")),
        ("{type: IntHandler, required: true}", IntHandler()),
        ("{type: IntHandler, range: [-5, 5], required: true}", IntHandler((-5, 5))),
        ("{type: FloatHandler, required: true}", FloatHandler()),
        ("{type: FloatHandler, range: [-1.5, 1e3], required: true}", FloatHandler((-1.5, 1000.0))),
    ],
)
def test_handlers(field: str, handler: FieldHandler) -> None:
    assert parse(with_field(field)).event_types["t"].fields["f"].handler == handler


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("application: {hosts: x}", "n.yaml:1: application.hosts: is not a key here"),
        ("a:\n  b\nauth: {}", "n.yaml:1: a: is not a key here"),
        ("\n\nnotification: 1", "n.yaml:3: notification: is not a key here"),
        ("application: 5", "n.yaml:1: application: is not a mapping"),
        ("[1]", "n.yaml:1: is not a mapping"),
        ("application: {base_url: localhost}", "application.base_url: is not an address"),
        ("application: {base_url: 'http://u:p@h'}", "application.base_url: is not an address"),
        ("application: {base_url: 'http://h/?q'}", "application.base_url: is not an address"),
        ("watch_endpoint: {sse_heartbeat_interval_sec: 0}", "is not a whole number from 1"),
        ("watch_endpoint: {sse_heartbeat_interval_sec: 1.5}", "is not a whole number from 1"),
        ("watch_endpoint: {sse_heartbeat_interval_sec: '30'}", "is not a whole number from 1"),
        ("watch_endpoint: {sse_heartbeat_interval_sec: 0x10}", "is not a whole number from 1"),
        ("watch_endpoint: {sse_heartbeat_interval_sec: ٣}", "is not a whole number from 1"),
        ("watch_endpoint: {sse_heartbeat_interval_sec: }", "is not a whole number from 1"),
        ("watch_endpoint: {replay_batch_delay_ms: -1}", "is not a whole number from 0"),
        ("watch_endpoint: {max_historical_notifications: []}", "is not a whole number from 1"),
        ("watch_endpoint: {polygon_form: wkt}", "polygon_form: is not text or array"),
        ("notification_backend: {kind: redis}", "kind: is not jetstream or in_memory"),
        ("notification_backend: {in_memory: {max_topics: 0}}", "is not a whole number from 1"),
        ("notification_schema_strict: yes", "notification_schema_strict: is not true or false"),
        ("notification_schema_strict: 'true'", "is not true or false"),
        ("auth: {enabled: 1}", "auth.enabled: is not true or false"),
        ("auth: {enabled: true}", "auth: has no jwt_secret, which mode direct needs"),
        (
            f"auth: {{enabled: true, jwt_secret: {SECRET}}}",
            "auth: has no auth_o_tron_url, which mode direct needs",
        ),
        ("auth: {enabled: true, mode: trusted_proxy}", "has no jwt_secret, which mode trusted"),
        ("auth: {enabled: true, mode: static}", "auth: has no users, which mode static needs"),
        ("auth: {mode: basic}", "auth.mode: is not direct or trusted_proxy or static"),
        ("auth: {jwt_secret: short}", "auth.jwt_secret: is not a secret of at least 32 bytes"),
        ("auth: {timeout_ms: 0}", "auth.timeout_ms: is not a whole number from 1"),
        ("auth: {admin_roles: [admin]}", "auth.admin_roles: is not a mapping"),
        ("auth: {admin_roles: {r: admin}}", "auth.admin_roles.r: is not a list"),
        ("auth: {admin_roles: {'': [a]}}", "auth.admin_roles: has a realm without a name"),
        ("auth: {users: []}", "auth.users: has no user"),
        ("auth: {users: [{username: a, realm: r}]}", "auth.users[0]: has no password"),
        ("auth: {users: [{username: a, password: p}]}", "auth.users[0]: has no realm"),
        ("auth: {users: [{username: 'a:b', password: p, realm: r}]}", "has a colon in it"),
        (
            "auth: {users: [{username: a, password: p, realm: r/s}]}",
            "auth.users[0].realm: has a / in it",
        ),
        (
            "auth: {users: [{username: a, password: p, realm: r}, "
            "{username: a, password: q, realm: r}]}",
            "auth.users[1].username: is the name of another user",
        ),
    ],
)
def test_bad_values(text: str, problem: str) -> None:
    assert problem in refuse(text)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("  storm:", "  -storm:", "n.yaml:2: notification_schema.-storm: an event type has"),
        ("    payload:", "    payloads:", "n.yaml:8: notification_schema.storm.payloads: is not a"),
        ("{required: true}", "{required: maybe}", "storm.payload.required: is not true or false"),
        ("base: storm", "base: sto.rm", "n.yaml:3: notification_schema.storm.topic.base: is not"),
        ("base: storm", "base: ''", "topic.base: is not a text"),
        ("base: storm, ", "", "n.yaml:3: notification_schema.storm.topic: has no base"),
        (", key_order: [region, severity]", "", "storm.topic: has no key_order"),
        ("[region, severity]", "[region]", "topic.key_order: lacks severity"),
        ("[region, severity]", "[region, severity, x]", "key_order[2]: 'x' is not a field"),
        ("[region, severity]", "[region, severity, region]", "key_order[2]: region is there twice"),
        ("[region, severity]", "[region, severity, polygon]", "polygon is no part of a topic"),
        ("polygon: {", "point: {", "n.yaml:7: notification_schema.storm.identifier.point: is a"),
        ("polygon: {", "area: {", "PolygonHandler is for the field polygon"),
        ("{type: PolygonHandler", "{type: TimeHandler", "PolygonHandler is for the field polygon"),
        ("polygon: {", "po/ly: {", "identifier.po/ly: is not 1 to 128 characters"),
        ("retention_time: 7d", "retention_time: 7y", "n.yaml:10: notification_schema.storm.storag"),
        ("retention_time: 7d", "retention_time: 0s", "retention_time: is not a duration"),
        ("retention_time: 7d", "retention_time: 999999w", "retention_time: is not a duration"),
        ("max_size: 2Gi", "max_size: 2GB", "max_size: is not a size"),
        ("max_size: 2Gi", "max_size: 99999999999Ti", "max_size: is not a size"),
        ("max_messages: 500000", "max_messages: 0", "max_messages: is not a whole number from 1"),
        ("allow_duplicates: false", "allow_duplicates: no", "is not true or false"),
        ("notifications: 20000", "notifications: 0", "is not a whole number from 1"),
        ("region: /properties/region, ", "", "storm.wis2: lacks region"),
        ("region: /properties/region", "x: /a", "wis2.x: is not a field of identifier"),
        ("region: /properties/region", "polygon: /a", "wis2.polygon: comes from the geometry"),
        ("/properties/region", "properties", "wis2.region: is not a JSON pointer"),
        ("/properties/region", "/a~2", "wis2.region: is not a JSON pointer"),
    ],
)  # fmt: skip
def test_bad_schemas(old: str, new: str, problem: str) -> None:
    assert STORM.count(old) == 1
    assert problem in refuse(STORM.replace(old, new))


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("{required: true}", "n.yaml:5: notification_schema.t.identifier.f: has no type"),
        ("{type: TimeHandler}", "identifier.f: has no required"),
        ("{type: TextHandler, required: true}", "f.type: is not one of StringHandler, Date"),
        ("{type: PointCloudHandler, required: true}", "f.type: point clouds are not supported"),
        ("{type: TimeHandler, required: true, range: [1, 2]}", "f.range: is not a key here"),
        ("{type: PolygonHandler, required: true, max_length: 3}", "f.max_length: is not a key"),
        ("{type: StringHandler, required: true, max_length: 0}", "f.max_length: is not a whole"),
        ("{type: DateHandler, required: true, canonical_format: '%d'}", "is not %Y%m%d or %Y-%m"),
        ("{type: EnumHandler, required: true}", "identifier.f: has no values"),
        ("{type: EnumHandler, required: true, values: []}", "f.values: has no value"),
        ("{type: EnumHandler, required: true, values: a}", "f.values: is not a list"),
        ("{type: EnumHandler, required: true, values: [[a]]}", "f.values[0]: is not a text"),
        ("{type: EnumHandler, required: true, values: [a, A]}", "f.values[1]: 'A' is there twice"),
        ("{type: EnumHandler, required: true, values: ['*']}", "values[0]: is the wildcard"),
        ("{type: EnumHandler, required: true, values: [\"a\\nb\"]}", "has control characters"),
        ("{type: ExpverHandler, required: true, default: '*'}", "f.default: is the wildcard"),
        ("{type: IntHandler, required: true, range: [1]}", "f.range: is not two numbers"),
        ("{type: IntHandler, required: true, range: [1, 2, 3]}", "f.range: has more than 2"),
        ("{type: IntHandler, required: true, range: [2, 1]}", "f.range: has a min above its max"),
        ("{type: IntHandler, required: true, range: [1, 1.5]}", "f.range[1]: is not a whole"),
        ("{type: IntHandler, required: true, range: [0, 9223372036854775808]}", "f.range[1]"),
        ("{type: FloatHandler, required: true, range: [0, .inf]}", "f.range[1]: is not a finite"),
        ("{type: FloatHandler, required: true, range: [0, 1e400]}", "f.range[1]: is not a finite"),
    ],
)  # fmt: skip
def test_bad_fields(field: str, problem: str) -> None:
    assert problem in refuse(with_field(field))


def test_no_two_types_have_the_same_base() -> None:
    text = """\
        notification_schema:
          a: {topic: {base: Storm, key_order: []}, identifier: {}}
          b:
            topic:
              base: sTORM
              key_order: []
            identifier: {}
    """
    # An empty mapping is one without fields; a key without a value is missing.
    assert refuse(text) == (
        "n.yaml:5: notification_schema.b.topic.base: is the base of a, too; "
        "in any case, each type has its own"
    )


def test_a_storage_policy_needs_a_durable_backend() -> None:
    problem = refuse(f"{STORM}notification_backend: {{kind: in_memory}}")
    assert problem == (
        "n.yaml:9: notification_schema.storm.storage_policy: "
        "needs a durable backend, and kind is in_memory"
    )


@pytest.mark.parametrize(
    "rules", ["{required: true}", "{required: false, read_roles: {r: [a]}}"]
)  # fmt: skip
def test_rules_of_a_type_need_auth(rules: str) -> None:
    problem = "notification_schema.storm.auth: needs auth.enabled: true, which is not there"
    assert refuse(f"{STORM}    auth: {rules}") == f"n.yaml:17: {problem}"
    assert parse(f"{STORM}    auth: {{required: false}}").event_types


@pytest.mark.parametrize(
    "text",
    [
        "notification_schema: {"
        + ", ".join(f"t{n}: " for n in range(EVENT_TYPES_MAX + 1))
        + "}",
        with_field(
            "{type: EnumHandler, required: true, values: "
            f"[{', '.join(f'v{n}' for n in range(ENUM_VALUES_MAX + 1))}]}}"
        ),
        "notification_schema: {t: {topic: {}, identifier: {"
        + ", ".join(f"f{n}: " for n in range(IDENTIFIER_FIELDS_MAX + 1))
        + "}}}",
        "#" * (CONFIGURATION_BYTES_MAX + 1),
    ],
)  # fmt: skip
def test_bounds(text: str) -> None:
    assert "has more than" in refuse(text)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"a: &x [1]\nb: *x", "n.yaml:1: anchors and aliases are not supported"),
        (b"a: 1\n<<: *x", "n.yaml:2: anchors and aliases are not supported"),
        (b"a: !!python/object/apply:os.getcwd []", "n.yaml:1: tags are not supported"),
        (b"logging: 1\nlogging: 2", "n.yaml:2: logging: is there twice"),
        (b"logging: {a: 1, a: 2}", "n.yaml:1: logging.a: is there twice"),
        (b"--- {}\n--- {}", "n.yaml:2: is more than one document"),
        (b"a:\n\tb: 1", "YAML is indented with spaces, not with tabs"),
        (b"? {a: 1}\n: 2", "n.yaml:1: has a key that is not a text"),
        (b"[" * 500_000, "levels deep"),
        (b"{a: " * 200_000, "levels deep"),
        (b"- " * 500_000, "levels deep"),
        (b"logging: \xff", "n.yaml: is not UTF-8"),
        (b"logging: \x00", "n.yaml: "),
        (b"logging: [1", "n.yaml:"),
        (b"logging: 'x", "n.yaml:"),
        (b"application: {base_url: [http://h]}", "application.base_url: is not a text"),
        (b'application: {base_url: "http://\\ud800"}', "n.yaml:1: "),
    ],
)
@pytest.mark.parametrize("in_c", [True, False])
def test_yaml_that_is_none_of_ours(
    raw: bytes, problem: str, in_c: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_c:
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    found = refuse(raw)
    assert found.startswith("n.yaml")
    assert problem in found


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "n.yaml"
    path.write_text("\ufeff" + STORM)
    assert list(read_configuration(path).event_types) == ["storm"]
    with pytest.raises(ConfigurationError, match=r"none\.yaml: cannot be read: No such file"):
        read_configuration(tmp_path / "none.yaml")


def test_the_example_of_the_documentation() -> None:
    document = Path(__file__).parents[4] / "docs" / "surfaces" / "notifications-configuration.md"
    text = document.read_text().partition("```yaml\n")[2].partition("```")[0]
    configuration = parse(text)
    assert configuration.auth is not None
    assert configuration.event_types["storm"].access is not None


def test_the_default_type_can_be_used() -> None:
    configuration = default_configuration()
    assert configuration.strict
    storm = configuration.event_types["storm"]
    identifier = {"region": "North", "severity": 3, "polygon": "0,0,0,1,1,1,0,0"}
    assert parse_notified(storm, "storm", identifier).subject == "storm.north.3"


@pytest.mark.parametrize(
    ("text", "ms"),
    [("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("7d", 604_800_000), ("1w", 604_800_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "7", "d", "1.5h", "-1s", "1D", "1 d", "٣d", "9" * 30 + "s"])
def test_other_durations(text: str) -> None:
    assert parse_duration_ms(text) is None


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("5", 5), ("1K", 1000), ("1Ki", 1024), ("3M", 3_000_000), ("2Mi", 2 << 20), ("1G", 10**9),
     ("2Gi", 2 << 30), ("1T", 10**12), ("1Ti", 1 << 40)],
)  # fmt: skip
def test_sizes(text: str, bytes_: int) -> None:
    assert parse_size_bytes(text) == bytes_


@pytest.mark.parametrize("text", ["", "K", "1k", "1KB", "1KiB", "1.5G", "-1", "٣", "9" * 30])
def test_other_sizes(text: str) -> None:
    assert parse_size_bytes(text) is None


_WORDS = st.sampled_from([*STORM.split(), "auth", "users", "- ", "\n", "  ", "&a", "*a", "{", "["])


@settings(max_examples=200)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.lists(_WORDS, max_size=30).map(lambda words: " ".join(words).encode()),
        st.tuples(st.integers(0, len(STORM)), st.integers(0, 9), st.text(max_size=4)).map(
            lambda cut: (STORM[: cut[0]] + cut[2] + STORM[cut[0] + cut[1] :]).encode()
        ),
    )
)
@example(b"%YAML 3.0\n--- {}")
@example(b"\xff\xfea\x00")
def test_a_file_is_understood_or_refused(raw: bytes) -> None:
    said = ""
    try:
        parse_configuration(raw, "n.yaml")
    except ConfigurationError as error:
        said = str(error)
    assert not said or said.startswith("n.yaml")
    assert "\n" not in said
