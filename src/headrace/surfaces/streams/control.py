"""Subscriptions over HTTP: the reserved paths of the base protocol, below `__ds`."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import quote

import msgspec

from headrace.core.entry import Following
from headrace.core.errors import Code, Refused
from headrace.core.glob import Glob, check_glob
from headrace.core.limits import (
    SUBSCRIPTION_DESCRIPTION_LENGTH_MAX,
    SUBSCRIPTION_LEASE_MS_MAX,
    SUBSCRIPTION_LEASE_MS_MIN,
    SUBSCRIPTION_STREAMS_MAX,
    SUBSCRIPTION_STREAMS_SHOWN,
    WORKER_LENGTH_MAX,
)
from headrace.core.names import check_printable
from headrace.core.subscription import WEBHOOK, LinkWork, Subscription
from headrace.delivery.signing import Claims, Signer
from headrace.delivery.webhooks import Webhooks
from headrace.engine.open_log import OpenLog
from headrace.engine.streams.active_subscriptions import Active, id_of
from headrace.search.values import format_date
from headrace.surfaces.streams import wire
from headrace.surfaces.streams.names import CONTROL, parse_name
from headrace.surfaces.streams.offsets import Mark, format_offset, parse_offset
from headrace.web.answers import Answer, json_answer
from headrace.web.calls import Authenticate, Call, Gate, by_key, decode
from headrace.web.credentials import NO_SCOPE, Principal, Scope
from headrace.web.request import Request

_subscribe = msgspec.json.Decoder(wire.SubscribeRequest)
_streams = msgspec.json.Decoder(wire.StreamsRequest)
_claim = msgspec.json.Decoder(wire.ClaimRequest)
_ack = msgspec.json.Decoder(wire.AckRequest)
_reply = msgspec.json.Decoder(wire.WebhookReply)

_ID_LENGTH_MAX = 255
_BODY_BYTES_MAX = 1 << 20
_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]{1,261}")


class Woken(Principal, frozen=True, kw_only=True):
    """Who comes with the token of a wake instead of a key."""

    claims: Claims


class Control:
    """The handlers of subscriptions."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks
        self._signer: Signer | None = None

    def open(self, signer: Signer) -> None:
        """There is a key to sign with: part of what a data directory holds."""
        self._signer = signer

    @property
    def signer(self) -> Signer:
        assert self._signer is not None, "the engine is there, so the key is"
        return self._signer

    def by_wake(self, gate: Gate, req: Request) -> Principal:
        """Who asks, by the token of a wake."""
        _ = gate.engine  # refuses before and after the engine's time: the key is there with it
        claims = self.signer.read_token(req.get_header("authorization"))
        return Woken(f"subscription {claims.log}", NO_SCOPE, claims=claims)

    async def keys(self, call: Call) -> Answer:
        """The public keys that wakes are signed with."""
        _ = call.engine
        body = msgspec.json.encode({"keys": [self.signer.jwk]})
        headers = [
            ("content-type", "application/jwk-set+json"),
            ("cache-control", "public, max-age=300"),
        ]
        return Answer(200, headers, body)

    # --- subscribing -----------------------------------------------------------------------------

    async def put(self, call: Call) -> Answer:
        id = _parse_id(call)
        check_printable(id, "the id of a subscription")
        request = await _body(call, _subscribe)
        following = self._parse(call, request)
        call.principal.require(Scope.ADMIN, *following.streams)
        if following.url is not None:
            await self._webhooks.check(following.url)
        subscriptions = call.engine.subscriptions
        active, created = await subscriptions.put(id, following, call.principal.id)
        if not created:
            active = _find(call, id, Scope.ADMIN)  # it may follow more by now
        return json_answer(msgspec.json.encode(self._show(call, active)), 201 if created else 200)

    def _parse(self, call: Call, request: wire.SubscribeRequest) -> Following:
        if request.filter is not None:
            raise Refused(Code.INVALID, "filters are not served here")
        if request.pattern is None and not request.streams:
            raise Refused(Code.INVALID, "say which streams: a pattern, streams, or both")
        _check_count(request.streams or [])
        if not SUBSCRIPTION_LEASE_MS_MIN <= request.lease_ttl_ms <= SUBSCRIPTION_LEASE_MS_MAX:
            raise Refused(Code.INVALID, "lease_ttl_ms is from a second to ten minutes")
        if len(request.description or "") > SUBSCRIPTION_DESCRIPTION_LENGTH_MAX:
            raise Refused(Code.INVALID, "the description is too long")
        if request.pattern is not None:
            _check_pattern(call, request.pattern)
        url = wake_stream = None
        if request.type == WEBHOOK:
            if request.webhook is None:
                raise Refused(Code.INVALID, "a webhook subscription needs webhook.url")
            url = request.webhook.url
            self._webhooks.check_url(url)
        else:
            if request.wake_stream is None:
                raise Refused(Code.INVALID, "a pull-wake subscription needs a wake_stream")
            wake_stream = parse_name(request.wake_stream)
            call.principal.require(Scope.WRITE, wake_stream)
        return Following(
            request.type,
            request.pattern,
            sorted({parse_name(path) for path in request.streams or ()}),
            url,
            wake_stream,
            request.lease_ttl_ms,
            request.description,
            _base_url(call.req),
            call.engine.clock.now_ms(),
        )

    async def get(self, call: Call) -> Answer:
        id = _parse_id(call)
        active = _find(call, id, Scope.READ)
        answer = json_answer(msgspec.json.encode(self._show(call, active)))
        await call.engine.settle(active.live)
        return answer

    def _show(self, call: Call, active: Active) -> wire.SubscriptionReply:
        subscription = active.subscription
        following = subscription.following
        id = id_of(active)
        webhook = None
        if following.url is not None:
            signing = wire.Signing(kid=self.signer.kid, jwks_url=f"{following.base_url}/jwks.json")
            webhook = wire.WebhookShown(url=following.url, signing=signing)
        return wire.SubscriptionReply(
            id=id,
            subscription_id=id,
            type=following.kind,
            pattern=following.pattern,
            streams=[
                wire.StreamLink(
                    path=work.path,
                    link_type=_link_type(work),
                    acked_offset=format_offset(work.tail.epoch, work.done),
                )
                for work in call.engine.subscriptions.streams(active)
            ],
            webhook=webhook,
            wake_stream=following.wake_stream,
            lease_ttl_ms=following.lease_ms,
            created_at=format_date(following.at_ms),
            status="failed" if subscription.failures else "active",
            description=following.description,
        )

    async def delete(self, call: Call) -> Answer:
        id = _parse_id(call)
        _find(call, id, Scope.ADMIN)
        await call.engine.subscriptions.delete(id)
        return Answer(204, [])

    async def link(self, call: Call) -> Answer:
        id = _parse_id(call)
        request = await _body(call, _streams)
        _check_count(request.streams)
        paths = [parse_name(path) for path in request.streams]
        call.principal.require(Scope.ADMIN, *paths)
        _find(call, id, Scope.ADMIN)
        await call.engine.subscriptions.link(id, paths)
        return Answer(204, [])

    async def unlink(self, call: Call) -> Answer:
        id = _parse_id(call)
        path = parse_name(call.param("stream"))
        call.principal.require(Scope.ADMIN, path)
        _find(call, id, Scope.ADMIN)
        await call.engine.subscriptions.unlink(id, path)
        return Answer(204, [])

    # --- working ---------------------------------------------------------------------------------

    async def claim(self, call: Call) -> Answer:
        id = _parse_id(call)
        request = await _body(call, _claim)
        _find(call, id, Scope.READ | Scope.WRITE)
        if not 0 < len(request.worker) <= WORKER_LENGTH_MAX:
            raise Refused(Code.INVALID, f"worker has 1 to {WORKER_LENGTH_MAX} characters")
        active, works = await call.engine.subscriptions.claim(id, request.worker)
        subscription = active.subscription
        reply = wire.ClaimReply(
            wake_id=subscription.wake or "",
            generation=subscription.generation,
            token=self._token(active.live.log.id, subscription),
            streams=_works(works),
            lease_ttl_ms=subscription.following.lease_ms,
        )
        return json_answer(msgspec.json.encode(reply))

    def _token(self, log: int, subscription: Subscription) -> str:
        """What proves that somebody was woken for just this."""
        return self.signer.make_token(Claims(log, subscription.generation, subscription.wake or ""))

    async def ack(self, call: Call) -> Answer:
        id = _parse_id(call)
        active, request = await self._fenced(call, id)
        if len(request.acks) > SUBSCRIPTION_STREAMS_SHOWN:
            raise Refused(Code.INVALID, f"at most {SUBSCRIPTION_STREAMS_SHOWN} acks at a time")
        acks = [_parse_ack(ack) for ack in request.acks]
        more = await call.engine.subscriptions.acknowledge(
            active, request.wake_id, request.generation, acks, done=request.done
        )
        return json_answer(msgspec.json.encode(wire.AckReply(ok=True, next_wake=more)))

    async def release(self, call: Call) -> Answer:
        id = _parse_id(call)
        active, request = await self._fenced(call, id)
        await call.engine.subscriptions.release(active, request.wake_id, request.generation)
        return Answer(204, [])

    async def _fenced(self, call: Call, id: str) -> tuple[Active, wire.AckRequest]:
        """The subscription and the request, of a bearer who was woken for just this."""
        assert isinstance(call.principal, Woken)
        claims = call.principal.claims
        request = await _body(call, _ack)
        active = call.engine.subscriptions.find(id)
        if active.live.log.id != claims.log:
            raise Refused(Code.UNAUTHENTICATED, "this token is for another subscription")
        if (claims.generation, claims.wake) != (request.generation, request.wake_id):
            raise Refused(Code.FENCED, "this wake is over")
        return active, request

    # --- calling webhooks ------------------------------------------------------------------------

    async def deliver(self, live: OpenLog, works: list[LinkWork]) -> bool:
        """Tell a webhook of a wake; says whether it answered that all is done."""
        subscription = live.log.subscription
        assert subscription is not None
        following = subscription.following
        assert following.url is not None
        id = live.log.name.rpartition("/")[2]
        body = msgspec.json.encode(
            wire.WebhookBody(
                subscription_id=id,
                wake_id=subscription.wake or "",
                generation=subscription.generation,
                streams=_works(works),
                callback_url=f"{following.base_url}/subscriptions/{quote(id, safe='')}/callback",
                callback_token=self._token(live.log.id, subscription),
            )
        )
        headers = {
            "content-type": "application/json",
            "webhook-signature": self.signer.sign(body, int(time.time())),
        }
        reply = await self._webhooks.post(following.url, body, headers)
        try:
            return _reply.decode(reply.body or b"{}").done
        except (msgspec.MsgspecError, RecursionError):
            return False  # it took the wake, and says what it will later


