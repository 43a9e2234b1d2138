"""The OpenAPI document, made from the rows, and the page to read it with.

Parameters come from the row, statuses from the row and the error table, answers from the operation's selection over the schema.
The page is static, reads the document of this server and nothing from anywhere else.
"""

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

import orjson
from graphql import get_named_type, get_nullable_type, is_enum_type, is_list_type, is_non_null_type

from rest_v3.door import Page
from rest_v3.endpoint import Endpoint
from rest_v3.errors import STATUSES, standard_text
from rest_v3.operations import Selected
from rest_v3.paging import DEFAULT_SIZE, LARGEST_SIZE
from rest_v3.params import NOT_SENT, Parameter
from rest_v3.values import LARGEST

READING = Path(__file__).parent / "reading"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The reading page's own files and the document; nothing else may load, not even inline."""

Schema = dict[str, Any]

SCALARS: Mapping[str, Schema] = {
    "Int": {"type": "integer"},
    "BigInt": {"type": "integer"},
    "Float": {"type": "number"},
    "Boolean": {"type": "boolean"},
    "DateTime": {"type": "string", "format": "date-time"},
    "Date": {"type": "string", "format": "date"},
    "JSON": {},
}
"""JSON schemas of the graph's scalars; one that is not here is text."""

KINDS: Mapping[str, Schema] = {
    "integer": {"type": "integer", "minimum": -LARGEST - 1, "maximum": LARGEST},
    "integers": {"type": "array", "items": {"type": "integer"}},
    "boolean": {"type": "boolean"},
    "date": {"type": "string", "format": "date"},
    "names": {"type": "string", "description": "Names separated by commas."},
    "file": {"type": "string", "contentMediaType": "application/octet-stream"},
}
"""JSON schemas of the kinds of parameters; one that is not here is text."""


BYTES: Schema = {"application/octet-stream": {}}
"""The content of an answer that is a file."""


def pages(endpoints: Iterable[Endpoint], base_url: str) -> list[tuple[str, Page]]:
    """What is served beside the rows: the document at openapi.json, the page at docs."""
    base_path = escape(urlsplit(base_url).path)
    html = Template((READING / "reading.html").read_text(encoding="utf-8")).substitute(base=base_path)
    return [
        ("/openapi.json", Page(orjson.dumps(document(endpoints, base_url)), "application/json")),
        ("/docs", Page(html.encode(), "text/html; charset=utf-8", POLICY)),
        ("/docs/reading.js", Page((READING / "reading.js").read_bytes(), "text/javascript; charset=utf-8")),
        ("/docs/reading.css", Page((READING / "reading.css").read_bytes(), "text/css; charset=utf-8")),
    ]


def document(endpoints: Iterable[Endpoint], base_url: str) -> Schema:
    """The OpenAPI 3.1 document of the rows."""
    paths: dict[str, Schema] = {}
    sections: dict[str, None] = {}
    for endpoint in endpoints:
        route = endpoint.route
        path = "/".join(f"{{{part[1:]}}}" if part.startswith(":") else part for part in route.path.split("/"))
        paths.setdefault(path, {})[route.method.lower()] = _operation(endpoint)
        if route.section:
            sections.setdefault(route.section)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Forgefront REST API",
            "version": "3",
            "description": "The legacy interface. Everything it shows, and more, is in the graph at /graphql.",
        },
        "servers": [{"url": base_url}],
        "security": [{"privateToken": []}, {"bearer": []}],
        "tags": [{"name": section} for section in sections],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "privateToken": {"type": "apiKey", "in": "header", "name": "PRIVATE-TOKEN"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
            "schemas": {"Error": ERROR},
        },
    }


ERROR: Schema = {
    "type": "object",
    "required": ["message"],
    "properties": {
        "message": {
            "oneOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
            ]
        }
    },
}


def _operation(endpoint: Endpoint) -> Schema:
    route = endpoint.route
    in_path = route.path_names
    inside = [parameter for parameter in route.params if parameter.name not in in_path]
    described: Schema = {
        "operationId": _identifier(route.call),
        "summary": route.summary or _words(endpoint.operation.name),
        "parameters": [_parameter(parameter, "path") for parameter in route.params if parameter.name in in_path],
        "responses": _responses(endpoint),
    }
    if route.section:
        described["tags"] = [route.section]
    if route.anonymous:
        described["security"] = []
    if route.refuses is not None:
        described["deprecated"] = True
    if route.method in ("POST", "PUT"):
        if inside:
            described["requestBody"] = _body(inside)
    else:
        described["parameters"] += [_parameter(parameter, "query") for parameter in inside]
    if endpoint.paginated and not route.whole:
        described["parameters"] += [
            _page_parameter("page", "The number of the page, from 1.", 1, None),
            _page_parameter("per_page", "Entries on a page.", DEFAULT_SIZE, LARGEST_SIZE),
        ]
    return described


def _parameter(parameter: Parameter, place: str) -> Schema:
    described: Schema = {
        "name": parameter.name,
        "in": place,
        "required": place == "path" or parameter.required,
        "schema": _parameter_schema(parameter),
    }
    if parameter.about:
        described["description"] = parameter.about
    return described


def _page_parameter(name: str, about: str, default: int, maximum: int | None) -> Schema:
    schema: Schema = {"type": "integer", "minimum": 1, "default": default}
    if maximum is not None:
        schema["maximum"] = maximum
    return {"name": name, "in": "query", "required": False, "description": about, "schema": schema}


