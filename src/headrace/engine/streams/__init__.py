"""Streams in operation: their life, ingest rules, touches, subscriptions, what is measured."""
