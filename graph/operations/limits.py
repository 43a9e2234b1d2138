"""Limits of the size and shape of a client's operation.

An operation is checked before it is validated and before it runs, only from its source, the schema and the variables:

    document = parse(source)                       syntax, tokens and nesting; raises GraphQLError
    measured = measure(document, schema, name)     everything that does not depend on variables; cached with the document
    rows, errors = measured.evaluate(variables)    without errors the operation may run

Errors are GraphQLErrors like those of validation, with LimitExceeded as the original error.

Each definition is walked once, fragments before the definitions that spread them, and the counts of a fragment are reused
wherever it is spread. So the time is linear in the length of the source although everything is counted as if all fragments
were expanded: a chain of fragments that doubles at each step is counted exactly, in big integers, without expansion.
Unknown fields, types and fragments are not counted; validation reports them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import graphql
from graphql import GraphQLError, GraphQLSchema
from graphql.language import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
)

from graph.documents.document_parser import parse_without_tokens
from graph.operations.cost import RowCost, format_count, limit_exceeded_error

MAX_CHARACTERS = 100_000
"""Maximum length of a document. The lexer reads about five million characters per second."""
MAX_TOKENS = 2_000
MAX_FRAGMENTS = 100
"""Maximum of fragment definitions in a document, because validation compares all pairs."""
MAX_REPEATS = 50
"""Maximum of occurrences of a response name in one selection set, because validation compares all pairs. Those below merged fields and in
other operations of the document are limited while they are compared: `graph/documents/document_validator.py`."""
MAX_DEPTH = 12
MAX_ALIASES = 30
MAX_DIRECTIVES = 20
MAX_ROOT_FIELDS = 10
MAX_MUTATION_FIELDS = 1
MAX_INTROSPECTION_DEPTH = 16
MAX_INTROSPECTION_LISTS = 2

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Maximum size of an answer as JSON, and maximum number of characters read for it from text without a maximum length (descriptions,
notes, messages). Checked while an operation runs: `graph/operations/answer_size.py`."""
MAX_BODY_BYTES = 1024 * 1024
MAX_JSON_DEPTH = 64
"""Maximum nesting of lists and objects in the JSON of a request."""
MAX_JSON_VALUES = 20_000
"""Maximum of values in the JSON of a request; twice the maximum of rows that an operation may read."""

INTROSPECTION_LIST_FIELDS = frozenset({"types", "fields", "inputFields", "interfaces", "possibleTypes"})
"""List fields of introspection that lead from a type to other types."""


def parse(source: str) -> DocumentNode:
    """Parses a document of at most MAX_CHARACTERS and MAX_TOKENS. Raises GraphQLError, GraphQLSyntaxError for a syntax error."""
    if len(source) > MAX_CHARACTERS:
        raise limit_exceeded_error(
            f"The document has {len(source):,} characters, which exceeds the limit of {MAX_CHARACTERS:,}. Send long strings as variables."
        )
    try:
        return parse_without_tokens(source, max_tokens=MAX_TOKENS, allow_empty_selection_sets=False)
    except graphql.GraphQLSyntaxError as error:
        # graphql-core has one exception class for syntax errors and limits; only these two messages are about limits.
        if "more than" in error.message and "tokens" in error.message:
            raise limit_exceeded_error(
                f"The document exceeds the limit of {MAX_TOKENS:,} tokens. Request fewer fields, or send two requests."
            ) from None
        if "nested too deeply" in error.message:
            raise limit_exceeded_error(
                f"The document is nested too deeply; the limit is {MAX_DEPTH} levels of fields. Start at an inner object."
            ) from None
        raise


def measure(
    document: DocumentNode, schema: GraphQLSchema, operation_name: str | None = None, *, trusted: bool = False
) -> "MeasuredOperation":
    """Counts everything that does not depend on variables.

    The shape of a `trusted` document is not limited. Its page sizes are, because they may be variables; so is the number of mutation
    fields.

    A document without such an operation, or with several operations and no name, has no cost here: execution rejects it.
    """
    operations = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
    definitions = len(document.definitions) - len(operations)
    if definitions > MAX_FRAGMENTS and not trusted:
        message = (
            f"The document has {definitions:,} fragments, which exceeds the limit of {MAX_FRAGMENTS}. Inline some, or send two requests."
        )
        return MeasuredOperation([limit_exceeded_error(message)], None)
    ordered, cycle = _sort_topologically(fragments)
    if cycle:
        cycle_names = cycle if len(cycle) <= 8 else [*cycle[:6], "…", cycle[-1]]
        cycle_path = " → ".join(cycle_names)
        return MeasuredOperation(
            [limit_exceeded_error(f"Fragments must not form a cycle: {cycle_path}. Remove one of these spreads.", fragments[cycle[0]])],
            None,
        )
    matching = [node for node in operations if operation_name is None or (node.name and node.name.value == operation_name)]
    if len(matching) != 1:
        return MeasuredOperation([], None)
    operation = matching[0]
    counts: dict[str, _Counts] = {}
    for name in ordered:
        counts[name] = _count_selections(fragments[name].selection_set, counts)
        counts[name].directives += len(fragments[name].directives or ())
    counts_of_operation = _count_selections(operation.selection_set, counts)
    # Validation also reads unused fragments.
    counts_of_operation.repeats = max([counts_of_operation.repeats, *(each.repeats for each in counts.values())])
    errors = [
        *_find_mutation_count_errors(operation, counts_of_operation),
        *(() if trusted else _find_shape_errors(operation, counts_of_operation)),
    ]
    used_fragments = _used_fragments(operation, fragments)
    return MeasuredOperation(errors, RowCost(schema, operation, {name: fragments[name] for name in ordered if name in used_fragments}))


