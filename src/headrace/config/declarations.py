"""Every setting, declared once: one struct for each surface and for what all of them share.

The name of a setting is that of its field behind the prefix of its struct: `server.port` in a
file is `HEADRACE_PORT` in the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, get_type_hints

import msgspec

from headrace.config.value_types import (
    ADMIN_TOKEN,
    HOST,
    HOSTS,
    JWKS,
    JWT_SECRET,
    KEYS,
    NOTIFICATIONS_FILE,
    OBJECTS,
    ORIGINS,
    PATH,
    PUBLIC_URL,
    RECEIVERS,
    SWITCH,
    USERS,
    ValueType,
    one_of,
    size,
    whole,
)
from headrace.core.limits import (
    BATCH_RECORDS_CEILING,
    BODY_BYTES_CEILING,
    INLINE_FILES_CEILING,
    MANIFEST_BYTES_CEILING,
    NAME_BYTES_CEILING,
    SEAL_BYTES_CEILING,
    SEAL_MS_CEILING,
)
from headrace.delivery.addresses import AllowedHosts
from headrace.surfaces.notifications.configuration import NotificationsConfiguration
from headrace.web.credentials import Keyring
from headrace.web.json_web_tokens import Verifier
from headrace.web.users import UserTable

_HOUR_MS = 3_600_000


class Setting(NamedTuple):
    """One setting; its default is written as a user would write it, `None` leaves it unset."""

    help: str
    type: ValueType
    default: str | None = None
    contract: bool = False
    """Whether the contract of topics has a name for it, too."""
    secret: bool = False
    name: str = ""
    section: str = ""
    field: str = ""

    @property
    def key(self) -> str:
        """Its name in a file."""
        return f"{self.section}.{self.field}"

    @property
    def also(self) -> str | None:
        """Its other name in the environment: that of the contract of topics."""
        return f"TOPICS_{self.field.upper()}" if self.contract else None

    @property
    def names(self) -> tuple[str, ...]:
        """Its names in the environment."""
        return (self.name, self.also) if self.also else (self.name,)


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The server: where it listens, who may call, and what a request of any surface may carry."""

    PREFIX: ClassVar = "HEADRACE_"

    host: Annotated[str, Setting("address to listen on", HOST, "127.0.0.1", contract=True)]
    port: Annotated[
        int,
        Setting("port to listen on; 0 picks a free one", whole(0, 65535), "4000", contract=True),
    ]
    port_file: Annotated[
        Path | None, Setting("file to write the bound port to", PATH, contract=True)
    ] = None
    public_url: Annotated[
        str | None,
        Setting("where clients find the server; unset: what a surface says itself", PUBLIC_URL),
    ] = None
    log_level: Annotated[
        str,
        Setting("what is told in log lines", one_of("debug", "info", "warning", "error"), "info"),
    ]

    api_keys: Annotated[
        Keyring,
        Setting(
            "bearer keys as secret[:scopes[:prefixes]], joined by commas; unset: no keys",
            KEYS,
            contract=True,
            secret=True,
        ),
    ] = Keyring()
    admin_token: Annotated[
        Keyring,
        Setting(
            "bearer token of the superadmin, who may do everything; unset: there is none",
            ADMIN_TOKEN,
            secret=True,
        ),
    ] = Keyring()
    jwt_secret: Annotated[
        Verifier | None,
        Setting(
            "secret of JSON Web Tokens (HS256), at least 32 bytes; unset: none are taken",
            JWT_SECRET,
            secret=True,
        ),
    ] = None
    jwks: Annotated[
        Verifier | None,
        Setting("file with the public keys of JSON Web Tokens (JWKS), in place of a secret", JWKS),
    ] = None
    users: Annotated[
        UserTable,
        Setting(
            "users who send a password, as name:password[:realm[:role+role]], joined by commas",
            USERS,
            secret=True,
        ),
    ] = UserTable()
    allow_insecure_no_auth: Annotated[
        bool,
        Setting("1 allows a public address without any credential", SWITCH, "0", contract=True),
    ]
    probe_auth: Annotated[
        bool, Setting("1 asks for a key on health and ready too", SWITCH, "0", contract=True)
    ]
    allowed_hosts: Annotated[
        tuple[str, ...],
        Setting(
            "without keys: hosts, without ports, that requests may come for beside loopback ones,"
            " joined by commas; * for any",
            HOSTS,
            contract=True,
        ),
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...],
        Setting(
            "origins of pages that may call, as https://app.example.com, joined by commas; * for"
            " any; unset: none, with keys all for streams",
            ORIGINS,
            contract=True,
        ),
    ] = ()
    webhook_hosts: Annotated[
        AllowedHosts,
        Setting(
            "private receivers that webhooks may call, over http too: networks, addresses and host"
            " names, joined by commas; unset: public addresses only",
            RECEIVERS,
        ),
    ] = AllowedHosts()

    max_connections: Annotated[
        int,
        Setting(
            "most connections at a time; 0: as many as the limit of open files leaves room for",
            whole(0),
            "0",
        ),
    ]
    head_timeout_ms: Annotated[
        int,
        Setting(
            "longest time until the head of a request has come on a connection",
            whole(1, _HOUR_MS),
            "30000",
        ),
    ]
    body_timeout_ms: Annotated[
        int, Setting("longest time that nothing comes of a body", whole(1, _HOUR_MS), "30000")
    ]

    max_batch_records: Annotated[
        int,
        Setting(
            "most records in one write", whole(1, BATCH_RECORDS_CEILING), "10000", contract=True
        ),
    ]
    max_record_bytes: Annotated[
        int,
        Setting(
            "largest data and meta of a record together",
            size(1, BODY_BYTES_CEILING),
            "1MiB",
            contract=True,
        ),
    ]
    max_body_bytes: Annotated[
        int,
        Setting(
            "largest request body, also once unzipped",
            size(1, BODY_BYTES_CEILING),
            "64MiB",
            contract=True,
        ),
    ]
    max_meta_bytes: Annotated[
        int,
        Setting("largest meta of a record", size(1, BODY_BYTES_CEILING), "16KiB", contract=True),
    ]
    max_tag_bytes: Annotated[
        int, Setting("largest tag", size(1, NAME_BYTES_CEILING), "256", contract=True)
    ]
    max_node_bytes: Annotated[
        int, Setting("largest node id", size(1, NAME_BYTES_CEILING), "128", contract=True)
    ]
    max_sse_connections: Annotated[
        int, Setting("most open streams; 0: unlimited", whole(0), "10000", contract=True)
    ]
    max_sse_connections_per_key: Annotated[
        int, Setting("most open streams of one key; 0: unlimited", whole(0), "1000", contract=True)
    ]
    max_inflight_per_key: Annotated[
        int,
        Setting(
            "most requests of one key at a time; 0: unlimited", whole(0), "1000", contract=True
        ),
    ]

    @property
    def development(self) -> bool:
        """Whether none of these settings is a credential."""
        return not (
            len(self.api_keys)
            or len(self.admin_token)
            or len(self.users)
            or self.jwt_secret
            or self.jwks
        )


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The engine: where data lies, and how it uses the machine."""

    PREFIX: ClassVar = "HEADRACE_"

    data_dir: Annotated[
        Path, Setting("directory that holds all data", PATH, "./data", contract=True)
    ]
    objects: Annotated[
        str | None,
        Setting(
            "where segments go: s3://bucket/prefix (with the AWS_* variables); unset: the data"
            " directory",
            OBJECTS,
        ),
    ] = None
    max_total_bytes: Annotated[
        int, Setting("most live record bytes in all; 0: unlimited", size(0), "0", contract=True)
    ]
    seal_bytes: Annotated[
        int, Setting("journal bytes sealed into one segment", size(1, SEAL_BYTES_CEILING), "64MiB")
    ]
    seal_ms: Annotated[
        int,
        Setting(
            "how long records wait for a segment, however few they are; 0: until they are many",
            whole(0, SEAL_MS_CEILING),
            "300000",
        ),
    ]
    tail_bytes: Annotated[int, Setting("memory for records kept hot", size(0), "256MiB")]
    block_cache_bytes: Annotated[int, Setting("memory for blocks read from disk", size(0), "64MiB")]
    disk_sync_ms: Annotated[
        int,
        Setting("longest time until bytes of class disk are synced", whole(1, _HOUR_MS), "1000"),
    ]
    pipeline: Annotated[
        str,
        Setting(
            "local runs the Spark pipeline beside the server; off leaves it to others",
            one_of("local", "off"),
            "local",
        ),
    ]
    pipeline_policy: Annotated[
        Path | None,
        Setting("file that says which jobs the pipeline runs when (docs/PIPELINE.md)", PATH),
    ] = None


class TopicsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The topics surface: what one request may ask for, and what there may be."""

    PREFIX: ClassVar = "TOPICS_"

    max_limit: Annotated[int, Setting("most records in one read", whole(1), "1000")]
    max_claim: Annotated[
        int,
        Setting(
            "most jobs in one claim, ack, nack or extend", whole(1, BATCH_RECORDS_CEILING), "1000"
        ),
    ]
    max_watch_topics: Annotated[int, Setting("most topics in one watch", whole(1), "256")]
    max_topics: Annotated[int, Setting("most topics; 0: unlimited", whole(0), "100000")]
    max_topics_per_key: Annotated[
        int, Setting("most topics that one key made; 0: unlimited", whole(0), "25000")
    ]
    max_routers: Annotated[int, Setting("most routers; 0: unlimited", whole(0), "10000")]
    max_routers_per_key: Annotated[
        int, Setting("most routers that one key made; 0: unlimited", whole(0), "2500")
    ]
    max_trackers: Annotated[int, Setting("most trackers; 0: unlimited", whole(0), "10000")]
    max_trackers_per_key: Annotated[
        int, Setting("most trackers that one key made; 0: unlimited", whole(0), "1000")
    ]
    max_webhooks: Annotated[int, Setting("most webhooks; 0: unlimited", whole(0), "10000")]
    max_webhooks_per_key: Annotated[
        int, Setting("most webhooks that one key made; 0: unlimited", whole(0), "1000")
    ]
    max_watch_sessions: Annotated[
        int, Setting("most watch sessions; 0: unlimited", whole(0), "10000")
    ]
    max_watch_sessions_per_key: Annotated[
        int, Setting("most watch sessions of one key; 0: unlimited", whole(0), "1000")
    ]
    session_ttl_ms: Annotated[
        int, Setting("how long an unused watch session lives", whole(1), "300000")
    ]


class StreamsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The streams surface: how it answers, and what there may be."""

    PREFIX: ClassVar = "STREAMS_"

    dialect: Annotated[
        str,
        Setting(
            "how /v1/stream answers: native, or base as /ds/v1/stream always does",
            one_of("native", "base"),
            "native",
        ),
    ]
    max: Annotated[int, Setting("most streams; 0: unlimited", whole(0), "0")]
    max_per_key: Annotated[
        int, Setting("most streams that one key made; 0: unlimited", whole(0), "100000")
    ]
    max_subscriptions: Annotated[
        int, Setting("most subscriptions; 0: unlimited", whole(0), "10000")
    ]
    max_subscriptions_per_key: Annotated[
        int, Setting("most subscriptions that one key made; 0: unlimited", whole(0), "1000")
    ]
    max_body_bytes: Annotated[
        int, Setting("largest body of a write to a stream", size(1, BODY_BYTES_CEILING), "10MiB")
    ]
    request_timeout_ms: Annotated[
        int,
        Setting(
            "longest time a request may take; readers that wait are answered just before",
            whole(200, _HOUR_MS),
            "5000",
        ),
    ]
    append_timeout_ms: Annotated[
        int,
        Setting(
            "longest time a writer waits for its append to be stored", whole(1, _HOUR_MS), "3000"
        ),
    ]
    metrics_ms: Annotated[
        int,
        Setting(
            "how often the server writes its metrics to __stream_metrics__; 0: never",
            whole(0, _HOUR_MS),
            "10000",
        ),
    ]


class NotificationsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The notifications surface: its own file, and what there may be without a schema."""

    PREFIX: ClassVar = "NOTIFICATIONS_"

    config: Annotated[
        NotificationsConfiguration | None,
        Setting(
            "file with event types, authentication and how streams behave; unset: one event type,"
            " storm, to try things with",
            NOTIFICATIONS_FILE,
        ),
    ] = None
    max_types: Annotated[
        int,
        Setting("most event types without a schema; 0: unlimited", whole(0), "1000"),
    ]
    max_body_bytes: Annotated[
        int, Setting("largest body of a request", size(1, BODY_BYTES_CEILING), "1MiB")
    ]


class FlagsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The flags surface: what there may be, what is kept, and how changes are delivered."""

    PREFIX: ClassVar = "FLAGS_"

    max_tenants: Annotated[int, Setting("most tenants; 0: unlimited", whole(0), "1000")]
    max_namespaces: Annotated[
        int, Setting("most namespaces of all tenants; 0: unlimited", whole(0), "10000")
    ]
    max_namespaces_per_tenant: Annotated[
        int, Setting("most namespaces of one tenant; 0: unlimited", whole(0), "1000")
    ]
    max_tokens_per_tenant: Annotated[
        int, Setting("most valid tokens of one tenant; 0: unlimited", whole(0), "1000")
    ]
    max_archive_bytes: Annotated[
        int,
        Setting("largest archive of a manifest, packed", size(1, BODY_BYTES_CEILING), "5MiB"),
    ]
    max_manifest_bytes: Annotated[
        int, Setting("largest manifest, unpacked", size(1, MANIFEST_BYTES_CEILING), "50MiB")
    ]
    retention_versions: Annotated[
        int, Setting("how many of the newest versions keep their files", whole(1), "100")
    ]
    retention_ms: Annotated[
        int,
        Setting("how long a version keeps its files at the least", whole(0), "2592000000"),
    ]
    max_connections_per_token: Annotated[
        int, Setting("most event streams of one token; 0: unlimited", whole(0), "16")
    ]
    keepalive_ms: Annotated[
        int,
        Setting("how long an event stream is silent at the most", whole(10, _HOUR_MS), "30000"),
    ]
    idle_close_ms: Annotated[
        int,
        Setting(
            "how long an event stream may be without an event before it is closed; 0: for ever",
            whole(0),
            "86400000",
        ),
    ]
    max_inline_files: Annotated[
        int,
        Setting(
            "most files of a change that is sent inline; a larger one is a snapshot",
            whole(0, INLINE_FILES_CEILING),
            "32",
        ),
    ]


class FeedsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The feeds surface: what there may be, and what is kept."""

    PREFIX: ClassVar = "FEEDS_"

    max_tenants: Annotated[int, Setting("most tenants; 0: unlimited", whole(0), "10000")]
    retention_ms: Annotated[int, Setting("how long events are kept", whole(1), "604800000")]
    id_window_ms: Annotated[
        int,
        Setting(
            "how long the id of an event is known, so that it is stored once; no longer than the"
            " event is kept",
            whole(1),
            "86400000",
        ),
    ]
    grpc_port: Annotated[
        int | None,
        Setting(
            "port of gRPC, by which consumers hear that there are events; 0: any that is free;"
            " unset: none",
            whole(0, 65535),
        ),
    ] = None
    grpc_port_file: Annotated[
        Path | None, Setting("write the port of gRPC here once it is bound", PATH)
    ] = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be configured, by section."""

    server: ServerSettings
    storage: StorageSettings
    topics: TopicsSettings
    streams: StreamsSettings
    notifications: NotificationsSettings
    flags: FlagsSettings
    feeds: FeedsSettings

    @property
    def development(self) -> bool:
        """Whether no credential is configured anywhere, and everyone may do everything."""
        own = self.notifications.config
        return self.server.development and (own is None or own.auth is None)


SECTIONS: dict[str, Any] = get_type_hints(Settings)
"""The struct of each section."""

SETTINGS: tuple[Setting, ...] = tuple(
    hint.__metadata__[0]._replace(name=struct.PREFIX + field.upper(), section=section, field=field)
    for section, struct in SECTIONS.items()
    for field, hint in get_type_hints(struct, include_extras=True).items()
    if field != "PREFIX"
)
