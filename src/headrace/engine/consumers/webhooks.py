"""Webhooks of logs: made, changed, tried out, deleted; what they sent, and what nobody took.

A webhook is a log whose records are its dead letters, so that it is journaled, recovered and
dropped as any log. Beside it lies a small log of what was sent lately.
"""

from __future__ import annotations

import asyncio
import secrets as random_secrets
from collections import Counter
from collections.abc import Callable
from copy import copy
from typing import Literal

import msgspec

from headrace.core import state as core_state
from headrace.core import webhook as rules
from headrace.core.config import Durability, LogConfig
from headrace.core.entry import (
    Create,
    Destination,
    Drop,
    SetWebhook,
    WebhookSecrets,
    WebhookStatus,
)
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    READ_BYTES_MAX,
    WEBHOOK_BATCH_RECORDS_DEFAULT,
    WEBHOOK_BATCH_RECORDS_MAX,
    WEBHOOK_DEAD_LETTER_BYTES_MAX,
    WEBHOOK_DEAD_LETTER_MS,
    WEBHOOK_DEAD_LETTERS_MAX,
    WEBHOOK_DELAY_MS_MAX,
    WEBHOOK_DELIVERIES_KEPT,
    WEBHOOK_FILTER_BYTES_MAX,
    WEBHOOK_REPLAY_S,
)
from headrace.core.owners import DELIVERIES_PREFIX, SYSTEM, WEBHOOK_PREFIX, WEBHOOKS
from headrace.core.read import Page
from headrace.core.webhook import ACTIVE, Webhook
from headrace.core.webhook_signature import KEY_BYTES, format_secret, parse_secret
from headrace.engine.callbacks.sender import DeliveryFailed
from headrace.engine.consumers.active_webhook import ActiveWebhook, surface_of, title_of
from headrace.engine.consumers.delivering import DeadLetter, DeliveryAttempt, WebhookDelivery
from headrace.engine.consumers.sources import Sources
from headrace.engine.consumers.webhook_format import OutgoingTest
from headrace.engine.kernel import Kernel
from headrace.engine.logs.deleter import Deleter
from headrace.engine.logs.reader import Reader
from headrace.engine.open_log import OpenLog

_CONFIG = LogConfig(
    durability=Durability.FSYNC,
    cap_records=WEBHOOK_DEAD_LETTERS_MAX,
    cap_bytes=WEBHOOK_DEAD_LETTER_BYTES_MAX,
    ttl_ms=WEBHOOK_DEAD_LETTER_MS,
    auto_create=False,
)
_DELIVERIES_CONFIG = LogConfig(
    durability=Durability.FSYNC, cap_records=WEBHOOK_DELIVERIES_KEPT, auto_create=False
)
_attempt = msgspec.json.Decoder(DeliveryAttempt)
_letter = msgspec.json.Decoder(DeadLetter)


class WebhookSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants of a webhook."""

    url: str
    filter: bytes = b""
    batch_records: int = WEBHOOK_BATCH_RECORDS_DEFAULT
    batch_delay_ms: int = 0
    status: WebhookStatus = ACTIVE
    secret: str | None = None
    """None: the one it has; a new webhook gets one."""


class Hooked(msgspec.Struct, frozen=True):
    """A webhook as it was when somebody looked."""

    name: str
    live: OpenLog
    source: OpenLog | None
    """None once the log that it reads is gone."""
    letters: int
    """How many dead letters it has."""
    passed: int
    """Up to here there is nothing to deliver."""
    state: Webhook
    """A copy: what changes from then on may not be durable when this is told."""


class WebhookPut(msgspec.Struct, frozen=True):
    """What became of a wish for a webhook."""

    hooked: Hooked
    created: bool
    secret: str | None
    """One that was drawn just now, to be shown this once."""


class Tried(msgspec.Struct, frozen=True):
    """What became of a delivery that somebody waited for."""

    id: str
    took_ms: int
    status: int | None
    """What the receiver answered, if it answered."""
    failure: DeliveryFailed | None


class LetterPage(msgspec.Struct, frozen=True):
    """Dead letters by their numbers, the oldest first."""

    letters: list[tuple[int, DeadLetter]]
    more: bool


class Replayed(msgspec.Struct, frozen=True):
    """How many dead letters were taken, how many are left, and what ended it."""

    delivered: int
    left: int
    failure: DeliveryFailed | None


class LogWebhooks:
    """The webhooks of one engine, of all surfaces: `name` begins with that of the surface."""

    def __init__(
        self,
        kernel: Kernel,
        sources: Sources,
        reader: Reader,
        deleter: Deleter,
        delivery: WebhookDelivery,
    ) -> None:
        self._kernel = kernel
        self._sources = sources
        self._reader = reader
        self._deleter = deleter
        self.delivery = delivery

    def __contains__(self, name: str) -> bool:
        return WEBHOOK_PREFIX + name in self._kernel.state.by_name

    def find(self, name: str) -> Hooked:
        return self._hooked(self._active(name))

    def _active(self, name: str) -> ActiveWebhook:
        log = self._kernel.state.by_name.get(WEBHOOK_PREFIX + name)
        if log is None:
            raise _not_found(name)
        return self.delivery[log.id]

    def _hooked(self, active: ActiveWebhook) -> Hooked:
        state, source = active.state, self._sources.find(active.state.source)
        passed = max(active.start, state.cursor)
        return Hooked(active.name, active.live, source, active.live.log.count, passed, copy(state))

    async def get(self, name: str) -> Hooked:
        """A webhook, once what is told of it is durable."""
        hooked = self.find(name)
        await self._settle([hooked])
        return hooked

    async def _settle(self, told: list[Hooked]) -> None:
        """Wait until what there is to tell of webhooks is durable."""
        positions = (
            max(self.delivery[each.live.log.id].position, each.live.config_position)
            for each in told
        )
        await self._kernel.journal.wait_to_tell(max(positions, default=0), sync=True)

    async def page(
        self, after: str, prefix: str, count_max: int, wanted: Callable[[Hooked], bool]
    ) -> tuple[list[Hooked], bool]:
        """Up to `count_max` webhooks by name, and whether there are more, once that is durable."""
        found, more = self._look(after, prefix, count_max, wanted)
        await self._settle(found)
        await self._kernel.settle_control()
        return found, more

    def _look(
        self, after: str, prefix: str, count_max: int, wanted: Callable[[Hooked], bool]
    ) -> tuple[list[Hooked], bool]:
        state, found = self._kernel.state, list[Hooked]()
        behind = WEBHOOK_PREFIX + after if after else ""
        for name in state.names(behind, WEBHOOK_PREFIX + prefix, WEBHOOKS):
            hooked = self._hooked(self.delivery[state.by_name[name].id])
            if not wanted(hooked):
                continue
            if len(found) == count_max:
                return found, True
            found.append(hooked)
        return found, False

    def count_by_status(self, surface: str) -> Counter[str]:
        """How many webhooks of a surface there are, by status."""
        counts = Counter({status.value: 0 for status in WebhookStatus})
        for active in self.delivery:
            if surface_of(active.name) == surface:
                counts[active.state.status.value] += 1
        return counts

    # --- making and changing ---------------------------------------------------------------------

    async def put(
        self,
        name: str,
        source: str,
        spec: WebhookSpec,
        start_from: Literal["earliest", "latest"] = "latest",
        created_by: str = "",
        check: Callable[[Hooked], None] = lambda _: None,
    ) -> WebhookPut:
        """Make a webhook, or have one that is there be like this, unless `check` refuses.

        One whose log is gone begins anew with the log that has the name now.
        """
        kernel = self._kernel
        known = kernel.state.by_name.get(WEBHOOK_PREFIX + name)
        destination = await self._check(name, spec, is_new=known is None)
        kernel.check_open()
        log = self._sources.open(source)
        visible = log.visible
        cursor = visible if start_from == "latest" else min(log.log.earliest - 1, visible)
        known = kernel.state.by_name.get(WEBHOOK_PREFIX + name)
        if known is None:
            kernel.caps.check_logs(kernel.state, WEBHOOKS, created_by)
            drawn = format_secret(random_secrets.token_bytes(KEY_BYTES))
            secrets = WebhookSecrets(spec.secret or drawn)
            created = self._creations(name, created_by)
            entry = SetWebhook(
                created[0].log, log.log.id, source, cursor, destination, secrets, spec.status
            )
            await kernel.commit_synced([*created, entry], together=True)
            return WebhookPut(self.find(name), True, None if spec.secret else drawn)
        state = self._active(name).state
        check(self.find(name))  # somebody else may have made it while we looked at the URL
        if state.source != log.log.id and self._sources.find(state.source) is not None:
            raise Refused(
                Code.CONFLICT,
                f'the webhook reads "{state.source_name}"; delete it first',
                source=state.source_name,
            )
        entry = SetWebhook(
            known.id, log.log.id, source, cursor, destination, self._rotated(state, spec.secret),
            spec.status,
        )  # fmt: skip
        await kernel.commit_synced([entry])
        return WebhookPut(self.find(name), False, None)

    async def change(self, name: str, change: Callable[[WebhookSpec], WebhookSpec]) -> Hooked:
        """Have a webhook be as it is, but for what `change` makes of it; decided in one step."""
        self._active(name)
        spec = change(self._spec(name))
        await self._check(name, spec, is_new=False)
        self._kernel.check_open()
        spec = change(self._spec(name))  # somebody else may have changed it meanwhile
        state = self._active(name).state
        entry = SetWebhook(
            self._active(name).live.log.id,
            state.source,
            state.source_name,
            state.cursor,
            _destination(spec),
            self._rotated(state, spec.secret),
            spec.status,
        )
        await self._kernel.commit_synced([entry])
        return self.find(name)

    def _spec(self, name: str) -> WebhookSpec:
        state = self._active(name).state
        destination = state.destination
        return WebhookSpec(
            url=destination.url,
            filter=destination.filter,
            batch_records=destination.batch_records,
            batch_delay_ms=destination.batch_delay_ms,
            status=state.status,
        )

    def _rotated(self, state: Webhook, secret: str | None) -> WebhookSecrets:
        if secret is None:
            return state.secrets
        return rules.rotate(state.secrets, secret, self._kernel.clock.now_ms())

    async def _check(self, name: str, spec: WebhookSpec, *, is_new: bool) -> Destination:
        """Where a webhook leads that makes sense and may be called; refuses others.

        A URL that it has already is not looked at again: who wants to pause a webhook may do so,
        whatever its host means by now.
        """
        for field, number, low, high in (
            ("max_records", spec.batch_records, 1, WEBHOOK_BATCH_RECORDS_MAX),
            ("delay_ms", spec.batch_delay_ms, 0, WEBHOOK_DELAY_MS_MAX),
        ):
            if not low <= number <= high:
                raise Refused(Code.INVALID, f"{field} is from {low} to {high}", field=field)
        if len(spec.filter) > WEBHOOK_FILTER_BYTES_MAX:
            raise Refused(
                Code.INVALID, f"a filter has {WEBHOOK_FILTER_BYTES_MAX} bytes", field="filter"
            )
        if spec.secret is not None:
            parse_secret(spec.secret)
        self.delivery.formats[surface_of(name)].parse_filter(spec.filter)
        if is_new or spec.url != self._active(name).state.destination.url:
            await self.delivery.receivers.check(spec.url)
        return _destination(spec)

    def _creations(self, name: str, created_by: str) -> list[Create]:
        """The log of a webhook, and that of what it sends."""
        state, now_ms = self._kernel.state, self._kernel.clock.now_ms()
        webhook = core_state.create(
            state, WEBHOOK_PREFIX + name, WEBHOOKS, _CONFIG, now_ms, created_by
        )
        deliveries = core_state.create(
            state, DELIVERIES_PREFIX + name, SYSTEM, _DELIVERIES_CONFIG, now_ms
        )
        return [webhook, msgspec.structs.replace(deliveries, log=webhook.log + 1)]

    async def delete(self, name: str) -> None:
        """End a webhook, with its dead letters; a call that is under way may still arrive."""
        self._kernel.check_open()
        active = self._active(name)
        drops = [Drop(active.live.log.id), Drop(active.deliveries.log.id)]
        await self._kernel.commit_synced(drops, together=True)

    # --- what was sent, and what was not ---------------------------------------------------------

    async def test(self, name: str) -> Tried:
        """Send something that is kept nowhere, whatever the status; says what became of it."""
        active = self._active(name)
        id = f"dlv_{random_secrets.token_hex(12)}"
        test = OutgoingTest(
            title_of(name), active.state.source_name, id, self._kernel.clock.now_ms()
        )
        return await self._try(active, id, active.format.render_test(test))

    async def _try(self, active: ActiveWebhook, id: str, body: bytes) -> Tried:
        loop = asyncio.get_running_loop()
        async with self.delivery.sender.hold(active):
            began, status, failure = loop.time(), None, None
            try:
                status = await self.delivery.post(active, id, body)
            except DeliveryFailed as problem:
                status, failure = problem.status, problem
            return Tried(id, int((loop.time() - began) * 1000), status, failure)

    async def deliveries(self, name: str) -> list[DeliveryAttempt]:
        """What was sent lately, the newest first."""
        live = self._active(name).deliveries
        page = await self._reader.read(
            live, 0, records_max=WEBHOOK_DELIVERIES_KEPT, bytes_max=READ_BYTES_MAX
        )
        return [_attempt.decode(data) for _, data in reversed(_records(page))]

    async def dead_letters(self, name: str, after: int, count_max: int) -> LetterPage:
        """Batches that were given up, behind this number."""
        return await self._letters(self._active(name), after, count_max)

    async def _letters(self, active: ActiveWebhook, after: int, count_max: int) -> LetterPage:
        page = await self._reader.read(
            active.live, after, records_max=count_max, bytes_max=READ_BYTES_MAX
        )
        letters = [(seq, _letter.decode(data)) for seq, data in _records(page)]
        return LetterPage(letters, more=not page.caught_up)

    async def replay(self, name: str, count_max: int) -> Replayed:
        """Send dead letters again, the oldest first, until one is not taken; those that are, are
        gone.
        """
        active = self._active(name)
        self._kernel.check_open()
        deadline = asyncio.get_running_loop().time() + WEBHOOK_REPLAY_S
        async with active.replaying:
            if not self.delivery.is_there(active):
                raise _not_found(name)
            return await self._replay(active, name, count_max, deadline)

    async def _replay(
        self, active: ActiveWebhook, name: str, count_max: int, deadline: float
    ) -> Replayed:
        failure: DeliveryFailed | None = None
        delivered = after = 0
        while delivered < count_max and asyncio.get_running_loop().time() < deadline:
            page = await self._letters(active, after, 1)
            if not page.letters:
                break
            [(seq, letter)] = page.letters
            tried = await self._try(active, letter.delivery, bytes(letter.body))
            self._kernel.check_open()
            if not self.delivery.is_there(active):
                raise _not_found(name)
            if tried.failure is not None:
                failure = tried.failure
                break
            await self._deleter.delete_one(active.live, seq)
            delivered, after = delivered + 1, seq
        return Replayed(delivered, active.live.log.count, failure)


def _not_found(name: str) -> Refused:
    return Refused(Code.WEBHOOK_NOT_FOUND, f'webhook "{title_of(name)}" does not exist')


def _destination(spec: WebhookSpec) -> Destination:
    return Destination(spec.url, spec.filter, spec.batch_records, spec.batch_delay_ms)


def _records(page: Page) -> list[tuple[int, bytes]]:
    return [
        (piece.block.seq_at(at), bytes(piece.block.data_at(at)))
        for piece in page.slices
        for at in piece.picks
    ]
