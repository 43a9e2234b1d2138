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

from graph import limits
from graph.errors import Code
from graph.forms import Form
from graph.list_lengths import long_list_in, refuse_long_lists
from graph.outcomes import Problem, of_graphql
from graph.rates import Bill
from graph.remembering import Key, Remembered, without_tokens
from graph.rules.naming import storable
from graph.schema import graphql_schema as SCHEMA  # noqa: N812

OPEN_FIELDS = frozenset({"signIn", "signUp", "registerRunner", "unregisterRunner", "frontPage"})
"""The root fields that need no viewer, each only where it stands alone."""
NOT_STORABLE = "A text has characters that cannot be stored."
NAME_ONE = "Name the operation to run with operationName."
NO_SUCH_NAME = "There is no operation of this name."
ONLY_TRUSTED = "Only trusted documents are served here: send the `documentId` of one, or its exact text."
LONGEST_CACHED = 20_000
"""Characters. Longer texts are read each time, so that nobody fills the memory with them."""
SHORT = 1_000
"""Characters of a text that is read at once. Validation takes up to a second for a longer one, in line with the square of its length."""
LONGEST_OPEN, OPEN_TOKENS = 4_000, 200
"""Characters and tokens of a text that is read for a caller whom nobody knows."""


class InvalidOperation(Exception):
    """A prepared operation that the schema refuses; the message has every reason."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """An operation that was parsed and validated. `open` ones need no viewer. `schema` is what it was validated against.

    `root` is its root field, where it has one alone. `form` is how its answer is to be spelled, if not as ever. `kept` is what lives as
    long as the operation, such as its plans. A `tried` one was sent as a text, and may never come again.
    """

    name: str | None
    document: DocumentNode
    kind: str
    root: str | None
    form: Form | None = None
    kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    tried: bool = False

    @property
    def open(self) -> bool:
        return self.root in OPEN_FIELDS

    @property
    def schema(self) -> Any:
        return SCHEMA

    def formed(self, form: Form) -> "Prepared":
        """The same operation with its answer in a form."""
        return replace(self, form=form, kept={})


def prepare(source: str, name: str) -> Prepared:
    """The operation `name` of a document, with the fragments it uses. Raises InvalidOperation."""
    # Of our own operations nobody is told where in the text something went wrong; places take as much memory as all the rest.
    document = parse(source, no_location=True)
    fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
    operations = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    wanted = [node for node in operations if node.name is not None and node.name.value == name]
    if len(wanted) != 1:
        raise InvalidOperation(f"there is not one operation {name}")
    used = used_by(wanted[0], fragments)
    alone = DocumentNode(definitions=(wanted[0], *used.values()))
    errors = validate(SCHEMA, alone, specified_rules)
    if errors:
        raise InvalidOperation(f"{name}: " + "; ".join(error.message for error in errors))
    return prepared_of(alone, wanted[0])


def used_by(operation: OperationDefinitionNode, fragments: Mapping[str, FragmentDefinitionNode]) -> dict[str, FragmentDefinitionNode]:
    """The fragments that an operation uses, and those that they use. Raises InvalidOperation for one that is not there."""
    used: dict[str, FragmentDefinitionNode] = {}
    _collect(operation, fragments, used)
    return used


def _collect(node: Any, fragments: Mapping[str, FragmentDefinitionNode], used: dict[str, FragmentDefinitionNode]) -> None:
    class Spreads(Visitor):
        def enter_fragment_spread(self, spread: Any, *_: Any) -> None:
            name = spread.name.value
            if name in used:
                return
            if name not in fragments:
                raise InvalidOperation(f"there is no fragment {name}")
            used[name] = fragments[name]
            _collect(fragments[name], fragments, used)

    visit(node, Spreads())


def prepared_of(document: DocumentNode, operation: OperationDefinitionNode, *, tried: bool = False) -> Prepared:
    roots = operation.selection_set.selections
    alone = roots[0].name.value if len(roots) == 1 and isinstance(roots[0], FieldNode) else None
    return Prepared(operation.name.value if operation.name else None, document, operation.operation.value, alone, tried=tried)


@dataclass(frozen=True, slots=True)
class Text:
    """An operation as text, read, with what it asks for counted."""

    prepared: Prepared
    measured: limits.Measured

    def bill(self, rows: int, variables: Mapping[str, Any]) -> Bill:
        return Bill(rows, functools.partial(self.measured.advice, variables))

    def allowed(self, variables: Mapping[str, Any], request_id: str) -> "Allowed | list[Problem]":
        """The operation with these variables, or the limits that they break."""
        rows, refused = self.measured.judged(variables)
        if refused:
            return [of_graphql(error, request_id) for error in refused]
        return Allowed(self.prepared, self.bill(rows, variables))


@dataclass(slots=True)
class Allowed:
    """An operation from outside that may run, and what is to be paid for it."""

    prepared: Prepared
    bill: Bill


class Texts:
    """What texts of anybody's mean. They are read once while they are in use; `trusted` ones were read at start: operations by their
    exact text, and by their names. Where `only` is set, no others are served.
    """

    def __init__(self) -> None:
        self.trusted: Mapping[str, Mapping[str | None, Text]] = {}
        self.only = False
        self._read: Remembered[Text | list[Problem]] = Remembered()
        self._reader: ThreadPoolExecutor | None = None
        self._being_read: dict[Key, asyncio.Future[Text | list[Problem]]] = {}

    def known(self, query: str, operation_name: str | None) -> Text | list[Problem] | None:
        """The operation of a text, or what is wrong with it whatever its variables are; None where the text is to be read first."""
        if self.trusted and (known := self.trusted.get(query)) is not None:
            return known.get(operation_name) or [Problem(Code.BAD_REQUEST, NAME_ONE if operation_name is None else NO_SUCH_NAME)]
        if self.only:
            return [Problem(Code.BAD_REQUEST, ONLY_TRUSTED)]
        return self._read.find((query, operation_name)) if len(query) <= LONGEST_CACHED else None

    def is_read(self, query: str) -> bool:
        """Whether a text is read when it comes; others were read at start, or are not served."""
        return not self.only and query not in self.trusted

    async def read(self, query: str, operation_name: str | None) -> Text | list[Problem]:
        """The same of a text that is not known. Long ones are read in a thread, one after the other, each once however many send it."""
        if (read := self.known(query, operation_name)) is not None:
            # Another caller has sent it meanwhile.
            return read
        if len(query) <= SHORT:
            found = _read(query, operation_name)
            self._keep(query, operation_name, found)
            return found
        key = (query, operation_name)
        reading = self._being_read.get(key)
        if reading is None:
            if self._reader is None:
                self._reader = ThreadPoolExecutor(1, thread_name_prefix="documents")
            reading = asyncio.get_running_loop().run_in_executor(self._reader, _read, query, operation_name)
            self._being_read[key] = reading
            reading.add_done_callback(lambda done: self._end_reading(key, done))
        # A caller who leaves does not end the reading of the others.
        return await asyncio.shield(reading)

    def _end_reading(self, key: Key, done: "asyncio.Future[Text | list[Problem]]") -> None:
        del self._being_read[key]
        if not done.cancelled() and done.exception() is None:
            self._keep(*key, done.result())

    def _keep(self, query: str, operation_name: str | None, found: Text | list[Problem]) -> None:
        if len(query) <= LONGEST_CACHED:
            self._read.put((query, operation_name), found)


def is_open(query: str, operation_name: str | None) -> bool:
    """Whether a text is short and asks for nothing but a field that needs no viewer. It is parsed, and not validated."""
    if len(query) > LONGEST_OPEN:
        return False
    try:
        document = parse(query, no_location=True, max_tokens=OPEN_TOKENS)
    except GraphQLError:
        return False
    wanted = _named(document, operation_name)
    return len(wanted) == 1 and prepared_of(document, wanted[0]).open


def _read(query: str, operation_name: str | None) -> Text | list[Problem]:
    try:
        document = limits.parse(query)
    except GraphQLError as error:
        return [of_graphql(error, "")]
    measured = limits.measure(document, SCHEMA, operation_name)
    refused = [*measured.always(), *refuse_long_lists(document)]
    errors = refused or validate(SCHEMA, document, specified_rules, max_errors=20, hide_suggestions=True)
    if errors:
        return [of_graphql(error, "") for error in errors]
    wanted = _named(document, operation_name)
    if len(wanted) != 1:
        text = NAME_ONE if operation_name is None else NO_SUCH_NAME
        return [Problem(Code.BAD_REQUEST, text)]
    if not literals_storable(document):
        return [Problem(Code.BAD_REQUEST, NOT_STORABLE)]
    without_tokens(document)
    return Text(prepared_of(document, wanted[0], tried=True), measured)


def _named(document: DocumentNode, operation_name: str | None) -> list[OperationDefinitionNode]:
    """The operations that a name means: all without one."""
    operations = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    return [node for node in operations if operation_name is None or (node.name and node.name.value == operation_name)]


def literals_storable(document: DocumentNode) -> bool:
    """Whether no text written in a document has characters that the databases refuse."""
    texts: list[str] = []

    class Texts(Visitor):
        def enter_string_value(self, node: StringValueNode, *_: Any) -> None:
            texts.append(node.value)

    visit(document, Texts())
    return all(storable(text) for text in texts)


def refused_variables(variables: Mapping[str, Any]) -> Problem | None:
    """What is wrong with the values of variables, whatever their types are."""
    if (message := long_list_in(variables)) is not None:
        return Problem(Code.LIMIT_EXCEEDED, message)
    return None if all_storable(variables) else Problem(Code.BAD_REQUEST, NOT_STORABLE)


def all_storable(value: Any) -> bool:
    """Whether no text in the variables has characters that the databases refuse."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return all(map(storable, value)) and all(map(all_storable, value.values()))
    return all(map(all_storable, value)) if isinstance(value, list) else True
