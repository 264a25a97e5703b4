"""How logs of event types keep their records by subject, as the configuration says."""

from __future__ import annotations

from textwrap import dedent

import pytest

from headrace.core.config import Durability, LogConfig
from headrace.core.limits import KEEP_PER_KEY_MAX, KEYS_MAX
from headrace.surfaces.notifications.catalog import EventTypeCatalog
from headrace.surfaces.notifications.configuration import parse_configuration
from headrace.surfaces.notifications.yaml_nodes import ConfigurationError

STORM = """\
notification_schema:
  storm:
    topic: {base: storm, key_order: [region]}
    identifier:
      region: {type: IntHandler, required: true}
    payload: {required: true}
"""


def config_of(text: str) -> LogConfig:
    catalog = EventTypeCatalog(parse_configuration(dedent(text).encode(), "n.yaml"), 10)
    return catalog.log_config(catalog.types.get("storm"))


def test_all_are_kept_unless_the_policy_says_otherwise() -> None:
    assert config_of(STORM) == LogConfig(durability=Durability.FSYNC)
    policy = "    storage_policy: {allow_duplicates: true, max_messages: 5}\n"
    assert config_of(STORM + policy) == LogConfig(durability=Durability.FSYNC, cap_records=5)


def test_without_duplicates_the_newest_of_each_subject_stays() -> None:
    policy = "    storage_policy: {allow_duplicates: false, retention_time: 1h}\n"
    assert config_of(STORM + policy) == LogConfig(
        durability=Durability.FSYNC, ttl_ms=3_600_000, keep_per_key=1
    )


def test_in_memory_so_many_of_so_many_subjects_stay() -> None:
    backend = "notification_backend: {kind: in_memory, in_memory: {max_history_per_topic: 3}}\n"
    assert config_of(STORM + backend) == LogConfig(
        durability=Durability.EPHEMERAL, keep_per_key=3, keys_max=10_000
    )


@pytest.mark.parametrize(
    ("rule", "number_max"),
    [("max_history_per_topic", KEEP_PER_KEY_MAX), ("max_topics", KEYS_MAX)],
)
def test_what_no_log_could_keep_is_refused(rule: str, number_max: int) -> None:
    backend = "notification_backend: {kind: in_memory, in_memory: {%s: %d}}\n"
    assert config_of(STORM + backend % (rule, number_max)).keyed
    with pytest.raises(ConfigurationError):
        config_of(STORM + backend % (rule, number_max + 1))
