"""The static cost of an operation: the maximum of rows that it may read, by the page sizes that it requests.

Rows are the objects in a result: an item of a page or list, and a `Node` reached through a field. A page has the size of `first` or `last`
(or else the argument's default, or DEFAULT_PAGE_SIZE); a list with an argument `ids` has their number; any other list counts as
ASSUMED_LIST_SIZE. A few expensive fields cost `extra_rows` more (`FieldFacts`). Other value objects (counts, quantiles, page info) and
pages of which only `totalCount` is selected cost nothing. Repeated selections are counted repeatedly, even if execution merges them.

`projects(first: 50) { nodes { owner { name } issues(first: 10) { nodes { title } } } }` costs 50 projects, 50 owners and
500 issues: 600 rows.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from typing import Any, Literal

import graphql
from graphql import GraphQLError, GraphQLSchema, Undefined
from graphql.language import (
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    IntValueNode,
    ListValueNode,
    Node,
    OperationDefinitionNode,
    SelectionSetNode,
    ValueNode,
    VariableDefinitionNode,
    VariableNode,
)

from graph.errors import LimitExceeded
from graph.fields.metadata import facts_of
from graph.planner.coerce.arguments import DeclaredVariable

MAX_ROWS = 10_000
DEFAULT_PAGE_SIZE = 20
"""Size of a page without `first` and `last`, also in `graph/fields/connection_pages.py`."""
MAX_PAGE_SIZE = 100
ASSUMED_LIST_SIZE = 10
"""Assumed size of a list without arguments (the labels of an issue, the entries of a diff)."""
MAX_CACHED_SIZES = 32
"""Maximum of combinations of page sizes for which an operation caches its cost."""


def limit_exceeded_error(message: str, node: Node | None = None) -> GraphQLError:
    """Returns a LimitExceeded error in the form of a validation error, with the location of `node`."""
    return GraphQLError(message, [node] if node else None, original_error=LimitExceeded(message))


def format_count(value: int) -> str:
    """Formats a count for messages; very large counts, which may have hundreds of digits, are abbreviated."""
    return f"{value:,}" if value < 10**12 else "more than 10^12"


@dataclass(slots=True)
class _CostNode:
    """A field in the tree of costs. `kind` determines how its cost follows from its children:

    node        one row plus the children
    value       only the children
    item        the list of a page (`nodes`, `edges`, `rows`): a row plus the children for each item of the enclosing page
    connection  its size times its items; the size is at most `max_size`
    page        as `connection`, for other fields with `first`, which have their own limits
    list        its size times a row plus the children
    """

    kind: Literal["node", "value", "item", "connection", "page", "list"]
    label: str
    size: "int | _VariableSize" = 0
    is_reducible: bool = False
    """Whether the caller can reduce the size with `first`."""
    extra_cost: int = 0
    max_size: int = MAX_PAGE_SIZE
    children: "list[_CostNode | str]" = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _VariableSize:
    """A size that depends on variables: the maximum of their values and `literals`.

    `default` is the size if no argument has a value. An argument that is null has no value: neither its own default nor that of the
    variable applies, as in execution.
    """

    variables: tuple[str, ...]
    literals: tuple[int, ...]
    default: int

    def resolve(self, sizes: Mapping[str, int | None]) -> int:
        return max([*self.literals, *(size for name in self.variables if (size := sizes[name]) is not None)], default=self.default)


class _SizeVariable:
    """A variable that determines a size. Its value is coerced by the same `DeclaredVariable` as for execution."""

    def __init__(self, schema: GraphQLSchema, node: VariableDefinitionNode) -> None:
        self._name = node.variable.name.value
        self._coercion: DeclaredVariable | None = None
        # Validation, which runs later, reports an invalid type or default.
        with suppress(GraphQLError):
            self._coercion = DeclaredVariable.from_node(schema, node)

    def size_in(self, variables: Mapping[str, Any]) -> int | None:
        """Returns the size; None for an absent value and for null. A value that execution rejects is used without coercion."""
        value = variables.get(self._name, Undefined)
        coercion = self._coercion
        if coercion is None:
            return _size_in_value(value)
        if value is Undefined:
            return _size_in_value(coercion.default)
        if isinstance(value, list):
            # Coercion does not change the length of a list, and is slow.
            return len(value)
        if coercion.is_plain is None or not coercion.is_plain(value):
            with suppress(GraphQLError, RecursionError):
                coerced = coercion.coerce_value(value)
                return _size_in_value(value if coerced is Undefined else coerced)
        return _size_in_value(value)


class RowCost:
    """The cost of one operation; `fragments` are those that it uses, each after those that it spreads itself."""

    def __init__(
        self,
        schema: GraphQLSchema,
        operation: OperationDefinitionNode,
        fragments: Mapping[str, FragmentDefinitionNode],
    ) -> None:
        self._schema = schema
        self._page_type_names = _page_types(schema)
        self._sized_nodes: list[tuple[_CostNode, FieldNode]] = []
        """Fields with a size, and their nodes in the document."""
        self._fragments = {
            name: self._cost_nodes(node.selection_set, schema.type_map.get(node.type_condition.name.value))
            for name, node in fragments.items()
        }
        self._operation = self._cost_nodes(operation.selection_set, schema.get_root_type(operation.operation))
        names = {name for part, _ in self._sized_nodes if not isinstance(part.size, int) for name in part.size.variables}
        defined = {node.variable.name.value: node for node in operation.variable_definitions or ()}
        self._size_variables = {name: _SizeVariable(schema, defined[name]) for name in sorted(names & defined.keys())}
        """Variables that determine sizes."""
        self._undefined = dict.fromkeys(names - defined.keys())
        self._cache: dict[tuple[int | None, ...], tuple[int, list[GraphQLError]]] = {}

    def evaluate(self, variables: Mapping[str, Any]) -> tuple[int, list[GraphQLError]]:
        """Returns the rows, and the errors if there are too many."""
        sizes = self._sizes(variables)
        key = tuple(sizes.values())
        found = self._cache.get(key)
        if found is None:
            rows = self._total(sizes)
            found = rows, list(self._find_errors(rows, sizes))
            # Errors are not cached: they are large, and a client can cause one for each number.
            if not found[1] and len(self._cache) < MAX_CACHED_SIZES:
                self._cache[key] = found
        return found

    def errors_without_variables(self) -> list[GraphQLError]:
        """Returns the errors, if they do not depend on variables."""
        return [] if self._size_variables else self.evaluate({})[1]

    def total(self, variables: Mapping[str, Any]) -> int:
        """Returns the rows of the operation."""
        return self._total(self._sizes(variables))

    def _sizes(self, variables: Mapping[str, Any]) -> dict[str, int | None]:
        """Returns the values of the variables that determine sizes, by name."""
        sizes = {name: variable.size_in(variables) for name, variable in self._size_variables.items()}
        return {**sizes, **self._undefined} if self._undefined else sizes

    def _total(self, sizes: Mapping[str, int | None], *, at_most: int | None = None, only: str | None = None) -> int:
        """Returns the rows of the operation if all reducible pages (or only those of the field `only`) had at most `at_most` items."""

        def sum_rows(parts: "list[_CostNode | str]") -> tuple[int, int]:
            """Returns the rows, and the rows per item of the page to which these parts belong."""
            flat = each = 0
            for part in parts:
                if isinstance(part, str):
                    more_flat, more_each = fragments.get(part, (0, 0))
                    flat, each = flat + more_flat, each + more_each
                    continue
                below, items = sum_rows(part.children)
                if part.kind in ("node", "value"):
                    flat += (part.kind == "node") + part.extra_cost + below + DEFAULT_PAGE_SIZE * items
                elif part.kind == "item":
                    each += 1 + below + DEFAULT_PAGE_SIZE * items
                else:
                    size = part.size if isinstance(part.size, int) else part.size.resolve(sizes)
                    if at_most is not None and (part.label == only or (only is None and part.is_reducible)):
                        size = min(size, at_most)
                    flat += size * (1 + below + DEFAULT_PAGE_SIZE * items) if part.kind == "list" else below + size * items
            return flat, each

        fragments: dict[str, tuple[int, int]] = {}
        for name, parts in self._fragments.items():
            fragments[name] = sum_rows(parts)
        flat, each = sum_rows(self._operation)
        return flat + DEFAULT_PAGE_SIZE * each

    def _find_errors(self, rows: int, sizes: Mapping[str, int | None]) -> Iterator[GraphQLError]:
        for part, node in self._sized_nodes:
            size = part.size if isinstance(part.size, int) else part.size.resolve(sizes)
            if part.kind == "connection" and size > part.max_size:
                message = f"The page size {format_count(size)} of {part.label} exceeds the limit of {part.max_size:,}."
                yield limit_exceeded_error(f"{message} Request first: {part.max_size}, and continue with after.", node)
        if rows > MAX_ROWS:
            advice = self._advice(sizes, MAX_ROWS) or " Request fewer nested lists, or send several requests."
            yield limit_exceeded_error(f"The query cost of {format_count(rows)} rows exceeds the limit of {MAX_ROWS:,}.{advice}")

    def advice(self, variables: Mapping[str, Any], allowed: int) -> str:
        """Names the most expensive fields, and page sizes with which the cost is at most `allowed` rows.

        Returns sentences that begin with a space; an empty string if smaller pages do not suffice.
        """
        return self._advice(self._sizes(variables), allowed)

    def _advice(self, sizes: Mapping[str, int | None], allowed: int) -> str:
        rows = self._total(sizes)
        shrinking = {part.label for part, _ in self._sized_nodes if part.is_reducible}
        max_sizes: dict[str, int] = {}
        for part, _ in self._sized_nodes:
            size = part.size if isinstance(part.size, int) else part.size.resolve(sizes)
            max_sizes[part.label] = max(size, max_sizes.get(part.label, 0))
        # Eight candidates are enough to name three; this bounds the work for an error message.
        candidates = sorted(max_sizes, key=lambda label: -max_sizes[label])[:8]
        saved = {label: rows - self._total(sizes, at_most=0, only=label) for label in candidates}
        most_expensive = sorted((label for label in candidates if saved[label]), key=lambda label: -saved[label])[:3]
        message = ""
        if most_expensive:
            described = ", ".join(f"{label} ({format_count(saved[label])} rows by {max_sizes[label]})" for label in most_expensive)
            message += f" Most expensive: {described}."
        for label in (label for label in most_expensive if label in shrinking):
            # The cost is a polynomial of the size without negative coefficients, so it is below this chord.
            fitting_size = max_sizes[label] * (allowed - rows + saved[label]) // saved[label]
            if fitting_size >= 1:
                return f"{message} Use first: {fitting_size} for {label} to stay within the limit."
        fitting_size = next((size for size in (100, 50, 20, 15, 10, 5, 3, 2, 1) if self._total(sizes, at_most=size) <= allowed), 0)
        if fitting_size:
            return f"{message} Use a page size of {fitting_size} everywhere to stay within the limit."
        return f"{message} Request fewer nested lists, or send several requests." if message else ""

    def _cost_nodes(self, selections: SelectionSetNode, parent: graphql.GraphQLNamedType | None) -> "list[_CostNode | str]":
        nodes: list[_CostNode | str] = []
        for node in selections.selections:
            if isinstance(node, FragmentSpreadNode):
                nodes.append(node.name.value)
            elif isinstance(node, InlineFragmentNode):
                condition = node.type_condition
                inner = self._schema.type_map.get(condition.name.value) if condition else parent
                nodes.extend(self._cost_nodes(node.selection_set, inner))
            elif isinstance(node, FieldNode) and node.selection_set:
                part = self._cost_node(node, parent)
                if part is not None:
                    nodes.append(part)
        return nodes

    def _cost_node(self, node: FieldNode, parent: graphql.GraphQLNamedType | None) -> _CostNode | None:
        if not isinstance(parent, graphql.GraphQLObjectType | graphql.GraphQLInterfaceType) or not node.selection_set:
            return None
        field_definition = parent.fields.get(node.name.value)
        if field_definition is None:
            return None
        named = graphql.get_named_type(field_definition.type)
        label = f"{parent.name}.{node.name.value}"
        if graphql.is_list_type(graphql.get_nullable_type(field_definition.type)):
            if parent.name in self._page_type_names:
                part = _CostNode("item", label)
            else:
                part = _CostNode("list", label, self._size(node, field_definition, ("first", "last", "ids"), ASSUMED_LIST_SIZE))
        elif named.name in self._page_type_names:
            kind: Literal["connection", "page"] = "connection" if named.name.endswith("Connection") else "page"
            part = _CostNode(kind, label, self._size(node, field_definition, ("first", "last"), DEFAULT_PAGE_SIZE))
            part.max_size = facts_of(field_definition).max_page_size or MAX_PAGE_SIZE
        else:
            # The item of an edge is counted with the edge.
            per: Literal["node", "value"] = "node" if _is_node(named) and not parent.name.endswith("Edge") else "value"
            part = _CostNode(per, label, extra_cost=facts_of(field_definition).extra_rows)
        part.is_reducible = "first" in field_definition.args
        if part.kind in ("connection", "page", "list"):
            self._sized_nodes.append((part, node))
        part.children = self._cost_nodes(node.selection_set, named)
        return part

    def _size(
        self, node: FieldNode, field_definition: graphql.GraphQLField, names: tuple[str, ...], default_size: int
    ) -> int | _VariableSize:
        """Returns the size by the field's arguments, a number if it does not depend on variables."""
        for name in names:
            default = _default(field_definition.args[name]) if name in field_definition.args else None
            default_size = default if default is not None else default_size
        arguments = {argument.name.value: argument.value for argument in node.arguments or ()}
        values = [arguments[name] for name in names if name in arguments]
        literals = tuple(size for value in values if (size := _size_in_literal(value)) is not None)
        variable_names = tuple(value.name.value for value in values if isinstance(value, VariableNode))
        return _VariableSize(variable_names, literals, default_size) if variable_names else max(literals, default=default_size)


