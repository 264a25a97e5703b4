"""Every bound that is not a setting has its name here."""

from __future__ import annotations

U64_MAX = 2**64 - 1
"""The largest number a request may name."""
I64_MAX = 2**63 - 1
"""The latest time that is kept."""

HEAD_BYTES_MAX = 256 << 10
"""The request line and the headers of a request."""
ACCEPT_LENGTH_MAX = 1024
"""Of an `Accept` that is looked at."""
HOST_NAME_LENGTH_MAX = 253
HOST_LENGTH_MAX = 261
"""A name, a colon and a port."""
HOSTS_KNOWN_MAX = 256
"""Host headers that a server without keys remembers to be its own."""
HEADERS_MAX = 256
"""Headers of a request."""
HEADS_BYTES_MAX = 16 << 20
HEAD_BYTES_FAIR = 16 << 10
"""Heads that do not come at once, of all connections together; beyond, none may be larger than its
fair share.
"""
CONTENT_LENGTH_DIGITS_MAX = 19
FEED_BYTES = 4096
"""What the HTTP parser is given at a time, unless it is one piece of a body for certain."""
CHUNKS_PER_TURN = 512
"""Chunks of a body that are taken in before other connections get a turn."""
REQUESTS_PER_TURN = 32
"""Requests of one connection that are begun before other connections get a turn."""
BODY_WAITING_BYTES_MAX = 64 << 10
"""Of a body that is taken in before its handler asks for it."""
REQUEST_ID_LENGTH_MAX = 128
PATHS_KNOWN_MAX, PATH_KNOWN_BYTES_MAX = 4096, 128
"""Paths that are remembered with what they lead to, and how long they may be."""
PATH_SHOWN_BYTES_MAX = 1024
"""Of a path that is told to people."""
QUERY_PARAMETERS_MAX = 1024
"""Parameters of a request; each takes its time, however small it is."""
CHUNK_FRAMING_BYTES_MAX = 16 << 10
"""What may come between two pieces of a body in chunks, or behind the last one: the size of a
chunk and its extensions, trailers.
"""
LINGER_BYTES_MAX = 1 << 20
"""What a peer that was turned away may still send before the connection is cut."""
LISTEN_BACKLOG_MAX = 2048
FILES_RESERVED = 128
"""Descriptors that connections leave to the journal, segments and everything else."""
IDEMPOTENCY_KEY_LENGTH_MAX = 256
META_KEYS_MAX = 64
NESTING_MAX = 128
INLINE_BYTES_MAX = 256 << 10
"""Of a body that is unpacked and parsed on the loop; larger ones are in a thread."""
COMMAND_BYTES_MAX = 1 << 20
LISTING_BYTES_MAX = 8 << 20
"""Of a body that brings no records, and of one that names thousands of jobs or chunks: parsing
makes objects of it, which take thirty times as much, and nobody gets a turn meanwhile.
"""

APPEND_TOGETHER_BYTES_MAX = 16 << 10
"""Of an append that goes to the journal together with others of the same turn of the loop."""
APPENDS_TOGETHER_BYTES_MAX = 1 << 20
"""Of all that go together."""
RECORD_OVERHEAD_BYTES = 16
"""What a record counts for in `bytes` beside its data and meta."""

READ_RECORDS_DEFAULT = 256
READ_BYTES_DEFAULT = 1 << 20
READ_BYTES_MAX = 8 << 20
READ_SCANNED_MAX = 100_000
PICKED_ROWS = 1_024
"""Records that a selector is asked about at a time: a page may be full before the block ends."""
"""Records one read may examine; a filter that drops everything still answers in bounded time."""
SETTLE_ROUNDS_MAX = 4
"""How often a read that is done waits for deletions that came meanwhile."""
WAIT_MS_MAX = 30_000

LIST_PAGE_DEFAULT = 100
LIST_PAGE_MAX = 1000
CURSOR_LENGTH_MAX = 4096

PRIORITY_MAX = 1000
PRIORITY_AUTO_TOP = 500
PRIORITY_HALF_LIFE_MS = 30_000
PRIORITY_FORGET_MS = 300_000

LEASE_MS_MIN = 100
LEASE_MS_MAX = 86_400_000
CLAIM_JITTER_MS_MAX = 5_000
DELAY_MS_MAX = 86_400_000
"""How long a nack may put a job off."""
GROUP_BYTES_MAX = 255
DISPATCH_TIMER_S_MAX = 60.0
"""Workers of a queue are looked after at least so often while something is due in the future."""
REDRIVE_DEFAULT = 100
REDRIVE_MAX = 1000

KEEP_PER_KEY_MAX = 100_000
KEYS_MAX = 10_000_000
"""What a rule by key may ask for; memory holds some 300 bytes for each key that is there."""
SUPERSEDED_MAX = 10_000
"""Records of others that one append ends; where more must go, the next ones go on."""
RECORD_IDS_MAX = 10_000_000
"""Ids of records that are known, of all logs with unique ids together: some 35 bytes each."""
RECORD_IDS_SWEPT = 4_096
"""Buckets of ids in which to look for forgotten ones when there is no room for more."""
SURPLUS_STEP = 500
"""Keys to look at, or records to end, in one step when a rule by key is new."""

