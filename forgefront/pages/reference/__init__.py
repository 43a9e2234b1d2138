"""The reference of the schema at /-/reference: one page, generated from the schema, with all descriptions and cross references.

It is built at the first request. Each root field and each type lists the v3 routes that it serves, derived from the operations of these
routes.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

from graphql import (
    DocumentNode,
    EnumTypeDefinitionNode,
    EnumValueDefinitionNode,
    FieldDefinitionNode,
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
from forgefront.pages.static_folder import INDEX, StaticFolder
from graph.documents.documents import prepare_document
from graph.schema import print_schema
from rest_v3.operations import OperationRegistry, SelectedField
from rest_v3.routes import EXTRA_ROUTES, ROUTES

ROUTE = "/-/reference"
FOLDER = Path(__file__).parent
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ROOT_KINDS = {"Query": "query", "Mutation": "mutation", "Subscription": "subscription"}
SECTION_TITLES = (
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

CallsByAnchor = Mapping[str, list[str]]
"""Calls of v3, as "GET /projects/:id/issues", by the anchor of their entry: "Query.project", "Issue"."""
FieldsNode = ObjectTypeDefinitionNode | InterfaceTypeDefinitionNode


class ReferenceApp:
    """The page at ROUTE and its files below. `base_url` is the address of the service for browsers, which may have a path."""

    def __init__(self, base_url: str) -> None:
        self._base = urlsplit(base_url).path.rstrip("/")
        self._files = StaticFolder(FOLDER, base_path=f"{ROUTE}/", policy=CONTENT_SECURITY_POLICY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != ROUTE:
            await self._files(scope, receive, send)
            return
        if INDEX not in self._files:
            self._files.put(INDEX, (await asyncio.to_thread(render_page, self._base)).encode())
        await self._files.send(INDEX, scope, receive, send)


def render_page(base: str) -> str:
    """The HTML. `base` is the path prefix of every address of the service."""
    document = parse(print_schema())
    groups = _group_definitions(document)
    sections = _SectionRenderer(document, _collect_calls())
    navigation = "".join(
        f"<details{' open' if kind in SECTION_TITLES[:3] else ''}><summary>{kind} <small>{len(entries)}</small></summary><ul>"
        + "".join(f'<li><a href="#{anchor}">{name}</a></li>' for name, anchor, _ in entries)
        + "</ul></details>"
        for kind, entries in groups.items()
    )
    content = "".join(
        f"<h2>{kind}</h2>" + "".join(sections.render(node, anchor) for _, anchor, node in entries) for kind, entries in groups.items()
    )
    template = Template((FOLDER / "page.template").read_text(encoding="utf-8"))
    return template.substitute(base=escape(base), navigation=navigation, content=content)


SectionEntry = tuple[str, str, TypeDefinitionNode | FieldDefinitionNode]
"""A name, the anchor of its section, and its definition. Fields of the root types have entries of their own."""


def _group_definitions(document: DocumentNode) -> dict[str, list[SectionEntry]]:
    groups: dict[str, list[SectionEntry]] = {kind: [] for kind in SECTION_TITLES}
    for node in document.definitions:
        if not isinstance(node, TypeDefinitionNode):
            continue
        name = node.name.value
        if name in ROOT_KINDS and isinstance(node, ObjectTypeDefinitionNode):
            kind = SECTION_TITLES[list(ROOT_KINDS).index(name)]
            groups[kind] = [(field.name.value, f"{name}.{field.name.value}", field) for field in node.fields or ()]
        else:
            groups[_section_of(node)].append((name, name, node))
    return {kind: sorted(entries, key=lambda entry: entry[0].lower()) for kind, entries in groups.items()}


def _section_of(node: TypeDefinitionNode) -> str:
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


class _SectionRenderer:
    """Renders the section of a type or of a root field."""

    def __init__(self, document: DocumentNode, calls: CallsByAnchor) -> None:
        self._calls = calls
        self._uses: dict[str, list[str]] = defaultdict(list)
        """The fields that return a type, by its name; for an input, the arguments and fields that take it."""
        for owner, field in _iterate_fields(document):
            self._uses[_named_type(field.type)].append(f"{owner}.{field.name.value}")
            for argument in getattr(field, "arguments", None) or ():
                self._uses[_named_type(argument.type)].append(f"{owner}.{field.name.value}")

    def render(self, node: TypeDefinitionNode | FieldDefinitionNode, anchor: str) -> str:
        if isinstance(node, FieldDefinitionNode):
            return f'<section id="{anchor}">{self._render_field(node, anchor, "h3")}{self._render_calls(anchor)}</section>'
        heading = f'<h3>{_keyword(node)} <a href="#{anchor}">{node.name.value}</a>{_render_extras(node)}</h3>'
        members = "".join(self._render_members(node, anchor))
        references = f"{self._render_calls(anchor)}{self._render_uses(anchor)}"
        return f'<section id="{anchor}">{heading}{_render_description(node)}{references}<div class=members>{members}</div></section>'

    def _render_members(self, node: TypeDefinitionNode, anchor: str) -> Iterator[str]:
        if isinstance(node, FieldsNode):
            for field in node.fields or ():
                yield f'<div id="{anchor}.{field.name.value}">{self._render_field(field, f"{anchor}.{field.name.value}", "h4")}</div>'
        elif isinstance(node, InputObjectTypeDefinitionNode):
            for value in node.fields or ():
                yield f'<div id="{anchor}.{value.name.value}"><h4>{_render_input_value(value)}</h4>{_render_description(value)}</div>'
        elif isinstance(node, EnumTypeDefinitionNode):
            for word in node.values or ():
                yield f'<div id="{anchor}.{word.name.value}"><h4>{word.name.value}</h4>{_render_description(word)}</div>'

    def _render_field(self, field: FieldDefinitionNode, anchor: str, heading: str) -> str:
        name = f'<a href="#{anchor}">{field.name.value}</a>'
        if not field.arguments:
            return f"<{heading}>{name}: {_render_type(field.type)}</{heading}>{_render_description(field)}"
        arguments = "".join(
            f"<dt>{_render_input_value(argument)}</dt><dd>{_render_description(argument)}</dd>" for argument in field.arguments
        )
        return f"<{heading}>{name}(…): {_render_type(field.type)}</{heading}>{_render_description(field)}<dl>{arguments}</dl>"

    def _render_calls(self, anchor: str) -> str:
        calls = self._calls.get(anchor)
        return f"<p class=v3>v3: {', '.join(f'<code>{escape(call)}</code>' for call in calls)}</p>" if calls else ""

    def _render_uses(self, name: str) -> str:
        uses = list(dict.fromkeys(self._uses.get(name, ())))
        if not uses:
            return ""
        links = ", ".join(f'<a href="#{each}">{each}</a>' for each in uses)
        return f"<details class=given><summary>Used {len(uses)} time{'s' if len(uses) > 1 else ''}</summary><p>{links}</p></details>"


def _iterate_fields(document: DocumentNode) -> Iterator[tuple[str, FieldDefinitionNode | InputValueDefinitionNode]]:
    for node in document.definitions:
        if isinstance(node, FieldsNode | InputObjectTypeDefinitionNode):
            for field in node.fields or ():
                yield node.name.value, field


def _keyword(node: TypeDefinitionNode) -> str:
    return node.kind.removesuffix("_definition").removesuffix("_type").replace("input_object", "input").replace("object", "type")


def _render_extras(node: TypeDefinitionNode) -> str:
    if isinstance(node, UnionTypeDefinitionNode):
        return " = " + " | ".join(map(_render_type, node.types or ()))
    interfaces = node.interfaces if isinstance(node, FieldsNode) else ()
    return " implements " + " &amp; ".join(map(_render_type, interfaces)) if interfaces else ""


def _render_input_value(node: InputValueDefinitionNode) -> str:
    default = f" = {escape(print_ast(node.default_value))}" if node.default_value and print_ast(node.default_value) != "null" else ""
    return f"{node.name.value}: {_render_type(node.type)}{default}"


def _render_type(node: TypeNode) -> str:
    if isinstance(node, NonNullTypeNode):
        return f"{_render_type(node.type)}!"
    if isinstance(node, ListTypeNode):
        return f"[{_render_type(node.type)}]"
    name = _named_type(node)
    return f'<a href="#{name}">{name}</a>' if name not in BUILT_IN_SCALARS else name


BUILT_IN_SCALARS = frozenset({"Int", "Float", "String", "Boolean", "ID"})


def _named_type(node: TypeNode) -> str:
    while isinstance(node, ListTypeNode | NonNullTypeNode):
        node = node.type
    return node.name.value if isinstance(node, NamedTypeNode) else ""


def _render_description(node: TypeDefinitionNode | FieldDefinitionNode | InputValueDefinitionNode | EnumValueDefinitionNode) -> str:
    text = node.description.value if node.description else ""
    parts = escape(text).split("`")
    # Every second part was between backticks.
    marked = "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))
    old = next((print_ast(each) for each in node.directives or () if each.name.value == "deprecated"), None)
    return "".join(f"<p>{each}</p>" for each in marked.split("\n\n") if each) + (f"<p class=old>{escape(old)}</p>" if old else "")


# The routes of v3


def _collect_calls() -> CallsByAnchor:
    operations = OperationRegistry.read(rest_v3.OPERATIONS_FOLDER, prepare_document)
    calls: dict[str, list[str]] = defaultdict(list)
    for route in (*ROUTES, *EXTRA_ROUTES):
        operation = operations.get(route.operation)
        root = "Mutation" if operation.is_mutation else "Query"
        for selected in operation.root_fields.values():
            calls[f"{root}.{selected.name}"].append(route.call)
        if route.result_path:
            calls[_type_name_at(operation.root_fields, route.result_path)].append(route.call)
    return calls


def _type_name_at(selected: Mapping[str, SelectedField], path: str) -> str:
    """The name of the type at a path of response keys, such as "project.issues"; for a connection, of its items."""
    *parents, last = path.split(".")
    for key in parents:
        selected = selected[key].subfields
    found = selected[last]
    return found.subfields["nodes"].type_name if found.is_connection else found.type_name
