"""Search in operation: configurations, scopes, runs, and how far indexes have come."""
