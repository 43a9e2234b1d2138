"""Runs an operation for a viewer. Both doors use it: v3 with operations prepared at start, `/graphql` with text.

One operation is one transaction; `graph/mutations.py` keeps a mutation that neither a user error nor an error of its own ended.
"""

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import structlog
from graphql import (
    DocumentNode,
    ExecutionResult,
    FieldNode,
    FragmentDefinitionNode,
    GraphQLError,
    OperationDefinitionNode,
    StringValueNode,
    Visitor,
    execute,
    parse,
    specified_rules,
    validate,
    visit,
)

from graph import limits
from graph.context import Context, Machine, Services, StoredFile
from graph.errors import BadRequest, Code, Forbidden, Internal, LimitExceeded, NotFound, OperationError, Unauthenticated, Unavailable
from graph.filling import Filler, may_wait
from graph.rules import machines
from graph.rules.naming import storable
from graph.rules.runners import LONGEST_WAIT
from graph.schema import graphql_schema as SCHEMA  # noqa: N812
from graph.transaction import session_for, take_back
from storage import tables
from storage.database import Session, is_unavailable
from storage.secrets import digest
from storage.tables import users
from storage.uploads import Incoming

OPEN_FIELDS = frozenset({"signIn", "signUp", "registerRunner", "unregisterRunner", "frontPage"})
"""The root fields that need no viewer, each only where it stands alone."""
MACHINE_FIELDS = frozenset(
    {"claimBuild", "updateBuild", "appendBuildTrace", "createArtifactUpload", "deleteArtifact", "job", "jobArtifact"}
)
"""The root fields that runners may ask for, each only where it stands alone; they are nobody everywhere else."""
PATIENT_FIELDS = {"claimBuild": float(LONGEST_WAIT)}
"""The root fields that may wait for something to happen, and for how many seconds beyond the time of an operation."""
SECONDS = 10.0
"""The longest that an operation runs."""
STREAMS = "A subscription is a stream: send it with `Accept: text/event-stream`, or over a WebSocket that speaks graphql-transport-ws."
NOT_STORABLE = "A text has characters that cannot be stored."
CACHED_DOCUMENTS = 1000
LONGEST_CACHED = 20_000
"""Characters. Longer texts are read each time, so that nobody fills the memory with them."""

log = structlog.get_logger("graph")


class InvalidOperation(Exception):
    """A prepared operation that the schema refuses; the message has every reason."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """An operation that was parsed and validated. `open` ones need no viewer. `schema` is what it was validated against.

    `root` is its root field, where it has one alone.
    """

    name: str | None
    document: DocumentNode
    kind: str
    root: str | None

    @property
    def open(self) -> bool:
        return self.root in OPEN_FIELDS

    @property
    def schema(self) -> Any:
        return SCHEMA


@dataclass(frozen=True, slots=True)
class _Text:
    """An operation from outside, with what it asks for counted."""

    prepared: Prepared
    measured: limits.Measured


@dataclass(frozen=True, slots=True)
class Problem:
    """One error. `subject` is the noun that was not found, `reason` what a legacy client is told after "403 Forbidden - " or
    "404 Not Found - "."""

    code: Code
    message: str
    path: list[str | int] | None = None
    subject: str | None = None
    reason: str | None = None
    retry_after: int | None = None
    locations: list[dict[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an operation gave: JSON-able data, enumerations as their names, instants as fixed-width RFC 3339 text."""

    data: dict[str, Any] | None
    errors: list[Problem] = field(default_factory=list)
    viewer_id: int | None = None
    files: Mapping[str, StoredFile] = field(default_factory=dict)
    """What the data names by a handle (`Artifact.stream`), to be sent by the door that ran the operation."""
    is_stream: bool = False
    """The operation is a subscription, which was not run: one answer is no stream."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The person at the machine, who holds the database and the key, and so may act as anybody.

    `username` is whom to act as; None is the first active administrator or, where there is none yet, an administrator without a row.
    No door makes one of these: what comes from outside is a credential, a text.
    """

    username: str | None = None


def prepare(source: str, name: str) -> Prepared:
    """The operation `name` of a document, with the fragments it uses. Raises InvalidOperation."""
    document = parse(source)
    fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
    operations = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    wanted = [node for node in operations if node.name is not None and node.name.value == name]
    if len(wanted) != 1:
        raise InvalidOperation(f"there is not one operation {name}")
    used: dict[str, FragmentDefinitionNode] = {}
    _collect(wanted[0], fragments, used)
    alone = DocumentNode(definitions=(wanted[0], *used.values()))
    errors = validate(SCHEMA, alone, specified_rules)
    if errors:
        raise InvalidOperation(f"{name}: " + "; ".join(error.message for error in errors))
    return _prepared(alone, wanted[0])


def _collect(node: Any, fragments: dict[str, FragmentDefinitionNode], used: dict[str, FragmentDefinitionNode]) -> None:
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


def _prepared(document: DocumentNode, operation: OperationDefinitionNode) -> Prepared:
    roots = operation.selection_set.selections
    alone = roots[0].name.value if len(roots) == 1 and isinstance(roots[0], FieldNode) else None
    return Prepared(operation.name.value if operation.name else None, document, operation.operation.value, alone)


