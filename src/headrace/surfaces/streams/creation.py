"""What a request to create a stream asks for."""

from __future__ import annotations

import re

from headrace.core.errors import Code, Refused
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import BYTES
from headrace.surfaces.streams import fields
from headrace.surfaces.streams.dialect import Dialect
from headrace.surfaces.streams.names import parse_name
from headrace.surfaces.streams.offsets import ZERO, parse_offset
from headrace.surfaces.streams.positions import resolve
from headrace.web.calls import Call
from headrace.web.credentials import Scope

_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+(\s*;.*)?", re.DOTALL)
_TYPE_LENGTH_MAX = 255


def parse_spec(call: Call, name: str, dialect: Dialect) -> Spec:
    get = call.req.get_header
    ttl, expires = get("STREAM-TTL"), get("STREAM-EXPIRES-AT")
    if ttl is not None and expires is not None:
        raise Refused(Code.INVALID, "Stream-TTL and Stream-Expires-At exclude each other")
    origin, sub = get("STREAM-FORKED-FROM"), get("STREAM-FORK-SUB-OFFSET")
    at = get("STREAM-FORK-OFFSET")
    if origin is None and (at is not None or sub is not None):
        raise Refused(Code.INVALID, "a fork offset needs Stream-Forked-From")
    source = None if origin is None else parse_name(origin)
    if source is not None:
        call.principal.require(Scope.READ, source)
    return Spec(
        content_type=_parse_type(call, name, source, dialect),
        ttl_ms=None if ttl is None else fields.parse_ttl_ms(ttl),
        expires_at_ms=None if expires is None else fields.parse_expiry_ms(expires),
        closed=fields.parse_closed(get("STREAM-CLOSED")),
        source=source,
        at=None if at is None or source is None else _parse_fork_at(call, source, at),
        sub=0 if sub is None else fields.parse_sub_offset(sub),
    )


def _parse_type(call: Call, name: str, source: str | None, dialect: Dialect) -> str | None:
    content_type = call.req.content_type
    if not content_type:
        known = source is None and name in call.engine.state.by_name
        return dialect.default_type if known else None
    if len(content_type) > _TYPE_LENGTH_MAX or _TYPE.fullmatch(content_type) is None:
        raise Refused(Code.INVALID, "the content type is not one")
    return content_type


def _parse_fork_at(call: Call, source: str, text: str) -> int:
    if text == ZERO:
        return 0
    offset = parse_offset(text)
    log = call.engine.state.by_name.get(source)
    if log is None or log.stream is None or log.stream.deleted:
        return 0  # whatever the offset: the source itself will be refused
    try:
        return resolve(call.engine.open_logs[log.id], offset)
    except Refused as refused:
        raise Refused(Code.INVALID, refused.message) from None


def type_of_body(call: Call, spec: Spec) -> str:
    """What the body of a creation is: as said, as the source is, else bytes."""
    if spec.content_type is not None:
        return spec.content_type
    source = call.engine.state.by_name.get(spec.source) if spec.source else None
    return source.stream.content_type if source and source.stream else BYTES
