"""Calling receivers that are elsewhere: who may be called when, and what becomes of a call."""
