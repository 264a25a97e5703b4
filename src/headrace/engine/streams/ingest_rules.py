"""Ingest rules: what streams make of what is appended to them, by profile and registry.

What is appended goes through the profile, must be valid under the current schema, and gets its
routing key, in this order. A stream with neither profile nor registry has no rules and pays for
none of this.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from headrace.core.entry import Entry, Plan, Register, SetProfile
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    INGEST_RULES_BYTES_MAX,
    INGEST_RULES_MAX,
    NORMALISE_BYTES,
    NORMALISE_RECORDS,
    NORMALISE_STEPS,
    PROMOTED_PAGE_BYTES,
    PROOF_MS_MAX,
    STREAM_KEY_BYTES_MAX,
)
from headrace.core.log import Log
from headrace.core.read import Page, Slice
from headrace.core.record import Block, Drafts, draft, payloads
from headrace.core.stream_rules import Normalise, stream_of
from headrace.core.stream_state import Stream, not_json
from headrace.engine.kernel import Kernel
from headrace.engine.logs.commit_barrier import CommitBarrier
from headrace.engine.search.search_configs import checked
from headrace.profiles.catalogue import load_profile
from headrace.profiles.profile import Installed, Profile
from headrace.schemas.evolution import Update, check_bindings, evolve, prove_update
from headrace.schemas.promotion import Promoter
from headrace.schemas.proof_budget import ProofBudget
from headrace.schemas.registry import (
    NOTHING,
    Registry,
    RoutingKey,
    clip,
    decode_registry,
    encode_registry,
    first_registry,
)
from headrace.schemas.validation import Validator, decode_document
from headrace.search.config import parse_search
from headrace.search.pointers import parse_pointer, resolve

if TYPE_CHECKING:
    from headrace.engine.open_log import OpenLog
    from headrace.engine.ports import Pool


class _Normalised(NamedTuple):
    """A part of some drafts as the stream is to hold it."""

    held: Sequence[bytes]
    keys: list[str | None] | None
    same: bool
    """Nothing changed."""


class IngestRules:
    """The profile and the registry of one stream, ready for use."""

    def __init__(self, stream: Stream) -> None:
        self._source = (stream.registry, stream.profile)
        self.profile = load_profile(stream.profile)
        self.registry = decode_registry(stream.registry)
        schema, brought = self.registry.schema, self.profile.installs()
        # What a profile makes of a record is valid under the schema that comes with it.
        own = schema is not None and brought is not None and bytes(schema) == brought.schema
        self._validator = None if schema is None or own else Validator(schema)
        self.size_bytes = self._validator.size_bytes if self._validator is not None else 0
        self._routing = self.registry.routing_key
        self._pointer = parse_pointer(self._routing.json_pointer) if self._routing else None

    def is_of(self, stream: Stream) -> bool:
        registry, profile = self._source
        return stream.registry is registry and stream.profile is profile

    def normalise(self, drafts: Drafts, now_ms: int) -> Drafts:
        """The records that a stream is to hold of these drafts; refuses what it must not hold."""
        sent = self._open(drafts)
        return (
            drafts if sent is None else self._join(drafts, [self._normalise(sent, drafts, now_ms)])
        )

    async def normalise_in_slices(
        self, drafts: Drafts, now_ms: int, pool: Pool, turn: asyncio.Lock
    ) -> Drafts:
        """The same, with a pause for everybody else now and then; large documents in the pool, and
        what has to be done for all of many at once.

        Of all appends that have the lock in common, one is at it at a time.
        """
        many = drafts.count > NORMALISE_RECORDS
        sent = await pool.run(self._open, drafts) if many else self._open(drafts)
        if sent is None:
            return drafts
        parts: list[_Normalised] = []
        for part in self._cut(sent):
            if len(part[-1]) >= NORMALISE_BYTES:
                parts.append(await pool.run(self._normalise, part, drafts, now_ms))
                continue
            async with turn:
                parts.append(self._normalise(part, drafts, now_ms))
                await asyncio.sleep(0)
        return await pool.run(self._join, drafts, parts) if many else self._join(drafts, parts)

    def is_much(self, drafts: Drafts) -> bool:
        """Whether others would have to wait for long while these are normalised."""
        if len(drafts.data) > NORMALISE_BYTES:
            return True
        validator = self._validator
        return (
            validator is not None and validator.steps(drafts.data, drafts.count) > NORMALISE_STEPS
        )

    def _cut(self, sent: list[bytes]) -> Iterator[list[bytes]]:
        """Documents in parts, each of some tens of kilobytes and some milliseconds."""
        validator = self._validator
        start = size = steps = 0
        for at, raw in enumerate(sent):
            size += len(raw)
            steps += 0 if validator is None else validator.steps(raw)
            if size >= NORMALISE_BYTES or steps >= NORMALISE_STEPS:
                yield sent[start : at + 1]
                start, size, steps = at + 1, 0, 0
        if start < len(sent):
            yield sent[start:]

    def _open(self, drafts: Drafts) -> list[bytes] | None:
        """The documents of drafts; None for bytes that are to stay as they are."""
        if drafts.media is not None:
            if self._source[0] is not None:
                raise not_json()
            return None
        if self._routing is not None and drafts.keys is not None:
            raise Refused(Code.INVALID, "Stream-Key is not allowed: the schema has a routingKey")
        return payloads(drafts)

    def _normalise(self, sent: list[bytes], drafts: Drafts, now_ms: int) -> _Normalised:
        held = self.profile.normalise(sent, now_ms)
        keys = self._check(held)
        if keys is None and drafts.keys is None:
            keys = [_short(self.profile.key_of(raw)) for raw in held]
        return _Normalised(held, keys, held is sent)

    def _join(self, drafts: Drafts, parts: list[_Normalised]) -> Drafts:
        keys = drafts.keys
        if keys is None:
            found = [key for part in parts for key in part.keys or ()]
            keys = found if any(key is not None for key in found) else None
        if not all(part.same for part in parts):
            drafts = draft([raw for part in parts for raw in part.held])
        return msgspec.structs.replace(drafts, keys=keys)

    def _check(self, raws: Sequence[bytes]) -> list[str | None] | None:
        """Refuse what is not valid; returns the routing keys, if the registry says what they are.

        Nothing is taken apart for a registry that asks for nothing.
        """
        if self._validator is None and self._routing is None:
            return None
        keys: list[str | None] = []
        for raw in raws:
            document = self._validator.check(raw) if self._validator else decode_document(raw)
            if self._routing is not None and self._pointer is not None:
                keys.append(_key(resolve(document, self._pointer), self._routing))
        return keys if self._routing is not None else None


def _key(found: object, routing: RoutingKey) -> str | None:
    if found is None:
        if routing.required:
            raise Refused(Code.INVALID, f"routing key is missing at {routing.json_pointer}")
        return None
    if not isinstance(found, str):
        raise Refused(Code.INVALID, f"routing key at {routing.json_pointer} must be a string")
    if len(found) > STREAM_KEY_BYTES_MAX // 4 and len(found.encode()) > STREAM_KEY_BYTES_MAX:
        raise Refused(Code.INVALID, f"a routing key has at most {STREAM_KEY_BYTES_MAX} bytes")
    return found


def _short(key: str | None) -> str | None:
    """A key that nobody asked for; one that is too long is none."""
    if key is not None and len(key) > STREAM_KEY_BYTES_MAX // 4:
        return key if len(key.encode()) <= STREAM_KEY_BYTES_MAX else None
    return key


class StreamIngest:
    """The ingest rules of one engine's streams."""

    def __init__(self, kernel: Kernel, barrier: CommitBarrier) -> None:
        self._kernel = kernel
        self._barrier = barrier
        self._rules: dict[int, IngestRules] = {}
        """By log, those used last at the end."""
        self._rules_bytes = 0
        self._promoters: dict[int, tuple[bytes, Promoter]] = {}
        """By log, with the registry they go by; those used last at the end."""
        self._turn = asyncio.Lock()
        """Who normalises a part of a large append now."""
        self._told: dict[int, bytes | None] = {}
        """Registries that readers still go by while newer ones are not durable."""

    def of(self, log: Log) -> IngestRules:
        """The rules of a stream as they are now."""
        stream = stream_of(log)
        rules = self._rules.pop(log.id, None)
        if rules is None or not rules.is_of(stream):
            self._rules_bytes -= 0 if rules is None else rules.size_bytes
            rules = IngestRules(stream)
            self._rules_bytes += rules.size_bytes
        self._rules[log.id] = rules
        while len(self._rules) > INGEST_RULES_MAX or self._rules_bytes > INGEST_RULES_BYTES_MAX:
            if len(self._rules) == 1:
                break
            self._rules_bytes -= self._rules.pop(next(iter(self._rules))).size_bytes
        return rules

    def normalise(self, log: Log, drafts: Drafts) -> Drafts:
        """The records that this stream is to hold of these drafts; refuses what it must not."""
        stream = stream_of(log)
        if stream.registry is None and stream.profile is None:
            return drafts
        return self.of(log).normalise(drafts, self._kernel.clock.now_ms())

    def is_much(self, log: Log, drafts: Drafts) -> bool:
        """Whether these drafts should be prepared: others would wait while they are normalised."""
        return self.of(log).is_much(drafts)

    async def prepare(self, log: Log, drafts: Drafts) -> Normalise:
        """Normalise drafts ahead of their write, by and by, for the stream as it is then."""
        while True:
            rules = self.of(log)
            made = await self._normalise_ahead(rules, drafts)
            if rules.is_of(stream_of(log)):
                break

        def normalise(drafts: Drafts) -> Drafts:
            if not rules.is_of(stream_of(log)):
                return self.normalise(log, drafts)
            if isinstance(made, Refused):
                raise made
            return made

        return normalise

    async def _normalise_ahead(self, rules: IngestRules, drafts: Drafts) -> Drafts | Refused:
        now_ms = self._kernel.clock.now_ms()
        try:
            return await rules.normalise_in_slices(drafts, now_ms, self._kernel.pool, self._turn)
        except Refused as refused:
            return refused

    def inherit(self, source: Log, fork: int, count: int) -> list[Entry]:
        """What a fork takes over with the first `count` records of its source."""
        stream = stream_of(source)
        entries: list[Entry] = []
        if stream.registry is not None:
            entries.append(Register(fork, clip(stream.registry, count)))
        if stream.profile is not None:
            entries.append(SetProfile(fork, stream.profile))
        if source.search is not None:
            entries.append(Plan(fork, source.search))
        return entries

    # --- reading ---------------------------------------------------------------------------------

    def promoter(self, log: Log) -> Promoter | None:
        """What makes records of older versions current; None when there is nothing to make.

        Readers go by a registry only once it is durable.
        """
        if log.stream is None or log.stream.registry is None:
            return None
        registry = self._told.get(log.id, log.stream.registry)
        if registry is None:
            return None
        known = self._promoters.pop(log.id, None)
        if known is None or known[0] is not registry:
            known = registry, Promoter(decode_registry(registry))
        self._promoters[log.id] = known
        _bound(self._promoters)
        return known[1] if known[1].version > 1 else None

    def version(self, log: Log) -> int:
        """The version in which readers get records; 0 for a stream without a schema."""
        if log.stream is None or log.stream.registry is None:
            return 0
        promoter = self.promoter(log)
        return 1 if promoter is None else promoter.version

    def promoted(self, log: Log, page: Page, room_bytes: int = PROMOTED_PAGE_BYTES) -> Page:
        """The page in the current version, as far as lenses find room; refuses if a record cannot
        be made current.
        """
        promoter = self._promoter_for(log, page)
        return page if promoter is None else _promoted(promoter, page, room_bytes)

    async def promote(self, log: Log, page: Page) -> Page:
        """The same, beside everything else."""
        promoter = self._promoter_for(log, page)
        if promoter is None:
            return page
        return await self._kernel.pool.run(_promoted, promoter, page, PROMOTED_PAGE_BYTES)

    def _promoter_for(self, log: Log, page: Page) -> Promoter | None:
        """What makes this page current, unless it is."""
        if log.stream is None or log.stream.registry is None or not page.slices:
            return None
        promoter, first = self.promoter(log), page.slices[0]
        if promoter is None or first.block.seq_at(first.picks[0]) >= promoter.first_current:
            return None
        return promoter

    # --- changing --------------------------------------------------------------------------------

    async def install_schema(self, live: OpenLog, update: Update) -> None:
        """Change what the records of the stream are from here on."""
        await self._prove(live, update)
        stream = stream_of(live.log)
        await self._commit(live, self._evolution(live.log, stream, update))

    async def _prove(self, live: OpenLog, update: Update) -> None:
        """Prove the lens of an update, in the pool, for the registry of when that is done."""
        await self._let_batches_pass(live)
        registry = stream_of(live.log).registry
        while update.lens is not None:
            held = decode_registry(registry)
            evolve(held, update, live.log.name, live.log.head)  # what it refuses needs no proof
            await self._kernel.pool.run(prove_update, held, update, self.proof_budget())
            self._kernel.check_alive(live)
            await self._let_batches_pass(live)
            if stream_of(live.log).registry is registry:
                break
            registry = stream_of(live.log).registry

    def proof_budget(self) -> ProofBudget:
        """What one update may cost, from now on."""
        clock = self._kernel.clock
        deadline_ms = clock.now_ms() + PROOF_MS_MAX
        return ProofBudget(lambda: clock.now_ms() >= deadline_ms)

    def _evolution(self, log: Log, stream: Stream, update: Update) -> list[Entry]:
        registry = evolve(decode_registry(stream.registry), update, log.name, log.head)
        kept = encode_registry(registry)
        entries: list[Entry] = []
        if kept != stream.registry:
            entries.append(Register(log.id, kept))
        if update.search is not msgspec.UNSET:
            search = None if update.search is None else checked(bytes(update.search))
            if search is not None:
                config = parse_search(msgspec.json.decode(search))
                check_bindings(config, registry.current_version)
            if search != log.search:
                entries.append(Plan(log.id, search))
        return entries

    async def install_profile(self, live: OpenLog, profile: Profile) -> None:
        """Let the stream have this profile, with the schema that comes with it.

        A stream that has a schema or a routing key of its own keeps it.
        """
        await self._let_batches_pass(live)
        log, stream = live.log, stream_of(live.log)
        former = load_profile(stream.profile)
        again = former.kind == profile.kind
        profile.check(is_json=stream.is_json, empty=log.head == 0 or again)
        kept = None if profile.config == load_profile(None).config else profile.config
        entries: list[Entry] = [] if kept == stream.profile else [SetProfile(log.id, kept)]
        if entries and not again:
            entries += _bring(log, former, profile)
        await self._commit(live, entries)

    async def _let_batches_pass(self, live: OpenLog) -> None:
        """Records that were let in under a schema come before the next one."""
        kernel = self._kernel
        if self._barrier.comes_to(live.log.id):
            await self._barrier.let_pass(live.log.id)
            kernel.check_alive(live)

    async def _commit(self, live: OpenLog, entries: list[Entry]) -> None:
        """Make all of it true at once, and wait until it is durable."""
        kernel, log = self._kernel, live.log
        if not entries:
            # Who asked for the same before may still wait for it to be durable.
            await kernel.journal.wait_synced(live.config_position)
            return
        kernel.check_open()
        stream = stream_of(log)
        before = stream.registry
        position = kernel.commit(entries, sync=True, together=True)
        self._told.setdefault(log.id, before)
        show = partial(self._tell, log, stream.registry)
        await kernel.journal.wait_synced(position, show)

    def _tell(self, log: Log, registry: bytes | None) -> None:
        """This registry is durable: readers go by it, or by one after it."""
        if log.stream is None or log.stream.registry is registry:
            self._told.pop(log.id, None)
        else:
            self._told[log.id] = registry


