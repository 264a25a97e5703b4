"""Routers: which there are, and creating, changing and ending them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from headrace.core import route
from headrace.core import state as core_state
from headrace.core.cap import add_to
from headrace.core.config import LogConfig
from headrace.core.entry import Drop, Entry, Route, Unroute
from headrace.core.errors import Code, Refused
from headrace.core.inbound_route import Rule
from headrace.core.log import Log, check_owner
from headrace.core.owners import ROUTED
from headrace.core.route import Routes
from headrace.engine.flow.priority_scheduler import PriorityScheduler
from headrace.engine.kernel import Kernel
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.open_log import OpenLog
from headrace.engine.routers.forwarding import Forwarder
from headrace.engine.routers.steps import Router


class RouterPlan(msgspec.Struct, frozen=True):
    """A router as somebody wants it to be."""

    source: str
    dest: str
    rule: Rule
    create_dest: bool = True
    after: int | None = None
    """Begin behind this seq of the source; with what is new, if nothing is said."""


Ends = tuple[Log | None, Log | None]
"""Source and destination, as far as they are there."""
MaySee = Callable[[str], bool]
"""Whether somebody may touch what has this name; what else there is, is not theirs to know."""
_HIDDEN = "…"
"""What stands for a name in a refusal to somebody who may not see it."""


def _anybody(name: str) -> bool:
    return True


def check_ends(router: Router, may_see: MaySee) -> None:
    """Refuse who may not touch what a router leads from and to."""
    if not (may_see(router.source.log.name) and may_see(router.dest.log.name)):
        text = f'router "{router.name}" leads outside the prefixes of this key'
        raise Refused(Code.FORBIDDEN, text, router=router.name)


class Routers:
    """All routers of an engine."""

    def __init__(self, kernel: Kernel, fetcher: Fetcher, scheduler: PriorityScheduler) -> None:
        self.routes = Routes()
        self.forwarder = Forwarder(kernel, fetcher, scheduler)
        self._kernel = kernel
        self._routers = self.forwarder.routers
        self._created: Counter[str] = Counter()
        """How many there are that a key made."""
        kernel.observe(lambda dest, entry: self.attach(entry.router, dest), Route)
        kernel.observe(lambda _, entry: self.detach(entry.router), Unroute)
        kernel.observe(lambda live, _: self.forget(live), Drop)

    def __len__(self) -> int:
        return len(self._routers)

    def get(self, name: str) -> Router:
        router = self._routers.get(name)
        if router is None:
            raise Refused(Code.ROUTER_NOT_FOUND, f'router "{name}" does not exist', router=name)
        return router

    def page(
        self, after: str, prefix: str, count_max: int, wanted: Callable[[Router], bool]
    ) -> tuple[list[Router], bool]:
        """Up to `count_max` routers by name, and whether there are more."""
        found: list[Router] = []
        for name in self.routes.names(after, prefix):
            router = self._routers[name]
            if wanted(router):
                if len(found) == count_max:
                    return found, True
                found.append(router)
        return found, False

    async def catch_up(self, *lives: OpenLog) -> None:
        """Let routers bring these logs what they have for them, before somebody reads them."""
        if any(live.log.inbound_routes for live in lives):
            await self.forwarder.catch_up(*lives)

    # --- following the state ---------------------------------------------------------------------

    def open(self) -> None:
        """Put what recovery found into operation."""
        for live in list(self._kernel.open_logs.values()):
            for name in live.log.inbound_routes or ():
                self.attach(name, live)

    def attach(self, name: str, dest: OpenLog) -> None:
        """The destination has a new inbound route, or one that changed."""
        assert dest.log.inbound_routes is not None
        source = self._kernel.open_logs[dest.log.inbound_routes[name].source]
        router = self._routers.get(name)
        if router is not None and (router.source is not source or router.dest is not dest):
            self.detach(name)
            router = None
        if router is None:
            router = Router(name, source, dest)
            self.routes.put(name, source.log.id, dest.log.id)
            add_to(self._created, router.created_by, 1)
        self.forwarder.attach(router)

    def detach(self, name: str) -> None:
        """The destination has this inbound route no more."""
        router = self._routers[name]
        self.routes.remove(name, router.source.log.id)
        add_to(self._created, router.created_by, -1)
        self.forwarder.detach(router)

    def forget(self, dest: OpenLog) -> None:
        """A log is gone, and with it the routers that led there."""
        for name in dest.log.inbound_routes or ():
            self.detach(name)
        self.forwarder.forget(dest)

    def cut_off(self, live: OpenLog) -> tuple[list[str], list[Unroute]]:
        """The routers from and to a log that is about to go, and the ends of those that lead away
        from it; the others end with it.
        """
        outbound_routes = self.routes.outbound_routes.get(live.log.id, {})
        ends = [Unroute(dest, name) for name, dest in outbound_routes.items()]
        return sorted([*outbound_routes, *(live.log.inbound_routes or ())]), ends

    # --- creating and deleting -------------------------------------------------------------------

    async def put(
        self,
        name: str,
        plan: RouterPlan,
        owner: str,
        may_see: MaySee = _anybody,
        created_by: str = "",
    ) -> bool:
        """Create the router or change it; says whether it is new.

        Who changes one must be allowed to touch what it leads from and to until now.
        """
        kernel, known = self._kernel, self._routers.get(name)
        if known is not None:
            check_ends(known, may_see)
        kernel.check_writable()
        if plan.source == plan.dest:
            raise Refused(Code.INVALID, "a router leads to another log", field="dest")
        if known is not None and not _is_same(known, plan):
            await self.forwarder.finish(known)
            if self._routers.get(name) is not known:
                # Somebody else changed it meanwhile.
                return await self.put(name, plan, owner, may_see, created_by)
        if known is None:
            kernel.caps.check_routers(len(self._routers), self._created[created_by])
        ends = self._ends(plan, owner, created_by)
        self._check_single_source(name, ends, plan, may_see)
        same = known is not None and ends == (known.source.log, known.dest.log)
        if known is not None and same and known.inbound.rule == plan.rule:
            await kernel.journal.wait_synced(known.dest.config_position)
            return False
        self._check_cycle(name, ends, plan, known if same else None, may_see)
        if known is not None and same:
            inbound = known.inbound
            changes: list[Entry] = [
                Route(
                    known.dest.log.id, name, inbound.source, plan.rule, inbound.cursor,
                    inbound.forwarded, inbound.created_by,
                )
            ]  # fmt: skip
        else:
            changes = self._begin(name, plan, owner, created_by, ends, known)
        await kernel.commit_synced(changes, together=True)
        return known is None

    def _ends(self, plan: RouterPlan, owner: str, created_by: str) -> Ends:
        """The logs it leads from and to, where they are there; the others can be made."""
        kernel = self._kernel
        source, dest = (kernel.state.by_name.get(name) for name in (plan.source, plan.dest))
        if dest is None and not plan.create_dest:
            raise core_state.not_found(plan.dest)
        if source is not None and source.owner not in ROUTED:
            check_owner(source, owner)
        if dest is not None:
            check_owner(dest, owner)
        new = (source is None) + (dest is None)
        kernel.caps.check_logs(kernel.state, owner, created_by, new)
        return source, dest

    def _begin(
        self,
        name: str,
        plan: RouterPlan,
        owner: str,
        created_by: str,
        ends: Ends,
        known: Router | None,
    ) -> list[Entry]:
        """What is to be written down for a router that begins, here or in a new place."""
        kernel, now_ms = self._kernel, self._kernel.clock.now_ms()
        changes: list[Entry] = []
        ids: list[int] = []
        for log, end in zip(ends, (plan.source, plan.dest), strict=True):
            if log is None:
                create = core_state.create(
                    kernel.state, end, owner, LogConfig(), now_ms, created_by
                )
                create = msgspec.structs.replace(create, log=create.log + len(changes))
                changes.append(create)
            ids.append(log.id if log is not None else create.log)
        if known is not None:
            changes.append(Unroute(known.dest.log.id, name))
            created_by = known.created_by  # it stays theirs, wherever it leads
        cursor = _beginning(ends[0], plan)
        changes.append(Route(ids[1], name, ids[0], plan.rule, cursor, created_by=created_by))
        return changes

    async def delete(self, name: str, may_see: MaySee = _anybody) -> bool:
        """End the router; what it brought stays. False when there is none.

        Who ends it must be allowed to touch what it leads from and to.
        """
        router = self._routers.get(name)
        if router is None:
            await self._kernel.wait_control()
            return False
        check_ends(router, may_see)
        self._kernel.check_writable()
        await self.forwarder.finish(router)
        if router.ended:
            return await self.delete(name, may_see)
        await self._kernel.commit_synced([Unroute(router.dest.log.id, name)])
        return True

    def _check_single_source(
        self, name: str, ends: Ends, plan: RouterPlan, may_see: MaySee
    ) -> None:
        source, dest = ends
        for other, inbound in ((dest and dest.inbound_routes) or {}).items():
            if other != name and (source is None or inbound.source != source.id):
                known = self._kernel.state.logs[inbound.source].name
                told = {"router": other, "source": known}
                told = {what: each for what, each in told.items() if may_see(each)}
                by = f' by router "{other}"' if "router" in told else ""
                origin = f'"{known}"' if "source" in told else "another log"
                raise Refused(
                    Code.LOG_INCOMPATIBLE,
                    f'"{plan.dest}" takes its records from {origin}{by}; a log has one source',
                    reason="router_dest_fan_in",
                    dest=plan.dest,
                    **told,
                )

    def _check_cycle(
        self, name: str, ends: Ends, plan: RouterPlan, known: Router | None, may_see: MaySee
    ) -> None:
        """Refuse a cycle this change would close; one that was there before stays."""
        source, dest = ends
        if plan.rule.allow_cycle or source is None or dest is None:
            return
        if known is not None and not known.inbound.rule.allow_cycle:
            return
        if cycle := route.find_cycle(self.routes, name, source.id, dest.id):
            names = [self._kernel.state.logs[log].name for log in cycle]
            names = [each if may_see(each) else _HIDDEN for each in names]
            raise Refused(
                Code.ROUTER_CYCLE,
                f"records would go in a circle: {' -> '.join(names)}; allow_cycle permits that",
                cycle=names,
            )


def _is_same(router: Router, plan: RouterPlan) -> bool:
    ends = (router.source.log.name, router.dest.log.name)
    return (*ends, router.inbound.rule) == (plan.source, plan.dest, plan.rule)


def _beginning(source: Log | None, plan: RouterPlan) -> int:
    head = source.head if source else 0
    if plan.after is None:
        return head
    if plan.after > head:
        raise Refused(
            Code.INVALID,
            f'from_seq {plan.after} is above the head of "{plan.source}", {head}',
            field="from_seq",
            head_seq=head,
        )
    return plan.after
