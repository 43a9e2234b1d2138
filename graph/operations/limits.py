"""How much one operation from outside may ask for.

An operation is judged before it is validated and long before it runs, from its text, the schema and the variables alone:

    document = parse(text)                                  syntax, tokens and nesting; raises GraphQLError
    refused = check(document, schema, name, variables)      everything else; an empty list lets the operation pass

`measure` is the part of `check` that does not depend on variables, for whoever keeps parsed documents. What is refused
comes as GraphQLError, like the findings of validation, with LimitExceeded as its original error.

Each definition is walked once, fragments before those that spread them, and the sums of a fragment are reused wherever it
is spread. So the time is linear in the length of the text although every count is made as if all fragments were written
out: a chain of fragments that doubles at each step is counted in full, in big integers, without ever being expanded.
Unknown fields, types and fragments count nothing here; validation reports them. docs/promises.md (c) says how others set
such limits.
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

from graph.operations.cost import RowCost, format_count, limit_exceeded_error

MAX_CHARACTERS = 100_000
"""Of a document. The lexer looks at each of them, at some five million a second."""
MAX_TOKENS = 2_000
MAX_FRAGMENTS = 100
"""Definitions in a document: validation compares each with each."""
MAX_REPEATS = 50
"""How often a response name may stand in one selection set: validation compares each of them with each."""
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
"""A list or object in a list or object, of JSON."""
MAX_JSON_VALUES = 20_000
"""Values in the JSON of a request; twice as many as an operation may read rows."""

INTROSPECTION_LIST_FIELDS = frozenset({"types", "fields", "inputFields", "interfaces", "possibleTypes"})
"""The lists of introspection that lead from a type to further types."""


def parse(source: str) -> DocumentNode:
    """Read a document of at most MAX_CHARACTERS and TOKENS. Raises GraphQLError, a GraphQLSyntaxError for what is no GraphQL."""
    if len(source) > MAX_CHARACTERS:
        raise limit_exceeded_error(
            f"The document has {len(source):,} characters, and {MAX_CHARACTERS:,} are allowed. Send long strings as variables."
        )
    try:
        return graphql.parse(source, max_tokens=MAX_TOKENS, allow_empty_selection_sets=False)
    except graphql.GraphQLSyntaxError as error:
        # The library has one class for both kinds; only these two messages speak of size.
        if "more than" in error.message and "tokens" in error.message:
            raise limit_exceeded_error(
                f"The document has more than {MAX_TOKENS:,} tokens. Ask for fewer fields, or send two requests."
            ) from None
        if "nested too deeply" in error.message:
            raise limit_exceeded_error(
                f"The document is nested too deeply; {MAX_DEPTH} levels of fields are allowed. Start further in."
            ) from None
        raise


def check(
    document: DocumentNode,
    schema: GraphQLSchema,
    operation_name: str | None = None,
    variables: Mapping[str, Any] | None = None,
) -> list[GraphQLError]:
    """Every limit that the named (or only) operation of the document breaks."""
    return measure(document, schema, operation_name).find_errors(variables or {})


def measure(
    document: DocumentNode, schema: GraphQLSchema, operation_name: str | None = None, *, trusted: bool = False
) -> "MeasuredOperation":
    """Count all that does not depend on variables.

    The shape of a trusted document is its author's affair; the size of its pages is not, since that may stand in variables, and one
    change an operation is a rule and no limit.

    A document without such an operation, or with several and no name, measures as nothing: execution refuses it.
    """
    operations = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
    definitions = len(document.definitions) - len(operations)
    if definitions > MAX_FRAGMENTS and not trusted:
        message = (
            f"The document has {definitions:,} fragments, and {MAX_FRAGMENTS} are allowed. Write short ones out, or send two requests."
        )
        return MeasuredOperation([limit_exceeded_error(message)], None)
    ordered, cycle = _sort_topologically(fragments)
    if cycle:
        cycle_names = cycle if len(cycle) <= 8 else [*cycle[:6], "…", cycle[-1]]
        cycle_path = " → ".join(cycle_names)
        return MeasuredOperation(
            [limit_exceeded_error(f"Fragments may not go in a circle: {cycle_path}. Leave one of these spreads out.", fragments[cycle[0]])],
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
    # Validation reads fragments that are not used, too.
    counts_of_operation.repeats = max([counts_of_operation.repeats, *(each.repeats for each in counts.values())])
    errors = [
        *_find_mutation_count_errors(operation, counts_of_operation),
        *(() if trusted else _find_shape_errors(operation, counts_of_operation)),
    ]
    used_fragments = _used_fragments(operation, fragments)
    return MeasuredOperation(errors, RowCost(schema, operation, {name: fragments[name] for name in ordered if name in used_fragments}))


class MeasuredOperation:
    """An operation with everything counted but the page sizes that its variables give."""

    def __init__(self, errors: list[GraphQLError], rows: "RowCost | None") -> None:
        self._errors = errors
        self._rows = rows

    def find_errors(self, variables: Mapping[str, Any]) -> list[GraphQLError]:
        return self.evaluate(variables)[1]

    def evaluate(self, variables: Mapping[str, Any]) -> tuple[int, list[GraphQLError]]:
        """The static cost in rows, and every refusal."""
        rows, errors = self._rows.evaluate(variables) if self._rows else (0, [])
        return rows, [*self._errors, *errors] if self._errors else errors

    def errors_without_variables(self) -> list[GraphQLError]:
        """Those of the refusals that no variables could avert: what can be kept with the document, and told before it is validated."""
        return [*self._errors, *(self._rows.errors_without_variables() if self._rows else ())]

    def rows(self, variables: Mapping[str, Any]) -> int:
        """The static cost, for whoever shows it."""
        return self._rows.total(variables) if self._rows else 0

    def advice(self, variables: Mapping[str, Any], allowed: int) -> str:
        """How to do with so many rows: sentences that begin with a space, or nothing."""
        return self._rows.advice(variables, allowed) if self._rows else ""


# Shape: depth, aliases, directives, root fields, introspection


@dataclass(slots=True)
class _Counts:
    """Sums over a selection set with its fragments written out. Introspection is apart: what stands below `__schema`
    and `__type` counts only in the three `introspection_` numbers."""

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
    """The most that one response name stands in a selection set as it is written."""

    def add(self, other: "_Counts", *, same_level: bool) -> None:
        """Take in a fragment's counts (`same_level`), or those below a field."""
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
    """Recursion is bounded: the parser nests at most 200 levels, and fragments come counted."""
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
        yield limit_exceeded_error("An operation makes one change: send a request for each mutation field.", operation)


