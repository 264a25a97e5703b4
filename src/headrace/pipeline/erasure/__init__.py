"""Erasure on request: whatever is stored of a subject is found, removed, and certified as gone."""