RESERVE_SEQS_MIN = 1024
RESERVE_SEQS_MAX = 1 << 20
"""Seqs promised durably ahead of use, so that an acknowledged seq is never given out again."""
RESERVE_FAST_MS = 1000

STREAM_NAME_BYTES_MAX = 1024
STREAM_KEY_BYTES_MAX = 4096
STREAM_SEQ_LENGTH_MAX = 1024
STREAM_TTL_MS_MAX = 1000 * 365 * 86_400_000
"""A thousand years: the end of a stream is a date that can be written down."""
PRODUCER_ID_LENGTH_MAX = 1024
STREAM_SSE_S = 60.0
"""How long a follower keeps a connection: whoever comes later can join others then."""
STREAM_PAGE_RECORDS = 16_384
STREAM_PAGE_BYTES = 1 << 20
PRODUCERS_MAX = 65_536
"""Producers one stream remembers; forgetting one would let its retries in twice."""
SUBSCRIPTION_LEASE_MS = 30_000
SUBSCRIPTION_LEASE_MS_MIN = 1_000
SUBSCRIPTION_LEASE_MS_MAX = 600_000
SUBSCRIPTION_STREAMS_SHOWN = 1_000
"""Streams that one answer or wake of a subscription lists."""
SUBSCRIPTION_NAMES_SCANNED = 10_000
"""Names that are looked at to find streams of a pattern which have nothing to do, for an answer."""
SUBSCRIPTION_STREAMS_MAX = 10_000
"""Streams that one subscription may name."""
GLOB_LENGTH_MAX = 255
GLOB_STARS_MAX = 16
"""Of the pattern of a subscription; matching is linear with any number of them."""
SUBSCRIPTION_DESCRIPTION_LENGTH_MAX = 4096
WORKER_LENGTH_MAX = 256
WEBHOOKS_AT_ONCE = 256
WEBHOOKS_PER_KEY_AT_ONCE = 128
WEBHOOKS_SLOW_AT_ONCE = 64
"""Calls under way: of all receivers, of those that one key made, and of those that were slow or
failed the last time. A subscription, or a webhook, has one."""
WEBHOOKS_OVERDUE_MAX = 256
"""Calls beyond those that turned out to be slow while they were under way."""
WEBHOOK_SLOW_S = 1.0
"""A receiver that takes longer counts as slow."""
WEBHOOK_TIMEOUT_S = 15.0
"""Of a whole call: looking up the name, connecting, sending and the last byte of the reply."""
WEBHOOK_CONNECT_S = 3.0
WEBHOOK_ADDRESSES_MAX = 4
"""How long an address of a receiver may take to answer, and how many are tried."""
WEBHOOK_CHECK_S = 2.0
"""How long a registration waits for the addresses of a host; without any, calls will find out."""
WEBHOOK_IDLE_MAX = 256
WEBHOOK_IDLE_PER_HOST_MAX = 16
WEBHOOK_IDLE_S = 10.0
WEBHOOK_CONNECTION_S = 60.0
"""Connections to receivers that are kept for the next call: how many, of one host, how long without
use, and how long at all."""
WEBHOOK_LOOKUPS_MAX = 256
"""Host names that are looked up at a time, those that nobody waits for any more included."""
WEBHOOK_URL_LENGTH_MAX = 2048
WEBHOOK_REPLY_BYTES_MAX = 64 << 10
WEBHOOK_BATCH_RECORDS_DEFAULT = 50
WEBHOOK_BATCH_RECORDS_MAX = 1000
WEBHOOK_BATCH_BYTES_MAX = 1 << 20
"""Records of one delivery, and their bytes: one that is larger goes alone."""
WEBHOOK_DELAY_MS_MAX = 300_000
WEBHOOK_FILTER_BYTES_MAX = 16 << 10
WEBHOOK_SECRET_CHARS_MIN = 16
WEBHOOK_SECRET_CHARS_MAX = 128
WEBHOOK_SECRET_OVERLAP_MS = 24 * 3_600_000
"""How long a secret that was replaced signs beside the new one."""
WEBHOOK_RETRY_AFTER_MS_MAX = 24 * 3_600_000
"""The longest wait that a receiver may ask for."""
WEBHOOK_ERROR_CHARS_MAX = 200
WEBHOOK_DELIVERIES_KEPT = 100
WEBHOOK_DEAD_LETTERS_MAX = 1000
WEBHOOK_DEAD_LETTER_BYTES_MAX = 256 << 20
WEBHOOK_DEAD_LETTER_MS = 30 * 86_400_000
"""Of one webhook; beyond, the oldest go, and those that are older."""
WEBHOOK_REPLAY_DEFAULT = 100
WEBHOOK_REPLAY_S = 30.0
"""How long one call replays dead letters, the last of them perhaps longer."""
WEBHOOK_NOTED_SEQS = 10_000
"""So many records that a webhook does not want are passed before that is written down."""
WEBHOOKS_LOOKED_AT = 8
"""Webhooks that look in one turn of the loop for what to send: each may examine many records."""
WEBHOOK_TIMER_S_MAX = 60.0
"""The longest sleep before a look at the clock, which may have been set meanwhile."""
TRACKER_LEASE_MS = 60_000
"""How long a node holds a tracker behind its last poll."""
TRACKER_PAGE_DEFAULT = 100
TRACKER_PAGE_MAX = 1000
"""Records that one poll hands out."""
TOUCH_MS_MIN = 1000
TOUCH_SHARE = 20
"""How much longer a used stream is written down to live than it was asked to: a second, or this
part of its TTL."""
RETIRED_MAX = 32_768
"""Names of streams that are gone whose epochs are known one by one."""
SHARED_MAX = 4096
"""Configs, and texts, of which logs that have equal ones hold one object."""
NAMES_CHUNK = 1024
NAMES_COMPARED_MAX = 10_000
"""Names that are compared with one that nobody has, to find what may have been meant."""
NAMES_SHOWN = 3
"""Names that a message about an unknown one lists."""
HOPS_MAX = 8
"""Logs a record may come through on routers that allow cycles; a guard beside the visited ones."""
ORIGINS_KEPT = 64
"""Runs of copies a log still knows the way of when they are lost."""
FORWARD_RECORDS_MAX = 1024
FORWARD_BYTES_MAX = 1 << 20
"""What a router looks at and copies at a time."""
FORWARD_FRAME_BYTES = 16 << 20
"""When the steps of several routers come to this, they are committed before the next one."""
FORWARD_SLICE_MS = 1.0
"""Forwarding yields to requests after this long."""
FORWARD_RETRY_S = 0.05
FORWARD_RETRY_S_MAX = 1.0
"""When a router whose destination is full tries again: ever more slowly."""
CATCH_UP_S = 1.0
"""How long a reader waits for what routers have for it."""
FINISH_S = 10.0
"""How long a router that is to end, or to change, may take to bring what was there before."""

