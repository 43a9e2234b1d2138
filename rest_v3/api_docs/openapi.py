"""The OpenAPI document, generated from the routes, and the page that shows it.

Parameters come from the route, statuses from the route and the error table, responses from the operation's selection over the schema.
Named schemas are components (`rest_v3.api_docs.json_schemas`). The page is static and reads only this server's document.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from http import HTTPStatus
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

import orjson

from rest_v3.api_docs.json_schemas import (
    ID_SCHEMA,
    ComponentRegistry,
    Schema,
    add_constant_bodies,
    body_schema,
    error_schemas,
    parameter_schema,
    response_schema,
)
from rest_v3.app import StaticPage
from rest_v3.endpoints.endpoint import Endpoint
from rest_v3.errors import STATUS_BY_CODE, standard_message
from rest_v3.pagination import DEFAULT_PAGE_SIZE, PageRules
from rest_v3.requests.params import RouteParameter
from rest_v3.route import InvalidRouteError

READING_FOLDER = Path(__file__).parent / "reading"

READING_PAGE_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy of the page: only its own files and the document load, nothing inline."""

BINARY_SCHEMA: Schema = {"schema": {"type": "string", "format": "binary"}}
"""The content of a response that is a file."""

COMMON_CODES = frozenset(("FORBIDDEN", "LIMIT_EXCEEDED", "UNAVAILABLE", "INTERNAL"))
"""Error codes that every operation may return."""

ERROR_DESCRIPTIONS: Mapping[int, str] = {
    400: "A parameter is missing or invalid, or the request is malformed.",
    401: "The credential is missing or invalid, or does not allow this.",
    403: "The caller does not have permission.",
    404: "The resource does not exist, or the caller may not see it.",
    405: "Not allowed, or not allowed in the current state.",
    406: "The content type of the body is not supported, or there is nothing to cancel.",
    409: "An equal resource exists, or the state does not allow this.",
    413: "The body or the file is too large.",
    416: "The range starts after the end of the file.",
    422: "The combination of values is invalid.",
    429: "The request took too long, or there were too many attempts. Retry-After says when to try again.",
    500: "Internal error. The log has the details under the id in X-Request-Id.",
    503: "The service is unavailable. Retry-After says when to try again.",
    507: "The disk is full.",
}

HEADERS: Mapping[str, Schema] = {
    "Link": {"type": "string"},
    "X-Page": {"type": "string"},
    "X-Per-Page": {"type": "string"},
    "X-Next-Page": {"type": "string"},
    "X-Prev-Page": {"type": "string"},
    "X-Total": {"type": "string"},
    "X-Total-Pages": {"type": "string"},
}
HEADER_DESCRIPTIONS: Mapping[str, str] = {
    "Link": "Links to the first, previous, next and last page (RFC 8288).",
    "X-Page": "Page number.",
    "X-Per-Page": "Entries per page.",
    "X-Next-Page": "Number of the next page; empty on the last page.",
    "X-Prev-Page": "Number of the previous page; empty on the first page.",
    "X-Total": "Total number of entries.",
    "X-Total-Pages": "Total number of pages.",
}


def create_pages(endpoints: Iterable[Endpoint], base_url: str) -> Iterator[tuple[str, StaticPage]]:
    """Static routes: the document at openapi.json, the page at docs. Both are built at the first request."""

    def build_html() -> bytes:
        template = Template((READING_FOLDER / "reading.html").read_text(encoding="utf-8"))
        base = urlsplit(base_url).path
        return template.substitute(base=escape(base), root=escape(base.removesuffix("/api/v3"))).encode()

    yield from (
        ("/openapi.json", StaticPage(lambda: orjson.dumps(build_document(endpoints, base_url)), "application/json")),
        ("/docs", StaticPage(build_html, "text/html; charset=utf-8", READING_PAGE_CSP)),
        ("/docs/reading.js", StaticPage((READING_FOLDER / "reading.js").read_bytes, "text/javascript; charset=utf-8")),
        ("/docs/reading.css", StaticPage((READING_FOLDER / "reading.css").read_bytes, "text/css; charset=utf-8")),
    )


