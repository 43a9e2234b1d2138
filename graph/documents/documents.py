"""Parses, validates and measures GraphQL documents, at startup or when a client sends them, and caches the results."""

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
    visit,
)

from graph.documents.document_cache import DocumentCache, DocumentKey
from graph.documents.document_parser import parse_without_tokens
from graph.documents.document_validator import validate_document
from graph.documents.fragments import fragments_used_by
from graph.documents.output_format import OutputFormat
from graph.errors import Code
from graph.fields.metadata import NO_FACTS, FieldFacts, facts_by_root_field
from graph.operations import limits
from graph.operations.list_lengths import find_long_list, find_long_list_errors
from graph.operations.query_checks import QueryChecks
from graph.operations.rate_limits import CostQuote
from graph.operations.results import ErrorEntry, make_graphql_error_entry
from graph.rules.validation import is_storable
from graph.schema import graphql_schema as SCHEMA  # noqa: N812

ROOT_FIELD_FACTS = facts_by_root_field(SCHEMA)
NOT_STORABLE_MESSAGE = "A string contains characters that cannot be stored."
OPERATION_NAME_REQUIRED = "The document has several operations; send `operationName` to select one."
UNKNOWN_OPERATION_NAME = "The document has no operation with this name."
TRUSTED_ONLY_MESSAGE = "Only trusted documents are accepted: send the `documentId` of one, or its exact text."
MAX_CACHED_CHARACTERS = 20_000
"""Longer documents are not cached, so that clients cannot fill the memory with them."""
MAX_INLINE_CHARACTERS = 1_000
"""Maximum length of a document that is parsed in the event loop. Validation takes up to some 0.1 seconds for longer ones."""
MAX_ANONYMOUS_CHARACTERS, MAX_ANONYMOUS_TOKENS = 4_000, 200
"""Maximum characters and tokens of a document that is parsed for an anonymous caller."""


class InvalidOperation(Exception):
    """An operation cannot be prepared; the message contains all reasons."""


@dataclass(frozen=True, slots=True)
class PreparedOperation:
    """A parsed operation that is valid. `schema` is the schema it was written for.

    `root_field` is its root field, if it has exactly one; `facts` are those of this field. `output_format` is the format of its result, if
    it is not the schema's. `cache` has data with the lifetime of the operation, such as its plans. `is_ad_hoc`: a client sent the document,
    which may never be sent again.
    """

    name: str | None
    document: DocumentNode
    kind: str
    root_field: str | None
    facts: FieldFacts
    output_format: OutputFormat | None = None
    cache: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    is_ad_hoc: bool = False

    @property
    def schema(self) -> Any:
        return SCHEMA

    def formatted(self, output_format: OutputFormat) -> "PreparedOperation":
        """Returns the same operation with another output format."""
        return replace(self, output_format=output_format, cache={})


def prepare(source: str, name: str) -> PreparedOperation:
    """Prepares the operation `name` of a document of this product. Raises InvalidOperation if it, or a fragment of it, is missing."""
    # Errors in operations of this product are reported without locations, which take as much memory as everything else.
    document = parse_without_tokens(source, no_location=True)
    fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
    matching = [node for node in _operation_nodes(document) if node.name is not None and node.name.value == name]
    if len(matching) != 1:
        raise InvalidOperation(f"the document must have exactly one operation {name}")
    try:
        used_fragments = fragments_used_by(matching[0], fragments)
    except KeyError as error:
        raise InvalidOperation(f"there is no fragment {error.args[0]}") from None
    return prepare_document(DocumentNode(definitions=(matching[0], *used_fragments.values())))


def prepare_document(document: DocumentNode) -> PreparedOperation:
    """Prepares a document of this product: one operation and the fragments it uses.

    It is not validated: tests/forgefront/test_shipped_operations.py does that, and here it would be half of a start.
    """
    (operation,) = _operation_nodes(document)
    return make_prepared_operation(document, operation)


