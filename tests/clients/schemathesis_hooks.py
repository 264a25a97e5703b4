"""What schemathesis is told before it asks (`SCHEMATHESIS_HOOKS`): nobody waits for events, and
nobody is called who could be anybody.
"""

from __future__ import annotations

from typing import Any

import schemathesis

WAITS_S = range(1, 61)
REPLY_S, STREAM_S = 60.0, 0.5
"""How long an answer may take on a busy machine, and a stream, which does not end by itself."""


@schemathesis.hook
def before_call(
    context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]
) -> None:
    """A long poll that could be is a poll; one that could not be is asked for as it is."""
    kwargs["timeout"] = STREAM_S if case.path.endswith("/stream") else REPLY_S
    timeout = str((case.query or {}).get("timeout", ""))
    if timeout.isdecimal() and int(timeout) in WAITS_S:
        case.query.pop("timeout")
    # Which URLs may be called is more than a schema can say.
    if isinstance(case.body, dict) and isinstance(case.body.get("callbackUrl"), str):
        case.body["callbackUrl"] = "https://receiver.invalid/events"
