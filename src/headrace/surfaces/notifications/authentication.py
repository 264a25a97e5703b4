"""Who asks, and what they may do with an event type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from headrace.core.errors import Code, Refused
from headrace.surfaces.notifications.access import AccessRules, Roles, has_role
from headrace.surfaces.notifications.auth_service import AuthService
from headrace.surfaces.notifications.metrics import NotificationMetrics
from headrace.web.calls import Gate
from headrace.web.credentials import LOCAL, NOBODY, Principal, Scope
from headrace.web.request import Request
from headrace.web.users import is_user

_SCHEMES = ("bearer ", "basic ")


class Authentication:
    """Makes principals of `Authorization` headers.

    Who shows none, or one that is none, is nobody in particular: public event types are for
    everybody. One that can be read must be good.
    """

    def __init__(
        self,
        mode: str,
        metrics: NotificationMetrics,
        service: AuthService | None = None,
        admin_roles: Roles | None = None,
    ) -> None:
        self._mode = mode
        self._metrics = metrics
        self._service = service
        """Where credentials that are not ours are looked up."""
        self._admin_roles = admin_roles or {}

    # --- who asks ---------------------------------------------------------------------------------

    def by_header(self, gate: Gate, req: Request) -> Principal | Awaitable[Principal]:
        """Who asks, by the header `Authorization`."""
        return self._by(gate, req.get_header("authorization"))

    def by_header_or_token(self, gate: Gate, req: Request) -> Principal | Awaitable[Principal]:
        """The same, or by `?token=`: a browser's EventSource sends no headers."""
        header = req.get_header("authorization")
        if header is None and (token := req.get_param("token")) is not None:
            header = f"Bearer {token}"
        return self._by(gate, header)

    def by_admin_header(self, gate: Gate, req: Request) -> Principal | Awaitable[Principal]:
        """The same, where somebody must say who they are."""
        header = req.get_header("authorization")
        if not gate.credentials.development and not _is_readable(header):
            self._metrics.authenticated(self._mode, "missing")
            raise Refused(Code.UNAUTHENTICATED, "say who asks: Authorization: Bearer or Basic")
        return self._by(gate, header)

    def _by(self, gate: Gate, header: str | None) -> Principal | Awaitable[Principal]:
        store = gate.credentials
        if store.development:
            return LOCAL
        if header is None or not _is_readable(header):
            return NOBODY
        if self._service is not None:
            return self._ask(gate, self._service, header)
        with self._counted():
            return store.authenticate_user(header)

    async def _ask(self, gate: Gate, service: AuthService, header: str) -> Principal:
        """Our own credentials first: the superadmin does not depend on another server."""
        with self._counted():
            try:
                return gate.credentials.authenticate_user(header)
            except Refused as refused:
                if refused.code is not Code.UNAUTHENTICATED:
                    raise
            return await service.identify(header)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except Refused as refused:
            denied = refused.code is Code.UNAUTHENTICATED
            self._metrics.authenticated(self._mode, "denied" if denied else "unavailable")
            raise
        self._metrics.authenticated(self._mode, "accepted")

    # --- what they may do -------------------------------------------------------------------------

    def require_read(self, principal: Principal, rules: AccessRules | None, log: str) -> None:
        """Refuse who may not watch and replay what is in this log.

        What everybody reads who is known, a key reads if it opens the log: it is made for so many
        names and actions and no more, whichever surface is asked.
        """
        self._require(principal, rules, AccessRules.may_read)
        if rules is None or not rules.required or rules.read_roles is not None:
            return
        if is_user(principal.id) or has_role(self._admin_roles, principal.realm, principal.roles):
            return
        principal.require(Scope.READ, log)

    def require_write(self, principal: Principal, rules: AccessRules | None) -> None:
        """Refuse who may not notify."""
        self._require(principal, rules, AccessRules.may_write)

    def _require(
        self,
        principal: Principal,
        rules: AccessRules | None,
        may: Callable[[AccessRules, str, tuple[str, ...], Roles], bool],
    ) -> None:
        if rules is None or not rules.required or principal.superadmin:
            return
        if principal is NOBODY:
            raise Refused(Code.UNAUTHENTICATED, "this event type is not public: say who asks")
        if not may(rules, principal.realm, principal.roles, self._admin_roles):
            raise Refused(Code.FORBIDDEN, "the roles of this user do not include this event type")

    def require_admin(self, principal: Principal) -> None:
        """Refuse who is no admin."""
        if principal.superadmin or has_role(self._admin_roles, principal.realm, principal.roles):
            return
        raise Refused(Code.FORBIDDEN, "this is for admins")


def _is_readable(header: str | None) -> bool:
    """Whether a header names a scheme that we know, and has something behind it."""
    if header is None:
        return False
    return any(
        header[: len(scheme)].lower() == scheme and header[len(scheme) :].strip()
        for scheme in _SCHEMES
    )