T = TypeVar("T")


def _bound(kept: dict[int, T]) -> None:
    if len(kept) > INGEST_RULES_MAX:
        del kept[next(iter(kept))]


def _promoted(promoter: Promoter, page: Page, room_bytes: int) -> Page:
    """The page, which ends where there is no more room."""
    slices: list[Slice] = []
    for piece in page.slices:
        block, picks = piece.block, piece.picks
        if block.seq_at(picks[0]) >= promoter.first_current:
            slices.append(piece)
            continue
        if room_bytes <= 0:
            return _ended(page, slices)
        seqs = [block.seq_at(at) for at in picks]
        raws = [block.data_at(at) for at in picks]
        made, used = promoter.promote_some(seqs, raws, room_bytes)
        room_bytes -= used
        slices.append(_current(block.ts_ms, seqs[: len(made)], made))
        if len(made) < len(seqs):
            return _ended(page, slices)
    return msgspec.structs.replace(page, slices=slices)


def _current(ts_ms: int, seqs: list[int], documents: list[bytes]) -> Slice:
    made, numbered = draft(documents), memoryview(array("q", seqs))
    block = Block(seqs[0], seqs[-1], ts_ms, made.data, made.ends, seqs=numbered)
    return Slice(block, range(len(seqs)))


def _ended(page: Page, slices: list[Slice]) -> Page:
    """A page that ends behind the last of these."""
    return msgspec.structs.replace(page, slices=slices, next=slices[-1].block.last)


def _bring(log: Log, former: Profile, profile: Profile) -> list[Entry]:
    """The schema that comes with a profile, for a stream that has none.

    Without records, that of its former profile is none: nothing could be appended under both.
    """
    installed, before = profile.installs(), former.installs()
    registry = decode_registry(stream_of(log).registry)
    if before is not None and log.head == 0 and _is_all(registry, before):
        registry = NOTHING
    if installed is None or registry.schema is not None:
        return []
    brought = first_registry(installed.schema, installed.routing_key, log.head)
    if registry.routing_key is not None:
        brought = msgspec.structs.replace(brought, routing_key=registry.routing_key)
    entries: list[Entry] = [Register(log.id, encode_registry(brought))]
    if installed.search is not None:
        entries.append(Plan(log.id, installed.search))
    return entries


def _is_all(registry: Registry, installed: Installed) -> bool:
    """Whether a registry says what came with a profile and nothing else."""
    came = first_registry(installed.schema, installed.routing_key)
    return encode_registry(registry) == encode_registry(came)