def make_prepared_operation(document: DocumentNode, operation: OperationDefinitionNode, *, is_ad_hoc: bool = False) -> PreparedOperation:
    root_selections = operation.selection_set.selections
    root_field = root_selections[0].name.value if len(root_selections) == 1 and isinstance(root_selections[0], FieldNode) else None
    name, facts = operation.name.value if operation.name else None, ROOT_FIELD_FACTS.get(root_field or "", NO_FACTS)
    return PreparedOperation(name, document, operation.operation.value, root_field, facts, is_ad_hoc=is_ad_hoc)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ParsedOperation:
    """A client's operation, parsed and measured."""

    prepared: PreparedOperation
    measured: limits.MeasuredOperation

    def quote_cost(self, rows: int, variables: Mapping[str, Any]) -> CostQuote:
        return CostQuote(rows, functools.partial(self.measured.advice, variables))

    def check_limits(
        self, variables: Mapping[str, Any], request_id: str, checks: QueryChecks | None = None
    ) -> "AllowedOperation | list[ErrorEntry]":
        """Returns the operation with its cost for these variables, or the limits that it exceeds.

        `checks` are those of an earlier call with the same variables, if they hold; else they begin here.
        """
        if checks is not None and checks.hold_for(self):
            return AllowedOperation(self.prepared, self.quote_cost(checks.rows, variables))
        rows, errors = self.measured.evaluate(variables)
        if errors:
            return [make_graphql_error_entry(error, request_id) for error in errors]
        if checks is not None:
            checks.begin(self, rows)
        return AllowedOperation(self.prepared, self.quote_cost(rows, variables))


@dataclass(slots=True)
class AllowedOperation:
    """A client's operation that is within the limits, and its cost."""

    prepared: PreparedOperation
    quote: CostQuote


class DocumentStore:
    """Parsed operations of clients' documents, cached while they are in use.

    `trusted_operations` were parsed at startup: operations by the exact document and by name. With `trusted_only` no others are accepted.
    """

    def __init__(self) -> None:
        self.trusted_operations: Mapping[str, Mapping[str | None, ParsedOperation]] = {}
        self.trusted_only = False
        self._cache: DocumentCache[ParsedOperation | list[ErrorEntry]] = DocumentCache()
        self._parser_thread: ThreadPoolExecutor | None = None
        self._pending: dict[DocumentKey, asyncio.Future[ParsedOperation | list[ErrorEntry]]] = {}

    def find(self, query: str, operation_name: str | None) -> ParsedOperation | list[ErrorEntry] | None:
        """Returns the operation of a document, or its errors that do not depend on variables; None if it has to be parsed first."""
        if self.trusted_operations and (operations_by_name := self.trusted_operations.get(query)) is not None:
            return operations_by_name.get(operation_name) or [
                ErrorEntry(Code.BAD_REQUEST, OPERATION_NAME_REQUIRED if operation_name is None else UNKNOWN_OPERATION_NAME)
            ]
        if self.trusted_only:
            return [ErrorEntry(Code.BAD_REQUEST, TRUSTED_ONLY_MESSAGE)]
        return self._cache.find((query, operation_name)) if len(query) <= MAX_CACHED_CHARACTERS else None

    def is_parsed_on_demand(self, query: str) -> bool:
        """Whether a document is parsed when a client sends it; others were parsed at startup, or are not accepted."""
        return not self.trusted_only and query not in self.trusted_operations

    async def parse(self, query: str, operation_name: str | None) -> ParsedOperation | list[ErrorEntry]:
        """Parses a document that `find` did not find. Long ones are parsed in a thread, each once even if several callers send it."""
        if (cached := self.find(query, operation_name)) is not None:
            # Another caller has sent the same document meanwhile.
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
        # Canceling one caller does not cancel parsing for the others.
        return await asyncio.shield(future)

    def _finish_parsing(self, key: DocumentKey, future: "asyncio.Future[ParsedOperation | list[ErrorEntry]]") -> None:
        del self._pending[key]
        if not future.cancelled() and future.exception() is None:
            self._store(*key, future.result())

    def _store(self, query: str, operation_name: str | None, parsed: ParsedOperation | list[ErrorEntry]) -> None:
        if len(query) <= MAX_CACHED_CHARACTERS:
            self._cache.put((query, operation_name), parsed)