SPENT_PASSED_MAX = 4096
"""Jobs that failed too often which a claim passes over to find others."""
DEAD_LETTERS_MAX = 256
"""Jobs that move to the dead letters at a time."""
MOVE_BYTES_MAX = 8 << 20
"""Records that move to the dead letters, or back, in one frame; one record may be larger."""
DEAD_LETTERS_RETRY_S = 1.0
"""When workers who wait try again to move jobs for which there was no room."""
ARRIVALS_MAX = 1024
"""Transactions of which a log knows how far they came; above all that can be under way."""
TRANSACTIONS_PENDING_MAX = 256
"""Transactions that are committed and not wholly in their logs yet."""
UNDER_WAY_S = 5.0
"""How long a change of a log waits for batches that are on their way to it, and they for it."""
TRANSACTIONS_MAX = 65_536
"""Transactions whose last batch is remembered; forgetting one would let its retries in twice."""
TRANSACTIONS_PER_KEY_MAX = 16_384
"""Of these, how many one key may have."""
TRANSACTION_KEPT_MS = 90 * 86_400_000
"""How long a transaction is remembered behind its last batch."""
TRANSACTION_ONCE_MS = 7 * 86_400_000
"""How long a transaction of one batch is remembered: nobody retries it after that."""
TRANSACTION_ONCE_MS_MIN = 3_600_000
"""The same where its key has as many as it may have."""
BATCH_MAX = 1 << 62
"""The highest number of a batch."""
BATCH_SPANS_MAX = 128
"""Runs of batches that are remembered of a transaction: what lies between was passed over."""
TRANSACTION_NAME_LENGTH_MAX = 64
TRANSACTION_CHUNKS_MAX = 100_000
STAGED_MS_MAX = 86_400_000
"""How long a chunk waits for its commit."""
STAGED_BYTES_MAX = 16 << 30
STAGED_BYTES_PER_KEY_MAX = 8 << 30
STAGED_CHUNK_BYTES_MIN = 64 << 10
"""What a chunk counts for at least: many small ones are as good as a few large ones at filling a
disk."""
PAGE_ROWS_MAX = 16_384
"""Records in one page of Arrow."""
PAGE_RANGES_MAX = 10_000
PLANS_RANGES_MAX = 100_000
"""Ranges of dead records that a plan of reading lists, and all plans of an answer; beyond, a plan
names none.
"""
PLANS_EXTENTS_MAX = 250_000
"""Ranges of sealed records that all plans of an answer list: a page ends before them, and plans of
logs that were named list none beyond.
"""

