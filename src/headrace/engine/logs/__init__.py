"""Logs in operation: looking up, control, appending, reading, deleting, transactions."""
