"""Reading and writing logs from outside the server: over HTTP, and from the object store."""
