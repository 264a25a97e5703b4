"""`GET …/closure`: the files of a subscription at a version, and the keys that sign links to it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.core.errors import Code, Refused
from headrace.engine.open_log import OpenLog
from headrace.flags.closure_token import (
    ClosureTokenInvalid,
    RequestedClosure,
    verify_closure_token,
)
from headrace.flags.delta import Closure
from headrace.flags.subscription import (
    SubscriptionRefused,
    decode_subscription,
    encode_subscription,
)
from headrace.search.values import format_date
from headrace.surfaces.flags import wire
from headrace.surfaces.flags.errors import (
    CLOSURE_TOKEN_INVALID,
    NAMESPACE_NOT_FOUND,
)
from headrace.surfaces.flags.manifest_store import ManifestStore
from headrace.surfaces.flags.names import parse_version
from headrace.surfaces.flags.permissions import require_manifest_read, require_superadmin
from headrace.surfaces.flags.tenants import find_namespace, parse_names
from headrace.web.answers import Answer, json_answer
from headrace.web.calls import Call, Gate, by_key
from headrace.web.credentials import NOBODY, Principal
from headrace.web.entity_tags import tag_matches
from headrace.web.request import Request

TAR = "application/x-tar"
_CACHE_CONTROL = ("cache-control", "private, max-age=60")


def by_key_or_closure_token(gate: Gate, req: Request) -> Principal:
    """Who asks, by the `Authorization` header; nobody yet, where a signed token is to say it."""
    if not req.get_params("token"):
        return by_key(gate, req)
    try:
        return by_key(gate, req)
    except Refused as refused:
        if refused.code is not Code.UNAUTHENTICATED:
            raise
        return NOBODY  # either of the two suffices


class ClosureRoutes:
    """The handlers of closures, and of the keys that sign links to them."""

    def __init__(self, store: Callable[[], ManifestStore]) -> None:
        self._store = store

    async def fetch(self, call: Call) -> Answer:
        """A closure as a tarball."""
        store, req = self._store(), call.req
        tenant, slug = parse_names(call)
        requested, token = _parse(req, tenant, slug), req.get_param("token")
        if token is None:
            require_manifest_read(call.principal, tenant, slug)
        else:
            keys = await store.keys.accepted()
            _check_token(call, keys, token, requested, store.engine.clock.now_ms() / 1000)
        live = await find_namespace(call, tenant, slug)
        closure = await _find(store, live, requested)
        tag = f'"v{closure.version}-{closure.hash}"'
        headers = [("etag", tag), _CACHE_CONTROL]
        if tag_matches(req.get_header("if-none-match"), tag):
            return Answer(304, headers)
        tarball = await store.tarballs.get(call.hub.tasks, live, requested.flags, closure)
        return Answer(200, [("content-type", TAR), *headers], tarball)

    async def rotate(self, call: Call) -> Answer:
        """Sign with a new key from now on."""
        require_superadmin(call.principal)
        created_at_ms = await self._store().keys.rotate()
        reply = wire.SigningKeyReply(format_date(created_at_ms), call.req.id)
        return json_answer(msgspec.json.encode(reply), 201)


async def _find(store: ManifestStore, live: OpenLog, requested: RequestedClosure) -> Closure:
    """A closure of a version that is available."""
    version = requested.version
    if version > live.visible:
        message = f"there is no version {version} of {requested.namespace}"
        raise NAMESPACE_NOT_FOUND.refused(message, version=version)
    await store.versions.check_available(live, version)  # it may be at hand though it is not
    manifest = await store.manifests.load(live, version)
    return store.closures.of(live, manifest, requested.flags)


def _parse(req: Request, tenant: str, namespace: str) -> RequestedClosure:
    version = parse_version(req.get_param("version"))
    subscription = req.get_param("subscription")
    if subscription is None:
        message = "subscription is missing: flags as base64url without padding, Kg for *"
        raise Refused(Code.INVALID, message, field="subscription")
    try:
        flags = decode_subscription(subscription)
    except SubscriptionRefused as refused:
        raise Refused(Code.INVALID, refused.message, field="subscription") from None
    return RequestedClosure(tenant, namespace, version, flags)


def _check_token(
    call: Call, keys: tuple[bytes, ...], token: str, requested: RequestedClosure, now_s: float
) -> None:
    """Refuse a token that is not for this; who also shows a credential must be the one it names."""
    asked_for = call.req.get_param("subscription")
    try:
        principal = verify_closure_token(keys, token, requested, now_s)
    except ClosureTokenInvalid:
        raise _bad_token() from None
    is_other = call.principal is not NOBODY and call.principal.id != principal
    is_same_text = asked_for == encode_subscription(requested.flags)
    if is_other or not is_same_text or call.gate.credentials.is_gone(principal):
        raise _bad_token()


def _bad_token() -> Refused:
    return CLOSURE_TOKEN_INVALID.refused(
        "the token is not for this, is over, or its credential is: wait for the next event, or"
        " leave it out and show a credential"
    )
