"""Headrace: one durable event engine that speaks five protocols."""

__version__ = "0.1.0"
