"""Collects the fields of selection sets: CollectFields of the GraphQL specification, section 6.3.2.

Fields with the same response key are merged, in the order of their first occurrence. `@skip` and `@include` are decided here, so
an operation whose directives use variables has a plan for each combination of their values.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from graphql import (
    BooleanValueNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLField,
    GraphQLInterfaceType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLOutputType,
    GraphQLSchema,
    GraphQLUnionType,
    InlineFragmentNode,
    SelectionNode,
    SelectionSetNode,
    VariableNode,
    get_named_type,
)

from graph.planner.errors import ErrorPosition, ResponsePath, Unplannable

ABSTRACT_TYPES = (GraphQLInterfaceType, GraphQLUnionType)


@dataclass(frozen=True, slots=True)
class MergedField:
    """A selected field, merged from all nodes of its response key. `field` is None for `__typename`."""

    key: str
    nodes: Sequence[FieldNode]
    field: GraphQLField | None
    response_path: ResponsePath
    error_position: ErrorPosition | None
    """None below a list, where the path of a field has indexes."""

    @property
    def name(self) -> str:
        """The name of the field in the schema."""
        return self.nodes[0].name.value

    @property
    def definition(self) -> GraphQLField:
        """The definition of a field that is not `__typename`."""
        assert self.field is not None  # noqa: S101 - as above
        return self.field


@dataclass(frozen=True, slots=True)
class CollectedField(MergedField):
    """A field with those selected of it, by the name of each type that its objects may have."""

    children: Mapping[str, Sequence["CollectedField"]]


class FieldCollector:
    """Collects the fields of one operation.

    `directive_values` are the values of the variables that its directives use.
    """

    def __init__(
        self, schema: GraphQLSchema, fragments: Mapping[str, FragmentDefinitionNode], directive_values: Mapping[str, bool | None]
    ) -> None:
        self._schema = schema
        self._fragments = fragments
        self._directive_values = directive_values
        self.field_count = 0
        """The collected fields, from which the size of a plan is estimated."""
        self._null_paths: dict[ResponsePath, ResponsePath | None] = {(): ()}
        """For the path of an object, the position that becomes null with the object; None at and below a list."""

    def collect(self, kind: GraphQLObjectType, sets: Iterable[SelectionSetNode], response_path: ResponsePath) -> list[CollectedField]:
        """The fields selected of a type and all fields below them, in response order.

        `response_path` is the path of the sets' parent field. Raises Unplannable.
        """
        collected: list[CollectedField] = []
        for key, nodes in self._group_by_response_key(kind, sets).items():
            name = nodes[0].name.value
            field = kind.fields.get(name)
            if field is None and name != "__typename":
                raise Unplannable(name)
            path = (*response_path, key)
            self.field_count += 1
            position = self._error_position(field, response_path, path)
            children = {} if field is None else self._collect_children(field, nodes, path)
            collected.append(CollectedField(key, nodes, field, path, position, children))
        return collected

    def _error_position(self, field: GraphQLField | None, parent_path: ResponsePath, path: ResponsePath) -> ErrorPosition | None:
        null_path = self._null_paths.get(parent_path)
        if field is None or null_path is None:
            return None
        kind: GraphQLOutputType = field.type
        if isinstance(kind, GraphQLNonNull):
            kind = kind.of_type
        else:
            null_path = path
        self._null_paths[path] = None if isinstance(kind, GraphQLList) else null_path
        return ErrorPosition(path, null_path)

    def _collect_children(self, field: GraphQLField, nodes: Sequence[FieldNode], path: ResponsePath) -> dict[str, list[CollectedField]]:
        sets = [node.selection_set for node in nodes if node.selection_set is not None]
        if not sets:
            return {}
        kind = get_named_type(field.type)
        if isinstance(kind, GraphQLObjectType):
            return {kind.name: self.collect(kind, sets, path)}
        if isinstance(kind, ABSTRACT_TYPES):
            return {each.name: self.collect(each, sets, path) for each in self._schema.get_possible_types(kind)}
        return {}

    def _group_by_response_key(self, kind: GraphQLObjectType, sets: Iterable[SelectionSetNode]) -> dict[str, list[FieldNode]]:
        """The field nodes that apply to a type, by response key."""
        fields: dict[str, list[FieldNode]] = {}
        visited_fragments: set[str] = set()
        for each in sets:
            self._add_fields(kind, each, visited_fragments, fields)
        return fields

    def _add_fields(
        self, kind: GraphQLObjectType, selection_set: SelectionSetNode, visited_fragments: set[str], fields: dict[str, list[FieldNode]]
    ) -> None:
        for node in selection_set.selections:
            if node.directives and not self._is_included(node):
                continue
            if isinstance(node, FieldNode):
                fields.setdefault((node.alias or node.name).value, []).append(node)
            elif isinstance(node, FragmentSpreadNode):
                name = node.name.value
                if name in visited_fragments:
                    continue
                fragment = self._fragments[name]
                if self._type_condition_applies(fragment.type_condition.name.value, kind):
                    visited_fragments.add(name)
                    self._add_fields(kind, fragment.selection_set, visited_fragments, fields)
            elif isinstance(node, InlineFragmentNode) and (
                node.type_condition is None or self._type_condition_applies(node.type_condition.name.value, kind)
            ):
                self._add_fields(kind, node.selection_set, visited_fragments, fields)

    def _type_condition_applies(self, condition: str, kind: GraphQLObjectType) -> bool:
        if condition == kind.name:
            return True
        condition_type = self._schema.get_type(condition)
        return isinstance(condition_type, ABSTRACT_TYPES) and self._schema.is_sub_type(condition_type, kind)

    def _is_included(self, node: SelectionNode) -> bool:
        for directive in node.directives or ():
            name = directive.name.value
            if name not in ("skip", "include"):
                raise Unplannable(f"@{name}")
            (argument,) = directive.arguments or ()
            value = argument.value
            flag: bool | None = None
            if isinstance(value, BooleanValueNode):
                flag = value.value
            elif isinstance(value, VariableNode):
                flag = self._directive_values.get(value.name.value)
            if flag is None:
                # Also for null in a variable of a nullable type: graphql-core reports it.
                raise Unplannable(f"@{name}")
            if flag is (name == "skip"):
                return False
        return True