FRAME_BYTES_MAX = 256 << 20
"""What one frame may hold: no write asks for more, and the encoder refuses."""
BODY_BYTES_CEILING = FRAME_BYTES_MAX // 2
"""The most a setting may allow of bodies and records: in a frame they take a little more."""
CHUNK_BYTES_MAX = FRAME_BYTES_MAX // 4 * 3
"""A staged chunk: it must fit into one frame, with its notes."""
CHUNK_NOTES_BYTES_MAX = 8 << 20
"""What a chunk leaves of its frame to notes: of transactions, and of those who subscribed."""
BATCH_RECORDS_CEILING = 1_000_000
NAME_BYTES_CEILING = 64 << 10
"""The most settings may allow of records in one call, and of tags and nodes."""
SEAL_BYTES_CEILING = 1 << 30
"""The most a setting may allow of one segment: columns of Parquet end at twice of that."""
SEAL_MS_CEILING = 7 * 86_400_000
"""The longest a setting may let records wait for a segment."""
SEAL_WAIT_S = 60.0
"""How long somebody waits who asked for records to be sealed; sealing goes on after that."""
AGED_SEGMENTS_MAX = 10_000
"""With so many segments, records are not sealed any more because they are old: only compaction, or
retention, makes segments fewer, and every manifest names them all.
"""
AGED_EXTENTS_MAX = 1_000_000
"""The same with so many logs in all segments together: where each lies of a log is kept in memory,
some 200 bytes for each, and looked through after every segment.
"""
JOURNAL_RETRY_S = 0.5
"""When the journal tries again to write what failed with an error that may pass."""
JOURNAL_PENDING_BYTES_MAX = 128 << 20
"""Bytes waiting for the journal writer before new writes are turned away."""

SPARES_MAX = 2
"""Blank journal files held ready."""
SPARE_BYTES_MAX = 128 << 20
"""A journal file that is to become larger than this grows in the end."""

LOST_LOGS_SHOWN = 20
"""Logs that are named when a segment is lost."""
LEASE_S = 180.0
"""How long a job of the pipeline counts as at work that does not say so again."""
LEASE_RENEW_S = 30.0
LEASES_MAX = 1000
"""Jobs that may be at work on one object store while something is removed from it."""
DELETE_RANGES_MAX = 10_000
"""Ranges of seqs that one request deletes."""
POLICY_BYTES_MAX = 1 << 20
"""Of a file that says which jobs of the pipeline run when."""

ROW_GROUP_ROWS = 16_384
ROW_GROUP_BYTES = 4 << 20
COMPANION_ROWS = 8_192

SLICE_MS = 2.0
"""Work on the event loop that somebody waits for yields after this long."""
WALK_MS = 0.5
REST_MS = 1.0
"""Upkeep yields after this long, then rests for so long: it may walk over a million logs."""
FREED_BLOCKS_MAX = 1000
"""So many blocks of a log leave memory before the clock is looked at: some tenths of that time."""
DRAIN_S = 10.0

AGE_PRIORITY_PER_S = 100
AGE_PRIORITY_MAX = 1000
"""What waiting adds to a priority."""

PRESSURE_TICK_MS = 100
LAG_CEILING_MS = 5.0
"""Timers this late, smoothed, are full pressure."""
COALESCE_FROM = 0.2
COALESCE_MS_MAX = 20.0
SEVERE_FROM = 0.8
SEVERE_UNTIL = 0.6
SEVERE_TICKS = 10
WAITING_TURNS_FULL = 4096
"""Turns that wait to be served which count as full pressure."""
PARKED_WRITES_MAX = 4096
"""Writes that may wait for room before more are turned away at once."""

WHEEL_TICK_S = 0.25
"""How exact heartbeats and deadlines of connections are."""
RETRY_MS = 2000
"""How long a client is asked to wait before it connects again."""
SINK_BUFFER_BYTES = 256 << 10
"""Bytes a connection may have outstanding before it counts as blocked."""
BUFFER_GRACE_S = 5.0
"""Blocked for longer, a reader that retention overtook is told that it came too late."""
SLOW_CONSUMER_S = 30.0
"""Blocked for longer, a connection is closed."""
CLOSE_S = 5.0
"""How long the last words of a connection may take to be taken."""
UNSENT_BYTES_MAX = 512 << 20
"""Of answers that readers have not taken, of all connections together."""
PEER_TIMEOUT_S = 60.0
"""A peer that acknowledges nothing, or has no room for more, for so long is gone."""
COHORT_MAX = 256
"""Followers that are written to in one go; others get a turn before the next ones are."""
INDEXED_COHORTS_MIN = 16
"""A log with fewer cohorts asks their selectors one by one."""
SELECTOR_CONDITIONS_MAX = 8
"""Conditions by which an index finds a selector; what is left is asked of those it finds."""
SELECTOR_ENTRIES_MAX = 64
"""Combinations of values under which an index holds a selector, unless one list alone has more."""
SELECTOR_COST_HARD = 1_024
SELECTING_MS = 50.0
"""Selectors that cost more are asked about records for so long in one go; followers with those that
were not asked by then look for themselves, in slices.
"""
LINGERING_SELECTORS_MAX = 1_024
"""Selectors that a channel's index keeps though none of their cohorts is idle at the moment."""
FRAMES_SHARED = 1_024
FRAME_KEPT_BYTES = 4 << 10
"""Encoded notifications that are kept for the next watcher who wants them, and how large."""
SWEPT_COHORTS_MIN = 64
SWEEP_REST = 3.0
SWEEP_REST_S_MAX = 0.2
"""Where records are for so many cohorts at once, serving them takes time. Records that come
meanwhile, and so many times as long behind it, but no longer than that, are delivered together.
"""
FRAMES_KEPT = 8
"""Encoded frames a channel keeps for followers that are a little behind."""
SUPERSEDED_BLOCKS_KEPT, SUPERSEDED_BYTES_KEPT = 4096, 1 << 20
"""Of a log that is followed: what followers get though newer records superseded it meanwhile."""

