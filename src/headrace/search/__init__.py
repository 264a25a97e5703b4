"""What search means: configurations, values, queries, answers. Pure; the same hot and cold."""
