"""OpenAPI 3.1 documents, derived from the routes of surfaces and their wire types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from headrace.web.routing import placeholders, plain
from headrace.web.surface import Described, OutgoingCall, Parameter, Route, Surface


def build(
    title: str, version: str, surfaces: Sequence[Surface], description: str = ""
) -> dict[str, Any]:
    """The document of some surfaces; every type it mentions is described once.

    Types of several surfaces may have one name: in a document of several, each says whose it is.
    """
    components: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    groups: dict[str, None] = {}
    schemes: dict[str, Any] = {}
    webhooks: dict[str, Any] = {}
    errors: dict[tuple[str, int], str] = {}
    for surface in surfaces:
        schemas = _Schemas(components, f"{surface.name}." if len(surfaces) > 1 else "")
        schemes |= surface.security
        webhooks |= {
            name: {"post": _webhook(name, call, schemas)} for name, call in surface.webhooks.items()
        }
        for route in surface.routes:
            if not route.summary:
                continue
            path = plain(route.path)
            security = surface.security if route.security is None else route.security
            schemes |= security
            operation = _operation(route, path, schemas, [*security])
            paths.setdefault(path, {})[route.method.lower()] = operation
            groups[route.group] = None
        for status, code, meaning in surface.refusals.values():
            if meaning:
                errors.setdefault((code, status), meaning)
    return _without_blanks(
        openapi="3.1.0",
        info=_without_blanks(title=title, version=version, description=description),
        servers=[{"url": url} for url in surfaces[0].servers] if len(surfaces) == 1 else [],
        paths=paths,
        webhooks=webhooks,
        components={"schemas": components, "securitySchemes": schemes},
        tags=[{"name": group} for group in groups if group],
    ) | {
        "x-error-codes": [
            {"code": code, "status": status, "meaning": meaning}
            for (code, status), meaning in errors.items()
        ]
    }


class _Schemas:
    """Turns types into schemas, and collects the components these refer to."""

    def __init__(self, components: dict[str, Any], prefix: str) -> None:
        self._components = components
        self._prefix = prefix

    def describe(self, type: Any) -> dict[str, Any]:
        """The schema of a type, or of any of several."""
        if isinstance(type, tuple):
            return {"anyOf": [self.describe(each) for each in type]}
        [schema], components = msgspec.json.schema_components(
            [type], ref_template=f"#/components/schemas/{self._prefix}{{name}}"
        )
        for name, component in components.items():
            known = self._components.setdefault(self._prefix + name, component)
            assert known == component, f"two wire types are called {name}"
        return schema


def _operation(route: Route, path: str, schemas: _Schemas, schemes: list[str]) -> dict[str, Any]:
    return _without_blanks(
        operationId=route.operation
        or re.sub(r"\W+", "_", f"{route.method.lower()}{path}").rstrip("_"),
        tags=[route.group] if route.group else [],
        summary=route.summary,
        description=route.description,
        parameters=_parameters(route, path, schemas),
        requestBody=_request(route, schemas),
        responses={
            str(status): _response(status, reply, schemas)
            for status, reply in sorted(route.replies.items())
        },
    ) | {"security": _security(route, schemes), **_roles(route)}


def _webhook(name: str, call: OutgoingCall, schemas: _Schemas) -> dict[str, Any]:
    return _without_blanks(
        operationId=f"webhook_{name}",
        tags=[call.group] if call.group else [],
        summary=call.summary,
        description=call.description,
        parameters=[_parameter(parameter, schemas) for parameter in call.parameters],
        requestBody={
            "required": True,
            "content": {call.media: {"schema": schemas.describe(call.request)}},
        },
        responses={str(status): {"description": said} for status, said in call.replies.items()},
    )


def _parameters(route: Route, path: str, schemas: _Schemas) -> list[dict[str, Any]]:
    written = {parameter.name for parameter in route.parameters if parameter.place == "path"}
    named = placeholders(path)
    assert written <= set(named), f"{path} has no place for {written - set(named)}"
    unwritten = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in named
        if name not in written
    ]
    return unwritten + [_parameter(parameter, schemas) for parameter in route.parameters]


def _parameter(parameter: Parameter, schemas: _Schemas) -> dict[str, Any]:
    schema = schemas.describe(parameter.type)
    if parameter.default is not None:
        schema = schema | {"default": parameter.default}
    described = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required or parameter.place == "path",
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
    required = {"required": True} if route.requires_body else {}
    return {"content": {route.media: content}, **required}


def _response(status: int, reply: Described, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {"description": reply.description or HTTPStatus(status).phrase}
    if reply.type is not None:
        types = {reply.media: reply.type, **reply.also}
        described["content"] = {
            media: {"schema": schemas.describe(type)} for media, type in types.items()
        }
    if reply.links:
        described["links"] = dict(reply.links)
    return described


def _security(route: Route, schemes: list[str]) -> list[dict[str, list[str]]]:
    if route.scope is None:
        return []
    needed = list(route.roles) or [str(each.name).lower() for each in route.scope]
    return [{scheme: needed} for scheme in schemes]


def _roles(route: Route) -> dict[str, list[str]]:
    return {"x-required-roles": list(route.roles)} if route.roles else {}


def _without_blanks(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}
