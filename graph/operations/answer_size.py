"""Limits the size of an answer: at most MAX_ANSWER_BYTES of JSON, written in pieces if it is large (`graph/http/json_pieces.py`).

The text that an operation reads is limited where it is read (`storage/database/text_budget.py`). The answer can be much larger than that: a
description that is read once is repeated under each note of its issue and under each alias. Most answers are known to be small from the
amount of text read and from the fields that the operation selects; all others are measured, in time slices, before they are written.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import orjson
from graphql import GraphQLField, GraphQLSchema, get_named_type, get_nullable_type, is_list_type
from graphql.language import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    NamedTypeNode,
    OperationDefinitionNode,
    SelectionSetNode,
)

from graph.context import Context
from graph.documents.documents import PreparedOperation
from graph.errors import ResultUnreadable
from graph.http.json_pieces import PIECE_BYTES
from graph.operations.limits import MAX_ANSWER_BYTES
from graph.operations.results import OperationResult, make_error_entry, to_operation_error
from graph.operations.time_slices import SliceScheduler
from storage.database.text_budget import TextLimitExceeded

MAX_SMALL_ANSWER_BYTES = 4 * 1024 * 1024
"""Maximum size of an answer that is written in one piece, in characters: writing it takes 2 ms for ASCII and 40 ms for quotation marks."""
MAX_SHORT_VALUE_BYTES = 300
"""Maximum size, in characters, of a value whose column has a maximum length, together with its name."""
LEAF_BYTES = {"Int": 11, "BigInt": 20, "Float": 25, "Boolean": 5, "DateTime": 29, "Date": 12}
"""Maximum size of values of these scalars in JSON; null is shorter."""
PUNCTUATION_BYTES = 6
"""Of a field: quotation marks, colon, comma and brackets."""
MAX_ESCAPE_BYTES = 6
"""Maximum number of bytes of one character in JSON, as in `\\u0001`."""
MIN_LONG_STRING_LENGTH = 1024
"""Minimum length of a string whose JSON is measured exactly; the size of a shorter one is its number of characters."""


class FieldRepetition:
    """Counts the leaf fields that an operation selects, with fragments expanded.

    `field_count` is the number of all of them; `max_repeats` is how often the most frequent field name occurs, wherever it is selected.
    `value_bytes` is the maximum size of their short values with their names. Without a schema the types of the fields are not known.
    """

    __slots__ = ("field_count", "max_repeats", "value_bytes")

    def __init__(self, document: DocumentNode, schema: GraphQLSchema | None = None) -> None:
        counter = _LeafCounter(document, schema)
        counts: Counter[str] = Counter()
        self.value_bytes = 0
        for node in document.definitions:
            if isinstance(node, OperationDefinitionNode):
                root = schema.get_root_type(node.operation) if schema is not None else None
                found, value_bytes = counter.count(node.selection_set, root)
                counts |= found
                self.value_bytes = max(self.value_bytes, value_bytes)
        self.field_count = counts.total()
        self.max_repeats = max(counts.values(), default=1)


class _LeafCounter:
    """Counts the leaves of selection sets, by name, and the bytes of their short values; those of a fragment once."""

    def __init__(self, document: DocumentNode, schema: GraphQLSchema | None) -> None:
        self._schema = schema
        self._fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
        self._of_fragments: dict[str, tuple[Counter[str], int]] = {}

    def count(self, selections: SelectionSetNode, parent: Any) -> tuple[Counter[str], int]:
        counts: Counter[str] = Counter()
        value_bytes = 0
        for node in selections.selections:
            if isinstance(node, FieldNode):
                definition: GraphQLField | None = getattr(parent, "fields", {}).get(node.name.value)
                name_bytes = len((node.alias or node.name).value) + PUNCTUATION_BYTES
                if node.selection_set is None:
                    counts[node.name.value] += 1
                    leaf_bytes = _leaf_bytes(definition)
                    value_bytes += MAX_SHORT_VALUE_BYTES if leaf_bytes is None else leaf_bytes + name_bytes
                    continue
                found = self.count(node.selection_set, get_named_type(definition.type) if definition is not None else None)
                value_bytes += name_bytes
            elif isinstance(node, InlineFragmentNode):
                found = self.count(node.selection_set, self._type_of(node.type_condition, parent))
            elif isinstance(node, FragmentSpreadNode):
                found = self._count_fragment(node.name.value)
            else:
                continue
            counts.update(found[0])
            value_bytes += found[1]
        return counts, value_bytes

    def _count_fragment(self, name: str) -> tuple[Counter[str], int]:
        if name not in self._of_fragments:
            fragment = self._fragments[name]
            self._of_fragments[name] = self.count(fragment.selection_set, self._type_of(fragment.type_condition, None))
        return self._of_fragments[name]

    def _type_of(self, condition: NamedTypeNode | None, parent: Any) -> Any:
        return parent if condition is None or self._schema is None else self._schema.get_type(condition.name.value)


def _leaf_bytes(definition: GraphQLField | None) -> int | None:
    """The maximum size of a field's value; None if its type does not limit it."""
    if definition is None or is_list_type(get_nullable_type(definition.type)):
        return None
    return LEAF_BYTES.get(get_named_type(definition.type).name)


