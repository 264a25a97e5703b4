"""A tenant's feed, followed: every event at least once, in order, behind a cursor that the reader
keeps.

With gRPC the reader is told when to ask, without it it asks and waits (long polling). Which of the
two it is at the moment makes no difference but in time.
"""

from headrace.client.feeds.following import AsyncFeed, Feed
from headrace.client.feeds.items import FeedEvent, FeedGap, FeedPage, FeedRefused, FeedResource
from headrace.client.feeds.policy import FollowPolicy

__all__ = [
    "AsyncFeed",
    "Feed",
    "FeedEvent",
    "FeedGap",
    "FeedPage",
    "FeedRefused",
    "FeedResource",
    "FollowPolicy",
]