class MeasuredOperation:
    """An operation of which everything is counted except page sizes in variables."""

    def __init__(self, errors: list[GraphQLError], rows: "RowCost | None") -> None:
        self._errors = errors
        self._rows = rows

    def evaluate(self, variables: Mapping[str, Any]) -> tuple[int, list[GraphQLError]]:
        """Returns the static cost in rows, and an error for each limit that the operation exceeds."""
        rows, errors = self._rows.evaluate(variables) if self._rows else (0, [])
        return rows, [*self._errors, *errors] if self._errors else errors

    def errors_without_variables(self) -> list[GraphQLError]:
        """Returns the errors that do not depend on variables; they can be cached with the document and reported before validation."""
        return [*self._errors, *(self._rows.errors_without_variables() if self._rows else ())]

    def rows(self, variables: Mapping[str, Any]) -> int:
        """Returns the static cost, for display."""
        return self._rows.total(variables) if self._rows else 0

    def advice(self, variables: Mapping[str, Any], allowed: int) -> str:
        """Returns advice for reducing the cost to `allowed` rows: sentences that begin with a space, or an empty string."""
        return self._rows.advice(variables, allowed) if self._rows else ""


# Shape: depth, aliases, directives, root fields, introspection


@dataclass(slots=True)
class _Counts:
    """Sums over a selection set with its fragments expanded.

    Fields below `__schema` and `__type` count only in the three `introspection_` numbers.
    """

    depth: int = 0
    aliases: int = 0
    directives: int = 0
    fields: int = 0
    meta_fields: int = 0
    lists: int = 0
    schemas: int = 0
    introspection_depth: int = 0
    introspection_lists: int = 0
    introspection_aliases: int = 0
    repeats: int = 0
    """Maximum of occurrences of one response name in a selection set, without expanding fragments."""

    def add(self, other: "_Counts", *, same_level: bool) -> None:
        """Adds the counts of a fragment (`same_level`), or those below a field."""
        self.aliases += other.aliases
        self.directives += other.directives
        self.schemas += other.schemas
        self.introspection_depth = max(self.introspection_depth, other.introspection_depth)
        self.introspection_lists = max(self.introspection_lists, other.introspection_lists)
        self.introspection_aliases += other.introspection_aliases
        self.repeats = max(self.repeats, other.repeats)
        if same_level:
            self.depth = max(self.depth, other.depth)
            self.lists = max(self.lists, other.lists)
            self.fields += other.fields
            self.meta_fields += other.meta_fields


def _count_selections(selections: SelectionSetNode, fragments: Mapping[str, _Counts]) -> _Counts:
    """Counts a selection set. The recursion is bounded: the parser nests at most 200 levels, and fragments are already counted."""
    counts = _Counts()
    name_counts = Counter(_response_names(selections))
    counts.repeats = max(name_counts.values(), default=0)
    for node in selections.selections:
        counts.directives += len(node.directives or ())
        if isinstance(node, FragmentSpreadNode):
            if spread := fragments.get(node.name.value):
                counts.add(spread, same_level=True)
        elif isinstance(node, InlineFragmentNode):
            counts.add(_count_selections(node.selection_set, fragments), same_level=True)
        elif isinstance(node, FieldNode):
            name = node.name.value
            child_counts = _count_selections(node.selection_set, fragments) if node.selection_set else _Counts()
            counts.fields += 1
            counts.meta_fields += name == "__typename"
            counts.aliases += node.alias is not None
            if name in ("__schema", "__type"):
                counts.schemas += name == "__schema"
                counts.depth = max(counts.depth, 1)
                counts.directives += child_counts.directives
                counts.introspection_depth = max(counts.introspection_depth, 1 + child_counts.depth)
                counts.introspection_lists = max(counts.introspection_lists, child_counts.lists)
                counts.introspection_aliases += child_counts.aliases
            else:
                counts.add(child_counts, same_level=False)
                counts.depth = max(counts.depth, 1 + child_counts.depth)
                counts.lists = max(counts.lists, child_counts.lists + (name in INTROSPECTION_LIST_FIELDS))
    return counts


def _response_names(selections: SelectionSetNode) -> Iterator[str]:
    for node in selections.selections:
        if isinstance(node, FieldNode):
            yield (node.alias or node.name).value
        elif isinstance(node, InlineFragmentNode):
            yield from _response_names(node.selection_set)


