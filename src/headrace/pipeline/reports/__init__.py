"""Reports over the published history: small Spark jobs, each with a table and a chart.

A report is a pure function from records to rows. Records are rows of segments (docs/FORMATS.md) of
the logs that the report is about.
"""