class Graph:
    """The schema over the services of this process."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._documents: OrderedDict[tuple[str, str | None], _Text | list[Problem]] = OrderedDict()

    async def run(
        self,
        prepared: Prepared,
        variables: dict[str, Any],
        credential: str | None,
        *,
        request_id: str,
        seconds: float | None = SECONDS,
    ) -> Outcome:
        """Runs a prepared operation: free of limits, never of rights. `seconds` None: however long it takes."""
        return await self._guarded(prepared, variables, credential, request_id, seconds, unavailable_when_late=True)

    async def run_for(self, operator: Operator, prepared: Prepared, variables: dict[str, Any], *, request_id: str = "operator") -> Outcome:
        """Runs a prepared operation for the person at the machine, however long it takes, with the rights of whom they act as."""
        return await self._guarded(prepared, variables, operator, request_id, None)

    async def run_text(
        self,
        query: str,
        variables: dict[str, Any] | None,
        operation_name: str | None,
        credential: str | None,
        *,
        request_id: str,
        seconds: float | None = SECONDS,
    ) -> Outcome:
        """Runs text of anybody's: parsed and validated once while it is in use, and held to the limits.

        `seconds` differs only for callers in this process, as commands that import a long history; None: however long it takes.
        """
        given = variables or {}
        prepared = self.allowed(query, given, operation_name, request_id)
        if isinstance(prepared, list):
            return Outcome(None, prepared)
        return await self._guarded(prepared, given, credential, request_id, seconds)

    def receive(self) -> Incoming:
        """A file that a caller sends, before an operation is given its ticket. What no operation keeps is to be discarded."""
        return self.services.uploads.receive()

    def kind_of(self, query: str, operation_name: str | None) -> str | None:
        """`query`, `mutation` or `subscription`, or None for text that is no operation."""
        text = self._document(query, operation_name)
        return None if isinstance(text, list) else text.prepared.kind

    def allowed(self, query: str, variables: dict[str, Any], operation_name: str | None, request_id: str) -> Prepared | list[Problem]:
        """The operation of a text that the schema and the limits allow, or what is wrong with it."""
        text = self._document(query, operation_name)
        if isinstance(text, list):
            return text
        refused = text.measured.refusals(variables)
        return [of_graphql(error, request_id) for error in refused] if refused else text.prepared

    def _document(self, query: str, operation_name: str | None) -> "_Text | list[Problem]":
        if len(query) > LONGEST_CACHED:
            return _read(query, operation_name)
        key = (query, operation_name)
        found = self._documents.get(key)
        if found is None:
            found = self._documents[key] = _read(query, operation_name)
            if len(self._documents) > CACHED_DOCUMENTS:
                self._documents.popitem(last=False)
        else:
            self._documents.move_to_end(key)
        return found

    async def _guarded(
        self,
        prepared: Prepared,
        variables: dict[str, Any],
        credential: str | Operator | None,
        request_id: str,
        seconds: float | None,
        *,
        unavailable_when_late: bool = False,
    ) -> Outcome:
        if prepared.kind == "subscription":
            return Outcome(None, [Problem(Code.BAD_REQUEST, STREAMS)], is_stream=True)
        if not all_storable(variables):
            return Outcome(None, [Problem(Code.BAD_REQUEST, NOT_STORABLE)])
        limit = asyncio.timeout(None if seconds is None else seconds + PATIENT_FIELDS.get(prepared.root or "", 0.0))
        try:
            async with limit:
                return await self._run(prepared, variables, credential, request_id)
        except TimeoutError:
            # A driver that cannot connect in time raises the same error.
            late = limit.expired() and not unavailable_when_late
            error: OperationError = LimitExceeded(f"This took longer than {seconds:.0f} s.") if late else Unavailable()
            return Outcome(None, [problem_of(error, None)])
        except OperationError as error:
            return Outcome(None, [problem_of(error, None)])
        except Exception as error:
            return Outcome(None, [problem_of(known(error, request_id), None)])

    async def _run(self, prepared: Prepared, variables: dict[str, Any], credential: str | Operator | None, request_id: str) -> Outcome:
        database = self.services.database
        if prepared.kind == "query":
            async with session_for(database, writing=False) as session:
                viewer, machine = await self._caller(session, credential, prepared)
                context = Context(self.services, session, viewer, request_id, machine_or_none=machine)
                return self._outcome(await self._execute(prepared, variables, context), context)
        async with session_for(database, writing=False) as session:
            viewer, machine = await self._caller(session, credential, prepared)
        undo: list[Callable[[], Awaitable[None]]] = []
        try:
            async with AsyncExitStack() as sessions:
                session = await sessions.enter_async_context(session_for(database, writing=True))
                context = Context(self.services, session, viewer, request_id, undo=undo, sessions=sessions, machine_or_none=machine)
                return self._outcome(await self._execute(prepared, variables, context), context)
        finally:
            await take_back(undo)

    async def _caller(
        self, session: Session, credential: str | Operator | None, prepared: Prepared
    ) -> tuple[tables.User | None, Machine | None]:
        """The viewer, or the runner where it is one that calls. Raises Unauthenticated."""
        if isinstance(credential, Operator):
            return await _acting_as(session, credential), None
        if credential is not None and machines.is_token(credential):
            machine = await machines.authenticate(session, credential) if prepared.root in MACHINE_FIELDS else None
            if machine is None:
                raise Unauthenticated
            return None, machine
        viewer = await authenticate(session, credential)
        if viewer is None and not prepared.open:
            raise Unauthenticated
        return viewer, None

    async def _execute(self, prepared: Prepared, variables: dict[str, Any], context: Context) -> ExecutionResult:
        result = execute(
            SCHEMA,
            prepared.document,
            context_value=context,
            variable_values=variables,
            operation_name=prepared.name,
            executor_class=Filler,
            is_awaitable=may_wait,
        )
        return result if isinstance(result, ExecutionResult) else await result

    def _outcome(self, result: ExecutionResult, context: Context) -> Outcome:
        problems = [of_graphql(error, context.request_id) for error in result.errors or ()]
        return Outcome(result.data, problems, context.viewer_or_none.id if context.viewer_or_none else None, context.files)


async def authenticate(session: Session, credential: str | None) -> tables.User | None:
    """The active user whom a token speaks for. Found by digest, so that time does not tell how much of a token was right."""
    if not credential:
        return None
    wanted = digest(credential)
    found = next(iter(await session.read(users.BY_TOKEN, {"digest": wanted})), None)
    if found is None or not hmac.compare_digest(found[1], wanted) or found[0].state is not tables.UserState.ACTIVE:
        return None
    user: tables.User = found[0]
    return user


async def _acting_as(session: Session, operator: Operator) -> tables.User:
    """Raises NotFound for a name that nobody has, Unauthenticated for a blocked user, who may not act."""
    if operator.username is None:
        first: tables.User | None = await session.scalar(users.administrators().limit(1))
        return first or tables.User(id=0, username="operator", name="Operator", email="", admin=True)
    user: tables.User | None = await session.scalar(users.by_username(operator.username))
    if user is None:
        raise NotFound("User")
    if user.state is not tables.UserState.ACTIVE:
        raise Unauthenticated(f"{user.username} is blocked.")
    return user


def _read(query: str, operation_name: str | None) -> _Text | list[Problem]:
    try:
        document = limits.parse(query)
    except GraphQLError as error:
        return [of_graphql(error, "")]
    measured = limits.measure(document, SCHEMA, operation_name)
    errors = measured.always() or validate(SCHEMA, document, specified_rules, max_errors=20, hide_suggestions=True)
    if errors:
        return [of_graphql(error, "") for error in errors]
    operations = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    wanted = [node for node in operations if operation_name is None or (node.name and node.name.value == operation_name)]
    if len(wanted) != 1:
        text = "Name the operation to run with operationName." if operation_name is None else "There is no operation of this name."
        return [Problem(Code.BAD_REQUEST, text)]
    if not _literals_storable(document):
        return [Problem(Code.BAD_REQUEST, NOT_STORABLE)]
    return _Text(_prepared(document, wanted[0]), measured)


def _literals_storable(document: DocumentNode) -> bool:
    texts: list[str] = []

    class Texts(Visitor):
        def enter_string_value(self, node: StringValueNode, *_: Any) -> None:
            texts.append(node.value)

    visit(document, Texts())
    return all(storable(text) for text in texts)


def all_storable(value: Any) -> bool:
    """Whether no text in the variables has characters that the databases refuse."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return all(storable(key) and all_storable(item) for key, item in value.items())
    return all(all_storable(item) for item in value) if isinstance(value, list) else True


def known(error: BaseException, request_id: str) -> OperationError:
    """The error of ours that an exception means; one that means nothing to us is logged, and masked."""
    if isinstance(error, OperationError):
        return error
    if is_unavailable(error):
        log.warning("unavailable", request_id=request_id, error=type(error).__name__)
        return Unavailable()
    log.error("unexpected", request_id=request_id, exc_info=error)
    return Internal()


def problem_of(error: OperationError, path: list[str | int] | None = None) -> Problem:
    return Problem(
        code=error.code,
        message=error.message,
        path=path,
        subject=error.subject,
        reason=error.reason if isinstance(error, Forbidden | NotFound) else None,
        retry_after=getattr(error, "retry_after", None),
    )


def of_graphql(error: GraphQLError, request_id: str) -> Problem:
    """What is told of an error that execution or validation found."""
    if error.original_error is None or isinstance(error.original_error, GraphQLError):
        places = [{"line": place.line, "column": place.column} for place in error.locations or ()]
        return Problem(Code.BAD_REQUEST, error.message, error.path, locations=places or None)
    return problem_of(known(error.original_error, request_id), error.path)


__all__ = ["BadRequest", "Graph", "InvalidOperation", "Operator", "Outcome", "Prepared", "Problem", "prepare"]