def _find_mutation_count_errors(operation: OperationDefinitionNode, counts: _Counts) -> Iterator[GraphQLError]:
    if operation.operation is OperationType.MUTATION and counts.fields - counts.meta_fields > MAX_MUTATION_FIELDS:
        yield limit_exceeded_error("An operation can have only one mutation field. Send a request for each mutation.", operation)


def _find_shape_errors(operation: OperationDefinitionNode, counts: _Counts) -> Iterator[GraphQLError]:
    directives = counts.directives + len(operation.directives or ())
    directives += sum(len(variable.directives or ()) for variable in operation.variable_definitions or ())
    if counts.depth > MAX_DEPTH:
        yield limit_exceeded_error(
            f"The operation is {counts.depth} fields deep, which exceeds the limit of {MAX_DEPTH}. "
            "Request the inner object by its own path or ID.",
            operation,
        )
    if counts.aliases > MAX_ALIASES:
        yield limit_exceeded_error(
            f"The operation has {format_count(counts.aliases)} aliases with expanded fragments, which exceeds the limit of {MAX_ALIASES}. "
            "Use a list or `nodes(ids:)` instead of repeating a field, or send two requests.",
            operation,
        )
    if directives > MAX_DIRECTIVES:
        yield limit_exceeded_error(
            f"The operation has {format_count(directives)} directives with expanded fragments, which exceeds the limit of "
            f"{MAX_DIRECTIVES}. Put one @include or @skip on a fragment instead of each field.",
            operation,
        )
    if counts.repeats > MAX_REPEATS:
        yield limit_exceeded_error(
            f"A field occurs {counts.repeats:,} times in one selection set, which exceeds the limit of {MAX_REPEATS}. Select it once.",
            operation,
        )
    if counts.fields > MAX_ROOT_FIELDS:
        yield limit_exceeded_error(
            f"The operation has {format_count(counts.fields)} root fields before merging, which exceeds the limit of "
            f"{MAX_ROOT_FIELDS}. Send two requests.",
            operation,
        )
    if counts.schemas > 1:
        yield limit_exceeded_error("`__schema` can be selected only once in an operation.", operation)
    if counts.introspection_depth > MAX_INTROSPECTION_DEPTH:
        yield limit_exceeded_error(
            f"Introspection is {counts.introspection_depth} fields deep, which exceeds the limit of {MAX_INTROSPECTION_DEPTH}. "
            "Nine levels of `ofType` are enough for any type.",
            operation,
        )
    if counts.introspection_lists > MAX_INTROSPECTION_LISTS:
        yield limit_exceeded_error(
            f"Introspection nests {counts.introspection_lists} lists ({', '.join(sorted(INTROSPECTION_LIST_FIELDS))}), "
            f"which exceeds the limit of {MAX_INTROSPECTION_LISTS}. Look types up by name.",
            operation,
        )
    if counts.introspection_aliases:
        yield limit_exceeded_error("Aliases are not allowed in introspection. Remove them below `__schema` and `__type`.", operation)


def _sort_topologically(fragments: Mapping[str, FragmentDefinitionNode]) -> tuple[list[str], list[str] | None]:
    """Returns the names of fragments, each after those it spreads; or a cycle, its first name repeated at the end.

    It is not recursive, because a chain of fragments may exceed the interpreter's recursion limit.
    """
    spreads = {name: list(_spread_names(node.selection_set)) for name, node in fragments.items()}
    ordered: list[str] = []
    done: set[str] = set()
    for start in fragments:
        path: list[str] = []
        stack = [] if start in done else [(start, iter(spreads[start]))]
        path.extend(name for name, _ in stack)
        on_path = set(path)
        while stack:
            name, remaining = stack[-1]
            next_name = next((spread for spread in remaining if spread in spreads and spread not in done), None)
            if next_name is None:
                stack.pop()
                on_path.discard(path.pop())
                done.add(name)
                ordered.append(name)
            elif next_name in on_path:
                return [], [*path[path.index(next_name) :], next_name]
            else:
                stack.append((next_name, iter(spreads[next_name])))
                path.append(next_name)
                on_path.add(next_name)
    return ordered, None


def _used_fragments(operation: OperationDefinitionNode, fragments: Mapping[str, FragmentDefinitionNode]) -> set[str]:
    used: set[str] = set()
    waiting = list(_spread_names(operation.selection_set))
    while waiting:
        name = waiting.pop()
        if name in fragments and name not in used:
            used.add(name)
            waiting.extend(_spread_names(fragments[name].selection_set))
    return used


def _spread_names(selections: SelectionSetNode) -> Iterator[str]:
    stack = [selections]
    while stack:
        for node in stack.pop().selections:
            if isinstance(node, FragmentSpreadNode):
                yield node.name.value
            elif isinstance(node, FieldNode | InlineFragmentNode) and node.selection_set:
                stack.append(node.selection_set)
