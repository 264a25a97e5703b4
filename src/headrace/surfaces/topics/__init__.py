"""The topics protocol: logs and queues over HTTP under /v0."""
