"""Upkeep beside requests: sealing, manifests, snapshots, memory, journal files."""
