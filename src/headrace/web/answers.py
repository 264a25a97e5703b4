"""Answers that are not a JSON object: any bytes, under any headers, or no body at all."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.web.calls import STATUS

Headers = list[tuple[str, str]]
NO_BODY = frozenset((204, 304))


class Answer(msgspec.Struct, gc=False):
    """One answer. Names of headers are in lower case."""

    status: int
    headers: Headers
    body: bytes | list[bytes] = b""
    """As a whole, or in pieces that nobody needs to join."""

    def send(self, resp: Any) -> None:
        """Fill in a response: Falcon's, or the one of `web/direct.py`."""
        resp.status = STATUS[self.status]
        resp.content_type = None
        for name, value in self.headers:
            resp.set_header(name, value)
        if self.status in NO_BODY:
            return
        if isinstance(self.body, list) and not getattr(resp, "takes_pieces", False):
            resp.data = b"".join(self.body)
        else:
            resp.data = self.body