def _default(argument: graphql.GraphQLArgument) -> int | None:
    """Returns an argument's default, which graphql-core stores in one of three attributes."""
    if isinstance(argument.default_value, int):
        return argument.default_value
    if argument.default is None:
        return None
    if argument.default.literal:
        return _size_in_literal(argument.default.literal)
    return argument.default.value if isinstance(argument.default.value, int) else None


def _size_in_value(value: object) -> int | None:
    """The size in a variable's value. JSON's 100.0 is a GraphQL Int too."""
    if isinstance(value, list):
        return len(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not isfinite(value):
        return None
    return max(int(value), 0)


def _size_in_literal(value: ValueNode) -> int | None:
    if isinstance(value, IntValueNode):
        # Longer than any GraphQL Int; int() itself refuses thousands of digits.
        return max(int(value.value), 0) if len(value.value) < 12 else 10**12
    return len(value.values) if isinstance(value, ListValueNode) else None


def _is_node(named_type: graphql.GraphQLNamedType) -> bool:
    """Whether objects of this type are rows of storage (`Node`); unions and interfaces are assumed to be."""
    if isinstance(named_type, graphql.GraphQLObjectType):
        return any(interface.name == "Node" for interface in named_type.interfaces)
    return graphql.is_abstract_type(named_type)


@lru_cache(maxsize=8)
def _page_types(schema: GraphQLSchema) -> frozenset[str]:
    """Returns the names of page types: connections, and other types of fields with an argument `first` or `last`."""
    found = {name for name in schema.type_map if name.endswith("Connection")}
    for kind in schema.type_map.values():
        if isinstance(kind, graphql.GraphQLObjectType | graphql.GraphQLInterfaceType):
            for field_definition in kind.fields.values():
                if field_definition.args.keys() & {"first", "last"} and not graphql.is_list_type(
                    graphql.get_nullable_type(field_definition.type)
                ):
                    found.add(graphql.get_named_type(field_definition.type).name)
    return frozenset(found)