def by_key_with(scope: Scope) -> Authenticate:
    """Who asks, by a key with this scope.

    Nothing of the request is looked at before it is clear who may ask for what.
    """

    def authenticate(gate: Gate, req: Request) -> Principal:
        _ = gate.engine  # refuses before and after the engine's time
        principal = by_key(gate, req)
        principal.require(scope)
        return principal

    return authenticate


def _parse_id(call: Call) -> str:
    if not 0 < len(call.name) <= _ID_LENGTH_MAX:
        raise Refused(Code.NOT_FOUND, f"there is nothing at {call.req.path}")
    return call.name


def _find(call: Call, id: str, scope: Scope) -> Active:
    """A subscription, for somebody who may do this with all that it is about.

    That is what it follows, what it was made for, even if it follows that no more, and the stream
    that it writes its wakes to.
    """
    call.principal.require(scope)
    active = call.engine.subscriptions.find(id)
    subscription, following = active.subscription, active.subscription.following
    names = {path for path, link in subscription.links.items() if link.named}
    names.update(following.streams)
    if following.wake_stream is not None:
        names.add(following.wake_stream)
    is_ours = all(map(call.principal.may_see, names))
    if not is_ours or not (following.pattern is None or _may_reach(call, following.pattern)):
        # (What else it is about is not theirs to know.)
        raise Refused(Code.FORBIDDEN, f'"{id}" reaches outside the prefixes of this key')
    return active


