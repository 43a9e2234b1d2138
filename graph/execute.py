"""Runs an operation for a viewer. Both doors use it: v3 with operations prepared at start, `/graphql` with text.

One operation is one transaction; `graph/mutations.py` keeps a mutation that neither a user error nor an error of its own ended.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog
from graphql import ExecutionResult, GraphQLError

from graph.context import Context, Machine, Services
from graph.deadlines import Deadlines
from graph.errors import Code, LimitExceeded, NotFound, OperationError, Unauthenticated, Unavailable
from graph.filling import execute_document
from graph.operations import Allowed, InvalidOperation, Prepared, Text, Texts, prepare, refused_variables
from graph.operations import is_open as is_open_text
from graph.outcomes import Outcome, Problem, known, of_graphql, problem_of
from graph.planning.compiling import Plan
from graph.planning.keeping import plans_of
from graph.planning.leaves import Anomaly
from graph.planning.mutating import instead
from graph.rates import Bill
from graph.rules import machines
from graph.rules.runners import LONGEST_WAIT
from graph.schema import graphql_schema as SCHEMA  # noqa: N812
from graph.transaction import end, session_for, take_back
from graph.trusted import NOTHING, Trusted
from graph.viewers import viewer_of
from storage import tables
from storage.database import Session, is_unavailable
from storage.secrets import digest
from storage.tables import users
from storage.uploads import Incoming

MACHINE_FIELDS = frozenset(
    {"claimBuild", "updateBuild", "appendBuildTrace", "createArtifactUpload", "deleteArtifact", "job", "jobArtifact"}
)
"""The root fields that runners may ask for, each only where it stands alone; they are nobody everywhere else."""
PATIENT_FIELDS = {"claimBuild": float(LONGEST_WAIT)}
"""The root fields that may wait for something to happen, and for how many seconds beyond the time of an operation."""
SECONDS = 10.0
"""The longest that an operation runs."""
TOO_LATE = "This took longer than {:.0f} s. Ask for smaller pages, fewer lists inside lists, or a shorter span of time."
STREAMS = "A subscription is a stream: send it with `Accept: text/event-stream`, or over a WebSocket that speaks graphql-transport-ws."


log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class Operator:
    """The person at the machine, who holds the database and the key, and so may act as anybody.

    `username` is whom to act as; None is the first active administrator or, where there is none yet, an administrator without a row.
    No door makes one of these: what comes from outside is a credential, a text.
    """

    username: str | None = None


class Graph:
    """The schema over the services of this process."""

    def __init__(self, services: Services, *, planner: bool = True) -> None:
        """`planner`: queries that are run often are planned; without, graphql-core answers them all, and the same."""
        self.services = services
        self.planner = planner
        self.trusted: Trusted = NOTHING
        self._texts = Texts()
        self._deadlines = Deadlines()

    def trust(self, trusted: Trusted, *, only: bool = False) -> None:
        """Serves these documents by their ids and by their exact text; with `only`, no other text."""
        self.trusted = trusted
        self._texts.trusted = trusted.texts
        self._texts.only = only

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
        return await self._in_time(prepared, variables, credential, request_id, seconds, unavailable_when_late=True)

    async def run_for(self, operator: Operator, prepared: Prepared, variables: dict[str, Any], *, request_id: str = "operator") -> Outcome:
        """Runs a prepared operation for the person at the machine, however long it takes, with the rights of whom they act as."""
        return await self._in_time(prepared, variables, operator, request_id, None)

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
        allowed = await self.read(query, given, operation_name, credential, request_id=request_id, seconds=seconds)
        if isinstance(allowed, list):
            return Outcome(None, allowed)
        return await self._in_time(allowed.prepared, given, credential, request_id, seconds, allowed.bill)

    def receive(self) -> Incoming:
        """A file that a caller sends, before an operation is given its ticket. What no operation keeps is to be discarded."""
        return self.services.uploads.receive()

    async def kind_of(self, query: str, operation_name: str | None, credential: str | None, *, request_id: str) -> str | None:
        """`query`, `mutation` or `subscription`, or None for text that is no operation, and of callers who may not ask."""
        text = self._texts.known(query, operation_name)
        if text is None:
            found = await self._read_for(query, operation_name, credential, None, request_id, SECONDS)
            text = found if isinstance(found, Text) else None
        return text.prepared.kind if isinstance(text, Text) else None

    async def read(
        self,
        query: str,
        variables: dict[str, Any],
        operation_name: str | None,
        credential: str | None,
        *,
        request_id: str,
        seconds: float | None = SECONDS,
    ) -> Allowed | list[Problem]:
        """The operation of a text that the schema and the limits allow, or what is wrong with it.

        A caller whom nobody knows learns neither of a text that needs a viewer, which is not even validated.
        """
        text = self._texts.known(query, operation_name)
        found = text.allowed(variables, request_id) if isinstance(text, Text) else None
        if isinstance(found, Allowed):
            return found
        text = await self._read_for(query, operation_name, credential, text, request_id, seconds)
        return text if isinstance(text, list) else found or text.allowed(variables, request_id)

    async def _read_for(
        self,
        query: str,
        operation_name: str | None,
        credential: str | None,
        known_text: Text | list[Problem] | None,
        request_id: str,
        seconds: float | None,
    ) -> Text | list[Problem]:
        """What a text means, for a caller who may ask for it; it is read where it is not known."""
        told: OperationError
        if known_text is not None and not self._texts.is_read(query):
            return known_text
        limit = self._deadlines.within(seconds)
        try:
            with limit:
                is_open = known_text.prepared.open if isinstance(known_text, Text) else is_open_text(query, operation_name)
                if not is_open and not await self._knows(credential):
                    raise Unauthenticated
                return known_text if known_text is not None else await self._texts.read(query, operation_name)
        except TimeoutError:
            told = LimitExceeded(TOO_LATE.format(seconds)) if limit.expired else Unavailable()
        except Exception as error:
            told = known(error, request_id)
        return [problem_of(told)]

    async def _knows(self, credential: str | None) -> bool:
        """Whether the credential is that of an active user or of a runner."""
        services = self.services
        if not credential:
            return False
        if machines.is_token(credential):
            async with session_for(services.database, writing=False) as session:
                return await machines.authenticate(session, credential) is not None
        return await services.viewers.find(services.database, digest(credential), services.clock()) is not None

    async def _in_time(
        self,
        prepared: Prepared,
        variables: dict[str, Any],
        credential: str | Operator | None,
        request_id: str,
        seconds: float | None,
        bill: Bill | None = None,
        *,
        unavailable_when_late: bool = False,
    ) -> Outcome:
        if prepared.kind == "subscription":
            return Outcome(None, [Problem(Code.BAD_REQUEST, STREAMS)], is_stream=True)
        if (refused := refused_variables(variables)) is not None:
            return Outcome(None, [refused])
        limit = self._deadlines.within(None if seconds is None else seconds + PATIENT_FIELDS.get(prepared.root or "", 0.0))
        told: OperationError
        try:
            with limit:
                if prepared.kind == "query":
                    return await self._read(prepared, variables, credential, request_id, bill)
                return await self._change(prepared, variables, credential, request_id, bill)
        except TimeoutError:
            # A driver that cannot connect in time raises the same error.
            late = limit.expired and not unavailable_when_late
            told = LimitExceeded(TOO_LATE.format(seconds)) if late else Unavailable()
        except OperationError as error:
            told = error
        except Exception as error:
            told = known(error, request_id)
        return Outcome(None, [problem_of(told, None)], charge=bill.charge if bill else None)

    async def _read(
        self, prepared: Prepared, variables: dict[str, Any], credential: str | Operator | None, request_id: str, bill: Bill | None
    ) -> Outcome:
        database = self.services.database
        viewer, machine = await self._caller(credential, prepared, bill)
        charge = bill.charge if bill else None
        async with session_for(database, writing=False) as session:
            context = Context(self.services, session, viewer, request_id, machine_or_none=machine, charge=charge)
            try:
                found = self._plan(prepared, variables)
                if found is None:
                    return self._outcome(await self._execute(prepared, variables, context), context)
                plan, values = found
                try:
                    return self._planned(await plan.run(context, values), prepared, context)
                except Exception as error:
                    if isinstance(error, OperationError | GraphQLError | Anomaly) or is_unavailable(error):
                        # graphql-core says what is wrong, and where; what was loaded is not loaded again. It names its files itself.
                        context.files.clear()
                        return self._outcome(await self._execute(prepared, variables, context), context)
                    log.exception("a plan failed", operation=prepared.name, request_id=request_id)
            finally:
                # They know the context, and it knows them: thus all of it goes at once. Left to the garbage collector, the operations of
                # a second would make those of the next wait for it.
                context.loaders.clear()
        # The session may be of no use any more.
        async with session_for(database, writing=False) as session:
            context = Context(self.services, session, viewer, request_id, machine_or_none=machine, charge=charge)
            return self._outcome(await self._execute(prepared, variables, context), context)

    async def _change(
        self, prepared: Prepared, variables: dict[str, Any], credential: str | Operator | None, request_id: str, bill: Bill | None
    ) -> Outcome:
        database = self.services.database
        viewer, machine = await self._caller(credential, prepared, bill)
        charge = bill.charge if bill else None
        undo: list[Callable[[], Awaitable[None]]] = []
        try:
            context = Context(self.services, database.writing(), viewer, request_id, undo=undo, machine_or_none=machine, charge=charge)
            if isinstance(credential, str):
                context.credential = credential
            try:
                found = self._plan(prepared, variables)
                if found is not None:
                    plan, values = found
                    try:
                        return self._planned(await plan.run(context, values), prepared, context)
                    except Exception as error:
                        # graphql-core says what is wrong, and where, of what the mutation gave. It does not read the arguments of
                        # fields that it does not come to, so it may find nothing wrong with them.
                        outcome = self._outcome(await self._execute(prepared, variables, context), context)
                        if not outcome.errors and not isinstance(error, Anomaly | GraphQLError):
                            log.error("a plan failed", operation=prepared.name, request_id=request_id, exc_info=error)
                        return outcome
                return self._outcome(await self._execute(prepared, variables, context), context)
            finally:
                await end(context)
                # They know the context, and it knows them: thus all of it goes at once, and makes the garbage collector no work.
                context.loaders.clear()
        finally:
            if undo:
                await take_back(undo)

    def _plan(self, prepared: Prepared, variables: dict[str, Any]) -> tuple[Plan, Any] | None:
        plans = plans_of(prepared) if self.planner else None
        services = self.services
        return plans.find(variables, services.database.engine.dialect, services.fixed) if plans is not None else None

    async def _caller(
        self, credential: str | Operator | None, prepared: Prepared, bill: Bill | None
    ) -> tuple[tables.User | None, Machine | None]:
        """The viewer, who is charged, or the runner where it is one that calls. Raises Unauthenticated, LimitExceeded."""
        services = self.services
        if isinstance(credential, Operator):
            async with session_for(services.database, writing=False) as session:
                return await _acting_as(session, credential), None
        if credential is not None and machines.is_token(credential):
            if prepared.root in MACHINE_FIELDS:
                async with session_for(services.database, writing=False) as session:
                    machine = await machines.authenticate(session, credential)
                if machine is not None:
                    return None, machine
            raise Unauthenticated
        viewer: tables.User | None = None
        moment = services.clock()
        if credential:
            wanted, viewers = digest(credential), services.viewers
            viewer = viewers.known(services.database, wanted, moment) or await viewers.find(services.database, wanted, moment)
        if viewer is None and not prepared.open:
            raise Unauthenticated
        if viewer is not None and bill is not None:
            services.rates.take(viewer.id, bill, moment)
        return viewer, None

    async def _execute(self, prepared: Prepared, variables: dict[str, Any], context: Context) -> ExecutionResult:
        middleware = [instead] if context.made is not None else None
        return await execute_document(SCHEMA, prepared.document, context, variables, prepared.name, middleware=middleware)

    def _planned(self, data: dict[str, Any], prepared: Prepared, context: Context) -> Outcome:
        viewer = context.viewer_or_none
        viewer_id = viewer.id if viewer is not None else None
        return Outcome(data, [], viewer_id, context.files, charge=context.charge, formed=prepared.form is not None)

    def _outcome(self, result: ExecutionResult, context: Context) -> Outcome:
        problems = [of_graphql(error, context.request_id) for error in result.errors or ()]
        viewer_id = context.viewer_or_none.id if context.viewer_or_none else None
        return Outcome(result.data, problems, viewer_id, context.files, charge=context.charge)


async def authenticate(session: Session, credential: str | None) -> tables.User | None:
    """The active user whom a token speaks for. Found by digest, so that time does not tell how much of a token was right."""
    return await viewer_of(session, digest(credential)) if credential else None


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


__all__ = ["Graph", "InvalidOperation", "Operator", "Outcome", "Prepared", "Problem", "prepare"]
