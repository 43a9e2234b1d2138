"""The operations of rest_v3: read from the files beside the routes and prepared once, with only the fragments they use.

At start, the metadata of each operation is computed: conversions of variables, positions of enums and timestamps in the response, the
objects that a guard checks. Requests parse and validate nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLCompositeType,
    GraphQLEnumType,
    GraphQLInputType,
    GraphQLInterfaceType,
    GraphQLObjectType,
    GraphQLOutputType,
    GraphQLSchema,
    InlineFragmentNode,
    ListTypeNode,
    ListValueNode,
    ObjectValueNode,
    OperationDefinitionNode,
    SelectionSetNode,
    TypeNode,
    VariableNode,
    get_named_type,
    get_nullable_type,
    is_composite_type,
    is_enum_type,
    is_list_type,
    is_non_null_type,
    print_ast,
    type_from_ast,
)

from graph.documents.document_parser import parse_without_tokens
from graph.documents.fragments import fragments_used_by
from graph.documents.output_format import OutputFormat
from graph.fields.metadata import facts_of


class PreparedOperationProtocol(Protocol):
    """The interface of graph.operations.execution's prepared operations that rest_v3 uses."""

    @property
    def name(self) -> str | None: ...
    @property
    def kind(self) -> str: ...
    @property
    def document(self) -> DocumentNode: ...
    @property
    def schema(self) -> GraphQLSchema: ...
    def formatted(self, output_format: OutputFormat) -> "PreparedOperationProtocol": ...


Prepare = Callable[[DocumentNode], Any]
"""graph.operations.execution.prepare_document: takes an operation with its fragments."""

VIEWER, PROJECT_VISIBLE, GROUP_VISIBLE = "Viewer", "ProjectSeen", "GroupSeen"
BUILTIN_SOURCE = """
query Viewer { viewer { id } }
query ProjectSeen($id: String!) { project(path: $id) { id } }
query GroupSeen($id: String!) { group(path: $id) { id } }
"""
"""Operations without a file: default guards; routes that always refuse run one of them first."""


def default_guard(path: str) -> str:
    """The default guard: the project or group must be visible; without one, the caller must be authenticated."""
    if path.startswith("/projects/:id"):
        return PROJECT_VISIBLE
    if path.startswith("/groups/:id"):
        return GROUP_VISIBLE
    return VIEWER


class BadOperationError(Exception):
    """A `.graphql` file is invalid; raised at start, never during a request."""


@dataclass(frozen=True, slots=True)
class SelectedField:
    """A field of the response: all selections of one response key of an object, fragments included."""

    key: str
    name: str
    type: GraphQLOutputType
    is_always_present: bool
    """False below a type condition, @include or @skip: the key may be absent."""
    subfields: "dict[str, SelectedField]" = field(default_factory=dict)
    fragment: str | None = None
    """The single fragment that is selected below this field, if nothing else is."""
    description: str | None = None
    """The schema's description of the field."""
    max_page_size: int | None = None
    """The maximum size of a page, if it is not the usual one."""

    @property
    def is_list(self) -> bool:
        return bool(is_list_type(get_nullable_type(self.type)))

    @property
    def type_name(self) -> str:
        return get_named_type(self.type).name

    @property
    def is_connection(self) -> bool:
        """Whether the field is a paginated list, whose rows are under `nodes`."""
        named = get_named_type(self.type)
        return isinstance(named, GraphQLObjectType | GraphQLInterfaceType) and {"nodes", "pageInfo"} <= named.fields.keys()


@dataclass(frozen=True, slots=True)
class RouteOperationVariable:
    """A variable of an operation."""

    name: str
    type: GraphQLInputType
    is_required: bool

    @property
    def enum(self) -> GraphQLEnumType | None:
        named = get_named_type(self.type)
        return named if is_enum_type(named) else None

    @property
    def is_list(self) -> bool:
        return bool(is_list_type(get_nullable_type(self.type)))


@dataclass(frozen=True, slots=True)
class RouteOperation:
    """A prepared operation, with the metadata that routes need."""

    prepared: Any
    variables: Mapping[str, RouteOperationVariable]
    root_fields: Mapping[str, SelectedField]
    """The fields of the data, by response key."""
    variables_by_input_field: Mapping[str, str]
    """The variable that fills an input field, by the field's name: {"dueDate": "due_date"}."""

    @property
    def is_mutation(self) -> bool:
        return str(self.prepared.kind) == "mutation"

    @property
    def name(self) -> str:
        return str(self.prepared.name)

    @property
    def is_paginated(self) -> bool:
        return {"first", "offset"} <= self.variables.keys()


