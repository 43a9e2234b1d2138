"""Operations as text: parsed and validated once, prepared at start or kept while they are in use, and held to the limits."""

import asyncio
import functools
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    GraphQLError,
    OperationDefinitionNode,
    StringValueNode,
    Visitor,
    parse,
    specified_rules,
    validate,
    visit,
)

from graph.errors import Code
from graph.operations import limits
from graph.operations.document_cache import DocumentCache, DocumentKey, drop_tokens
from graph.operations.list_lengths import find_long_list, find_long_list_errors
from graph.operations.output_format import OutputFormat
from graph.operations.rate_limits import CostQuote
from graph.operations.results import ErrorEntry, make_graphql_error_entry
from graph.rules.validation import is_storable
from graph.schema import graphql_schema as SCHEMA  # noqa: N812

ANONYMOUS_FIELDS = frozenset({"signIn", "signUp", "registerRunner", "unregisterRunner", "frontPage"})
"""The root fields that need no viewer, each only where it stands alone."""
NOT_STORABLE_MESSAGE = "A text has characters that cannot be stored."
OPERATION_NAME_REQUIRED = "Name the operation to run with operationName."
UNKNOWN_OPERATION_NAME = "There is no operation of this name."
TRUSTED_ONLY_MESSAGE = "Only trusted documents are served here: send the `documentId` of one, or its exact text."
MAX_CACHED_CHARACTERS = 20_000
"""Characters. Longer texts are read each time, so that nobody fills the memory with them."""
MAX_INLINE_CHARACTERS = 1_000
"""Characters of a text that is read at once. Validation takes up to a second for a longer one, in line with the square of its length."""
MAX_ANONYMOUS_CHARACTERS, MAX_ANONYMOUS_TOKENS = 4_000, 200
"""Characters and tokens of a text that is read for a caller whom nobody knows."""


class InvalidOperation(Exception):
    """A prepared operation that the schema refuses; the message has every reason."""


@dataclass(frozen=True, slots=True)
class PreparedOperation:
    """An operation that was parsed and validated. `allows_anonymous` ones need no viewer. `schema` is what it was validated against.

    `root_field` is its root field, where it has one alone. `output_format` is how its answer is to be spelled, if not as ever. `cache` is
    what lives as long as the operation, such as its plans. An `is_ad_hoc` one was sent as a text, and may never come again.
    """

    name: str | None
    document: DocumentNode
    kind: str
    root_field: str | None
    output_format: OutputFormat | None = None
    cache: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    is_ad_hoc: bool = False

    @property
    def allows_anonymous(self) -> bool:
        return self.root_field in ANONYMOUS_FIELDS

    @property
    def schema(self) -> Any:
        return SCHEMA

    def formatted(self, output_format: OutputFormat) -> "PreparedOperation":
        """The same operation with its answer in a form."""
        return replace(self, output_format=output_format, cache={})


def prepare(source: str, name: str) -> PreparedOperation:
    """The operation `name` of a document, with the fragments it uses. Raises InvalidOperation."""
    # Of our own operations nobody is told where in the text something went wrong; places take as much memory as all the rest.
    document = parse(source, no_location=True)
    fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
    operations = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    matching = [node for node in operations if node.name is not None and node.name.value == name]
    if len(matching) != 1:
        raise InvalidOperation(f"there is not one operation {name}")
    used_fragments = fragments_used_by(matching[0], fragments)
    pruned_document = DocumentNode(definitions=(matching[0], *used_fragments.values()))
    errors = validate(SCHEMA, pruned_document, specified_rules)
    if errors:
        raise InvalidOperation(f"{name}: " + "; ".join(error.message for error in errors))
    return make_prepared_operation(pruned_document, matching[0])


def fragments_used_by(
    operation: OperationDefinitionNode, fragments: Mapping[str, FragmentDefinitionNode]
) -> dict[str, FragmentDefinitionNode]:
    """The fragments that an operation uses, and those that they use. Raises InvalidOperation for one that is not there."""
    found: dict[str, FragmentDefinitionNode] = {}
    _collect_fragments(operation, fragments, found)
    return found