def is_surely_small(prepared: PreparedOperation, context: Context) -> bool:
    """Whether the rows that were read cannot make an answer larger than MAX_SMALL_ANSWER_BYTES. True for most answers."""
    budget, usage = context.budget, context.rate_usage
    if budget is None:
        return True
    if budget.remaining < 0:
        return False
    repetition: FieldRepetition | None = prepared.cache.get("repetition")
    if repetition is None:
        repetition = prepared.cache["repetition"] = FieldRepetition(prepared.document, prepared.schema)
    rows = 1 + budget.row_count if usage is None or usage.rows < budget.row_count else 1 + usage.rows
    row_bytes = repetition.max_repeats * budget.max_row_length + repetition.value_bytes
    return rows * row_bytes <= MAX_SMALL_ANSWER_BYTES


async def limit_answer(result: OperationResult, prepared: PreparedOperation, context: Context) -> OperationResult:
    """Measures a result and returns it, or returns an error instead if the answer is too large."""
    budget = context.budget
    if budget is None or result.data is None:
        return result
    try:
        if prepared.kind == "query":
            # A mutation is answered with as much of its payload as could be read.
            budget.check()
        result.is_large = await measure_json(result.data, context.scheduler) > MAX_SMALL_ANSWER_BYTES
    except TextLimitExceeded as error:
        has_committed = context.deadline is not None and context.deadline.has_committed
        entry = make_error_entry(ResultUnreadable("is too large") if has_committed else to_operation_error(error, context.request_id))
        return OperationResult(None, [entry], result.viewer_id, rate_usage=result.rate_usage)
    return result


async def measure_json(data: Any, scheduler: SliceScheduler) -> int:
    """Returns the approximate size of the JSON in bytes, or in characters if it is small.

    Raises TextLimitExceeded if it exceeds MAX_ANSWER_BYTES.
    """
    size = await _sum_sizes(data, scheduler, len)
    return size if size * MAX_ESCAPE_BYTES <= MAX_ANSWER_BYTES else await _sum_sizes(data, scheduler, _string_bytes)


async def _sum_sizes(data: Any, scheduler: SliceScheduler, string_size: Callable[[str], int]) -> int:
    """Runs in time slices. Raises TextLimitExceeded as soon as the sum exceeds MAX_ANSWER_BYTES."""
    size, size_at_pause = 0, 0
    stack = [data]
    value_count = 0
    while stack:
        value = stack.pop()
        nested: Iterable[Any] = ()
        if isinstance(value, dict):
            size += sum(map(len, value)) + 6 * len(value)
            nested = value.values()
        elif isinstance(value, list):
            size += len(value) + 2
            nested = value
        else:
            size += string_size(value) if isinstance(value, str) else 5
        # Most values are short; they are added without a detour through the stack.
        for each in nested:
            kind = type(each)
            if kind is str and len(each) < MIN_LONG_STRING_LENGTH:
                size += len(each)
            elif kind is str or kind is dict or kind is list:
                stack.append(each)
            else:
                size += 5
            value_count += 1
        if size > MAX_ANSWER_BYTES:
            raise TextLimitExceeded
        if value_count >= 5_000 or size - size_at_pause > PIECE_BYTES:
            size_at_pause, value_count = size, 0
            await scheduler.pause()
    return size


def _string_bytes(string: str) -> int:
    return len(string) if len(string) < MIN_LONG_STRING_LENGTH else len(orjson.dumps(string))
