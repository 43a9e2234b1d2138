"""The reference of the schema at /-/reference: one page, made from the text of the schema, with every description and every link.

It is made when it is first asked for. Beside each root field and each type stand the rows of v3 that it answers, as the operations of
these rows say.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

from graphql import (
    DocumentNode,
    EnumTypeDefinitionNode,
    EnumValueDefinitionNode,
    FieldDefinitionNode,
    GraphQLSchema,
    InputObjectTypeDefinitionNode,
    InputValueDefinitionNode,
    InterfaceTypeDefinitionNode,
    ListTypeNode,
    NamedTypeNode,
    NonNullTypeNode,
    ObjectTypeDefinitionNode,
    ScalarTypeDefinitionNode,
    TypeDefinitionNode,
    TypeNode,
    UnionTypeDefinitionNode,
    parse,
    print_ast,
)
from starlette.types import Receive, Scope, Send

import rest_v3
from forgefront.pages.files import INDEX, Files
from graph.schema import graphql_schema, printed
from rest_v3.operations import Operations, Selected
from rest_v3.routes import EXTRA, ROUTES

ROUTE = "/-/reference"
FOLDER = Path(__file__).parent
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ROOTS = {"Query": "query", "Mutation": "mutation", "Subscription": "subscription"}
KINDS = (
    "Queries",
    "Mutations",
    "Subscriptions",
    "Types",
    "Interfaces and unions",
    "Inputs",
    "Payloads",
    "Connections",
    "Enumerations",
    "Scalars",
)

Rows = Mapping[str, list[str]]
"""Calls of v3, as "GET /projects/:id/issues", by the anchor of what they stand beside: "Query.project", "Issue"."""
Fields = ObjectTypeDefinitionNode | InterfaceTypeDefinitionNode


class ReferenceDoor:
    """The page at ROUTE and its files below. `base_url` is the address of the service for browsers, which may have a path."""

    def __init__(self, base_url: str) -> None:
        self._base = urlsplit(base_url).path.rstrip("/")
        self._files = Files(FOLDER, at=f"{ROUTE}/", policy=POLICY)

    def serves(self, scope: Scope) -> bool:
        return scope["type"] == "http" and (scope["path"] == ROUTE or self._files.matches(scope["path"]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["route"] = ROUTE
        if scope["path"] != ROUTE:
            await self._files(scope, receive, send)
            return
        if INDEX not in self._files:
            self._files.put(INDEX, (await asyncio.to_thread(page, self._base)).encode())
        await self._files.send(INDEX, scope, receive, send)


def page(base: str) -> str:
    """The HTML. `base` is the path that stands before every address of the service."""
    document = parse(printed())
    groups = _grouped(document)
    sections = _Sections(document, _rows(graphql_schema))
    navigation = "".join(
        f"<details{' open' if kind in KINDS[:3] else ''}><summary>{kind} <small>{len(entries)}</small></summary><ul>"
        + "".join(f'<li><a href="#{anchor}">{name}</a></li>' for name, anchor, _ in entries)
        + "</ul></details>"
        for kind, entries in groups.items()
    )
    content = "".join(
        f"<h2>{kind}</h2>" + "".join(sections.of(node, anchor) for _, anchor, node in entries) for kind, entries in groups.items()
    )
    template = Template((FOLDER / "page.template").read_text(encoding="utf-8"))
    return template.substitute(base=escape(base), navigation=navigation, content=content)


Entry = tuple[str, str, TypeDefinitionNode | FieldDefinitionNode]
"""A name, the anchor of its section, and what it shows: fields of the roots stand for themselves."""


def _grouped(document: DocumentNode) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {kind: [] for kind in KINDS}
    for node in document.definitions:
        if not isinstance(node, TypeDefinitionNode):
            continue
        name = node.name.value
        if name in ROOTS and isinstance(node, ObjectTypeDefinitionNode):
            kind = KINDS[list(ROOTS).index(name)]
            groups[kind] = [(field.name.value, f"{name}.{field.name.value}", field) for field in node.fields or ()]
        else:
            groups[_kind_of(node)].append((name, name, node))
    return {kind: sorted(entries, key=lambda entry: entry[0].lower()) for kind, entries in groups.items()}


def _kind_of(node: TypeDefinitionNode) -> str:
    name = node.name.value
    if isinstance(node, ObjectTypeDefinitionNode):
        if name.endswith("Payload"):
            return "Payloads"
        return "Connections" if name.endswith(("Connection", "Edge")) or name == "PageInfo" else "Types"
    if isinstance(node, InputObjectTypeDefinitionNode):
        return "Inputs"
    if isinstance(node, EnumTypeDefinitionNode):
        return "Enumerations"
    return "Scalars" if isinstance(node, ScalarTypeDefinitionNode) else "Interfaces and unions"


class _Sections:
    """Writes the section of a type or of a root field."""

    def __init__(self, document: DocumentNode, rows: Rows) -> None:
        self._rows = rows
        self._given: dict[str, list[str]] = defaultdict(list)
        """Which fields give a type, by its name; for an input, which arguments and fields take it."""
        for owner, field in _members(document):
            self._given[_named(field.type)].append(f"{owner}.{field.name.value}")
            for argument in getattr(field, "arguments", None) or ():
                self._given[_named(argument.type)].append(f"{owner}.{field.name.value}")

    def of(self, node: TypeDefinitionNode | FieldDefinitionNode, anchor: str) -> str:
        if isinstance(node, FieldDefinitionNode):
            return f'<section id="{anchor}">{self._field(node, anchor, "h3")}{self._v3(anchor)}</section>'
        heading = f'<h3>{_keyword(node)} <a href="#{anchor}">{node.name.value}</a>{_extras(node)}</h3>'
        members = "".join(self._parts(node, anchor))
        return (
            f'<section id="{anchor}">{heading}'
            f"{_described(node)}{self._v3(anchor)}{self._givers(anchor)}<div class=members>{members}</div></section>"
        )

    def _parts(self, node: TypeDefinitionNode, anchor: str) -> Iterator[str]:
        if isinstance(node, Fields):
            for field in node.fields or ():
                yield f'<div id="{anchor}.{field.name.value}">{self._field(field, f"{anchor}.{field.name.value}", "h4")}</div>'
        elif isinstance(node, InputObjectTypeDefinitionNode):
            for value in node.fields or ():
                yield f'<div id="{anchor}.{value.name.value}"><h4>{_value(value)}</h4>{_described(value)}</div>'
        elif isinstance(node, EnumTypeDefinitionNode):
            for word in node.values or ():
                yield f'<div id="{anchor}.{word.name.value}"><h4>{word.name.value}</h4>{_described(word)}</div>'

    def _field(self, field: FieldDefinitionNode, anchor: str, heading: str) -> str:
        name = f'<a href="#{anchor}">{field.name.value}</a>'
        if not field.arguments:
            return f"<{heading}>{name}: {_type(field.type)}</{heading}>{_described(field)}"
        arguments = "".join(f"<dt>{_value(argument)}</dt><dd>{_described(argument)}</dd>" for argument in field.arguments)
        return f"<{heading}>{name}(…): {_type(field.type)}</{heading}>{_described(field)}<dl>{arguments}</dl>"

    def _v3(self, anchor: str) -> str:
        calls = self._rows.get(anchor)
        return f"<p class=v3>v3: {', '.join(f'<code>{escape(call)}</code>' for call in calls)}</p>" if calls else ""

    def _givers(self, name: str) -> str:
        given = list(dict.fromkeys(self._given.get(name, ())))
        if not given:
            return ""
        links = ", ".join(f'<a href="#{each}">{each}</a>' for each in given)
        return (
            f"<details class=given><summary>Stands in {len(given)} place{'s' if len(given) > 1 else ''}</summary><p>{links}</p></details>"
        )


def _members(document: DocumentNode) -> Iterator[tuple[str, FieldDefinitionNode | InputValueDefinitionNode]]:
    for node in document.definitions:
        if isinstance(node, Fields | InputObjectTypeDefinitionNode):
            for field in node.fields or ():
                yield node.name.value, field


def _keyword(node: TypeDefinitionNode) -> str:
    return node.kind.removesuffix("_definition").removesuffix("_type").replace("input_object", "input").replace("object", "type")


def _extras(node: TypeDefinitionNode) -> str:
    if isinstance(node, UnionTypeDefinitionNode):
        return " = " + " | ".join(map(_type, node.types or ()))
    interfaces = node.interfaces if isinstance(node, Fields) else ()
    return " implements " + " &amp; ".join(map(_type, interfaces)) if interfaces else ""


def _value(node: InputValueDefinitionNode) -> str:
    default = f" = {escape(print_ast(node.default_value))}" if node.default_value and print_ast(node.default_value) != "null" else ""
    return f"{node.name.value}: {_type(node.type)}{default}"


def _type(node: TypeNode) -> str:
    if isinstance(node, NonNullTypeNode):
        return f"{_type(node.type)}!"
    if isinstance(node, ListTypeNode):
        return f"[{_type(node.type)}]"
    name = _named(node)
    return f'<a href="#{name}">{name}</a>' if name not in BUILT_IN else name


BUILT_IN = frozenset({"Int", "Float", "String", "Boolean", "ID"})


def _named(node: TypeNode) -> str:
    while isinstance(node, ListTypeNode | NonNullTypeNode):
        node = node.type
    return node.name.value if isinstance(node, NamedTypeNode) else ""


def _described(node: TypeDefinitionNode | FieldDefinitionNode | InputValueDefinitionNode | EnumValueDefinitionNode) -> str:
    text = node.description.value if node.description else ""
    parts = escape(text).split("`")
    # Every second part stood between backticks.
    marked = "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))
    old = next((print_ast(each) for each in node.directives or () if each.name.value == "deprecated"), None)
    return "".join(f"<p>{each}</p>" for each in marked.split("\n\n") if each) + (f"<p class=old>{escape(old)}</p>" if old else "")


# The rows of v3


@dataclass(frozen=True, slots=True)
class _Read:
    """An operation of rest_v3 as it stands in its file: it was validated at start."""

    name: str
    kind: str
    document: DocumentNode
    schema: GraphQLSchema


def _rows(of: GraphQLSchema) -> Rows:
    def read(source: str, name: str) -> _Read:
        kind = "mutation" if source.lstrip().startswith("mutation") else "query"
        return _Read(name, kind, parse(source), of)

    operations = Operations.read(rest_v3.ROUTES_FOLDER, read)
    rows: dict[str, list[str]] = defaultdict(list)
    for route in (*ROUTES, *EXTRA):
        operation = operations.get(route.operation)
        root = "Mutation" if operation.is_mutation else "Query"
        for selected in operation.selected.values():
            rows[f"{root}.{selected.name}"].append(route.call)
        if route.gives:
            rows[_given(operation.selected, route.gives)].append(route.call)
    return rows


def _given(selected: Mapping[str, Selected], path: str) -> str:
    """The name of the type at a path of response keys, as "project.issues"; of what is in it, for a connection."""
    *way, last = path.split(".")
    for key in way:
        selected = selected[key].below
    found = selected[last]
    return found.below["nodes"].type_name if found.is_connection else found.type_name
