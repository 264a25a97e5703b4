"""Delivering to webhooks: batches of records in order, each until it is taken or given up.

A log costs its webhooks nothing but a wake-up: what is to be sent is found beside the writes. The
batch, with the id of its delivery, is on stable storage before it is sent first; that the receiver
took it is written down together with the batch behind it, where that is known.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter, deque
from collections.abc import Iterator, Mapping

import msgspec

from headrace.core import supersession
from headrace.core import webhook as rules
from headrace.core.entry import (
    Append,
    DeliveryBatch,
    Drop,
    Entry,
    NoteDelivery,
    SetWebhook,
    WebhookStatus,
)
from headrace.core.limits import (
    WEBHOOK_BATCH_BYTES_MAX,
    WEBHOOK_NOTED_SEQS,
    WEBHOOK_TIMER_S_MAX,
    WEBHOOKS_LOOKED_AT,
)
from headrace.core.owners import DELIVERIES_PREFIX, WEBHOOK_PREFIX, WEBHOOKS
from headrace.core.read import Page
from headrace.core.record import draft
from headrace.core.webhook import ACTIVE
from headrace.core.webhook_signature import sign
from headrace.engine.callbacks.sender import CallbackSender, DeliveryFailed, Receivers
from headrace.engine.consumers.active_webhook import ActiveWebhook, surface_of, title_of
from headrace.engine.consumers.source_watch import SourceWatch
from headrace.engine.consumers.sources import Sources
from headrace.engine.consumers.webhook_format import OutgoingBatch, WebhookFormat
from headrace.engine.kernel import Kernel
from headrace.engine.logs.reader import Reader
from headrace.engine.open_log import OpenLog
from headrace.observe import log_line

_STALLED_MS = 1000
"""When to look again while nothing can be written."""


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one attempt, as it is kept."""

    delivery: str
    at_ms: int
    attempt: int
    first: int
    last: int
    records: int
    took_ms: int
    status: int | None = None
    error: str = ""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that was given up, as it was sent last."""

    delivery: str
    at_ms: int
    attempts: int
    first: int
    last: int
    records: int
    error: str
    body: msgspec.Raw


class WebhookDelivery:
    """Calls the webhooks of one engine."""

    def __init__(
        self,
        kernel: Kernel,
        sources: Sources,
        reader: Reader,
        sender: CallbackSender,
        receivers: Receivers,
        formats: Mapping[str, WebhookFormat],
    ) -> None:
        self.kernel = kernel
        self._sources = sources
        self._reader = reader
        self.sender = sender
        self.receivers = receivers
        self.formats = formats
        self._active: dict[int, ActiveWebhook] = {}
        self._watches: dict[int, SourceWatch] = {}
        """By the logs that webhooks read."""
        self._queue: deque[ActiveWebhook] = deque()
        """Those that are to look soon."""
        self._runs = False
        self._outcomes = {surface: Counter(delivered=0, failed=0, dead=0) for surface in formats}
        kernel.observe(self._set, SetWebhook)
        kernel.observe(self._dropped, Drop)

    def outcomes(self, surface: str) -> Counter[str]:
        """How many attempts were taken and how many were not, and how many batches were given up,
        since the start.
        """
        return self._outcomes.get(surface, Counter())

    def __iter__(self) -> Iterator[ActiveWebhook]:
        return iter(tuple(self._active.values()))

    def __getitem__(self, log: int) -> ActiveWebhook:
        return self._active[log]

    def is_there(self, active: ActiveWebhook) -> bool:
        return self._active.get(active.live.log.id) is active

    # --- which there are -------------------------------------------------------------------------

    def open(self) -> None:
        """Take in the webhooks that a start found."""
        state = self.kernel.state
        for name in state.names("", WEBHOOK_PREFIX, WEBHOOKS):
            self._opened(self.kernel.open_logs[state.by_name[name].id])

    async def run(self) -> None:
        """Call webhooks, from now on."""
        self._runs = True
        for active in self:
            self.line_up(active)

    def _opened(self, live: OpenLog) -> None:
        kernel = self.kernel
        name = live.log.name.partition("/")[2]
        format = self.formats.get(surface_of(name))
        if format is None:
            return  # made by a surface that is not served
        deliveries = kernel.open_logs[kernel.state.by_name[DELIVERIES_PREFIX + name].id]
        assert isinstance(live.log.consumer, rules.Webhook)
        selector = format.parse_filter(live.log.consumer.destination.filter)
        active = self._active[live.log.id] = ActiveWebhook(live, deliveries, format, selector)
        self._listen(active)

    def _set(self, live: OpenLog, entry: SetWebhook) -> None:
        """A webhook begins, or is another one from here on."""
        active = self._active.get(live.log.id)
        if active is None:
            self._opened(live)
            active = self._active[live.log.id]
        active.version += 1
        active.selector = active.format.parse_filter(entry.destination.filter)
        active.pass_to(active.state.cursor)
        active.disarm()
        self._listen(active)
        self.line_up(active)

    def _listen(self, active: ActiveWebhook) -> None:
        source = self._sources.find(active.state.source)
        if source is active.source:
            return
        self._unlisten(active)
        if source is not None:
            active.source = source
            watch = self._watches.get(source.log.id)
            if watch is None:
                watch = self._watches[source.log.id] = SourceWatch(source, self._notice)
            watch.add(active)

    def _unlisten(self, active: ActiveWebhook) -> None:
        """Hear of the source no more."""
        if active.source is not None:
            source, active.source = active.source.log.id, None
            if self._watches[source].remove(active):
                del self._watches[source]

    def _dropped(self, live: OpenLog, _: Drop) -> None:
        active = self._active.pop(live.log.id, None)
        if active is not None:
            active.disarm()
            self._unlisten(active)

    # --- noticing --------------------------------------------------------------------------------

    def _notice(self, active: ActiveWebhook) -> None:
        """The source has changed."""
        state, source = active.state, active.source
        if active.queued or active.sending or state.batch is not None or source is None:
            return
        if state.status is ACTIVE and (not active.found or active.may_be_full(source)):
            self.line_up(active)

    def line_up(self, active: ActiveWebhook) -> None:
        """Look soon whether there is something to send."""
        if not active.queued and self._runs:
            active.queued = True
            self._queue.append(active)
            if len(self._queue) == 1:
                asyncio.get_running_loop().call_soon(self._look_some)

    def _look_some(self) -> None:
        """A few in each turn of the loop: nobody waits for all the webhooks of a log."""
        count = min(len(self._queue), WEBHOOKS_LOOKED_AT)
        some = [self._queue.popleft() for _ in range(count)]
        if self._queue:
            asyncio.get_running_loop().call_soon(self._look_some)
        for active in some:
            self._look(active)

    def _look(self, active: ActiveWebhook) -> None:
        """Call the receiver if there is reason to, or know when there will be."""
        active.queued = False
        if active.sending or not self.may_send(active):
            return  # whoever is at it looks again afterwards
        if self.kernel.journal.stall is not None:
            self.arm(active, self.kernel.clock.now_ms() + _STALLED_MS)
            return
        due_at_ms = self._due_at_ms(active)
        if due_at_ms is None:
            return
        if self.kernel.clock.now_ms() >= due_at_ms:
            active.disarm()
            self.sender.start(_DeliveryCall(self, active))
        else:
            self.arm(active, due_at_ms)

    def may_send(self, active: ActiveWebhook) -> bool:
        """Whether the webhook is there and active, and so is its source."""
        kernel = self.kernel
        if not self.is_there(active) or kernel.draining or kernel.journal.failure is not None:
            return False
        if active.state.status is not ACTIVE:
            return False
        return self._sources.find(active.state.source) is not None

    def _due_at_ms(self, active: ActiveWebhook) -> int | None:
        """When to send something; 0: now, perhaps."""
        state, source = active.state, active.source
        if state.batch is not None:
            return state.retry_at_ms
        if source is None:
            return None
        if active.found and not active.may_be_full(source):
            return active.due_at_ms
        return 0 if source.visible > active.examined else None

    def arm(self, active: ActiveWebhook, due_at_ms: int) -> None:
        """Look again then, or somewhat earlier: the clock may be set meanwhile."""
        active.disarm()
        wait_s = (due_at_ms - self.kernel.clock.now_ms()) / 1000

        def ring() -> None:
            active.timer = None
            self.line_up(active)

        loop = asyncio.get_running_loop()
        active.timer = loop.call_later(min(max(wait_s, 0.0), WEBHOOK_TIMER_S_MAX), ring)

    # --- one delivery ----------------------------------------------------------------------------

    async def begin(self, active: ActiveWebhook) -> int | None:
        """Have a batch to send, decided and at hand; returns where it is written down."""
        source, state, version = active.source, active.state, active.version
        if not self.may_send(active) or source is None:
            return None
        if state.batch is None:
            page = await self._gather(active, source)
            if page is None or not self._is_still(active, version):
                return None
            now_ms = self.kernel.clock.now_ms()
            entry = rules.begin(
                active.live.log.id, state, _delivery_id(), active.start, page.next, now_ms
            )
            active.position = self.kernel.commit([entry], sync=True)
            active.page = page
        elif self.kernel.clock.now_ms() < state.retry_at_ms:
            return None
        elif active.page is None:
            page = await self._read(
                active, source, state.cursor, state.destination.batch_records, state.batch.upto
            )
            if not self._is_still(active, version):
                return None
            if not self._tells(active, page):
                self._pass_over(active, page.next)  # it is all gone by now
                return None
            active.page = page
        return active.position

    def _is_still(self, active: ActiveWebhook, version: int) -> bool:
        """Behind an await: whether the webhook is the same, and still to be called."""
        return active.version == version and self.may_send(active)

    def _tells(self, active: ActiveWebhook, page: Page) -> bool:
        """Whether there is something on a page for the receiver."""
        return bool(page.slices) or (page.gap is not None and active.format.tells_losses)

    async def _gather(self, active: ActiveWebhook, source: OpenLog) -> Page | None:
        """The records of the next batch, if it is full or its time has come."""
        destination, version = active.state.destination, active.version
        size, delay_ms = destination.batch_records, destination.batch_delay_ms
        while True:
            page = await self._read(active, source, active.examined, size - active.found)
            if not self._is_still(active, version):
                return None
            if (gap := page.gap) is not None and not active.format.tells_losses:
                log_line(
                    "warning", "a webhook missed what is gone",
                    webhook=active.name, first=gap.first, last=gap.last,
                )  # fmt: skip
            if active.found or self._tells(active, page):
                break
            self._skip(active, page.next)
            if page.caught_up:
                return None
            await asyncio.sleep(0)
        now_ms, is_first = self.kernel.clock.now_ms(), not active.found
        if is_first:
            active.due_at_ms = now_ms + delay_ms
        active.found += page.count
        active.examined = page.next
        full = active.found >= size or not page.caught_up or page.gap is not None
        if not full and now_ms < active.due_at_ms:
            self.arm(active, active.due_at_ms)
            return None
        if is_first:
            return page
        return await self._read(active, source, active.start, size, active.examined)

    async def _read(
        self,
        active: ActiveWebhook,
        source: OpenLog,
        after: int,
        records_max: int,
        upto: int | None = None,
    ) -> Page:
        return await self._reader.read(
            source,
            after,
            records_max=records_max,
            bytes_max=WEBHOOK_BATCH_BYTES_MAX,
            selector=active.selector.bind(source.log.config),
            upto=upto,
        )

    def _skip(self, active: ActiveWebhook, upto: int) -> None:
        """Nothing up to here is wanted; now and then that is written down."""
        active.pass_to(upto)
        state = active.state
        if upto - state.cursor >= WEBHOOK_NOTED_SEQS:
            self.kernel.commit([rules.pass_over(active.live.log.id, state, upto)], sync=False)

    def _pass_over(self, active: ActiveWebhook, upto: int) -> None:
        """Nothing of the batch under way is left."""
        entry = rules.pass_over(active.live.log.id, active.state, upto)
        active.position = self.kernel.commit([entry], sync=True)
        active.pass_to(entry.cursor)

    def render(self, active: ActiveWebhook, id: str, page: Page) -> bytes:
        batch = OutgoingBatch(title_of(active.name), active.state.source_name, id, page)
        return active.format.render(batch)

    async def post(self, active: ActiveWebhook, id: str, body: bytes) -> int:
        """Send a body with its signatures, of now; returns the status with which it was taken."""
        state, now_ms = active.state, self.kernel.clock.now_ms()
        valid = state.secrets.valid(now_ms)
        headers = {
            **active.format.headers(id, body, valid),
            "user-agent": "Headrace",
            "webhook-id": id,
            "webhook-timestamp": str(now_ms // 1000),
            "webhook-signature": sign(valid, id, now_ms // 1000, body),
        }
        reply = await self.receivers.post(state.destination.url, body, headers)
        return reply.status

    def delivered(self, active: ActiveWebhook, attempt: DeliveryAttempt) -> None:
        """The receiver took the batch; the next one, if it is at hand, begins with this note."""
        self._count(active)["delivered"] += 1
        state, log = active.state, active.live.log.id
        if not self._is_under_way(active, attempt.delivery):
            return
        now_ms = self.kernel.clock.now_ms()
        next_page = self._glance(active, attempt.last)
        next_batch = None
        if next_page is not None:
            next_batch = DeliveryBatch(_delivery_id(), next_page.next, now_ms)
        if state.failing_since_ms:
            log_line("info", "a webhook is well again", webhook=active.name)
        note = rules.delivered(log, state, attempt.last, next_batch, now_ms)
        self._commit(active, note, attempt)
        active.pass_to(attempt.last)
        active.page = next_page

    def _glance(self, active: ActiveWebhook, after: int) -> Page | None:
        """The next batch, if memory holds it and nobody has to wait for more of it."""
        source, destination = active.source, active.state.destination
        if source is None or not self.may_send(active) or source.visible <= after:
            return None
        page = self._reader.glance(
            source,
            after,
            records_max=destination.batch_records,
            bytes_max=WEBHOOK_BATCH_BYTES_MAX,
            selector=active.selector.bind(source.log.config),
            upto=source.visible,
        )
        if page is None or not page.slices:
            return None
        waits = destination.batch_delay_ms and page.count < destination.batch_records
        return None if waits else page

    def failed(
        self, active: ActiveWebhook, attempt: DeliveryAttempt, failure: DeliveryFailed, body: bytes
    ) -> None:
        """The receiver did not take the batch."""
        self._count(active)["failed"] += 1
        kernel, state = self.kernel, active.state
        if not self._is_under_way(active, attempt.delivery) or kernel.journal.failure is not None:
            return
        if not state.failing_since_ms:  # those that follow tell nothing new
            log_line("warning", "a webhook fails", webhook=active.name, problem=str(failure))
        note = rules.failed(
            active.live.log.id,
            state,
            str(failure),
            failure.status,
            failure.retry_after_ms,
            random.random(),
            kernel.clock.now_ms(),
        )
        letters: list[Append] = []
        if note.status is WebhookStatus.FAILING:
            self._count(active)["dead"] += 1
            letters.append(self._dead_letter(active, attempt, body))
        if note.status is not ACTIVE:
            log_line(
                "error", "a webhook is called no more",
                webhook=active.name, status=note.status.value, problem=str(failure),
            )  # fmt: skip
        position = self._commit(active, note, attempt, *letters)
        if letters:
            kernel.show_when_committed(position, [(active.live, letters[0].block.last)])
            active.pass_to(note.cursor)
        # (Otherwise the records stay at hand for the next attempt only if that is soon.)
        elif note.retry_at_ms - kernel.clock.now_ms() > WEBHOOK_TIMER_S_MAX * 1000:
            active.page = None

    def _dead_letter(self, active: ActiveWebhook, attempt: DeliveryAttempt, body: bytes) -> Append:
        letter = DeadLetter(
            delivery=attempt.delivery,
            at_ms=attempt.at_ms,
            attempts=attempt.attempt,
            first=attempt.first,
            last=attempt.last,
            records=attempt.records,
            error=attempt.error,
            body=msgspec.Raw(body),
        )
        drafts = draft([msgspec.json.encode(letter)])
        now_ms = self.kernel.clock.now_ms()
        return supersession.append(active.live.log, None, drafts, None, now_ms).append

    def _count(self, active: ActiveWebhook) -> Counter[str]:
        return self._outcomes[surface_of(active.name)]

    def _is_under_way(self, active: ActiveWebhook, id: str) -> bool:
        """Whether this delivery still counts: nobody has deleted the webhook, or its batch."""
        batch = active.state.batch
        return self.is_there(active) and batch is not None and batch.id == id

    def _commit(
        self, active: ActiveWebhook, note: NoteDelivery, attempt: DeliveryAttempt, *more: Append
    ) -> int:
        """Write down what became of an attempt, where everything else of it is written, too."""
        kernel, deliveries = self.kernel, active.deliveries
        drafts = draft([msgspec.json.encode(attempt)])
        now_ms = kernel.clock.now_ms()
        kept = supersession.append(deliveries.log, None, drafts, None, now_ms).append
        entries: list[Entry] = [kept, *more, note]
        position = active.position = kernel.commit(entries, sync=True, together=True)
        kernel.show_when_committed(position, [(deliveries, kept.block.last)])
        return position


class _DeliveryCall:
    """A batch that is to be sent."""

    def __init__(self, delivery: WebhookDelivery, active: ActiveWebhook) -> None:
        self._delivery = delivery
        self.receiver = active
        self._batch: DeliveryBatch | None = None
        self._page: Page | None = None
        self._body = b""
        self._attempt: DeliveryAttempt | None = None
        self._began = 0.0
        self._status = 0

    async def begin(self) -> int | None:
        position = await self._delivery.begin(self.receiver)
        self._batch, self._page = self.receiver.state.batch, self.receiver.page
        return position

    async def call(self) -> None:
        active, page = self.receiver, self._page
        state = active.state
        if state.batch is None or state.batch != self._batch or page is None:
            return  # somebody has changed the webhook while this was being written down
        if not self._delivery.may_send(active):
            return
        self._attempt = DeliveryAttempt(
            delivery=state.batch.id,
            at_ms=self._delivery.kernel.clock.now_ms(),
            attempt=state.failures + 1,
            first=state.cursor + 1,
            last=page.next,
            records=page.count,
            took_ms=0,
        )
        self._began = asyncio.get_running_loop().time()
        self._body = self._delivery.render(active, state.batch.id, page)
        self._status = await self._delivery.post(active, state.batch.id, self._body)

    def succeeded(self) -> None:
        if self._attempt is not None:
            self._delivery.delivered(self.receiver, self._ended(status=self._status))

    def failed(self, failure: DeliveryFailed) -> None:
        ended = self._ended(status=failure.status, error=str(failure))
        self._delivery.failed(self.receiver, ended, failure, self._body)

    def _ended(self, **how: object) -> DeliveryAttempt:
        assert self._attempt is not None
        took_ms = int((asyncio.get_running_loop().time() - self._began) * 1000)
        return msgspec.structs.replace(self._attempt, took_ms=took_ms, **how)

    def put_off(self) -> None:
        pass  # the batch is written down, and no attempt of it that failed

    def ended(self) -> None:
        self._delivery.line_up(self.receiver)


def _delivery_id() -> str:
    return f"dlv_{secrets.token_hex(12)}"