def build_document(endpoints: Iterable[Endpoint], base_url: str) -> Schema:
    """The OpenAPI 3.1 document of the routes."""
    # A route that never succeeds is not an operation: its 405 is the response to any undefined method of a path.
    rows = [endpoint for endpoint in endpoints if endpoint.route.rejection_status is None]
    components = ComponentRegistry()
    answers = {each.route.call: response_schema(each) if each.route.file_key is None else {} for each in rows}
    for schema in answers.values():
        components.reserve(schema.get("items", schema))
    paths: dict[str, Schema] = {}
    templates: dict[str, str] = {}
    sections: dict[str, list[str]] = {}
    for endpoint in rows:
        route = endpoint.route
        own = _to_template(route.path)
        # Paths that differ only in the names of their parameters are one path, with the names of the first.
        path = templates.setdefault(re.sub(r"{\w+}", "{}", own), own)
        renamed = dict(zip(route.path_names, re.findall(r"{(\w+)}", path), strict=True))
        paths.setdefault(path, {})[route.method.lower()] = _build_operation(endpoint, components, answers[route.call], renamed)
        if route.section:
            sections.setdefault(route.section, []).append(route.summary)
    if duplicates := [name for name, times in Counter(endpoint.route.operation_id for endpoint in rows).items() if times > 1]:
        raise InvalidRouteError(f"several routes have the operation id {' and '.join(duplicates)}: set a name for each")
    by_value = any(endpoint.route.errors_by_value for endpoint in rows)
    statuses = {status for endpoint in rows for status in collect_error_statuses(endpoint)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Forgefront REST API",
            "version": "3",
            "description": "The legacy interface. All its data, and more, is in the GraphQL API at /graphql.",
            "license": {"name": "MIT", "identifier": "MIT"},
            "contact": {"name": "The administrators of this server", "url": base_url.removesuffix(urlsplit(base_url).path)},
        },
        "servers": [{"url": base_url, "description": "This server."}],
        "security": [{"privateToken": []}, {"bearer": []}],
        "tags": [{"name": section, "description": f"{section}: {len(calls)} calls."} for section, calls in sections.items()],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "privateToken": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "PRIVATE-TOKEN",
                    "description": "The private token of a user, as returned by `GET /user`.",
                },
                "bearer": {"type": "http", "scheme": "bearer", "description": "The same token."},
            },
            "headers": {name: {"description": HEADER_DESCRIPTIONS[name], "schema": schema} for name, schema in HEADERS.items()},
            "responses": {_response_name(status): _build_error_response(status) for status in sorted(statuses)},
            "schemas": dict(sorted({**error_schemas(by_value=by_value), **components.schemas}.items())),
        },
    }


def collect_error_statuses(endpoint: Endpoint) -> set[int]:
    """The statuses of all errors that the route may return."""
    route = endpoint.route
    codes = {*COMMON_CODES, *route.error_codes}
    if not route.allows_anonymous:
        codes |= {"UNAUTHENTICATED", "INSUFFICIENT_SCOPE"}
    if route.path_names or route.guard is not None or endpoint.operation.is_mutation:
        codes.add("NOT_FOUND")
    # Every route rejects a query string that is not UTF-8.
    statuses = {route.rejection_status or 400, 400}
    if endpoint.operation.is_mutation:
        codes |= {"INVALID", "REQUIRED", "TAKEN", "CONFLICT"}
    if route.method != "GET":
        # Errors of reading a body.
        statuses |= {406, 413}
    if route.file_key is not None:
        statuses.add(416)
    if route.upload_limit_path is not None:
        statuses.add(507)
        codes.add("TOO_LARGE")
    for code in codes | route.errors.keys():
        answer = route.errors[code] if code in route.errors else STATUS_BY_CODE[code]
        status = answer[0] if isinstance(answer, tuple) else answer
        if status >= 400:
            statuses.add(status)
    if any(answer == 200 for answer in route.errors.values()):
        # A malformed id is not found, also where an unknown id is not an error.
        statuses.add(404)
    return statuses


def _build_operation(endpoint: Endpoint, components: ComponentRegistry, answer: Schema, renamed: Mapping[str, str]) -> Schema:
    route, variables = endpoint.route, endpoint.operation.variables
    body_parameters = [parameter for parameter in route.params if parameter.name not in renamed]
    in_path = {parameter.name: parameter for parameter in route.params if parameter.name in renamed}
    described: Schema = {
        "operationId": route.operation_id,
        "summary": route.summary or _sentence_case(route.operation_id),
        "description": _build_description(endpoint),
        "parameters": [_build_path_parameter(endpoint, in_path[name], renamed[name]) for name in route.path_names],
        "responses": _build_responses(endpoint, components, answer),
    }
    if route.section:
        described["tags"] = [route.section]
    if route.allows_anonymous:
        described["security"] = []
    if route.method in ("POST", "PUT"):
        if body_parameters:
            name = f"{route.operation_id[:1].upper()}{route.operation_id[1:]}Body"
            described["requestBody"] = _build_body(
                body_schema(name, body_parameters, variables, route.needs_one_of), body_parameters, components
            )
    else:
        described["parameters"] += [
            _build_query_parameter(each, parameter_schema(each, variables.get(each.name)), components) for each in body_parameters
        ]
    if endpoint.is_paginated and not route.is_unpaged:
        described["parameters"] += _build_page_parameters(route.page_rules)
    return described


