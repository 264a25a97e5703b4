"""One namespace as a client holds it: what is announced comes in, what is to be done goes out.

A state machine without I/O, clock or threads. Only verified trees are ever published; whatever
fails leaves the one before in its place, and ends in a snapshot or in trying again later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from headrace.client.flags.actions import (
    Action,
    FetchCancelled,
    FetchWanted,
    ReconnectWanted,
    SnapshotReply,
    StateChanged,
    TreePublished,
    VerificationWanted,
)
from headrace.client.flags.addresses import ServerAddress, tenant_in
from headrace.client.flags.announcements import (
    DOWNGRADE,
    RESTARTED,
    Announcement,
    DeltaAnnounced,
    ResyncAnnounced,
    SnapshotAnnounced,
)
from headrace.client.flags.freshness import Freshness
from headrace.client.flags.policy import RefreshPolicy
from headrace.client.flags.problems import FlagState, RefreshCheck, RefreshError
from headrace.client.flags.trees import (
    FlagTree,
    TreeRules,
    format_etag,
    tree_of_delta,
    tree_of_snapshot,
)
from headrace.client.flags.works import (
    RefusedTree,
    SnapshotFetch,
    TreeVerification,
    WantedSnapshot,
    snapshot_of,
)
from headrace.core.limits import (
    FLAGS_CLIENT_SNAPSHOT_TRIES,
    FLAGS_CLIENT_WAITING_BYTES_MAX,
    FLAGS_CLIENT_WAITING_DELTAS_MAX,
)
from headrace.flags.subscription import FlagSet

_UNCHANGED, _UNAUTHENTICATED = 304, 401
_OTHERWISE = frozenset((400, 403, 404, 410))
"""Answers to a request for a snapshot that stay the same until something else is announced."""


class NamespaceSubscription(msgspec.Struct, frozen=True):
    """What a client follows of one namespace."""

    name: str
    """As users call it: `slug`, or `tenant/slug` with a credential that is bound to no tenant."""
    flags: FlagSet

    @property
    def slug(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def tenant(self) -> str | None:
        return self.name.rpartition("/")[0] or None


class NamespaceMirror:
    """Holds the last good tree of a namespace and brings it up to date. Times are in seconds."""

    def __init__(
        self,
        subscription: NamespaceSubscription,
        server: ServerAddress,
        policy: RefreshPolicy,
        random: Callable[[], float],
        emit: Callable[[Action], None],
        headers: dict[str, str] | None = None,
    ) -> None:
        self.subscription = subscription
        self.tree: FlagTree | None = None
        self.state = FlagState.NOT_READY
        self.is_fatal = False
        """Whether nothing is believed any more that the server announces."""
        self._server = server
        self._policy = policy
        self._random = random
        self._emit = emit
        self._headers = headers or {}
        self._rules = TreeRules(subscription.flags, policy.tree_bytes_max)
        self._tenant = subscription.tenant
        self._last_number = 0
        self._connected = False
        self._announced: int | None = None
        """The newest version of which this connection told."""
        self._announced_hash: str | None = None
        self._is_refused = False
        """Whether what was announced last could not be used at all."""
        self._work: SnapshotFetch | TreeVerification | None = None
        self._wanted: WantedSnapshot | None = None
        self._waiting: list[DeltaAnnounced] = []
        """Deltas that came while there was work."""
        self._retry_at: float | None = None
        self._failures = 0
        """In a row, since a tree was good."""
        self._tries = 0
        """Of the snapshot that is wanted."""
        self._refused: RefusedTree | None = None
        self._freshness = Freshness(policy.error_after_s)

    @property
    def error(self) -> RefreshError | None:
        """Why the last refresh failed; None once all is well again."""
        return self._freshness.error

    # --- the connection ---------------------------------------------------------------------------

    def stream_began(self) -> None:
        """The next event is the first one: it says where things stand."""
        self._connected = True
        self._announced = None

    def stream_paused(self) -> None:
        """The stream is opened anew on purpose; that alone makes nothing stale."""
        self._connected = False
        self._announced = None

    def stream_ended(self, error: RefreshError, now: float, *, stays: bool = False) -> None:
        """The stream is lost, or was refused; `stays`: the next try will end in the same way."""
        self.stream_paused()
        if not self.is_fatal:
            self._report(error, now, stays=stays)

    # --- events -----------------------------------------------------------------------------------

    def receive(self, announced: Announcement, now: float) -> None:
        """Something was announced; what is older than the last word on this stream is not heard."""
        if self.is_fatal:
            return
        if isinstance(announced, ResyncAnnounced):
            self._resync(announced, now)
            return
        if self._announced is not None and announced.version <= self._announced:
            self._pass_over(announced)
            return
        self._announced, self._announced_hash = announced.version, announced.closure_hash
        self._is_refused = False
        if isinstance(announced, SnapshotAnnounced):
            self._learn_tenant(announced.snapshot_url)
            self._want_announced(announced, now)
        elif self._work is not None:
            self._wait_with(announced, now)
        elif self._wanted is not None:
            self._want(WantedSnapshot.behind(announced), now)
        else:
            self._apply(announced, now)

    def _pass_over(self, late: DeltaAnnounced | SnapshotAnnounced) -> None:
        """Something is not newer than the last word: a replay, unless it goes on from there.

        Then one of the two versions is wrong, and no server that keeps its order says such things.
        """
        if late.closure_hash == self._announced_hash or (
            isinstance(late, DeltaAnnounced) and late.prev_closure_hash != self._announced_hash
        ):
            return
        problem = f"version {late.version} follows version {self._announced}"
        error = RefreshError(RefreshCheck.EVENT, problem, late.version)
        self._emit(ReconnectWanted(self.subscription.name, error))

    def refuse(self, error: RefreshError, now: float) -> None:
        """Something was announced that cannot be used, nor anything be fetched instead."""
        if not self.is_fatal:
            self._is_refused = True
            self._report(error, now, stays=True)

    def _resync(self, announced: ResyncAnnounced, now: float) -> None:
        version = announced.current_version
        if announced.reason == DOWNGRADE:
            self._end_fatally(version, now)
            return
        newest = self._announced
        if newest is not None and version < newest and announced.reason != RESTARTED:
            return
        self._announced, self._announced_hash = version, announced.closure_hash
        self._is_refused = False
        self._learn_tenant(announced.snapshot_url)
        self._want(WantedSnapshot(version, announced.closure_hash, announced.snapshot_url), now)

    def _end_fatally(self, version: int, now: float) -> None:
        self._drop_work()
        self._wanted = self._retry_at = None
        self._waiting.clear()
        self.is_fatal = True
        problem = "the server cannot speak this protocol for this subscription"
        self._report(RefreshError(RefreshCheck.PROTOCOL, problem, version), now, stays=True)

    def _learn_tenant(self, url: str) -> None:
        """Snapshots can be asked for without a token by who knows the tenant."""
        if self.subscription.tenant is None:
            self._tenant = tenant_in(url, self.subscription.slug) or self._tenant

    # --- deltas -----------------------------------------------------------------------------------

    def _apply(self, delta: DeltaAnnounced, now: float) -> None:
        """The first of the three checks; the others take time."""
        tree = self.tree
        if tree is None or tree.closure_hash != delta.prev_closure_hash:
            problem = "the delta is against another closure than the one that is held"
            self._doubt(RefreshError(RefreshCheck.PRE_APPLY, problem, delta.version), delta, now)
            return
        self._verify(delta, partial(tree_of_delta, tree, delta, self._rules))

    def _doubt(self, error: RefreshError, delta: DeltaAnnounced, now: float) -> None:
        """A delta was not good: the whole closure, of the newest version that was announced."""
        newest = self._waiting[-1] if self._waiting else delta
        self._report(error, now)
        self._want(WantedSnapshot.behind(newest), now)

    def _wait_with(self, delta: DeltaAnnounced, now: float) -> None:
        """Until what is under way is done; too much of it, and the whole closure is less."""
        size_bytes = sum(each.size_bytes for each in self._waiting) + delta.size_bytes
        if (
            len(self._waiting) == FLAGS_CLIENT_WAITING_DELTAS_MAX
            or size_bytes > FLAGS_CLIENT_WAITING_BYTES_MAX
        ):
            self._want(WantedSnapshot.behind(delta), now)
        else:
            self._waiting.append(delta)

    def _go_on(self, now: float) -> None:
        """A tree is good: on to what came meanwhile."""
        assert self.tree is not None
        version = self.tree.version
        self._waiting = [delta for delta in self._waiting if delta.version > version]
        if self._waiting and self._work is None:
            self._apply(self._waiting.pop(0), now)
        elif not self._waiting:
            self._settle(now)

    # --- snapshots --------------------------------------------------------------------------------

    def _want_announced(self, announced: SnapshotAnnounced, now: float) -> None:
        size = announced.snapshot_size_bytes
        if size > self._policy.tree_bytes_max:
            problem = f"the snapshot has {size} bytes, more than are taken"
            self._drop_work()
            self._wanted = self._retry_at = None
            self.refuse(RefreshError(RefreshCheck.SNAPSHOT, problem, announced.version), now)
            return
        wanted = WantedSnapshot(announced.version, announced.closure_hash, announced.snapshot_url)
        self._want(wanted, now)

    def _want(self, snapshot: WantedSnapshot, now: float) -> None:
        """Get this snapshot, and forget about all that was announced before it."""
        self._waiting.clear()
        if self._holds(snapshot):
            self._drop_work()
            self._adopt(snapshot.version, now)
            return
        if not snapshot.is_same_as(self._wanted):
            self._tries = 0
        self._wanted = snapshot
        if snapshot.is_same_as(snapshot_of(self._work)):
            return
        self._drop_work()
        if self._retry_at is not None:
            # That one failed says little of another one, but there is no hurry.
            self._retry_at = min(self._retry_at, now + self._policy.pause_s)
        elif self._work is None:
            self._fetch(now)

    def _holds(self, snapshot: WantedSnapshot) -> bool:
        """Whether the tree has exactly these files, whatever version it was first seen in."""
        return self.tree is not None and self.tree.closure_hash == snapshot.closure_hash

    def _adopt(self, version: int, now: float) -> None:
        """The files that are held are those of this version, too."""
        tree = self.tree
        assert tree is not None
        if tree.version != version:
            self._publish(tree.at_version(version))
        self._succeed(now)

    def _fetch(self, now: float) -> None:
        wanted = self._wanted
        assert wanted is not None
        assert self._work is None
        self._retry_at = None
        target = self._target_of(wanted)
        if target is None:
            problem = "there is no address to fetch the closure from"
            self._fail(RefreshError(RefreshCheck.FETCH, problem, wanted.version), now, anew=True)
            return
        etag = self._known_etag(wanted)
        headers = self._headers if etag is None else {**self._headers, "if-none-match": etag}
        deadline = now + self._policy.fetch_s
        self._work = SnapshotFetch(self._next_number(), wanted, etag, deadline)
        name, bytes_max = self.subscription.name, self._policy.snapshot_bytes_max
        self._emit(FetchWanted(self._work.number, name, target, headers, bytes_max))

    def _target_of(self, wanted: WantedSnapshot) -> str | None:
        """The signed URL if it lies on this server, else the closure for one's own credential."""
        subscription = self.subscription
        signed = self._server.own_target(wanted.url, subscription.slug) if wanted.url else None
        if signed is not None or self._tenant is None:
            return signed
        return self._server.closure_target(
            self._tenant, subscription.slug, wanted.version, subscription.flags
        )

    def _known_etag(self, wanted: WantedSnapshot) -> str | None:
        """Of a snapshot of this version that needs not be sent again."""
        if self._refused is not None:
            if self._refused.etag == format_etag(wanted.version, wanted.closure_hash or ""):
                return self._refused.etag
        elif wanted.closure_hash is None and self.tree and self.tree.version == wanted.version:
            return self.tree.etag
        return None

    def fetched(self, number: int, reply: SnapshotReply | RefreshError, now: float) -> None:
        """A request for a snapshot ended, in one way or another."""
        fetch = self._work
        if not isinstance(fetch, SnapshotFetch) or fetch.number != number:
            return
        self._work = None
        wanted = fetch.snapshot
        if isinstance(reply, RefreshError):
            self._fail(msgspec.structs.replace(reply, version=wanted.version), now)
        elif reply.status == 200:
            work = partial(
                tree_of_snapshot, reply.body, reply.etag, wanted.version, wanted.closure_hash,
                self._rules,
            )  # fmt: skip
            self._verify(wanted, work)
        elif reply.status == _UNCHANGED and fetch.etag is not None:
            self._take_unchanged(fetch, now)
        elif reply.status == _UNAUTHENTICATED and wanted.url and self._tenant is not None:
            self._wanted = msgspec.structs.replace(wanted, url="")  # its token has expired
            self._fetch(now)
        else:
            self._fail_with(reply, wanted, now)

    def _take_unchanged(self, fetch: SnapshotFetch, now: float) -> None:
        if self._refused is not None and fetch.etag == self._refused.etag:
            self._fail(self._refused.error, now)
        else:
            self._adopt(fetch.snapshot.version, now)

    def _fail_with(self, reply: SnapshotReply, wanted: WantedSnapshot, now: float) -> None:
        problem = f"the server answered {reply.status} {reply.code}".rstrip()
        error = RefreshError(RefreshCheck.FETCH, problem, wanted.version, reply.status, reply.code)
        anew = reply.status in _OTHERWISE or reply.status == _UNAUTHENTICATED
        self._fail(error, now, anew=anew, pause_s=reply.retry_after_s)

    def _fail(
        self, error: RefreshError, now: float, *, anew: bool = False, pause_s: float = 0.0
    ) -> None:
        """Try again later; what was announced meanwhile counts then."""
        if self._waiting:
            self._wanted = WantedSnapshot.behind(self._waiting[-1])
            self._waiting.clear()
            self._tries = 0
        self._failures += 1
        self._tries += 1
        self._retry_at = now + max(self._policy.pause(self._failures, self._random), pause_s)
        self._report(error, now)
        if anew or self._tries % FLAGS_CLIENT_SNAPSHOT_TRIES == 0:
            self._emit(ReconnectWanted(self.subscription.name, error))

    # --- verification -----------------------------------------------------------------------------

    def _verify(
        self, about: WantedSnapshot | DeltaAnnounced, work: Callable[[], FlagTree | RefreshError]
    ) -> None:
        self._work = TreeVerification(self._next_number(), about)
        self._emit(VerificationWanted(self._work.number, self.subscription.name, work))

    def verified(self, number: int, result: FlagTree | RefreshError, now: float) -> None:
        """A tree was looked at: it is good, or says why not."""
        work = self._work
        if not isinstance(work, TreeVerification) or work.number != number:
            return
        self._work = None
        if work.about is None:
            self._resume(now)
            return
        if isinstance(result, FlagTree):
            self._publish(result)
            self._succeed(now)
            return
        if result.check is RefreshCheck.LINT and work.about.closure_hash is not None:
            label = format_etag(work.about.version, work.about.closure_hash)
            self._refused = RefusedTree(label, result)
        if isinstance(work.about, DeltaAnnounced):
            self._doubt(result, work.about, now)
        else:
            self._fail(result, now)

    def _resume(self, now: float) -> None:
        """What was given up has ended: on to what is wanted instead."""
        if self._wanted is not None:
            self._fetch(now)
        elif self._waiting:
            self._apply(self._waiting.pop(0), now)

    def _publish(self, tree: FlagTree) -> None:
        previous, self.tree = self.tree, tree
        self._emit(TreePublished(self.subscription.name, tree, previous))

    def _succeed(self, now: float) -> None:
        self._wanted = self._retry_at = self._refused = None
        self._failures = self._tries = 0
        self._show_state(now)
        self._go_on(now)

    # --- time -------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float | None:
        """When `tick` has something to do, if nothing happens before."""
        times = [self._retry_at]
        if isinstance(self._work, SnapshotFetch):
            times.append(self._work.deadline)
        if self.state is FlagState.STALE:
            times.append(self._freshness.is_error_at)
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if isinstance(self._work, SnapshotFetch) and now >= self._work.deadline:
            late = self._work
            self._drop_work()
            problem = f"the snapshot did not come in {self._policy.fetch_s:g} s"
            self._fail(RefreshError(RefreshCheck.FETCH, problem, late.snapshot.version), now)
        if self._retry_at is not None and now >= self._retry_at:
            self._fetch(now)
        self._show_state(now)

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _drop_work(self) -> None:
        match self._work:
            case SnapshotFetch(number=number):
                self._emit(FetchCancelled(number, self.subscription.name))
                self._work = None
            case TreeVerification(number=number):
                self._work = TreeVerification(number, None)

    # --- what users see ---------------------------------------------------------------------------

    def _report(self, error: RefreshError, now: float, *, stays: bool = False) -> None:
        self._freshness.report(error, now, stays=stays)
        self._show_state(now)

    def _settle(self, now: float) -> None:
        """Nothing is left to do; fresh, if the server has said on this stream where it stands."""
        if self._connected and self._announced is not None and not self._is_refused:
            self._freshness.clear()
        self._show_state(now)

    def _show_state(self, now: float) -> None:
        state = self._freshness.state_at(now, has_tree=self.tree is not None)
        if state is not self.state:
            previous, self.state = self.state, state
            self._emit(StateChanged(self.subscription.name, state, previous, self.error))
