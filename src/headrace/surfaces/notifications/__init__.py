"""The notifications protocol: typed identifiers, watch and replay, under /api/v1."""