def _find_shape_errors(operation: OperationDefinitionNode, counts: _Counts) -> Iterator[GraphQLError]:
    directives = counts.directives + len(operation.directives or ())
    directives += sum(len(variable.directives or ()) for variable in operation.variable_definitions or ())
    if counts.depth > MAX_DEPTH:
        yield limit_exceeded_error(
            f"The operation is {counts.depth} fields deep, and {MAX_DEPTH} are allowed. "
            "Start further in: ask for the inner thing by its own path or id.",
            operation,
        )
    if counts.aliases > MAX_ALIASES:
        yield limit_exceeded_error(
            f"The operation has {format_count(counts.aliases)} aliases with its fragments written out, and {MAX_ALIASES} are "
            "allowed. Use a list or `nodes(ids:)` in place of one field many times, or send two requests.",
            operation,
        )
    if directives > MAX_DIRECTIVES:
        yield limit_exceeded_error(
            f"The operation has {format_count(directives)} directives with its fragments written out, and {MAX_DIRECTIVES} are "
            "allowed. Put one @include or @skip on a fragment in place of each field.",
            operation,
        )
    if counts.repeats > MAX_REPEATS:
        yield limit_exceeded_error(
            f"A field stands {counts.repeats:,} times in one selection, and {MAX_REPEATS} are allowed: they are merged, so write it once.",
            operation,
        )
    if counts.fields > MAX_ROOT_FIELDS:
        yield limit_exceeded_error(
            f"The operation has {format_count(counts.fields)} root fields, counted before they are merged, and "
            f"{MAX_ROOT_FIELDS} are allowed. Send two requests.",
            operation,
        )
    if counts.schemas > 1:
        yield limit_exceeded_error("Ask for `__schema` once in an operation.", operation)
    if counts.introspection_depth > MAX_INTROSPECTION_DEPTH:
        yield limit_exceeded_error(
            f"Introspection is {counts.introspection_depth} fields deep, and {MAX_INTROSPECTION_DEPTH} are allowed: "
            "nine levels of `ofType` are enough for any type.",
            operation,
        )
    if counts.introspection_lists > MAX_INTROSPECTION_LISTS:
        yield limit_exceeded_error(
            f"Introspection goes through {counts.introspection_lists} lists inside one another "
            f"({', '.join(sorted(INTROSPECTION_LIST_FIELDS))}), and {MAX_INTROSPECTION_LISTS} are allowed: look types up by name.",
            operation,
        )
    if counts.introspection_aliases:
        yield limit_exceeded_error("Introspection has no use for aliases: leave them out below `__schema` and `__type`.", operation)


def _sort_topologically(fragments: Mapping[str, FragmentDefinitionNode]) -> tuple[list[str], list[str] | None]:
    """Names of fragments, each after those it spreads; or a circle, its first name repeated at the end.

    Without recursion, since a chain of fragments may be longer than the interpreter's stack.
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