WATCH_BYTES_DEFAULT = 256 << 10
HEARTBEAT_MS_DEFAULT = 15_000
HEARTBEAT_MS_MIN = 1_000
HEARTBEAT_MS_MAX = 60_000
COMPOSITE_BYTES_MAX = 4096
"""An id longer than this is replaced by a checkpoint: headers have limits."""
CURSOR_BYTES_MAX = 64 << 10
"""A composite cursor longer than this is none of ours."""
CURSOR_DEAD_MAX = 64
CURSOR_ORDERS_MAX = 4
"""A session keeps so many orders of its checkpoints, each with at most so many dead topics more
than live ones.
"""
FORMER_TOPICS_MAX = 4096
"""Names of topics that a session watched and that are gone; beyond, it tells all later ones by
their epoch.
"""

FRAMES_PER_TURN = 256
"""Frames of one socket that are taken in before other connections get a turn."""
MESSAGE_PARTS_MAX = 16_384
"""Frames that one message may come in."""
MESSAGE_STILL_S = 30.0
"""How long a message may stand still that is not said to its end; looked at with heartbeats."""
MESSAGES_BYTES_MAX = 256 << 20
MESSAGE_BYTES_FAIR = 1 << 20
"""What has come of messages that are not said to their end, of all sockets together; beyond, none
may be larger than its fair share.
"""
PUBLISHES_MAX = 1024
PUBLISHES_BYTES_MAX = 16 << 20
"""Publications one socket may have under way before nothing more is read from it."""
COMMANDS_MAX = 1024
"""Commands one socket may have waiting behind a subscription."""

QUERY_CHARS_MAX = 16_384
QUERY_CLAUSES_MAX = 256
QUERY_DEPTH_MAX = 32
"""How deep parentheses of a search query may be inside each other."""
NORMALISE_BYTES = 64 << 10
NORMALISE_STEPS = 500_000
"""What is normalised of an append before others get a turn, in bytes and in steps of validation:
some milliseconds of work.
"""
NORMALISE_RECORDS = 16_384
"""Records of an append that are taken apart, and joined again, on the loop; more in a thread."""
INGEST_RULES_MAX = 4096
INGEST_RULES_BYTES_MAX = 256 << 20
"""Streams whose registry and profile are kept ready for use, and what these take of memory."""
REGISTRY_BYTES_MAX = 1 << 20
"""Of all schemas and lenses of a stream."""
COLUMNS_MAX = 256
COLUMN_NAME_MAX = 128
SCHEMA_NODES_MAX = 4096
"""Columns that a log has as a table, characters of their names, and parts of its schema that are
looked at for them; what has no column stays JSON.
"""
SCHEMA_UPDATE_BYTES_MAX = 256 << 10
PROMOTED_BYTES_MAX = 16 << 20
PROMOTED_PAGE_BYTES = 4 << 20
PROMOTED_EVENT_BYTES = 1 << 20
PROMOTED_EVENT_RECORDS = 256
"""What lenses may add to a document, with those of all versions, to a page and to an event; and how
many records an event has then. What they do counts as well: each operation as some bytes.
"""
PROOF_STEPS_MAX = 20_000
PROOF_MS_MAX = 2_000
"""So much is compared, and for so long, before a lens counts as too complicated."""
SCHEMA_STEPS_MAX = 1_000_000
"""What a schema may cost for one value of a document, or one byte of it: see `schemas/cost`."""
VALIDATION_STEPS_MAX = 10_000_000
"""What it may cost to validate a document: a tenth of a second in which nobody gets a turn."""
VALIDATION_VISITS_MAX = 200_000
VALIDATION_VALUES_MAX = 1_000_000
"""How often a part of a schema may be asked about a value, and of how many values the document may
be, where that cost has to be counted."""
PROBLEM_VALUES_MAX = 5000
"""Values of a document, for each part of a schema that is asked about the same one, of which it is
told what is wrong: that takes copies of them all."""
PATTERN_BYTES_MAX = 1 << 20
PATTERN_CACHE_BYTES = 64 << 10
PATTERNS_BYTES_MAX = 16 << 20
"""Memory for the automaton of a pattern, for its cache, and for all patterns of a schema."""
PATTERN_BACKTRACK_MAX = 10_000
"""Steps of a pattern with lookaround or backreferences that was kept before these were refused."""
COMPANION_CACHE_BYTES = 256 << 20
"""Of values and postings that were decoded."""
SEARCH_BYTES_MAX = 64 << 10
"""Of a log's search configuration."""
SEARCH_SIZE_DEFAULT = 50
SEARCH_SIZE_MAX = 500
SEARCH_ANSWER_BYTES = 8 << 20
"""Documents of hits in one answer; the last one may take it further."""
CANDIDATES_KEPT = 1 << 16
"""Records that a build named, kept from one page of a read to the next."""
FILTER_SCANNED_BYTES_MAX = 100 << 20
"""Payload that one filtered read looks at."""
SURVEYS_MAX = 1024
"""Logs of which it is remembered where their sealed records lie and what is indexed of them."""
RANKED_AT_ONCE = 2000
"""So many logs may be counted on a request; more are counted beside everything else."""
RANKED_S = 10.0
RANKED_TOP = 10
REQUESTS_LOGS_MAX = 4096
"""Logs of which it is counted how often the object store was asked for them."""
SEARCH_TIMEOUT_MS = 3000
"""How long a search may take at most; what was found by then is the answer."""
EVLOG_KEYS_MAX = 64
"""Names of secrets that an evlog profile may add."""
TEMPLATE_FIELDS_MAX = 3
TEMPLATE_NAME_BYTES_MAX = 256
TEMPLATES_AT_ONCE = 256
TOUCH_KEYS_MAX = 65_536
"""Keys of one stream whose last touch is remembered: a few megabytes at most."""
TOUCH_WAIT_KEYS_MAX = 1024
TOUCH_WAIT_MS = 30_000
TOUCH_WAIT_MS_MAX = 120_000
TOUCH_IDLE_MS = 3_600_000
"""How long the touches of a stream are remembered when nobody asks for them."""
SERIES_MAX = 1000
"""Series of the server's own metrics in one interval."""
METRICS_SETTLE_S = 1.0
"""How long numbers about the server wait for what they count to be durable."""
METRICS_KEPT_MS = 7 * 86_400_000
AGGREGATE_GROUPS_MAX = 100_000
"""Groups, over all windows, that one answer may have."""
ROUTING_KEYS_DEFAULT = 100
ROUTING_KEYS_MAX = 500
TOUCH_SETTLE_MAX = 1000
"""Records that are noted at once for somebody who wants to know how things are now."""
TOUCH_CURSOR_LENGTH_MAX = 64
HELD_MAX = 65_536
"""Pairs of a segment and a log of which it is remembered what the one has of the other."""

