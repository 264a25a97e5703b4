"""The data pipeline: what is derived from sealed history."""