def _collect_fragments(node: Any, fragments: Mapping[str, FragmentDefinitionNode], found: dict[str, FragmentDefinitionNode]) -> None:
    class SpreadVisitor(Visitor):
        def enter_fragment_spread(self, spread: Any, *_: Any) -> None:
            name = spread.name.value
            if name in found:
                return
            if name not in fragments:
                raise InvalidOperation(f"there is no fragment {name}")
            found[name] = fragments[name]
            _collect_fragments(fragments[name], fragments, found)

    visit(node, SpreadVisitor())


def make_prepared_operation(document: DocumentNode, operation: OperationDefinitionNode, *, is_ad_hoc: bool = False) -> PreparedOperation:
    root_selections = operation.selection_set.selections
    root_field = root_selections[0].name.value if len(root_selections) == 1 and isinstance(root_selections[0], FieldNode) else None
    return PreparedOperation(
        operation.name.value if operation.name else None, document, operation.operation.value, root_field, is_ad_hoc=is_ad_hoc
    )


@dataclass(frozen=True, slots=True)
class ParsedOperation:
    """An operation as text, read, with what it asks for counted."""

    prepared: PreparedOperation
    measured: limits.MeasuredOperation

    def quote_cost(self, rows: int, variables: Mapping[str, Any]) -> CostQuote:
        return CostQuote(rows, functools.partial(self.measured.advice, variables))

    def check_limits(self, variables: Mapping[str, Any], request_id: str) -> "AllowedOperation | list[ErrorEntry]":
        """The operation with these variables, or the limits that they break."""
        rows, errors = self.measured.evaluate(variables)
        if errors:
            return [make_graphql_error_entry(error, request_id) for error in errors]
        return AllowedOperation(self.prepared, self.quote_cost(rows, variables))


@dataclass(slots=True)
class AllowedOperation:
    """An operation from outside that may run, and what is to be paid for it."""

    prepared: PreparedOperation
    quote: CostQuote


class DocumentStore:
    """What texts of anybody's mean. They are read once while they are in use; `trusted_operations` ones were read at start: operations by
    their exact text, and by their names. Where `trusted_only` is set, no others are served.
    """

    def __init__(self) -> None:
        self.trusted_operations: Mapping[str, Mapping[str | None, ParsedOperation]] = {}
        self.trusted_only = False
        self._cache: DocumentCache[ParsedOperation | list[ErrorEntry]] = DocumentCache()
        self._parser_thread: ThreadPoolExecutor | None = None
        self._pending: dict[DocumentKey, asyncio.Future[ParsedOperation | list[ErrorEntry]]] = {}

    def find(self, query: str, operation_name: str | None) -> ParsedOperation | list[ErrorEntry] | None:
        """The operation of a text, or what is wrong with it whatever its variables are; None where the text is to be read first."""
        if self.trusted_operations and (operations_by_name := self.trusted_operations.get(query)) is not None:
            return operations_by_name.get(operation_name) or [
                ErrorEntry(Code.BAD_REQUEST, OPERATION_NAME_REQUIRED if operation_name is None else UNKNOWN_OPERATION_NAME)
            ]
        if self.trusted_only:
            return [ErrorEntry(Code.BAD_REQUEST, TRUSTED_ONLY_MESSAGE)]
        return self._cache.find((query, operation_name)) if len(query) <= MAX_CACHED_CHARACTERS else None

    def is_parsed_on_demand(self, query: str) -> bool:
        """Whether a text is read when it comes; others were read at start, or are not served."""
        return not self.trusted_only and query not in self.trusted_operations

    async def parse(self, query: str, operation_name: str | None) -> ParsedOperation | list[ErrorEntry]:
        """The same of a text that is not known. Long ones are read in a thread, one after the other, each once however many send it."""
        if (cached := self.find(query, operation_name)) is not None:
            # Another caller has sent it meanwhile.
            return cached
        if len(query) <= MAX_INLINE_CHARACTERS:
            parsed = _parse_operation(query, operation_name)
            self._store(query, operation_name, parsed)
            return parsed
        key = (query, operation_name)
        future = self._pending.get(key)
        if future is None:
            if self._parser_thread is None:
                self._parser_thread = ThreadPoolExecutor(1, thread_name_prefix="documents")
            future = asyncio.get_running_loop().run_in_executor(self._parser_thread, _parse_operation, query, operation_name)
            self._pending[key] = future
            future.add_done_callback(lambda done: self._finish_parsing(key, done))
        # A caller who leaves does not end the reading of the others.
        return await asyncio.shield(future)

    def _finish_parsing(self, key: DocumentKey, future: "asyncio.Future[ParsedOperation | list[ErrorEntry]]") -> None:
        del self._pending[key]
        if not future.cancelled() and future.exception() is None:
            self._store(*key, future.result())

    def _store(self, query: str, operation_name: str | None, parsed: ParsedOperation | list[ErrorEntry]) -> None:
        if len(query) <= MAX_CACHED_CHARACTERS:
            self._cache.put((query, operation_name), parsed)


