"""How topics say no: the words they have for refusals beside those that all surfaces share."""

from __future__ import annotations

from headrace.core.errors import Code
from headrace.web.envelope import WORDS, refuser
from headrace.web.surface import complete

REFUSALS = complete(
    {
        **WORDS,
        Code.BATCH_TOO_LARGE: ("batch_too_large", "More records or seqs than one call may carry."),
        Code.RECORD_TOO_LARGE: ("record_too_large", "A record or its meta is over its limit."),
        Code.LOG_NOT_FOUND: ("topic_not_found", "The topic does not exist and was not created."),
        Code.ROUTER_NOT_FOUND: ("router_not_found", "The router does not exist."),
        Code.LOG_INCOMPATIBLE: ("topic_exists_incompatible", "The type of a topic cannot change."),
        Code.ROUTER_CYCLE: ("router_cycle", "Records would go in a circle; see allow_cycle."),
        Code.TRACKER_NOT_FOUND: ("tracker_not_found", "The tracker does not exist."),
        Code.WEBHOOK_NOT_FOUND: ("webhook_not_found", "The webhook does not exist."),
        Code.URL_REJECTED: ("url_rejected", "The URL must not be called."),
        Code.TRACKER_LEASED: ("tracker_leased", "Another node holds the tracker."),
        Code.CURSOR_EXPIRED: ("cursor_expired", "Records behind the cursor are gone."),
        Code.SOURCE_DELETED: ("source_deleted", "The log that it reads was deleted."),
        Code.LOG_NOT_EMPTY: ("topic_not_empty", "if_empty was asked for and there are records."),
        Code.NOT_A_QUEUE: ("not_a_queue", "Only a topic of type queue has jobs."),
        Code.LOG_FULL: ("topic_full", "A topic with discard reject has no room for this write."),
    }
)
refuse = refuser(REFUSALS)
