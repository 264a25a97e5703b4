"""The readable API page: one self-contained HTML document rendered from the OpenAPI document."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any, NamedTuple

Json = Mapping[str, Any]

_REF = "#/components/schemas/"
_LIMITS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matches {}",
}


class _Operation(NamedTuple):
    method: str
    path: str
    spec: Json

    @property
    def anchor(self) -> str:
        return str(self.spec["operationId"])


def render(document: Json, base_url: str = "http://127.0.0.1:4000") -> str:
    """Render the whole page; `base_url` is what the curl examples call."""
    operations = [
        _Operation(method.upper(), path, spec)
        for path, methods in document["paths"].items()
        for method, spec in methods.items()
    ]
    schemas: Json = document["components"]["schemas"]
    title = escape(document["info"]["title"])
    body = [
        f"<nav aria-label='Contents'><h2>{title}</h2>{_contents(operations)}</nav>",
        f"<main><header><h1>{title} <small>{escape(document['info']['version'])}</small></h1>",
        _paragraph(document["info"].get("description", "")),
        "<p>The same as a machine reads it: <a href='/openapi.json'>openapi.json</a>.</p></header>",
        *(_render_operation(operation, schemas, base_url) for operation in operations),
        _render_errors(document.get("x-error-codes", [])),
        "<h2 id='types'>Types</h2>",
        *(_render_type(name, schema) for name, schema in schemas.items()),
        "</main>",
    ]
    return _PAGE.format(title=title, style=_STYLE, body="\n".join(body))


def _contents(operations: Iterable[_Operation]) -> str:
    groups: dict[str, list[_Operation]] = {}
    for operation in operations:
        groups.setdefault(next(iter(operation.spec.get("tags", [])), "API"), []).append(operation)
    parts = []
    for group, members in groups.items():
        items = "".join(
            f"<li><a href='#{escape(each.anchor)}'>{_badge(each.method)}"
            f"<span>{escape(each.path)}</span></a></li>"
            for each in members
        )
        parts.append(f"<h3>{escape(group)}</h3><ul>{items}</ul>")
    parts.append(
        "<h3>More</h3><ul><li><a href='#errors'>Error codes</a></li>"
        "<li><a href='#types'>Types</a></li></ul>"
    )
    return "".join(parts)


def _render_operation(operation: _Operation, schemas: Json, base_url: str) -> str:
    spec = operation.spec
    return "\n".join(
        [
            f"<section id='{escape(operation.anchor)}'>",
            f"<h2>{_badge(operation.method)} <code>{escape(operation.path)}</code></h2>",
            _paragraph(spec["summary"]),
            _paragraph(spec.get("description", "")),
            f"<p class='key'>{_needed_key(spec['security'])}</p>",
            _render_parameters(spec.get("parameters", [])),
            _render_request(_request_body(spec), schemas),
            _render_replies(spec.get("responses", {})),
            f"<h3>Try it</h3><pre><code>{escape(_curl(operation, schemas, base_url))}</code></pre>",
            "</section>",
        ]
    )


def _needed_key(security: list[dict[str, list[str]]]) -> str:
    if not security:
        return "No key needed."
    scopes = [
        scope for requirement in security for scopes in requirement.values() for scope in scopes
    ]
    if not scopes:
        return "Needs a key."
    return "Needs a key with " + " and ".join(f"<b>{escape(scope)}</b>" for scope in scopes) + "."


def _render_parameters(parameters: list[Json]) -> str:
    rows = (
        (
            f"<code>{escape(each['name'])}</code>",
            escape(each["in"]) + (", required" if each["required"] else ""),
            _format_type(each["schema"]),
            _format_meaning({**each["schema"], "description": each.get("description", "")}),
        )
        for each in parameters
    )
    return _table("Parameters", ("Name", "Where", "Type", "Meaning"), rows)


def _render_request(content: Json, schemas: Json) -> str:
    if not content:
        return ""
    schema = content["schema"]
    properties = _property_rows(_resolve(schema, schemas))
    intro = f"<h3>Request body</h3><p>{_format_type(schema)}</p>"
    return intro + _table("", ("Field", "Type", "Meaning"), properties)


def _render_replies(responses: Json) -> str:
    rows = []
    for status, response in responses.items():
        bodies = [
            _format_type(content["schema"])
            + ("" if media == "application/json" else f" as <code>{escape(media)}</code>")
            for media, content in response.get("content", {}).items()
        ]
        rows.append(
            (f"<b>{escape(status)}</b>", " or ".join(bodies), escape(response["description"]))
        )
    return _table("Replies", ("Status", "Body", "When"), rows)


def _render_errors(errors: list[Json]) -> str:
    rows = (
        (f"<code>{escape(each['code'])}</code>", str(int(each["status"])), escape(each["meaning"]))
        for each in errors
    )
    return "<h2 id='errors'>Error codes</h2>" + _table("", ("Code", "Status", "Meaning"), rows)


def _render_type(name: str, schema: Json) -> str:
    head = f"<section id='type-{escape(name)}'><h3><code>{escape(name)}</code></h3>"
    rows = list(_property_rows(schema))
    shape = "" if rows else f"<p>{_format_type(schema)}</p>"
    table = _table("", ("Field", "Type", "Meaning"), rows)
    return f"{head}{_paragraph(schema.get('description', ''))}{shape}{table}</section>"


def _property_rows(schema: Json) -> Iterator[tuple[str, str, str]]:
    required = schema.get("required", [])
    for name, each in schema.get("properties", {}).items():
        mark = " <small>required</small>" if name in required else ""
        yield f"<code>{escape(name)}</code>{mark}", _format_type(each), _format_meaning(each)


# --- schemas in words ---


def _resolve(schema: Json, schemas: Json) -> Json:
    ref = schema.get("$ref", "")
    found: Json = schemas[ref.removeprefix(_REF)] if ref else schema
    return found


def _format_type(schema: Json) -> str:
    match schema:
        case {"$ref": ref}:
            name = escape(ref.removeprefix(_REF))
            return f"<a href='#type-{name}'>{name}</a>"
        case {"anyOf": choices} | {"oneOf": choices}:
            return " or ".join(map(_format_type, choices))
        case {"enum": values}:
            return " or ".join(f"<code>{escape(_compact(value))}</code>" for value in values)
        case {"const": value}:
            return f"<code>{escape(_compact(value))}</code>"
        case {"type": "array", "items": dict(items)}:
            return f"array of {_format_type(items)}"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"object of {_format_type(values)}"
        case {"type": kind}:
            return escape(str(kind))
    return "any JSON"


def _format_meaning(schema: Json) -> str:
    parts = [escape(schema.get("description", ""))]
    parts += [
        f"<small>{escape(words.format(schema[word]))}</small>"
        for word, words in _LIMITS.items()
        if word in schema
    ]
    if "default" in schema:
        parts.append(f"<small>default <code>{escape(_compact(schema['default']))}</code></small>")
    return " ".join(filter(None, parts))


def _sketch(schema: Json, schemas: Json, depth: int = 0) -> Any:
    """Make up the smallest value of this shape: what is required and nothing else."""
    # A type may contain itself, so the sketch must end somewhere.
    if depth > 4:
        return None
    match _resolve(schema, schemas):
        case {"default": value} | {"const": value} | {"enum": [value, *_]}:
            return value
        case {"anyOf": [first, *_]} | {"oneOf": [first, *_]}:
            return _sketch(first, schemas, depth + 1)
        case {"type": "object", **rest}:
            properties = rest.get("properties", {})
            return {
                name: _sketch(properties[name], schemas, depth + 1)
                for name in rest.get("required", [])
            }
        case {"type": "array", "items": dict(items)}:
            return [_sketch(items, schemas, depth + 1)]
        case {"type": "integer" | "number", **rest}:
            return rest.get("minimum", 1)
        case {"type": "boolean"}:
            return True
        case {"type": "string"}:
            return "text"
    return {"hello": "world"}


def _curl(operation: _Operation, schemas: Json, base_url: str) -> str:
    url = base_url + operation.path
    for parameter in operation.spec.get("parameters", []):
        if parameter["in"] == "path":
            shown = str(parameter.get("example", parameter["name"]))
            url = url.replace("{" + parameter["name"] + "}", shown)
    method = "" if operation.method == "GET" else f" -X {operation.method}"
    lines = [f"curl{method} {shlex.quote(url)}"]
    if operation.spec["security"]:
        lines.append('-H "Authorization: Bearer $KEY"')
    media, content = _json_body(operation.spec)
    if content:
        body = content.get("example", _sketch(content["schema"], schemas))
        lines += [f"-H 'Content-Type: {media}'", f"-d {shlex.quote(json.dumps(body))}"]
    return " \\\n  ".join(lines)


def _request_body(spec: Json) -> Json:
    return _json_body(spec)[1]


def _json_body(spec: Json) -> tuple[str, Json]:
    """The media type of a body that is JSON, and what is said of it; nothing if it is none."""
    content: Json = spec.get("requestBody", {}).get("content", {})
    found = (each for each in content.items() if each[0].endswith(("/json", "+json")))
    return next(found, ("", {}))


# --- small pieces of HTML; what they take is HTML already ---


def _badge(method: str) -> str:
    return f"<span class='badge {escape(method.lower())}'>{escape(method)}</span>"


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    if not body:
        return ""
    heading = f"<h3>{title}</h3>" if title else ""
    names = "".join(f"<th scope='col'>{name}</th>" for name in head)
    return (
        f"{heading}<div class='wide'><table><thead><tr>{names}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""

_STYLE = """
:root {
  color-scheme: light dark;
  --page: #fdfdfc; --ink: #1d2327; --soft: #5c666e; --line: #e2e5e7; --box: #f4f5f4;
  --link: #0b5cad; --get: #1f6f43; --post: #0b5cad; --put: #8a5a00; --delete: #a8322a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15181b; --ink: #e4e7e9; --soft: #9aa5ad; --line: #2e3438; --box: #1e2327;
    --link: #7db8f2; --get: #26804f; --post: #2671bd; --put: #946510; --delete: #c2493f;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 80rem; padding: 0 1.5rem 4rem;
  background: var(--page); color: var(--ink); font: 1rem/1.6 system-ui, sans-serif;
}
@media (min-width: 60rem) {
  body { display: grid; grid-template-columns: 19rem minmax(0, 1fr); gap: 3rem; }
  nav { position: sticky; top: 0; max-height: 100vh; overflow-y: auto; }
}
nav { padding: 1.5rem 0; font-size: .875rem; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav a { display: flex; gap: .5rem; align-items: baseline; padding: .2rem 0; color: inherit; }
nav span + span { overflow-wrap: anywhere; }
main { padding-top: 1.5rem; min-width: 0; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 .75rem; overflow-wrap: anywhere; }
h3 { font-size: .95rem; margin: 1.5rem 0 .5rem; }
nav h2 { font-size: 1rem; }
nav h3 { margin: 1.25rem 0 .25rem; color: var(--soft); font-weight: 600; }
main > h2 { margin-top: 3rem; }
section { border-top: 1px solid var(--line); padding: 2rem 0 1rem; scroll-margin-top: 1rem; }
p { margin: 0 0 .75rem; max-width: 45rem; }
.key, small { color: var(--soft); }
small { font-size: .85em; font-weight: 400; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
code { font: .9em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
pre { background: var(--box); border-radius: .4rem; padding: 1rem; overflow-x: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: .4rem 1rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.badge {
  display: inline-block; min-width: 3.6rem; padding: .1rem .4rem; border-radius: .25rem;
  color: #fff; background: #5c666e; font-size: .7rem; font-weight: 700;
  text-align: center; flex: none;
}
.badge.get { background: var(--get); }
.badge.post { background: var(--post); }
.badge.put { background: var(--put); }
.badge.delete { background: var(--delete); }
"""