def _check_count(streams: list[str]) -> None:
    if len(streams) > SUBSCRIPTION_STREAMS_MAX:
        raise Refused(Code.INVALID, f"at most {SUBSCRIPTION_STREAMS_MAX} streams have a name")


def _check_pattern(call: Call, pattern: str) -> None:
    check_glob(pattern)
    if pattern.startswith("__"):
        raise Refused(Code.INVALID, "the pattern is not one")
    if not _may_reach(call, pattern):
        raise Refused(Code.FORBIDDEN, f'"{pattern}" is outside the prefixes of this key')


def _may_reach(call: Call, pattern: str) -> bool:
    """Whether the caller may touch every name that a pattern can match."""
    return call.principal.may_see(Glob(pattern).prefix)


def _parse_ack(ack: wire.Ack) -> tuple[str, int, int]:
    offset = parse_offset(ack.offset)
    if isinstance(offset, Mark):
        raise Refused(Code.INVALID, "an ack names an offset")
    return parse_name(ack.stream), offset.epoch, offset.seq


def _works(works: list[LinkWork]) -> list[wire.StreamWork]:
    return [
        wire.StreamWork(
            path=work.path,
            link_type=_link_type(work),
            acked_offset=format_offset(work.tail.epoch, work.done),
            tail_offset=format_offset(work.tail.epoch, work.tail.seq),
            has_pending=work.pending,
        )
        for work in works
    ]


def _link_type(work: LinkWork) -> str:
    return "explicit" if work.named else "glob"


async def _body(call: Call, decoder: msgspec.json.Decoder[Any]) -> Any:
    return decode(decoder, await call.raw_body(_BODY_BYTES_MAX) or b"{}")


def _base_url(req: Request) -> str:
    """Where our own paths are, as the caller sees us."""
    host = req.get_header("host") or "localhost"
    if _HOST.fullmatch(host) is None:
        raise Refused(Code.INVALID, "the Host of this request is not one")
    path = req.raw_path.decode("latin-1").partition(f"/{CONTROL}/")[0]
    return f"http://{host}{path}/{CONTROL}"