def _build_description(endpoint: Endpoint) -> str:
    """Summary of the route, and the schema's description of the field that it runs."""
    route = endpoint.route
    sentences = [f"{route.summary or _sentence_case(route.operation_id)}."]
    if endpoint.operation.is_mutation:
        sentences += [each.description for each in endpoint.operation.root_fields.values() if each.description]
    return " ".join(sentences)


def _build_path_parameter(endpoint: Endpoint, parameter: RouteParameter, name: str) -> Schema:
    before, _, _ = endpoint.route.path.partition(f"/:{parameter.name}")
    noun = before.rpartition("/")[2].removesuffix("s").replace("_", " ")
    description = parameter.description or f"Id of the {noun}."
    schema = dict(ID_SCHEMA)
    if parameter.kind != "integer":
        schema = {"type": "string", "minLength": 1}
        if not parameter.description:
            description = f"Id of the {noun}, or its full path with %2F for each slash."
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _build_query_parameter(parameter: RouteParameter, schema: Schema, components: ComponentRegistry) -> Schema:
    described: Schema = {
        "name": parameter.name,
        "in": "query",
        "required": parameter.is_required,
        "schema": components.replace_with_references(schema),
    }
    if parameter.description:
        described["description"] = parameter.description
    return described


def _build_page_parameters(rules: PageRules) -> list[Schema]:
    first = rules.first_number
    page = {"type": "integer", "minimum": first, "default": first}
    per_page = {"type": "integer", "minimum": 1, "default": DEFAULT_PAGE_SIZE, "maximum": rules.max_size}
    return [
        {"name": "page", "in": "query", "required": False, "description": f"Page number, from {first}.", "schema": page},
        {"name": "per_page", "in": "query", "required": False, "description": "Entries per page.", "schema": per_page},
    ]


def _build_body(schema: Schema, parameters: list[RouteParameter], components: ComponentRegistry) -> Schema:
    kinds = ["multipart/form-data"]
    if not any(parameter.kind == "file" for parameter in parameters):
        kinds = ["application/json", "application/x-www-form-urlencoded", *kinds]
    reference = components.replace_with_references(schema)
    return {"required": any(parameter.is_required for parameter in parameters), "content": {kind: {"schema": reference} for kind in kinds}}


def _build_responses(endpoint: Endpoint, components: ComponentRegistry, answer: Schema) -> Schema:
    route = endpoint.route
    responses: Schema = {}
    schema = components.replace_with_references(
        add_constant_bodies(answer, endpoint), f"{route.operation_id[:1].upper()}{route.operation_id[1:]}Answer"
    )
    content = {"text/plain" if route.is_text else "application/json": {"schema": schema}}
    if route.file_key is not None:
        content = {route.file_type.partition(";")[0]: BINARY_SCHEMA}
    responses[str(route.success_status)] = {"description": "Done." if route.method != "GET" else "Found.", "content": content}
    if route.file_key is not None:
        responses["206"] = {"description": "The requested range.", "content": content}
    if endpoint.is_paginated and not route.is_unpaged and route.page_rules.has_headers:
        names = [name for name in HEADERS if route.has_total or "Total" not in name]
        responses[str(route.success_status)]["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    for status in sorted(collect_error_statuses(endpoint)):
        responses[str(status)] = {"$ref": f"#/components/responses/{_response_name(status)}"}
    return responses


def _response_name(status: int) -> str:
    """>>> _response_name(404), _response_name(413)
    ('NotFound', 'RequestEntityTooLarge')
    """
    words = standard_message(status).partition(" ")[2]
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z]+", words))


def _build_error_response(status: int) -> Schema:
    described: Schema = {
        "description": ERROR_DESCRIPTIONS.get(status, HTTPStatus(status).phrase),
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    if status in (429, 503):
        described["headers"] = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string"}}}
    if status == 405:
        described["headers"] = {"Allow": {"description": "The methods of this path.", "schema": {"type": "string"}}}
    return described


def _to_template(path: str) -> str:
    """>>> _to_template("/users/:uid/keys/:id")
    '/users/{uid}/keys/{id}'
    """
    return re.sub(r":(\w+)", r"{\1}", path)


def _sentence_case(name: str) -> str:
    """>>> _sentence_case("updateIssue")
    'Update issue'
    """
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
    return spaced[:1].upper() + spaced[1:]
