"""Feeds: events of tenants, read by polling, long polling and server-sent events."""
