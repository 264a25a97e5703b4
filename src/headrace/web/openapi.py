"""The OpenAPI 3.1 document, generated from wire types and a table of routes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal, NamedTuple

import msgspec

from headrace.core.errors import Code
from headrace.web.credentials import Scope

JSON = "application/json"

# Falcon writes converters into its templates, {seq:int}; OpenAPI wants the bare name.
_PLACEHOLDER = re.compile(r"\{(\w+)(?::[^}]*)?\}")


class Parameter(NamedTuple):
    """A value in the query, the path or a header."""

    name: str
    type: Any
    description: str
    place: Literal["query", "path", "header"] = "query"
    default: Any = None
    example: Any = None


class Reply(NamedTuple):
    """What one status brings: the type of its body, if it has one, and when it is sent."""

    type: Any
    description: str
    media: str = JSON


class Route(NamedTuple):
    """One operation. A scope of `None` means that no key is asked for."""

    method: str
    path: str
    summary: str
    replies: Mapping[int, Reply]
    request: Any = None
    parameters: Sequence[Parameter] = ()
    scope: Scope | None = None
    group: str = ""
    description: str = ""
    example: Any = None


class ErrorCode(NamedTuple):
    """One row of the error table."""

    code: str
    status: int
    meaning: str


Errors = Mapping[Code, tuple[int, str, str]]
"""Status, code and meaning of each refusal."""

_ALWAYS = (
    Code.UNAUTHENTICATED, Code.FORBIDDEN, Code.THROTTLED, Code.NOT_READY, Code.STORAGE_UNAVAILABLE,
)  # fmt: skip
"""What every endpoint may answer."""


def with_refusals(
    ok: Mapping[int, Reply], codes: Sequence[Code], errors: Errors, error_type: Any
) -> dict[int, Reply]:
    """The good replies of an endpoint, and the refusals it can give: these, and what all can."""
    replies = dict(ok)
    for code in (*codes, *_ALWAYS):
        status, name, _ = errors[code]
        said = replies[status].description + ", " if status in replies else ""
        replies[status] = Reply(error_type, f"{said}`{name}`")
    return dict(sorted(replies.items()))


def build(
    title: str,
    version: str,
    routes: Sequence[Route],
    errors: Sequence[ErrorCode] = (),
    description: str = "",
) -> dict[str, Any]:
    """Build the document; every type it mentions is described once, under `components`."""
    schemas = _Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = _PLACEHOLDER.sub(r"{\1}", route.path)
        operations = paths.setdefault(path, {})
        method = route.method.lower()
        assert method not in operations, f"{route.method} {path} is in the table twice"
        operations[method] = _operation(route, path, schemas)
    return {
        "openapi": "3.1.0",
        "info": _without_blanks(title=title, version=version, description=description),
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "tags": [{"name": group} for group in dict.fromkeys(r.group for r in routes if r.group)],
        "x-error-codes": [error._asdict() for error in errors],
    }


class _Schemas:
    """Turns types into schemas, and collects the components these refer to."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}

    def describe(self, type: Any) -> dict[str, Any]:
        """The schema of one type."""
        [schema], components = msgspec.json.schema_components(
            [type], ref_template="#/components/schemas/{name}"
        )
        for name, component in components.items():
            known = self.components.setdefault(name, component)
            assert known == component, f"two wire types are called {name}"
        return schema


def _operation(route: Route, path: str, schemas: _Schemas) -> dict[str, Any]:
    return _without_blanks(
        operationId=re.sub(r"\W+", "_", f"{route.method.lower()}{path}").rstrip("_"),
        tags=[route.group] if route.group else [],
        summary=route.summary,
        description=route.description,
        parameters=_parameters(route, path, schemas),
        requestBody=_request(route, schemas),
        responses={
            str(status): _response(status, reply, schemas)
            for status, reply in sorted(route.replies.items())
        },
    ) | {"security": _security(route.scope)}


def _parameters(route: Route, path: str, schemas: _Schemas) -> list[dict[str, Any]]:
    written = {parameter.name for parameter in route.parameters if parameter.place == "path"}
    named = _PLACEHOLDER.findall(path)
    assert written <= set(named), f"{path} has no place for {written - set(named)}"
    plain = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in named
        if name not in written
    ]
    return plain + [_parameter(parameter, schemas) for parameter in route.parameters]


def _parameter(parameter: Parameter, schemas: _Schemas) -> dict[str, Any]:
    schema = schemas.describe(parameter.type)
    if parameter.default is not None:
        schema = schema | {"default": parameter.default}
    described = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.description,
        "schema": schema,
    }
    if parameter.example is not None:
        described["example"] = parameter.example
    return described


def _request(route: Route, schemas: _Schemas) -> dict[str, Any]:
    if route.request is None:
        return {}
    content: dict[str, Any] = {"schema": schemas.describe(route.request)}
    if route.example is not None:
        content["example"] = route.example
    return {"content": {JSON: content}}


def _response(status: int, reply: Reply, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {"description": reply.description or HTTPStatus(status).phrase}
    if reply.type is not None:
        described["content"] = {reply.media: {"schema": schemas.describe(reply.type)}}
    return described


def _security(scope: Scope | None) -> list[dict[str, list[str]]]:
    if scope is None:
        return []
    return [{"bearer": [str(each.name).lower() for each in scope]}]


def _without_blanks(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}
