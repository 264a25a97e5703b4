"""OFREP, the OpenFeature Remote Evaluation Protocol: what generic OpenFeature providers speak.

A token of one namespace says by itself which namespace is meant. For other tokens the namespace is
in the path: providers are given `…/api/v1/tenants/{tenant}/namespaces/{namespace}` as their base.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import EVALUATION_BYTES_MAX
from headrace.engine.open_log import OpenLog
from headrace.flags.evaluation import DEFAULT_MATCHED, Evaluation, check_context
from headrace.flags.model import FlagDefinition
from headrace.surfaces.flags.errors import INVALID_CONTEXT, PARSE_ERROR
from headrace.surfaces.flags.evaluation import Audience, Evaluator
from headrace.surfaces.flags.permissions import require_evaluate
from headrace.surfaces.flags.tenants import find_namespace, parse_names
from headrace.web.answers import Answer, json_answer
from headrace.web.calls import Call, decode
from headrace.web.entity_tags import tag_matches

_DIGEST_DIGITS = 32


class OfrepRequest(msgspec.Struct):
    """For whom flags are evaluated."""

    context: dict[str, Any] | None = None


class OfrepSuccess(msgspec.Struct, frozen=True):
    """The value of a flag."""

    key: str
    value: Any
    reason: str
    variant: str
    metadata: dict[str, Any]


class OfrepBulkSuccess(msgspec.Struct, frozen=True):
    """The values of all flags."""

    flags: list[OfrepSuccess]
    metadata: dict[str, Any]


_decoder = msgspec.json.Decoder(OfrepRequest)


class OfrepRoutes:
    """The handlers."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    async def evaluate(self, call: Call) -> Answer:
        live, environment = await _find_namespace(call)
        body = await call.command(EVALUATION_BYTES_MAX)
        manifest = await self._evaluator.load(live)
        audience = Audience(_parse_context(body), environment)
        key = call.param("key")
        found = await self._evaluator.evaluate(live, manifest, key, audience)
        assert manifest is not None
        reply = _describe(manifest.definitions.flags[key], found, manifest.version)
        return json_answer(msgspec.json.encode(reply))

    async def evaluate_all(self, call: Call) -> Answer:
        """All flags, unless the client has what they are for this context."""
        live, environment = await _find_namespace(call)
        body = await call.command(EVALUATION_BYTES_MAX)
        audience = Audience(_parse_context(body), environment)
        manifest = await self._evaluator.load(live)
        version = 0 if manifest is None else manifest.version
        tag = _format_tag(live, version, environment, body)
        if tag_matches(call.req.get_header("if-none-match"), tag):
            return Answer(304, [("etag", tag)])
        defined: Mapping[str, FlagDefinition] = (
            {} if manifest is None else manifest.definitions.flags
        )

        def encode(found: dict[str, Evaluation]) -> bytes:
            flags = [_describe(defined[key], each, version) for key, each in found.items()]
            return msgspec.json.encode(OfrepBulkSuccess(flags, {"version": version}))

        answer = json_answer(await self._evaluator.evaluate_all(live, manifest, audience, encode))
        answer.headers.append(("etag", tag))
        return answer


async def _find_namespace(call: Call) -> tuple[OpenLog, str | None]:
    """The namespace that is meant, and the environment that the token is bound to."""
    principal = call.principal
    if "namespace" in call.names:
        tenant, slug = parse_names(call)
    elif len(principal.namespaces) == 1:
        tenant, _, slug = principal.namespaces[0].partition("/")
    else:
        raise Refused(
            Code.INVALID,
            "this credential is bound to no namespace: name it in the path,"
            " /api/v1/tenants/{tenant}/namespaces/{namespace}/ofrep/v1/evaluate/flags",
        )
    environment = require_evaluate(principal, tenant, slug)
    return await find_namespace(call, tenant, slug), environment


def _parse_context(body: bytes) -> Any:
    try:
        request = decode(_decoder, body) if body else OfrepRequest()
    except Refused as refused:
        problem = INVALID_CONTEXT if refused.detail.get("field") else PARSE_ERROR
        raise problem.refused(refused.message) from None
    try:
        return check_context(request.context or {})
    except Refused as refused:
        raise INVALID_CONTEXT.refused(refused.message) from None


def _format_tag(live: OpenLog, version: int, environment: str | None, body: bytes) -> str:
    """What all flags are depends on these alone. Versions of a namespace that is made anew begin
    anew, so its log is one of them.
    """
    about = f"{live.log.id}:{environment or ''}:".encode()
    return f'"v{version}-{sha256(about + body).hexdigest()[:_DIGEST_DIGITS]}"'


def _describe(flag: FlagDefinition, found: Evaluation, version: int) -> OfrepSuccess:
    metadata = {"version": version, "rule_matched": found.rule_matched}
    return OfrepSuccess(flag.key, found.value, _reason(flag, found), found.variant, metadata)


def _reason(flag: FlagDefinition, found: Evaluation) -> str:
    """Why a flag has this value, in the words of OpenFeature."""
    if found.rule_matched != DEFAULT_MATCHED:
        return "TARGETING_MATCH"
    has_rules = any(block.rules for block in flag.environments.values())
    return "DEFAULT" if has_rules else "STATIC"