# Contents that are kept once.
CONTENTS_MAX = 1_000_000
"""Contents that are found by their digests: all of them are known in memory, some 250 bytes each,
and the snapshot of a log holds them all.
"""

# Manifests of the object store.
PAGE_ITEMS_MAX = 512
"""Segments, or builds, in a page of a manifest."""
TAIL_ITEMS_MAX = 32
"""The newest of them are in the root itself, which every commit writes anew."""
CHANGES_MAX = 64
CHANGED_NUMBERS_MAX = 1024
"""Versions that a root tells the changes of, and numbers of segments in all of these."""
PAGES_CACHED_MAX = 1024
"""Pages that a process keeps: half a million segments, some 600 bytes each."""

# Versions of manifests.
TREE_ROWS_MAX = 64
"""Rows that a tree is made of, behind a whole one that is stored; small ones only, see there."""
TREES_KEPT_BYTES = 64 << 20
"""Trees that are kept ready, by estimate."""
RELEASED_ROWS_MAX = 256
RELEASED_BYTES_MAX = 1 << 20
"""Rows whose contents are released in one frame, and bytes of them; one row may be larger."""
DROPPED_REFERENCES_MAX = 25_000
"""References that end with a namespace in one frame: some milliseconds of work for each thousand.
More end before it, in several; the newest version of a namespace has less.
"""
LISTED_ROWS_BYTES_MAX = 8 << 20
"""Rows that are looked at for one page of versions; one row may be larger."""

# Credentials.
TOKENS_MAX = 10_000
"""Tokens in the catalog: the head of a snapshot holds them all."""
JWT_BYTES_MAX = 8192
"""A JSON Web Token that is longer is not looked at."""
JWTS_KNOWN_MAX = 1024
"""Tokens that were verified and need not be again."""
JWKS_BYTES_MAX = 1 << 20
JWKS_KEYS_MAX = 100
USER_NAME_MAX = 256
"""Characters in the name of a user."""

# Streams of changes to flags, and closures.
EVENTS_QUERY_BYTES_MAX = 8192
"""Of the query with which a stream is opened."""
DELTA_BYTES_MAX = 64 << 10
"""JSON of a delta; larger ones are told as a link to a snapshot."""
CLOSURE_TOKEN_S = 60
"""How long a signed link to a closure is good."""
CLOSURES_KEPT_BYTES = 64 << 20
DELTAS_KEPT_BYTES = 16 << 20
TARBALLS_KEPT_BYTES = 32 << 20
"""Closures, deltas and tarballs that were made last are kept for others who want the same."""
TARBALLS_AT_ONCE = 1
"""Tarballs that are being made: each holds the files of a manifest meanwhile, and a thread of the
few that read segments.
"""

