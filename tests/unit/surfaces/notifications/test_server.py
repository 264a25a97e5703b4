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


def test_an_identifier_that_came_before_is_treated_as_the_first_time(tmp_path: Path) -> None:
    schema = """
notification_schema:
  plain:
    topic: {base: plain, key_order: [n]}
    identifier: {n: {type: IntHandler, required: true}}
  needy:
    topic: {base: needy, key_order: [n]}
    identifier: {n: {type: IntHandler, required: true}}
    payload: {required: true}
"""

    async def story(server: NotifyServer) -> None:
        async def notify(event_type: str, n: object, **more: object) -> int:
            body = {"event_type": event_type, "identifier": {"n": n}, **more}
            json = {"content_type": "application/json"}
            line = await server.send("POST", "/api/v1/notification", body, **json)
            await settled(line)
            return line.statuses[0]

        for _ in range(2):
            assert await notify("plain", "007", payload=[1]) == 200
            assert await notify("plain", "007") == 200
            assert await notify("plain", "*") == 400
            assert await notify("plain", "007", to_id="3") == 400
            assert await notify("needy", "007", payload=None) == 400
            assert await notify("needy", "007") == 400
            assert await notify("needy", "007", payload=0) == 200
        stored = {name: _stored(server, f"notify:{name}") for name in ("plain", "needy")}
        first, second = (
            ('{"identifier":{"n":"7"},"payload":[1]}', "plain.7"),
            ('{"identifier":{"n":"7"},"payload":null}', "plain.7"),
        )
        assert stored["plain"] == [first, second, first, second]
        assert stored["needy"] == [('{"identifier":{"n":"7"},"payload":0}', "needy.7")] * 2

    run(story, tmp_path, schema)


def _stored(server: NotifyServer, name: str) -> list[tuple[str, str | None]]:
    """What the log holds: data and tags."""
    live = server.engine.open_logs[server.engine.state.by_name[name].id]
    return [
        (block.data_at(at).decode(), block.tags and block.tags[at])
        for block in live.tail.since(1)
        for at in range(block.count)
    ]
