"""Settings: declared once, read once from the command line, the environment and a file."""

from headrace.config.declarations import (
    SETTINGS,
    NotificationsSettings,
    ServerSettings,
    Settings,
    StorageSettings,
    StreamsSettings,
    TopicsSettings,
)
from headrace.config.errors import ConfigError
from headrace.config.loading import FILE_VARIABLE, load, read

__all__ = [
    "FILE_VARIABLE",
    "SETTINGS",
    "ConfigError",
    "NotificationsSettings",
    "ServerSettings",
    "Settings",
    "StorageSettings",
    "StreamsSettings",
    "TopicsSettings",
    "load",
    "read",
]
