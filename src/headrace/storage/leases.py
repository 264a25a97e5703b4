"""Leases: who is about to publish objects, and how somebody else removes objects beside that.

A job takes a lease before it writes its first output, names its outputs after it, stores it again
while it works, and publishes under it. Whoever removes objects that no manifest names leaves those
of live leases alone, and first publishes a fence: a manifest version that lists the live leases. A
job that began before the fence and is not on that list cannot publish any more, because a change
of the manifest is made from the newest version. So it does not matter how long a job stalls, and
clocks only decide whose files are kept, never whether what is published is there.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread

import msgspec

from headrace.core.errors import Corrupt
from headrace.core.limits import LEASE_RENEW_S, LEASE_S, LEASES_MAX
from headrace.formats import layout
from headrace.formats.lease import JobLease, decode_lease, encode_lease
from headrace.formats.manifest import Manifest
from headrace.storage import manifests
from headrace.storage.objects import Listed, Objects, StoreError

Doom = Callable[[Manifest, frozenset[str]], Sequence[Listed]]
"""Which objects are to go, by the manifest and the tokens of jobs that are at work."""


class Fenced(Exception):
    """A job was taken for dead, and its files for nobody's: it may not publish them any more."""


class HeldLease:
    """A job's right to publish what it makes; `token` is in the names of all of it."""

    def __init__(self, objects: Objects, token: str, lease: JobLease) -> None:
        self._objects = objects
        self._lease = lease
        self.token = token

    def require(self, manifest: Manifest) -> None:
        """`Fenced` unless the job may publish the version behind this one."""
        if self._lease.fence != manifest.fence and self.token not in manifest.spared:
            raise Fenced(
                f"the lease of this job ({self._lease.job} {self.token}) ran out while it stood "
                "still, and its files were removed: nothing was published, run it again"
            )

    def renew(self) -> None:
        """The job is still at work."""
        lease = self._lease
        self._lease = msgspec.structs.replace(lease, renewals=lease.renewals + 1)
        self._objects.put(layout.lease(self.token), encode_lease(self._lease))


@contextmanager
def hold_lease(objects: Objects, job: str) -> Iterator[HeldLease]:
    """Hold a lease; a thread renews it."""
    held = _begin(objects, job)
    done = Event()
    renewing = Thread(target=_renew, args=(held, done), name=f"lease {job}", daemon=True)
    renewing.start()
    try:
        yield held
    finally:
        done.set()
        renewing.join()
        with suppress(OSError):  # it runs out by itself, and the job may have done its work
            objects.remove(layout.lease(held.token))


def _begin(objects: Objects, job: str) -> HeldLease:
    while True:
        token, fence = secrets.token_hex(8), manifests.load(objects).fence
        lease = JobLease(job=job, host=socket.gethostname(), pid=os.getpid(), fence=fence)
        objects.put_new(layout.lease(token), encode_lease(lease))
        # A fence that came in between may have missed the lease. (One that is being published right
        # now may have, too: then the job is told so in the end, and runs again.)
        if manifests.load(objects).fence == fence:
            return HeldLease(objects, token, lease)
        objects.remove(layout.lease(token))


def _renew(held: HeldLease, done: Event) -> None:
    while not done.wait(LEASE_RENEW_S):
        try:
            held.renew()
        except OSError:
            continue  # there is time for another attempt; and else the fence holds


def now_ms(objects: Objects) -> int:
    """The store's clock: when it says that an object was stored just now."""
    name = layout.clock(secrets.token_hex(8))
    objects.put(name, b"{}")
    try:
        listed = objects.look(name)
    finally:
        objects.remove(name)
    if listed is None:
        raise StoreError(f"{name} was stored, and is not there")
    return listed.modified_ms


def remove_fenced(
    objects: Objects, doom: Doom, then: Callable[[str], None] = lambda name: None
) -> Sequence[Listed]:
    """Remove what is doomed, once nobody can publish it any more; `then` is told of each."""
    now, doomed = now_ms(objects), list[Listed]()

    def change(manifest: Manifest) -> Manifest | None:
        live = _live(objects, manifest, now)
        doomed[:] = doom(manifest, live)
        if not doomed:
            return None
        spared = live.difference(layout.job_of(listed.name) for listed in doomed)
        return msgspec.structs.replace(
            manifest, fence=manifest.fence + 1, spared=tuple(sorted(spared))
        )

    manifests.update(objects, change)
    for listed in doomed:
        objects.remove(listed.name)
        then(listed.name)
    _forget(objects, now)
    return doomed


def _live(objects: Objects, manifest: Manifest, now: int) -> frozenset[str]:
    """Tokens of the jobs that are at work and were spared by every fence since they began."""
    found = set()
    for listed in objects.list(layout.LEASES):
        if layout.is_clock(listed.name) or is_over(listed, now):
            continue
        token = layout.job_of(listed.name)
        try:
            lease = decode_lease(objects.get(listed.name), listed.name)
        except FileNotFoundError:
            continue  # done just now
        except Corrupt:
            continue  # nobody's: nobody can publish under it
        if lease.fence == manifest.fence or token in manifest.spared:
            found.add(token)
    if len(found) > LEASES_MAX:
        raise StoreError(f"{len(found)} jobs are at work, which is more than {LEASES_MAX}")
    return frozenset(found)


def find_earlier(objects: Objects, manifest: Manifest) -> list[JobLease]:
    """The leases of jobs that began before the last fence, ended ones left out: what they read may
    be gone since.
    """
    found = []
    for listed in objects.list(layout.LEASES):
        if not layout.is_clock(listed.name):
            with suppress(FileNotFoundError, Corrupt):
                lease = decode_lease(objects.get(listed.name), listed.name)
                found += [lease] if lease.fence < manifest.fence else []
    return found


def is_over(listed: Listed, now: int) -> bool:
    """Whether the job of a lease counts as dead, at this time of the store's clock."""
    return listed.modified_ms < now - int(LEASE_S * 1000)


def _forget(objects: Objects, now: int) -> None:
    """Leases that killed jobs left."""
    for listed in objects.list(layout.LEASES):
        if is_over(listed, now):
            objects.remove(listed.name)