class OperationRegistry:
    """The operations in the `.graphql` files of a folder, by name. Fragments may be in any of the files."""

    def __init__(self, sources: Iterable[str], prepare: Prepare) -> None:
        self._sources = tuple(sources)
        self._prepare = prepare
        self._loaded: dict[str, RouteOperation] = {}
        self._definitions: dict[str, OperationDefinitionNode] = {}
        self._fragments: dict[str, FragmentDefinitionNode] = {}
        for source in (BUILTIN_SOURCE, *self._sources):
            # Locations take as much memory as everything else.
            for definition in parse_without_tokens(source, no_location=True).definitions:
                if isinstance(definition, FragmentDefinitionNode):
                    _add_unique(self._fragments, definition.name.value, definition)
                elif isinstance(definition, OperationDefinitionNode) and definition.name:
                    _add_unique(self._definitions, definition.name.value, definition)
                else:
                    raise BadOperationError("a .graphql file may contain only named operations and fragments")

    @classmethod
    def read(cls, folder: Path, prepare: Prepare) -> "OperationRegistry":
        return cls((path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.graphql"))), prepare)

    def replaced_by(self, source: str) -> "OperationRegistry":
        """A registry in which the operations and fragments of a source replace those of the same names. It has no further operations."""
        replacing = OperationRegistry((source,), self._prepare)
        # With nodes of its own: executions cache in nodes what depends on the fragments.
        other = OperationRegistry(self._sources, self._prepare)
        other._definitions = {name: replacing._definitions.get(name, definition) for name, definition in other._definitions.items()}
        other._fragments.update(replacing._fragments)
        return other

    @property
    def names(self) -> frozenset[str]:
        """The operations of the files."""
        return frozenset(self._definitions) - {VIEWER, PROJECT_VISIBLE, GROUP_VISIBLE}

    def get(self, name: str) -> RouteOperation:
        """The operation, prepared on first use. Raises BadOperationError when no file has it."""
        if name not in self._loaded:
            if name not in self._definitions:
                raise BadOperationError(f"no .graphql file defines the operation {name}")
            self._loaded[name] = describe_operation(self._prepare(self.document(name)))
        return self._loaded[name]

    def document(self, name: str) -> DocumentNode:
        """The operation and the fragments it uses."""
        try:
            used_fragments = fragments_used_by(self._definitions[name], self._fragments)
        except KeyError as error:
            raise BadOperationError(f"no .graphql file defines the fragment {error.args[0]}, which {name} uses") from None
        return DocumentNode(definitions=(self._definitions[name], *used_fragments.values()))


def describe_operation(prepared: PreparedOperationProtocol) -> RouteOperation:
    """Computes the metadata of a prepared operation.

    Raises BadOperationError for a mutation that does not select its user errors.
    """
    fragments: dict[str, FragmentDefinitionNode] = {}
    operation: OperationDefinitionNode | None = None
    for definition in prepared.document.definitions:
        if isinstance(definition, FragmentDefinitionNode):
            fragments[definition.name.value] = definition
        elif isinstance(definition, OperationDefinitionNode) and operation is None:
            operation = definition
    if operation is None:
        raise BadOperationError(f"{prepared.name} is not an operation")
    root = prepared.schema.get_root_type(operation.operation)
    if root is None:
        raise BadOperationError(f"the schema has no root type for {operation.operation.value}")
    selected = _SelectionMerger(prepared.schema, fragments).merge(root, operation.selection_set)
    described = RouteOperation(prepared, _read_variables(prepared.schema, operation), selected, _map_input_fields(operation))
    if described.is_mutation:
        for payload in selected.values():
            errors = payload.subfields.get("userErrors")
            if errors is None or not {"field", "message", "code"} <= errors.subfields.keys():
                raise BadOperationError(f"{prepared.name} does not select userErrors {{ field message code }}")
    return described


class _SelectionMerger:
    """Merges the selections of an operation by response key.

    GraphQL's validation requires equal leaf types for selections of one key, whatever the type conditions, so one plan for each key is
    enough and the type of an object need not be known.
    """

    def __init__(self, schema: GraphQLSchema, fragments: Mapping[str, FragmentDefinitionNode]) -> None:
        self._schema = schema
        self._fragments = fragments

    def merge(self, parent: GraphQLCompositeType, selections: SelectionSetNode) -> dict[str, SelectedField]:
        merged: dict[str, SelectedField] = {}
        self._collect(parent, selections, True, merged)
        return merged

    def _collect(self, parent: GraphQLCompositeType, selections: SelectionSetNode, always: bool, merged: dict[str, SelectedField]) -> None:
        for node in selections.selections:
            is_unconditional = always and not node.directives
            if isinstance(node, FieldNode):
                self._add(parent, node, is_unconditional, merged)
            elif isinstance(node, FragmentSpreadNode):
                fragment = self._fragments[node.name.value]
                self._collect_fragment(parent, fragment.type_condition.name.value, fragment.selection_set, is_unconditional, merged)
            elif isinstance(node, InlineFragmentNode):
                name = node.type_condition.name.value if node.type_condition else parent.name
                self._collect_fragment(parent, name, node.selection_set, is_unconditional, merged)

    def _collect_fragment(
        self,
        parent: GraphQLCompositeType,
        condition: str,
        selections: SelectionSetNode,
        always: bool,
        merged: dict[str, SelectedField],
    ) -> None:
        inner = self._schema.type_map[condition]
        certain = condition == parent.name or (
            isinstance(inner, GraphQLInterfaceType)
            and isinstance(parent, GraphQLObjectType | GraphQLInterfaceType)
            and inner in parent.interfaces
        )
        self._collect(inner, selections, always and certain, merged)  # type: ignore[arg-type]

    def _add(self, parent: GraphQLCompositeType, node: FieldNode, always: bool, merged: dict[str, SelectedField]) -> None:
        key = node.alias.value if node.alias else node.name.value
        definition = self._schema.get_field(parent, node.name.value)
        if definition is None:
            raise BadOperationError(f"{parent.name} has no field {node.name.value}")
        merged_field = merged.get(key)
        subfields = merged_field.subfields if merged_field else {}
        named = get_named_type(definition.type)
        if node.selection_set is not None and is_composite_type(named):
            self._collect(named, node.selection_set, True, subfields)
        always = always or (merged_field is not None and merged_field.is_always_present)
        fragment = None if merged_field else _sole_fragment(node)
        merged[key] = SelectedField(
            key, node.name.value, definition.type, always, subfields, fragment, definition.description, facts_of(definition).max_page_size
        )


def _sole_fragment(node: FieldNode) -> str | None:
    selections = node.selection_set.selections if node.selection_set else ()
    if len(selections) != 1 or not isinstance(selections[0], FragmentSpreadNode) or selections[0].directives:
        return None
    return selections[0].name.value


def _read_variables(schema: GraphQLSchema, operation: OperationDefinitionNode) -> dict[str, RouteOperationVariable]:
    found = {}
    for definition in operation.variable_definitions or ():
        kind = _input_type(schema, definition.type)
        name = definition.variable.name.value
        found[name] = RouteOperationVariable(name, kind, bool(is_non_null_type(kind)) and definition.default_value is None)
    return found


def _input_type(schema: GraphQLSchema, node: TypeNode | ListTypeNode) -> GraphQLInputType:
    kind = type_from_ast(schema, node)
    if kind is None:
        raise BadOperationError(f"the schema has no type for {print_ast(node)}")
    return kind  # type: ignore[return-value]


def _map_input_fields(operation: OperationDefinitionNode) -> dict[str, str]:
    """{"dueDate": "due_date"} for `input: {dueDate: $due_date}`."""
    found: dict[str, str] = {}
    # graphql-core's visitor takes ten times as long, at every start.
    remaining: list[Any] = [operation.selection_set]
    while remaining:
        node = remaining.pop()
        if isinstance(node, SelectionSetNode):
            remaining += node.selections
        elif isinstance(node, ObjectValueNode):
            found |= {part.name.value: part.value.name.value for part in node.fields if isinstance(part.value, VariableNode)}
            remaining += [part.value for part in node.fields]
        elif isinstance(node, ListValueNode):
            remaining += node.values
        elif isinstance(node, FieldNode | InlineFragmentNode):
            remaining.append(node.selection_set)
            remaining += [argument.value for argument in getattr(node, "arguments", None) or ()]
    return found


def _add_unique(definitions: dict[str, Any], name: str, definition: Any) -> None:
    if name in definitions:
        raise BadOperationError(f"duplicate definition of {name}")
    definitions[name] = definition
