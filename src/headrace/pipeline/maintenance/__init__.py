"""Upkeep that runs itself: which jobs run when, one at a time, and what became of each."""
