"""Another configuration at the next start: logs that are there behave as it says."""

from __future__ import annotations

from pathlib import Path

from headrace.core.config import Durability, LogConfig
from headrace.core.owners import TOPICS
from headrace.surfaces.notifications.configuration import parse_configuration
from headrace.surfaces.notifications.server import (
    NotificationLimits,
    Notifications,
    configuration_without_file,
)
from support.notify_server import NotifyServer, run, settled

PLAIN = """
notification_schema:
  plain:
    topic: {base: plain, key_order: [n]}
    identifier: {n: {type: StringHandler, required: true}}
"""


def other(text: str) -> Notifications:
    return Notifications(
        parse_configuration(text.encode(), "other.yaml"),
        NotificationLimits(1 << 20, 10),
        public_url=None,
        takes_passwords=False,
        time=lambda: 0.0,
    )


def test_a_changed_file_changes_logs(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        await server.notify(n="a")
        log = server.engine.state.by_name["notify:plain"]
        assert log.config == LogConfig(durability=Durability.FSYNC)
        await other(f"{PLAIN}    storage_policy: {{retention_time: 1d, max_messages: 7}}").open(
            server.engine
        )
        assert (log.config.ttl_ms, log.config.cap_records) == (86_400_000, 7)
        await other("notification_schema: {}\nnotification_schema_strict: true").open(server.engine)
        assert log.config.cap_records == 7  # the type is gone, and its log stays as it was
        await other("notification_backend: {kind: in_memory}").open(server.engine)
        assert log.config.durability is Durability.EPHEMERAL
        assert (log.config.keep_per_key, log.config.keys_max) == (1, 10_000)
        assert (log.head, log.count) == (1, 1)

    run(story, tmp_path, PLAIN)


def test_a_log_of_such_a_name_that_is_older_is_left_alone(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        state = server.engine.state
        await server.engine.logs.put("older", TOPICS, LogConfig())
        state.by_name["notify:plain"] = state.by_name["older"]
        for path in ("notification", "watch", "replay"):
            body = {"event_type": "plain", "identifier": {"n": "a"}}
            line = await server.send(
                "POST", f"/api/v1/{path}", body | ({"from_id": "1"} if path == "replay" else {})
            )
            await settled(line)
            assert line.statuses == [409], line.heard

    run(story, tmp_path, PLAIN)


def test_the_default_type_is_public_only_where_everything_is() -> None:
    assert configuration_without_file(guarded=False).event_types["storm"].access is None
    rules = configuration_without_file(guarded=True).event_types["storm"].access
    assert rules is not None
    assert rules.required