def is_anonymous_document(query: str, operation_name: str | None) -> bool:
    """Whether a text is short and asks for nothing but a field that needs no viewer. It is parsed, and not validated."""
    if len(query) > MAX_ANONYMOUS_CHARACTERS:
        return False
    try:
        document = parse(query, no_location=True, max_tokens=MAX_ANONYMOUS_TOKENS)
    except GraphQLError:
        return False
    matching = _matching_operations(document, operation_name)
    return len(matching) == 1 and make_prepared_operation(document, matching[0]).allows_anonymous


def _parse_operation(query: str, operation_name: str | None) -> ParsedOperation | list[ErrorEntry]:
    try:
        document = limits.parse(query)
    except GraphQLError as error:
        return [make_graphql_error_entry(error, "")]
    measured_operation = limits.measure(document, SCHEMA, operation_name)
    limit_errors = [*measured_operation.errors_without_variables(), *find_long_list_errors(document)]
    errors = limit_errors or validate(SCHEMA, document, specified_rules, max_errors=20, hide_suggestions=True)
    if errors:
        return [make_graphql_error_entry(error, "") for error in errors]
    matching = _matching_operations(document, operation_name)
    if len(matching) != 1:
        message = OPERATION_NAME_REQUIRED if operation_name is None else UNKNOWN_OPERATION_NAME
        return [ErrorEntry(Code.BAD_REQUEST, message)]
    if not has_storable_literals(document):
        return [ErrorEntry(Code.BAD_REQUEST, NOT_STORABLE_MESSAGE)]
    drop_tokens(document)
    return ParsedOperation(make_prepared_operation(document, matching[0], is_ad_hoc=True), measured_operation)


def _matching_operations(document: DocumentNode, operation_name: str | None) -> list[OperationDefinitionNode]:
    """The operations that a name means: all without one."""
    operations = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    return [node for node in operations if operation_name is None or (node.name and node.name.value == operation_name)]


def has_storable_literals(document: DocumentNode) -> bool:
    """Whether no text written in a document has characters that the databases refuse."""
    strings: list[str] = []

    class StringVisitor(Visitor):
        def enter_string_value(self, node: StringValueNode, *_: Any) -> None:
            strings.append(node.value)

    visit(document, StringVisitor())
    return all(is_storable(text) for text in strings)


def find_variable_error(variables: Mapping[str, Any]) -> ErrorEntry | None:
    """What is wrong with the values of variables, whatever their types are."""
    if (message := find_long_list(variables)) is not None:
        return ErrorEntry(Code.LIMIT_EXCEEDED, message)
    return None if is_storable_value(variables) else ErrorEntry(Code.BAD_REQUEST, NOT_STORABLE_MESSAGE)


def is_storable_value(value: Any) -> bool:
    """Whether no text in the variables has characters that the databases refuse."""
    if isinstance(value, str):
        return is_storable(value)
    if isinstance(value, dict):
        return all(map(is_storable, value)) and all(map(is_storable_value, value.values()))
    return all(map(is_storable_value, value)) if isinstance(value, list) else True