def _parameter_schema(parameter: Parameter) -> Schema:
    schema = dict(KINDS.get(parameter.kind, {"type": "string"}))
    if parameter.kind == "choice":
        schema["enum"] = list(parameter.words)
    elif parameter.kind == "choices":
        schema = {"type": "array", "items": {"type": "string", "enum": list(parameter.words)}}
    if parameter.default is not NOT_SENT and parameter.default is not None:
        schema["default"] = parameter.default
    return schema


def _body(parameters: list[Parameter]) -> Schema:
    properties = {}
    for parameter in parameters:
        properties[parameter.name] = _parameter_schema(parameter)
        if parameter.about:
            properties[parameter.name]["description"] = parameter.about
    schema: Schema = {"type": "object", "properties": properties}
    required = [parameter.name for parameter in parameters if parameter.required]
    if required:
        schema["required"] = required
    kinds = ["multipart/form-data"]
    if not any(parameter.kind == "file" for parameter in parameters):
        kinds = ["application/json", "application/x-www-form-urlencoded", *kinds]
    return {"required": bool(required), "content": {kind: {"schema": schema} for kind in kinds}}


def _responses(endpoint: Endpoint) -> Schema:
    route = endpoint.route
    responses: Schema = {}
    if route.refuses is None:
        responses[str(route.success)] = {
            "description": "Done." if route.method != "GET" else "Found.",
            "content": {"application/json": {"schema": _answer(endpoint)}} if route.stream is None else BYTES,
        }
        if route.stream is not None:
            responses["206"] = {"description": "The one range that was asked for.", "content": BYTES}
        if endpoint.paginated and not route.whole:
            responses[str(route.success)]["headers"] = _paging_headers(route.total)
    for status in sorted(_error_statuses(endpoint)):
        responses[str(status)] = {
            "description": standard_text(status).partition(" ")[2],
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
    return responses


def _error_statuses(endpoint: Endpoint) -> set[int]:
    route = endpoint.route
    codes = {"UNAUTHENTICATED", "FORBIDDEN", "NOT_FOUND", "UNAVAILABLE", "INTERNAL"}
    if route.anonymous:
        codes.discard("UNAUTHENTICATED")
    if endpoint.operation.is_mutation:
        codes.add("INVALID")
    if route.limit is not None:
        codes.add("TOO_LARGE")
    statuses = {route.refuses} if route.refuses is not None else {400} if len(route.params) > len(route.path_names) else set()
    if route.stream is not None:
        statuses.add(416)
    for code in codes | route.errors.keys():
        answer = route.errors.get(code, STATUSES[code])
        status = answer[0] if isinstance(answer, tuple) else answer
        if status >= 400:
            statuses.add(status)
    return statuses


def _paging_headers(total: bool) -> Schema:
    names = ["Link", "X-Page", "X-Per-Page", "X-Next-Page", "X-Prev-Page"]
    if total:
        names += ["X-Total", "X-Total-Pages"]
    return {name: {"schema": {"type": "string"}} for name in names}


def _answer(endpoint: Endpoint) -> Schema:
    """The JSON schema of the body of success."""
    target = endpoint.target
    if target is None:
        schema: Schema = {"type": "null"}
    elif endpoint.paginated:
        schema = _answer_schema(target.below["nodes"])
    else:
        # A null there is a 404, but for values that are no objects.
        schema = _answer_schema(target, nullable=not target.below and not is_non_null_type(target.type))
    reshape = endpoint.route.reshape
    if reshape is None:
        return schema
    describe = getattr(reshape, "describe", None)
    return describe(schema) if describe is not None else {}


def _answer_schema(selected: Selected, *, nullable: bool | None = None) -> Schema:
    if nullable is None:
        nullable = not is_non_null_type(selected.type)
    kind = get_nullable_type(selected.type)
    if is_list_type(kind):
        schema: Schema = {"type": "array", "items": _entry_schema(selected, nullable=not is_non_null_type(kind.of_type))}
    else:
        schema = _entry_schema(selected, nullable=False)
    return _nullable(schema) if nullable else schema


def _entry_schema(selected: Selected, *, nullable: bool) -> Schema:
    named = get_named_type(selected.type)
    if selected.is_connection and "nodes" in selected.below:
        schema = _answer_schema(selected.below["nodes"])
    elif selected.below:
        schema = {
            "type": "object",
            "properties": {key: _answer_schema(part) for key, part in selected.below.items()},
            "required": [key for key, part in selected.below.items() if part.always],
            "additionalProperties": False,
        }
    elif is_enum_type(named):
        schema = {"type": "string", "enum": [name.lower() for name in named.values]}
    else:
        schema = dict(SCALARS.get(named.name, {"type": "string"}))
    return _nullable(schema) if nullable else schema


def _nullable(schema: Schema) -> Schema:
    if not isinstance(schema.get("type"), str):
        return schema
    schema = {**schema, "type": [schema["type"], "null"]}
    if "enum" in schema:
        schema["enum"] = [*schema["enum"], None]
    return schema


def _identifier(call: str) -> str:
    """>>> _identifier("PUT /projects/:id/issues/:issue_id")
    'put_projects_id_issues_issue_id'
    """
    return call.lower().replace(" /", "_").replace("/", "_").replace(":", "")


def _words(name: str) -> str:
    """>>> _words("UpdateIssue")
    'Update issue'
    """
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
    return spaced[:1].upper() + spaced[1:]
