"""What a manifest of flags is: files, lint, closures and hashes, deltas, archives, evaluation.

Server and client share it: both judge the same bytes in the same way. Pure.
"""
