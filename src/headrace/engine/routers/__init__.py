"""Routers in operation: which there are, their steps, and when these are taken."""
