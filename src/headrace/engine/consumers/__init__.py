"""Consumers of logs that the server keeps a cursor for: trackers."""
