"""Making companions: pure functions on Arrow tables, which know no Spark."""
