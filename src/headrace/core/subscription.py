"""Subscriptions: who is woken when streams have something new, and how far the work is.

A subscription follows streams by name and by pattern. A stream of which everything is done needs no
note: only those with work to do are listed, and those that were asked for by name. Each wake has a
generation; only its holder, while its lease lasts, may say what is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from headrace.core.entry import Dispatch, Follow, Following
from headrace.core.errors import Code, Refused

WEBHOOK = "webhook"
PULL = "pull-wake"


class Link(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A stream that is followed: up to where its records are done."""

    named: bool
    """Asked for by name, not by the pattern alone."""
    epoch: int
    seq: int


class Subscription(msgspec.Struct, gc=False, array_like=True):
    """State of a subscription."""

    following: Following
    links: dict[str, Link] = {}
    generation: int = 0
    wake: str | None = None
    holder: str | None = None
    lease_until_ms: int = 0
    failures: int = 0
    retry_at_ms: int = 0

    @property
    def idle(self) -> bool:
        return self.wake is None


class StreamEnd(msgspec.Struct, frozen=True):
    """Where a stream ends."""

    epoch: int
    seq: int


class LinkWork(msgspec.Struct, frozen=True):
    """A stream of a subscription: what is done of it, and where it ends."""

    path: str
    named: bool
    done: int
    tail: StreamEnd

    @property
    def pending(self) -> bool:
        return self.tail.seq > self.done


Tails = Callable[[str], StreamEnd | None]
"""Where the stream of a name ends; None when there is no such stream."""


def work_of(subscription: Subscription, path: str, tail: StreamEnd) -> LinkWork:
    """What is done of this stream. One that is not listed has nothing left to do."""
    link = subscription.links.get(path)
    if link is None:
        return LinkWork(path, False, tail.seq, tail)
    # Of an earlier stream of the name: nothing of this one is done.
    done = link.seq if link.epoch == tail.epoch else 0
    return LinkWork(path, link.named, done, tail)


def pending(subscription: Subscription, tails: Tails) -> Iterator[LinkWork]:
    """The streams with something to do."""
    for path in subscription.links:
        tail = tails(path)
        if tail is not None and (work := work_of(subscription, path, tail)).pending:
            yield work


# --- deciding -------------------------------------------------------------------------------------


def wake(
    log: int,
    subscription: Subscription,
    name: str,
    holder: str | None = None,
    lease_until_ms: int = 0,
) -> Dispatch:
    """A new generation: whoever was woken before has nothing more to say."""
    return Dispatch(log, subscription.generation + 1, name, holder, lease_until_ms)


def wake_again(log: int, subscription: Subscription, holder: str, lease_until_ms: int) -> Dispatch:
    """The same wake once more; how often it failed is still known."""
    return Dispatch(
        log,
        subscription.generation,
        subscription.wake,
        holder,
        lease_until_ms,
        subscription.failures,
    )


def claim(
    log: int, subscription: Subscription, worker: str, name: str, now_ms: int, *, work: bool
) -> Dispatch:
    """The lease for a worker that asks; `name` is that of a new wake, should it take one."""
    if subscription.holder is not None and now_ms < subscription.lease_until_ms:
        raise Refused(
            Code.ALREADY_CLAIMED,
            f"{subscription.holder!r} holds the lease",
            current_holder=subscription.holder,
            generation=subscription.generation,
        )
    until_ms = now_ms + subscription.following.lease_ms
    if subscription.wake is not None and subscription.holder is None:
        return Dispatch(log, subscription.generation, subscription.wake, worker, until_ms)
    if not work:
        raise Refused(Code.NOTHING_PENDING, "there is nothing to do")
    return wake(log, subscription, name, worker, until_ms)


def check_fence(subscription: Subscription, name: str, generation: int, now_ms: int) -> None:
    """Refuse whoever does not hold the lease now."""
    if (
        (subscription.wake, subscription.generation) != (name, generation)
        or subscription.holder is None
        or now_ms >= subscription.lease_until_ms
    ):
        raise Refused(Code.FENCED, "this wake is over")


def acknowledge(
    log: int,
    subscription: Subscription,
    acks: list[tuple[str, int, int]],
    now_ms: int,
    *,
    done: bool,
) -> Dispatch:
    """This much is done; the lease goes on, or ends with it."""
    if done:
        return Dispatch(log, subscription.generation, None, acks=acks)
    until_ms = now_ms + subscription.following.lease_ms
    return Dispatch(
        log, subscription.generation, subscription.wake, subscription.holder, until_ms, acks=acks
    )


def fail(log: int, subscription: Subscription, retry_at_ms: int) -> Dispatch:
    """A webhook could not be delivered; the same wake is tried again then."""
    return _retry(log, subscription, subscription.failures + 1, retry_at_ms)


def put_off(log: int, subscription: Subscription, retry_at_ms: int) -> Dispatch:
    """A webhook was not waited for; the same wake is tried again then."""
    return _retry(log, subscription, subscription.failures, retry_at_ms)


def _retry(log: int, subscription: Subscription, failures: int, retry_at_ms: int) -> Dispatch:
    return Dispatch(
        log,
        subscription.generation,
        subscription.wake,
        failures=failures,
        retry_at_ms=retry_at_ms,
    )


def settled(subscription: Subscription, acked: Iterable[str], tails: Tails) -> list[str]:
    """Those of these streams of which everything is done and that nobody named: they need no note
    any more.
    """
    found = []
    for path in dict.fromkeys(acked):
        link = subscription.links[path]
        tail = None if link.named else tails(path)
        if tail is not None and (link.epoch, link.seq) == (tail.epoch, tail.seq):
            found.append(path)
    return found


# --- the one way to change it ---------------------------------------------------------------------


def apply(subscription: Subscription | None, entry: Follow | Dispatch) -> Subscription:
    if isinstance(entry, Follow) and entry.following is not None:
        subscription = Subscription(entry.following, {})
    assert subscription is not None, entry
    match entry:
        case Follow():
            for path in entry.gone:
                subscription.links.pop(path, None)
            for path, named, epoch, seq in entry.links:
                subscription.links[path] = Link(named, epoch, seq)
        case Dispatch():
            subscription.generation, subscription.wake = entry.generation, entry.wake
            subscription.holder = entry.holder
            subscription.lease_until_ms = entry.lease_until_ms
            subscription.failures, subscription.retry_at_ms = entry.failures, entry.retry_at_ms
            for path, epoch, seq in entry.acks:
                named = path in subscription.links and subscription.links[path].named
                subscription.links[path] = Link(named, epoch, seq)
    return subscription