# Notifications.
SUBJECT_BYTES_MAX = 4096
"""All values of an identifier, as tag and key of a record."""
IDENTIFIER_FIELDS_MAX = 64
IDENTIFIER_NAME_MAX = 128
IDENTIFIER_VALUE_BYTES_MAX = 1024
CONSTRAINT_VALUES_MAX = 1000
"""Values that an `in` lists."""
FILTERS_BYTES_MAX = 256 << 20
FILTER_BYTES_FREE = 16 << 10
"""What the filters of all open streams take of memory, by estimate; beyond it, none may take more
than the latter.
"""
POLYGON_POINTS_MAX = 1000
POLYGON_BYTES_MAX = 64 << 10
"""To see that a polygon of many long edges does not cross itself takes the square of their number:
7 ms measured for 1000 points, in which nobody gets a turn (0.1 ms for a circle). Whether two such
polygons have a point in common takes 14 ms.
"""
IDENTIFIERS_KEPT = 4_096
IDENTIFIER_KEPT_BYTES = 1 << 10
"""Identifiers that came last are kept as they are stored, unless they are longer."""
POLYGONS_KEPT = 4_096
POLYGON_KEPT_BYTES = 1 << 10
"""Polygons that came last are kept with what was found out about them, unless their text is longer.
"""
EVENT_TYPES_MAX = 1000
"""Event types that a configuration file may have."""
ENUM_VALUES_MAX = 1000
CONFIGURATION_BYTES_MAX = 1 << 20
CONFIGURATION_DEPTH_MAX = 16
CONFIGURATION_TEXT_MAX = 4096
"""Of a configuration file: its size, how deep it is nested, and characters of a text in it."""
ROLES_MAX = 1000
"""Roles that one rule lists, and realms that it has."""
NOTIFICATION_USERS_MAX = 1000
HISTORY_CEILING = 1_000_000_000
"""The most a configuration may allow one replay to deliver."""
AUTH_REPLY_BYTES_MAX = 64 << 10
AUTH_AT_ONCE_MAX = 64
"""Questions to the authentication service at a time."""
AUTH_KNOWN_MAX = 4096
AUTH_KEPT_S = 5.0
"""How long what it said is believed."""

# The client of flags.
RESPONSE_HEAD_BYTES_MAX = 64 << 10
"""The status line and the headers of a reply of another server."""
FLAGS_CLIENT_EVENT_BYTES_MAX = 1 << 20
"""One event of a stream; servers put at most 64 KiB into one, unless they are told otherwise."""
FLAGS_CLIENT_DELTA_FILES_MAX = 4096
"""Files of one delta; servers send at most 32, unless they are told otherwise."""
FLAGS_CLIENT_WAITING_DELTAS_MAX = 64
FLAGS_CLIENT_WAITING_BYTES_MAX = 4 << 20
"""Deltas of a namespace that wait while another one is verified, and what they bring; beyond, a
snapshot is fetched.
"""
FLAGS_CLIENT_SNAPSHOT_BYTES = 16 << 20
FLAGS_CLIENT_TREE_BYTES = 64 << 20
"""What a snapshot may have as it is sent, and a tree, unless somebody chooses otherwise."""
FLAGS_CLIENT_REFUSAL_BYTES_MAX = 64 << 10
"""The body of a reply that refuses something."""
FLAGS_CLIENT_SNAPSHOT_TRIES = 3
"""Snapshots of one version that fail before the stream is opened anew, which announces another."""
FLAGS_CLIENT_PAUSE_S_MAX = 300.0
"""The longest pause that a server may ask for, and that a policy makes."""

# Flags.
SUBSCRIBED_NAMESPACES_MAX = 32
SUBSCRIBED_FLAGS_MAX = 64
"""Namespaces that one connection follows, and flags that it may name of each."""
SUBSCRIPTION_BYTES_MAX = 8192
"""Of a subscription in a URL: so many flags with the longest names take 5500."""
MANIFEST_FILES_MAX = 10_000
MANIFEST_FILE_BYTES_MAX = 256 << 10
"""Files of a manifest, and how large one may be."""
ARCHIVE_MEMBERS_MAX = 20_000
ARCHIVE_PATH_BYTES_MAX = 1024
ARCHIVE_EXTENSION_BYTES_MAX = 64 << 10
"""Of an archive: members with those that are no part of a manifest, and extended headers; how long
a path and one such header may be.
"""
CLOSURE_TOKEN_LENGTH_MAX = 1024
"""A token in the URL of a closure that is longer is not looked at."""
FLAGS_COMMAND_BYTES_MAX = 16 << 10
"""Of a body that names a tenant, a namespace or a token to be made."""
TOKEN_NAME_MAX = 200
"""Characters of the name of a token."""
MANIFEST_BYTES_CEILING = 1 << 30
INLINE_FILES_CEILING = 10_000
"""The most a setting may allow of a manifest, and of a change that is sent inline."""
TOML_DEPTH_MAX = 64
TOML_KEY_PARTS_MAX = 16
"""Brackets around a value of TOML, and parts of a key: the parser takes the square of these."""
PREDICATE_DEPTH_MAX = 16
PREDICATE_VALUES_MAX = 10_000
"""How deep predicates are nested, and what an `in` may list."""
MANIFEST_TERMS_MAX = 50_000
"""Predicates of a manifest, those inside of others too: to evaluate a flag may take them all."""
ATTRIBUTE_LENGTH_MAX = 256
VARIANT_DEPTH_MAX = 16
"""How deep a variant of type json is nested."""
SEMVER_LENGTH_MAX = 256
LINT_FILE_PROBLEMS_MAX = 20
LINT_PROBLEMS_MAX = 1000
LINT_TEXT_MAX = 300
"""Problems of one file and of a manifest that are told, and characters of what is said of one."""
CONTEXT_DEPTH_MAX = 16
CONTEXT_VALUES_MAX = 10_000
CONTEXT_TEXT_MAX = 64 << 10
CONTEXT_VALUE_LENGTH_MAX = 4096
"""What somebody may tell of who a flag is evaluated for: how deep, of how many values, characters
of all texts and of one. To look for a part of such a text takes 30 µs at worst.
"""
ENTITY_ID_LENGTH_MAX = 1024
"""What identifies an entity and is longer is in no bucket: hashing takes a step for each byte."""

