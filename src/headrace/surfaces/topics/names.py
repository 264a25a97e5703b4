"""Names on the topics surface: a topic is the log of the same name, and a seq is a seq."""

from __future__ import annotations

from headrace.core.names import parse_name

OWNER = "topics"

parse_topic = parse_name
