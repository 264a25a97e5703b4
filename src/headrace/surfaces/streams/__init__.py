"""The durable streams protocol, in two dialects over the same streams."""