# Forms with files in them.
FORM_PARTS_MAX = 16
FORM_HEADER_BYTES_MAX = 4096
"""Fields of a form, and what stands before the content of each."""

# Manifests of flags, as they are checked beside the server.
MANIFEST_FORM_BYTES_MAX = 64 << 10
"""Of the form that an archive comes in, beside the archive."""
MANIFEST_UPLOADS_MAX, MANIFEST_UPLOADS_PER_TENANT, MANIFEST_UPLOADS_PER_KEY = 32, 16, 8
"""Uploads whose bytes are in memory, in all, of one tenant and of one key; more are turned away
unread.
"""
UPLOAD_TRIES = 3
"""How often an upload is begun anew when contents went that it could have shared."""
MANIFEST_JOBS_MAX, MANIFEST_JOBS_PER_TENANT = 256, 64
"""Jobs that wait for the manifest process, in all and of one tenant."""
MANIFEST_JOB_S = 30.0
MANIFEST_TURN_S = 1.0
"""How long it may take to check one manifest, and how long files of one are parsed before other
tenants have a turn.
"""
MANIFEST_IDLE_S = 600.0
"""Without a job for so long, the process ends; what it knows is worked out again then."""
MANIFEST_PROCESS_BYTES = 1 << 30
"""Memory of the process, of which Python itself takes some 30 MB."""
MANIFEST_MESSAGE_BYTES_MAX = 64 << 20
"""One message to the process, or from it."""
MANIFEST_BATCH_BYTES = 4 << 20
MANIFEST_BATCH_FILES = 128
"""Contents of files that go to the process, or come from it, at once."""
MANIFEST_PARSED_BYTES = 64 << 20
"""Of files, as they were read, whose parsed form the process keeps."""
MANIFESTS_LOADED_BYTES = 128 << 20
"""Manifests that are ready for use, by estimate; those in use stay beyond."""
EVALUATION_BYTES_MAX = 256 << 10
"""Of a body that says what to evaluate, and for whom."""
EVALUATIONS_WAITING_MAX, EVALUATIONS_WAITING_PER_TENANT = 1024, 256
"""Evaluations in a thread that wait for those before them, in all and of one tenant: one may take a
second, where a manifest and a context are made for that.
"""
EVALUATION_INLINE_BYTES = 64 << 10
"""What a flag and its segments define, or all flags, that is evaluated on the loop; more is so in a
thread.
"""


# Feeds.
TENANT_LENGTH_MIN, TENANT_LENGTH_MAX = 3, 63
EVENTS_PER_POST_MAX = 1000
EVENTS_PAGE_DEFAULT, EVENTS_PAGE_MAX = 100, 1000
EVENT_TYPE_LENGTH_MAX = 128
RESOURCE_ID_LENGTH_MAX = 256
"""Characters of the id of a resource, of an ancestor, and of who caused an event."""
PARENTS_MAX, PARENT_NAME_LENGTH_MAX = 8, 64
"""Ancestors that an event may name: with all of them, the key of a record is at most 32 KiB."""
FEED_FILTER_VALUES_MAX = 100
"""Values of one filter; they are joined by OR."""
FEED_KEY_NAME_LENGTH_MAX = 200
FEED_KEYS_PER_TENANT_MAX = 1000
"""Valid API keys of one tenant: it leaves room for those of others."""
FEED_KEY_S_MAX = 10 * 365 * 86_400
"""How long an API key may last that ends by itself."""
FEED_WAIT_S_MAX = 60
"""How long a reader may ask to wait."""
FEED_HEARTBEAT_S = 15.0
"""How long a stream of events is silent at the most."""
FEED_COMMAND_BYTES_MAX = 16 << 10
"""Of a body that brings no events."""
SUBSCRIPTION_FILTER_VALUES_MAX = 50
"""Values of one filter of a subscription."""
NODE_ID_LENGTH_MAX = 256
FEED_CONSUMER_SILENCE_S = 60.0
"""How long a consumer that is sent hints may say nothing."""
FEED_CONSUMER_TENANTS_MAX = 1000
"""Tenants that one consumer is sent hints of."""
FEED_CONSUMER_REPLIES_MAX = 100
"""Confirmations that wait to be sent to one consumer before more of it is read."""
FEED_IDLE_CONNECTION_MS = 60_000
"""How long a connection of gRPC without a call is kept."""
FEED_CONSUMER_RPCS_MAX = 100
"""Calls at a time on one connection of gRPC."""
FEED_CLIENT_PAGE_BYTES_MAX = 64 << 20
"""Of a page that a client takes."""
FEED_CLIENT_PAUSE_S_MAX = 300
"""The longest pause that a server may ask a client for."""
