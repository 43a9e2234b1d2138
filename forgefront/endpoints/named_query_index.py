"""The list of named queries at `GET /q`: names, parameters and URLs, as JSON and as a page without scripts."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any
from urllib.parse import urlencode

from graphql import (
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLNonNull,
    OperationDefinitionNode,
    get_named_type,
    get_nullable_type,
    is_list_type,
    parse,
    value_from_ast_untyped,
)

from forgefront.operation_comments import comment_above
from graph.documents.trusted_documents import TrustedDocument
from rest_v3.operations import RouteOperationVariable

RESPONSE_FORMATS = ("json", "csv")
EXAMPLE_VALUES = {"Int": "1", "BigInt": "1", "Float": "0.5", "Boolean": "true", "DateTime": "2026-01-01T00:00:00Z", "Date": "2026-01-01"}
"""Values of parameters in examples, by type; strings are shown as the name of their parameter in capitals."""
PAGE_CSP = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def describe_query(
    document: TrustedDocument, variables: Mapping[str, RouteOperationVariable], list_names: Iterable[str], url: str
) -> dict[str, Any]:
    """An entry of the list. `url` is that of the query, without the extension that selects a format."""
    operation = _parse_operation(document.text)
    defaults = {
        node.variable.name.value: value_from_ast_untyped(node.default_value)
        for node in operation.variable_definitions or ()
        if node.default_value is not None
    }
    parameters = [_describe_parameter(variable, defaults) for variable in variables.values()]
    example = [
        pair for variable in variables.values() if variable.is_required for pair in _example_parameters(variable.name, variable.type)
    ]
    return {
        "name": document.name,
        "description": _description_of(document),
        "documentId": document.id,
        "parameters": parameters,
        "lists": list(list_names),
        "formats": list(RESPONSE_FORMATS),
        "example": f"{url}.csv" + (f"?{urlencode(example, safe=':/')}" if example else ""),
    }


def render_index(entries: Iterable[Mapping[str, Any]]) -> str:
    """The list as a page."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Named queries</title>'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        "<style>body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse}"
        "td,th{text-align:left;vertical-align:top;padding:.1rem 1rem .1rem 0}code{overflow-wrap:anywhere}</style>"
        "<main><h1>Named queries</h1><p>Each is served at <code>/q/NAME.json</code> and <code>/q/NAME.csv</code>."
        " Programs send the private token"
        " in the header <code>PRIVATE-TOKEN</code>; spreadsheets send it as the password, with any user name. <code>list</code> selects the"
        " list of a CSV response.</p>" + "".join(_render_section(entry) for entry in entries) + "</main>"
    )


def _parse_operation(source: str) -> OperationDefinitionNode:
    return next(node for node in parse(source).definitions if isinstance(node, OperationDefinitionNode))


def _description_of(document: TrustedDocument) -> str:
    """The comment directly before the operation in its file, or the empty string."""
    for node in parse(document.source_text).definitions:
        if isinstance(node, OperationDefinitionNode) and node.name is not None and node.name.value == document.name:
            return comment_above(node)
    return ""


def _describe_parameter(variable: RouteOperationVariable, defaults: Mapping[str, Any]) -> dict[str, Any]:
    named = get_named_type(variable.type)
    found: dict[str, Any] = {"name": variable.name, "type": str(variable.type), "required": variable.is_required}
    if variable.name in defaults:
        found["default"] = defaults[variable.name]
    if variable.is_list:
        found["repeatable"] = True
    if isinstance(named, GraphQLEnumType):
        found["values"] = list(named.values)
    if isinstance(named, GraphQLInputObjectType):
        found["fields"] = [{"name": f"{variable.name}.{name}", "type": str(field.type)} for name, field in named.fields.items()]
    return found


def _example_parameters(name: str, kind: GraphQLInputType) -> list[tuple[str, str]]:
    nullable = get_nullable_type(kind)
    if is_list_type(nullable):
        return _example_parameters(name, nullable.of_type)
    named = get_named_type(kind)
    if isinstance(named, GraphQLInputObjectType):
        required = [key for key, field in named.fields.items() if isinstance(field.type, GraphQLNonNull)]
        return [pair for key in required or list(named.fields)[:1] for pair in _example_parameters(f"{name}.{key}", named.fields[key].type)]
    if isinstance(named, GraphQLEnumType):
        return [(name, next(iter(named.values)))]
    return [(name, EXAMPLE_VALUES.get(named.name, name.upper()))]


def _render_section(entry: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code><td><code>{escape(each['type'])}</code><td>{_render_remarks(each)}"
        for each in entry["parameters"]
    )
    lists = ", ".join(f"<code>{escape(name)}</code>" for name in entry["lists"])
    return (
        f"<section><h2>{escape(entry['name'])}</h2>"
        + (f"<p>{escape(entry['description'])}</p>" if entry["description"] else "")
        + (f"<table><tr><th>Parameter<th>Type<th>{rows}</table>" if rows else "<p>No parameters.</p>")
        + (f"<p>Lists: {lists}</p>" if lists else "")
        + f"<p><code>{escape(entry['example'])}</code></p></section>"
    )


def _render_remarks(parameter: Mapping[str, Any]) -> str:
    remarks = ["required"] if parameter["required"] else []
    if "default" in parameter:
        remarks.append(f"default {parameter['default']}")
    if "values" in parameter:
        remarks.append("one of " + ", ".join(parameter["values"]))
    if "fields" in parameter:
        remarks.append("given as " + ", ".join(f"{field['name']} ({field['type']})" for field in parameter["fields"]))
    return escape("; ".join(remarks))
