"""Consumers of logs that the server keeps a cursor for: trackers, which poll, and webhooks, which
are called.
"""
