"""Queues in operation: jobs are claimed, handed out, ended, and buried when they fail too often."""
