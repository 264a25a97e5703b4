"""Evaluation: what flags are for somebody, by the current version of a manifest.

Small evaluations are made on the loop. What may take longer is made in a thread, one at a time and
tenants in turn: a manifest may be large, and a context such that every rule of it has to be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from headrace.core.cap import Cap
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    EVALUATION_BYTES_MAX,
    EVALUATION_INLINE_BYTES,
    EVALUATIONS_WAITING_MAX,
    EVALUATIONS_WAITING_PER_TENANT,
)
from headrace.engine.open_log import OpenLog
from headrace.flags.evaluation import Evaluation, check_context, evaluate, evaluate_all
from headrace.flags.model import ANY_ENVIRONMENT
from headrace.surfaces.flags import wire
from headrace.surfaces.flags.errors import FLAG_NOT_FOUND
from headrace.surfaces.flags.manifest_store import ManifestStore
from headrace.surfaces.flags.manifests import LoadedManifest
from headrace.surfaces.flags.names import parse_log
from headrace.surfaces.flags.permissions import require_evaluate
from headrace.surfaces.flags.tenants import find_namespace, parse_names
from headrace.surfaces.flags.turns import Turns
from headrace.web.answers import Answer, json_answer
from headrace.web.calls import Call, decode

T = TypeVar("T")

_one = msgspec.json.Decoder(wire.EvaluateRequest)
_all = msgspec.json.Decoder(wire.EvaluateAllRequest)
_SHOWN = 100


class Audience(msgspec.Struct, frozen=True):
    """For whom flags are evaluated, and where."""

    context: Mapping[str, Any]
    environment: str | None = None
    testing: bool = False


class Evaluator:
    """Evaluates flags of namespaces."""

    def __init__(self, store: Callable[[], ManifestStore]) -> None:
        self._store = store
        self._heavy = Turns(
            Cap("max_evaluations_waiting", EVALUATIONS_WAITING_MAX),
            Cap("max_evaluations_waiting_per_tenant", EVALUATIONS_WAITING_PER_TENANT),
        )

    async def load(self, live: OpenLog) -> LoadedManifest | None:
        """The current manifest of a namespace; None while there is none."""
        if not live.visible:
            return None
        manifests = self._store().manifests
        return manifests.find(live) or await manifests.load(live)

    async def evaluate(
        self,
        live: OpenLog,
        manifest: LoadedManifest | None,
        flag: str,
        audience: Audience,
    ) -> Evaluation:
        """One flag; refuses if it is not there."""
        if manifest is None or flag not in manifest.definitions.flags:
            raise FLAG_NOT_FOUND.refused(f"there is no flag {flag[:_SHOWN]}", flag=flag[:_SHOWN])
        return await self._run(
            live,
            manifest.weight_of(flag),
            lambda: evaluate(
                manifest.definitions,
                flag,
                audience.context,
                audience.environment,
                audience.testing,
            ),
        )

    async def evaluate_all(
        self,
        live: OpenLog,
        manifest: LoadedManifest | None,
        audience: Audience,
        form: Callable[[dict[str, Evaluation]], T],
    ) -> T:
        """What is made of all flags, by key: where they are many, that is made in the thread."""
        if manifest is None:
            return form({})
        return await self._run(
            live,
            manifest.weight,
            lambda: form(
                evaluate_all(
                    manifest.definitions, audience.context, audience.environment, audience.testing
                )
            ),
        )

    async def _run(self, live: OpenLog, weight: int, work: Callable[[], T]) -> T:
        if weight <= EVALUATION_INLINE_BYTES:
            return work()
        tenant, _ = parse_log(live.log.name)
        async with self._heavy.take(tenant):
            return await self._store().engine.pool.run(work)


class EvaluationRoutes:
    """The handlers."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    async def evaluate(self, call: Call) -> Answer:
        live, bound = await _find_namespace(call)
        asked = decode(_one, await call.command(EVALUATION_BYTES_MAX))
        manifest = await self._evaluator.load(live)
        audience = _parse_audience(asked, manifest, bound)
        found = await self._evaluator.evaluate(live, manifest, asked.flag, audience)
        assert manifest is not None
        reply = wire.EvaluateReply(
            asked.flag,
            found.value,
            found.variant,
            found.rule_matched,
            manifest.version,
            call.req.id,
        )
        return json_answer(msgspec.json.encode(reply))

    async def evaluate_all(self, call: Call) -> Answer:
        live, bound = await _find_namespace(call)
        asked = decode(_all, await call.command(EVALUATION_BYTES_MAX))
        manifest = await self._evaluator.load(live)
        audience = _parse_audience(asked, manifest, bound)
        version = 0 if manifest is None else manifest.version
        id = call.req.id

        def encode(found: dict[str, Evaluation]) -> bytes:
            return msgspec.json.encode(wire.EvaluateAllReply(found, version, id))

        return json_answer(await self._evaluator.evaluate_all(live, manifest, audience, encode))


async def _find_namespace(call: Call) -> tuple[OpenLog, str | None]:
    """The namespace that a path names, and the environment that the credential is bound to."""
    tenant, slug = parse_names(call)
    bound = require_evaluate(call.principal, tenant, slug)
    return await find_namespace(call, tenant, slug), bound


def _parse_audience(
    asked: wire.EvaluateRequest | wire.EvaluateAllRequest,
    manifest: LoadedManifest | None,
    bound: str | None,
) -> Audience:
    """For whom, and where: in the environment of the credential, if it is bound to one."""
    context = check_context(asked.context)
    environment = asked.environment
    if bound is None:
        check_environment(environment, manifest)
    elif environment is not None and environment != bound:
        raise Refused(
            Code.FORBIDDEN, f"this credential is for the environment {bound}", environment=bound
        )
    else:
        environment = bound
    return Audience(context, environment, asked.testing)


def check_environment(environment: str | None, manifest: LoadedManifest | None) -> None:
    """Refuse an environment that the manifest does not declare, if it declares any."""
    if environment is None or environment == ANY_ENVIRONMENT or manifest is None:
        return
    namespace = manifest.definitions.namespace
    declared = None if namespace is None else namespace.environments
    if declared and environment not in declared:
        raise Refused(
            Code.INVALID,
            f"the manifest declares no environment {environment[:_SHOWN]}",
            field="environment",
        )