def is_anonymous_document(query: str, operation_name: str | None) -> bool:
    """Whether a document is short and selects only a field that needs no viewer. It is parsed, but not validated."""
    if len(query) > MAX_ANONYMOUS_CHARACTERS:
        return False
    try:
        document = parse_without_tokens(query, no_location=True, max_tokens=MAX_ANONYMOUS_TOKENS)
    except GraphQLError:
        return False
    matching = _matching_operations(document, operation_name)
    return len(matching) == 1 and make_prepared_operation(document, matching[0]).facts.anonymous


def _parse_operation(query: str, operation_name: str | None) -> ParsedOperation | list[ErrorEntry]:
    try:
        document = limits.parse(query)
    except GraphQLError as error:
        return [make_graphql_error_entry(error, "")]
    measured_operation = limits.measure(document, SCHEMA, operation_name)
    limit_errors = [*measured_operation.errors_without_variables(), *find_long_list_errors(document)]
    errors = limit_errors or validate_document(document, max_errors=20)
    if errors:
        return [make_graphql_error_entry(error, "") for error in errors]
    matching = _matching_operations(document, operation_name)
    if len(matching) != 1:
        message = OPERATION_NAME_REQUIRED if operation_name is None else UNKNOWN_OPERATION_NAME
        return [ErrorEntry(Code.BAD_REQUEST, message)]
    if not has_storable_literals(document):
        return [ErrorEntry(Code.BAD_REQUEST, NOT_STORABLE_MESSAGE)]
    return ParsedOperation(make_prepared_operation(document, matching[0], is_ad_hoc=True), measured_operation)


def _matching_operations(document: DocumentNode, operation_name: str | None) -> list[OperationDefinitionNode]:
    """Returns the operations with this name; all if it is None."""
    return [node for node in _operation_nodes(document) if operation_name is None or (node.name and node.name.value == operation_name)]


def _operation_nodes(document: DocumentNode) -> list[OperationDefinitionNode]:
    return [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]


def has_storable_literals(document: DocumentNode) -> bool:
    """Whether the databases can store all string literals of a document."""
    visitor = _StringVisitor()
    visit(document, visitor)
    return all(map(is_storable, visitor.strings))


class _StringVisitor(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.strings: list[str] = []

    def enter_string_value(self, node: StringValueNode, *_: Any) -> None:
        self.strings.append(node.value)


def find_variable_error(variables: Mapping[str, Any]) -> ErrorEntry | None:
    """Returns the first error in the values of variables that does not depend on their types."""
    if _are_plain(variables):
        return None
    if (message := find_long_list(variables)) is not None:
        return ErrorEntry(Code.LIMIT_EXCEEDED, message)
    return None if is_storable_value(variables) else ErrorEntry(Code.BAD_REQUEST, NOT_STORABLE_MESSAGE)


def _are_plain(values: Mapping[str, Any]) -> bool:
    """Whether names and values surely have no error, as most variables and the fields of most inputs."""
    for value in (*values, *values.values()):
        kind = type(value)
        if kind is str:
            if not value.isascii() or "\0" in value:
                return False
        elif kind is dict:
            if not _are_plain(value):
                return False
        elif kind is not int and kind is not bool and value is not None:
            return False
    return True


def is_storable_value(value: Any) -> bool:
    """Whether the databases can store all strings in a value."""
    if isinstance(value, str):
        return is_storable(value)
    if isinstance(value, dict):
        return all(map(is_storable, value)) and all(map(is_storable_value, value.values()))
    return all(map(is_storable_value, value)) if isinstance(value, list) else True
