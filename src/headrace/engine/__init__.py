"""Use cases on one event loop: append, read, follow, delete, configure; and upkeep beside them."""
