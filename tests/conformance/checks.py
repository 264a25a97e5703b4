"""Checks that are too big for a pattern: what every answer promises, Prometheus text, OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from .exchange import Answer
from .matching import find_differences

Check = Callable[[Answer], Iterator[str]]

_PERFORMANCE = {"performance": {"server_total_ms": "<number 0..>"}}
_ERROR = {
    "<only>": True,
    "error": {
        "<only>": True,
        "code": "<match [a-z][a-z_]*|[A-Z][A-Z_]*>",
        "message": "<match .+>",
        "detail": "<maybe object>",
        "current_holder": "<maybe string>",
        "generation": "<maybe int>",
    },
    "performance": "<maybe object>",
}
_API_ERRORS = {
    "a notification, a watch or a replay": {
        "<only>": True,
        "code": "<match [A-Z][A-Z_]*>",
        "error": "<match .+>",
        "message": "<match .+>",
        "details": "<maybe string>",
        "topic": "<maybe string>",
        "configured_event_types": "<maybe array>",
        "request_id": "<string>",
    },
    "no path or method": {
        "<only>": True,
        "error": {
            "<only>": True,
            "code": "<match [a-z][a-z_]*>",
            "message": "<match .+>",
            "details": "<object>",
        },
        "request_id": "<string>",
    },
    "an admin": {
        "<only>": True,
        "success": False,
        "message": "<match .+>",
        "notification_id": "<maybe string>",
        "request_id": "<string>",
    },
    "a schema": {
        "<only>": True,
        "status": "error",
        "message": "<match .+>",
        "available_types": "<array>",
        "request_id": "<string>",
    },
}
"""What errors below `/api/v1` look like, by what was asked for."""
_OFREP = "/ofrep/v1/"
_OFREP_ERROR = {
    "<only>": True,
    "errorCode": "<match FLAG_NOT_FOUND|PARSE_ERROR|INVALID_CONTEXT|GENERAL>",
    "errorDetails": "<match .+>",
    "key": "<maybe string>",
}
_FEED_ERRORS = (
    {
        "<only>": True,
        "code": "<match [A-Z][A-Z_]*>",
        "message": "<match .+>",
        "errors": "<maybe array>",
        "earliestAvailable": "<maybe int 1..>",
        "activeNode": "<maybe string>",
        "leaseExpiresAt": "<maybe string>",
    },
    {
        "<only>": True,
        "type": "<match (https://epistola\\.app/errors/[a-z-]+|about:blank)>",
        "title": "<match .+>",
        "status": "<int 400..599>",
        "detail": "<match .+>",
        "errors": "<maybe array>",
        "earliestAvailable": "<maybe int 1..>",
        "activeNode": "<maybe string>",
        "leaseExpiresAt": "<maybe string>",
    },
)
"""What errors below `/tenants` look like: the usual shape, and that of RFC 9457."""
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")

ROUTES = {
    "/v0/topics": {"get": {"200", "400", "401", "403"}},
    "/v0/topics/{}": {
        "get": {"200", "400", "401", "403", "404"},
        "put": {"200", "201", "400", "401", "403", "409", "413", "415", "429"},
        "post": {"200", "201", "400", "401", "403", "404", "413", "415", "422", "429"},
        "delete": {"200", "400", "401", "403", "409"},
    },
    "/v0/topics/{}/diff": {"post": {"200", "400", "401", "403", "404", "415"}},
    "/v0/topics/{}/delete": {"post": {"200", "400", "401", "403", "404", "415"}},
    "/v0/topics/{}/claim": {"post": {"200", "400", "401", "403", "404", "409", "415", "429"}},
    "/v0/topics/{}/ack": {"post": {"200", "400", "401", "403", "404", "409", "415"}},
    "/v0/topics/{}/nack": {"post": {"200", "400", "401", "403", "404", "409", "415"}},
    "/v0/topics/{}/extend": {"post": {"200", "400", "401", "403", "404", "409", "415"}},
    "/v0/topics/{}/redrive": {"post": {"200", "400", "401", "403", "404", "415"}},
    "/v0/topics/{}/work": {"get": {"200", "400", "401", "403", "404", "406", "409", "429"}},
    "/v0/routers": {"get": {"200", "400", "401", "403"}},
    "/v0/routers/{}": {
        "get": {"200", "400", "401", "403", "404"},
        "put": {"200", "201", "400", "401", "403", "404", "409", "415", "429"},
        "delete": {"200", "400", "401", "403"},
    },
    "/v0/logs": {"get": {"200", "400", "401", "403", "404"}},
    "/v0/logs/records": {"get": {"200", "400", "401", "403", "404"}},
    "/v0/transactions/{}": {
        "get": {"200", "400", "401", "403"},
        "delete": {"200", "400", "401", "403"},
    },
    "/v0/transactions/{}/{}": {
        "post": {"200", "400", "401", "403", "404", "409", "415", "422", "429", "503"},
        "delete": {"200", "400", "401", "403"},
    },
    "/v0/transactions/{}/{}/{}": {
        "put": {"200", "201", "400", "401", "403", "413", "415", "429", "503"}
    },
    "/v0/health": {"get": {"200"}},
    "/v0/ready": {"get": {"200", "503"}},
    "/v0/metrics": {"get": {"200", "401", "403"}},
}


def check_conventions(answer: Answer) -> Iterator[str]:
    """What sections 0.3, 0.5, 0.6 and 0.9 promise of every answer, whatever was asked."""
    if answer.method == "HEAD":
        return
    is_api = urlsplit(answer.target).path.startswith("/api/v1/")
    if is_api and _OFREP not in answer.target:
        yield from _check_request_id(answer)
    if answer.status < 400:
        if answer.is_json and answer.target.startswith("/v0/"):
            body = answer.parse_json()
            yield from find_differences({"error": "<absent>"}, body)
            if answer.target.startswith(("/v0/topics", "/v0/routers", "/v0/watch")):
                yield from find_differences(_PERFORMANCE, body)
        return
    if answer.status == 414 and not answer.raw:
        return  # the contract of streams of changes has it so
    if not answer.is_json:
        yield f"an error must be application/json, got {answer.headers.get('content-type')!r}"
        return
    body = answer.parse_json()
    if answer.status == 408 and "coverage" in body:
        return  # what a search or an aggregate found in its time is an answer
    if _OFREP in answer.target:
        yield from find_differences(_OFREP_ERROR, body)
    elif is_api:
        shapes = _API_ERRORS.values()
        if all(any(find_differences(shape, body)) for shape in shapes):
            yield f"an error has one of the shapes of /api/v1, got {body}"
    elif answer.target.startswith(("/tenants/", "/api/tenants/")):
        is_problem = answer.headers["content-type"] == "application/problem+json"
        yield from find_differences(_FEED_ERRORS[is_problem], body)
    else:
        yield from find_differences(_ERROR, body)
    if answer.status in (429, 503) and not answer.headers.get("retry-after", "").isdigit():
        yield f"header Retry-After: expected seconds, got {answer.headers.get('retry-after')!r}"
    if answer.status == 405 and not answer.headers.get("allow"):
        yield "header Allow: expected the methods of this path, got nothing"


def _check_request_id(answer: Answer) -> Iterator[str]:
    """The id is in the head of every answer, and in a body that is JSON."""
    id = answer.headers.get("x-request-id")
    if not id:
        yield "header X-Request-ID: expected one, got nothing"
    if answer.is_json:
        yield from find_differences({"request_id": id}, answer.parse_json())


def check_prometheus(answer: Answer) -> Iterator[str]:
    """The text exposition format 0.0.4: typed families, readable samples, cumulative histograms."""
    types: dict[str, str] = {}
    samples: dict[str, float] = {}
    text = answer.raw.decode("utf-8")
    if not text.endswith("\n"):
        yield "metrics: the last line must end"
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            if family in types:
                yield f"metrics: {family} is typed twice"
            types[family] = kind
        elif line and not line.startswith("#"):
            problem = _read_sample(line, types, samples)
            if problem:
                yield problem
    for family in (name for name, kind in types.items() if kind == "histogram"):
        yield from _check_histogram(family, samples)


def _read_sample(line: str, types: dict[str, str], samples: dict[str, float]) -> str:
    found = _SAMPLE.fullmatch(line)
    if found is None:
        return f"metrics: not a sample: {line!r}"
    name, labels, value = found.groups()
    if labels and "".join(label[0] for label in _LABEL.finditer(labels)) != labels:
        return f"metrics: not labels: {line!r}"
    family = re.sub(r"_(bucket|sum|count)$", "", name)
    if name not in types and types.get(family) != "histogram":
        return f"metrics: {name} has no TYPE before it"
    key = line.rpartition(" ")[0]
    if key in samples:
        return f"metrics: {key} is given twice"
    try:
        samples[key] = float(value)
    except ValueError:
        return f"metrics: not a number: {line!r}"
    return ""


def _check_histogram(family: str, samples: dict[str, float]) -> Iterator[str]:
    buckets = [value for key, value in samples.items() if key.startswith(f"{family}_bucket")]
    if buckets != sorted(buckets):
        yield f"metrics: the buckets of {family} are not cumulative: {buckets}"
    total = samples.get(f"{family}_count")
    if total is None or f"{family}_sum" not in samples:
        yield f"metrics: {family} lacks its _count or _sum"
    if samples.get(f'{family}_bucket{{le="+Inf"}}') != total:
        yield f"metrics: the +Inf bucket of {family} is not its count"


def check_openapi(answer: Answer) -> Iterator[str]:
    """An OpenAPI 3.1 document whose references resolve and which names every route of ours."""
    document = answer.parse_json()
    yield from find_differences(
        {
            "openapi": r"<match 3\.1\.\d+>",
            "info": {"title": "<match .+>", "version": "<match .+>"},
            "paths": "<object>",
        },
        document,
    )
    paths = document.get("paths", {})
    bare = {re.sub(r"\{\w+\}", "{}", path): item for path, item in paths.items()}
    for path, methods in ROUTES.items():
        for method, statuses in methods.items():
            described = bare.get(path, {}).get(method, {}).get("responses", {}).keys()
            if missing := statuses - described:
                yield f"openapi: {method} {path} lacks {sorted(missing)}"
    names: list[str] = []
    for path, item in paths.items():
        for method in (name for name in _METHODS if name in item):
            yield from _check_operation(document, f"{method} {path}", item, item[method])
            names.append(item[method].get("operationId", ""))
    if len(set(names)) != len(names) or "" in names:
        yield "openapi: every operation needs an operationId of its own"
    for reference in _references(document):
        if _resolve(document, reference) is None:
            yield f"openapi: {reference} leads nowhere"


def _check_operation(
    document: Any, name: str, item: dict[str, Any], operation: dict[str, Any]
) -> Iterator[str]:
    responses = operation.get("responses", {})
    if not any(str(status) == "101" or str(status).startswith("2") for status in responses):
        yield f"openapi: {name} names no success"
    for status, response in responses.items():
        whole = _resolve(document, response["$ref"]) if "$ref" in response else response
        if not re.fullmatch(r"[1-5](\d\d|XX)|default", status) or "description" not in (
            whole or {}
        ):
            yield f"openapi: {name}: response {status} is not described"
    given = item.get("parameters", []) + operation.get("parameters", [])
    parameters = [_resolve(document, each["$ref"]) if "$ref" in each else each for each in given]
    declared = {each["name"] for each in parameters if each and each["in"] == "path"}
    in_path = set(re.findall(r"\{(\w+)\}", name))
    if declared != in_path:
        yield f"openapi: {name} declares the path parameters {sorted(declared)}"
    if any(each["in"] == "path" and not each.get("required") for each in parameters if each):
        yield f"openapi: {name}: a path parameter must be required"


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _resolve(document: Any, reference: str) -> Any:
    if not reference.startswith("#/"):
        return None
    found = document
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found


CHECKS: dict[str, Check] = {"prometheus": check_prometheus, "openapi": check_openapi}
