"""What every surface shares of HTTP: calls, bodies, credentials, slots, OpenAPI."""
