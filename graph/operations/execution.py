"""Runs operations for a viewer: v3 runs operations that were prepared at startup, `/graphql` runs clients' documents.

One operation is one transaction; `graph/fields/mutations.py` commits a mutation unless it ends with an error.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from graphql import ExecutionResult, GraphQLError

from graph.context import Context, Services
from graph.documents.documents import (
    AllowedOperation,
    DocumentStore,
    InvalidOperation,
    ParsedOperation,
    PreparedOperation,
    find_variable_error,
    is_anonymous_document,
    prepare,
    prepare_document,
)
from graph.documents.trusted_documents import NO_DOCUMENTS, TrustedDocuments
from graph.errors import Code, LimitExceeded, OperationError, ResultUnreadable, Unauthenticated, Unavailable
from graph.operations.answer_size import is_surely_small, limit_answer
from graph.operations.callers import Caller, LocalAdmin, authenticate_caller, is_known_caller
from graph.operations.deadlines import Deadline, Deadlines
from graph.operations.executor import execute_document
from graph.operations.limits import MAX_ANSWER_BYTES
from graph.operations.query_checks import QueryChecks
from graph.operations.rate_limits import CostQuote
from graph.operations.results import ErrorEntry, OperationResult, make_error_entry, make_graphql_error_entry, to_operation_error
from graph.operations.transaction import close_session, session_for, undo_effects
from graph.planner.cache import plan_cache_of
from graph.planner.errors import PlanBailout, PlanResult
from graph.planner.mutation_replay import replay
from graph.planner.plan import OperationPlan
from graph.schema import graphql_schema as SCHEMA  # noqa: N812
from storage.database.engine import DatabaseSession
from storage.database.errors import is_unavailable
from storage.database.text_budget import TextBudget, TextLimitExceeded
from storage.objects.uploads import PartialFile

OPERATION_TIMEOUT_SECONDS = 10.0
"""Default time limit of an operation."""
TIMEOUT_MESSAGE = "The operation exceeded the time limit of {:.0f} s. Request smaller pages, fewer nested lists, or a shorter time range."
SUBSCRIPTION_TRANSPORT_MESSAGE = (
    "A subscription is a stream: send it with `Accept: text/event-stream`, or over a WebSocket with the subprotocol graphql-transport-ws."
)


log = structlog.get_logger("graph")


class Graph:
    """The schema over the services of this process."""

    def __init__(self, services: Services, *, planner: bool = True) -> None:
        """`planner`: whether frequent queries are planned; otherwise graphql-core runs all, with equal results."""
        self.services = services
        self.planner = planner
        self.trusted_documents: TrustedDocuments = NO_DOCUMENTS
        self._documents = DocumentStore()
        self._deadlines = Deadlines()

    def serve_trusted_documents(self, trusted_documents: TrustedDocuments, *, trusted_only: bool = False) -> None:
        """Accepts these documents by their ids and by their exact text; with `trusted_only`, no other documents."""
        self.trusted_documents = trusted_documents
        self._documents.trusted_operations = trusted_documents.operations_by_text
        self._documents.trusted_only = trusted_only

    async def run(
        self,
        prepared: PreparedOperation,
        variables: dict[str, Any],
        credential: str | None,
        *,
        request_id: str,
        seconds: float | None = OPERATION_TIMEOUT_SECONDS,
        checks: QueryChecks | None = None,
    ) -> OperationResult:
        """Runs a prepared operation, without cost limits but with permission checks. `seconds` None: no time limit.

        `checks` are those of the same operation with the same variables, which are kept with it and must not be changed.
        """
        return await self._run_in_time(prepared, variables, credential, request_id, seconds, checks=checks, unavailable_when_late=True)

    async def run_as_admin(
        self, admin: LocalAdmin, prepared: PreparedOperation, variables: dict[str, Any], *, seconds: float | None = None
    ) -> OperationResult:
        """Runs a prepared operation for the operator, with the permissions of the user that they act as. `seconds` None: no time limit."""
        return await self._run_in_time(prepared, variables, admin, "operator", seconds)

    async def run_document(
        self,
        query: str,
        variables: dict[str, Any] | None,
        operation_name: str | None,
        credential: str | None,
        *,
        request_id: str,
        seconds: float | None = OPERATION_TIMEOUT_SECONDS,
        checks: QueryChecks | None = None,
    ) -> OperationResult:
        """Runs a client's document within the limits.

        `seconds` differs only for callers in this process, such as commands that import a long history; None: no time limit. `checks` are
        those of the same query with the same variables, which are kept with it and must not be changed.
        """
        variable_values = variables or {}
        allowed = await self.check_document(
            query, variable_values, operation_name, credential, request_id=request_id, seconds=seconds, checks=checks
        )
        if isinstance(allowed, list):
            return OperationResult(None, allowed)
        return await self._run_in_time(allowed.prepared, variable_values, credential, request_id, seconds, allowed.quote, checks)

    def receive_upload(self) -> PartialFile:
        """Creates a file for an upload, whose ticket is then passed to an operation. The caller discards it if no operation stores it."""
        return self.services.uploads.receive()

    async def kind_of(self, query: str, operation_name: str | None, credential: str | None, *, request_id: str) -> str | None:
        """Returns `query`, `mutation` or `subscription`; None for an invalid document, or if the caller is not allowed to send it."""
        parsed = self._documents.find(query, operation_name)
        if parsed is None:
            found = await self._parse_for(query, operation_name, credential, None, request_id, OPERATION_TIMEOUT_SECONDS)
            parsed = found if isinstance(found, ParsedOperation) else None
        return parsed.prepared.kind if isinstance(parsed, ParsedOperation) else None

    async def check_document(
        self,
        query: str,
        variables: dict[str, Any],
        operation_name: str | None,
        credential: str | None,
        *,
        request_id: str,
        seconds: float | None = OPERATION_TIMEOUT_SECONDS,
        checks: QueryChecks | None = None,
    ) -> AllowedOperation | list[ErrorEntry]:
        """Returns the operation of a document if the schema and the limits allow it, otherwise the errors.

        For an anonymous caller a document that needs a viewer is not validated, so the errors reveal nothing about it.
        """
        parsed = self._documents.find(query, operation_name)
        checked = parsed.check_limits(variables, request_id, checks) if isinstance(parsed, ParsedOperation) else None
        if isinstance(checked, AllowedOperation):
            return checked
        parsed = await self._parse_for(query, operation_name, credential, parsed, request_id, seconds)
        return parsed if isinstance(parsed, list) else checked or parsed.check_limits(variables, request_id)

    async def _parse_for(
        self,
        query: str,
        operation_name: str | None,
        credential: str | None,
        cached: ParsedOperation | list[ErrorEntry] | None,
        request_id: str,
        seconds: float | None,
    ) -> ParsedOperation | list[ErrorEntry]:
        """Parses a document, unless it is cached, for a caller who is allowed to send it."""
        operation_error: OperationError
        if cached is not None and not self._documents.is_parsed_on_demand(query):
            return cached
        deadline = self._deadlines.within(seconds)
        try:
            with deadline:
                is_anonymous = (
                    cached.prepared.facts.anonymous if isinstance(cached, ParsedOperation) else is_anonymous_document(query, operation_name)
                )
                if not is_anonymous and not await is_known_caller(self.services, credential):
                    raise Unauthenticated
                return cached if cached is not None else await self._documents.parse(query, operation_name)
        except TimeoutError:
            operation_error = LimitExceeded(TIMEOUT_MESSAGE.format(seconds)) if deadline.expired else Unavailable()
        except Exception as error:
            operation_error = to_operation_error(error, request_id)
        return [make_error_entry(operation_error)]

    async def _run_in_time(
        self,
        prepared: PreparedOperation,
        variables: dict[str, Any],
        credential: str | LocalAdmin | None,
        request_id: str,
        seconds: float | None,
        quote: CostQuote | None = None,
        checks: QueryChecks | None = None,
        *,
        unavailable_when_late: bool = False,
    ) -> OperationResult:
        if prepared.kind == "subscription":
            return OperationResult(None, [ErrorEntry(Code.BAD_REQUEST, SUBSCRIPTION_TRANSPORT_MESSAGE)], is_subscription=True)
        checks = checks or QueryChecks()
        if not checks.is_complete and (variable_error := find_variable_error(variables)) is not None:
            return OperationResult(None, [variable_error])
        deadline = self._deadlines.within(None if seconds is None else seconds + prepared.facts.extra_wait_seconds)
        operation_error: OperationError
        try:
            with deadline:
                if prepared.kind == "query":
                    return await self._run_query(prepared, variables, credential, request_id, quote, checks)
                result = await self._run_mutation(prepared, variables, credential, request_id, quote, deadline)
                if deadline.has_committed and unavailable_when_late and result.would_be_retried():
                    raise ResultUnreadable("could not be read")
                return result
        except TimeoutError:
            # A driver that cannot connect in time raises the same error.
            is_late = deadline.expired and not unavailable_when_late
            operation_error = LimitExceeded(TIMEOUT_MESSAGE.format(seconds)) if is_late else Unavailable()
        except OperationError as error:
            operation_error = error
        except Exception as error:
            operation_error = to_operation_error(error, request_id)
        if deadline.has_committed and not isinstance(operation_error, ResultUnreadable):
            operation_error = ResultUnreadable("could not be read" + (" in time" if deadline.expired else ""))
        return OperationResult(None, [make_error_entry(operation_error, None)], rate_usage=quote.usage if quote else None)

    async def _run_query(
        self,
        prepared: PreparedOperation,
        variables: dict[str, Any],
        credential: str | LocalAdmin | None,
        request_id: str,
        quote: CostQuote | None,
        checks: QueryChecks,
    ) -> OperationResult:
        database = self.services.database
        caller = await authenticate_caller(self.services, credential, prepared, quote)
        budget = TextBudget(MAX_ANSWER_BYTES)
        async with session_for(database, writing=False, budget=budget) as session:
            context = self._make_context(session, caller, request_id, quote)
            try:
                found = self._find_plan(prepared, variables, checks.values)
                if found is None:
                    result = await self._result_of_execution(await self._execute(prepared, variables, context), prepared, context)
                    if not budget.is_exceeded or (found := self._find_plan(prepared, variables)) is None:
                        return result
                    # graphql-core reads whole rows, including text that is not selected; a plan reads only selected columns.
                    await session.close()
                    return await self._retry_with_plan(found, prepared, context) or result
                plan, values = found
                checks.values = values
                try:
                    return await self._result_of_plan(await plan.run(context, values), prepared, context)
                except TextLimitExceeded:
                    raise
                except Exception as error:
                    if isinstance(error, OperationError | GraphQLError | PlanBailout) or is_unavailable(error):
                        # graphql-core reports the errors with their paths; the loaders keep their values. It adds its files itself.
                        context.files.clear()
                        return await self._result_of_execution(await self._execute(prepared, variables, context), prepared, context)
                    log.exception("plan failed", operation=prepared.name, request_id=request_id)
            finally:
                # The loaders and the context refer to each other. Without the cycle they are freed immediately; the garbage collector
                # would free them later, in pauses that delay other operations.
                context.loaders.clear()
        # The previous session may be unusable.
        async with session_for(database, writing=False, budget=TextBudget(MAX_ANSWER_BYTES)) as session:
            context = self._make_context(session, caller, request_id, quote)
            return await self._result_of_execution(await self._execute(prepared, variables, context), prepared, context)

    async def _retry_with_plan(
        self, found: tuple[OperationPlan, Any], prepared: PreparedOperation, failed_context: Context
    ) -> OperationResult | None:
        """Returns the result of a query that exceeded the text budget in graphql-core; None if the plan exceeds it too."""
        plan, values = found
        failed_context.loaders.clear()
        async with session_for(self.services.database, writing=False, budget=TextBudget(MAX_ANSWER_BYTES)) as session:
            with failed_context.in_session(session, files={}, arguments={}, policy_projects={}) as context:
                try:
                    return await self._result_of_plan(await plan.run(context, values), prepared, context)
                except (OperationError, GraphQLError, PlanBailout, TextLimitExceeded):
                    return None

    async def _run_mutation(
        self,
        prepared: PreparedOperation,
        variables: dict[str, Any],
        credential: str | LocalAdmin | None,
        request_id: str,
        quote: CostQuote | None,
        deadline: Deadline,
    ) -> OperationResult:
        database = self.services.database
        caller = await authenticate_caller(self.services, credential, prepared, quote)
        undo: list[Callable[[], Awaitable[None]]] = []
        try:
            session = database.write_session(TextBudget(MAX_ANSWER_BYTES))
            session.may_repeat = True
            context = self._make_context(session, caller, request_id, quote, undo)
            context.deadline = deadline
            if isinstance(credential, str):
                context.credential = credential
            try:
                found = self._find_plan(prepared, variables)
                if found is not None:
                    plan, values = found
                    try:
                        return await self._result_of_plan(await plan.run(context, values), prepared, context)
                    except Exception as error:
                        # graphql-core reports the errors in the mutation's result with their paths. It does not coerce the arguments of
                        # fields that it does not reach, so it may not report their errors.
                        result = await self._result_of_execution(await self._execute(prepared, variables, context), prepared, context)
                        if not result.errors and not isinstance(error, PlanBailout | GraphQLError):
                            log.error("plan failed", operation=prepared.name, request_id=request_id, exc_info=error)
                        return result
                return await self._result_of_execution(await self._execute(prepared, variables, context), prepared, context)
            finally:
                await close_session(context)
                # The loaders and the context refer to each other; see `_run_query`.
                context.loaders.clear()
        finally:
            if undo:
                await undo_effects(undo)

    def compile_plan(self, prepared: PreparedOperation, variables: dict[str, Any]) -> None:
        """Compiles the plan that the operation has with these variables, if it has one, without running it."""
        self._find_plan(prepared, variables)

    def _find_plan(self, prepared: PreparedOperation, variables: dict[str, Any], values: Any = None) -> tuple[OperationPlan, Any] | None:
        """The plan of the operation with the values of its variables, which are `values` if they are known; None without a plan."""
        plans = plan_cache_of(prepared) if self.planner else None
        services = self.services
        return plans.find(variables, services.database.engine_dialect, services.static_settings, values) if plans is not None else None

    def _make_context(
        self,
        session: DatabaseSession,
        caller: Caller,
        request_id: str,
        quote: CostQuote | None,
        undo: list[Callable[[], Awaitable[None]]] | None = None,
    ) -> Context:
        return Context(
            self.services,
            session,
            caller.viewer,
            request_id,
            undo=[] if undo is None else undo,
            runner_identity_or_none=caller.runner_identity,
            access_token=caller.access_token,
            rate_usage=quote.usage if quote else None,
        )

    async def _execute(self, prepared: PreparedOperation, variables: dict[str, Any], context: Context) -> ExecutionResult:
        middleware = [replay] if context.mutation_result is not None else None
        return await execute_document(SCHEMA, prepared.document, context, variables, prepared.name, middleware=middleware)

    async def _result_of_plan(self, found: PlanResult, prepared: PreparedOperation, context: Context) -> OperationResult:
        viewer = context.viewer_or_none
        viewer_id = viewer.id if viewer is not None else None
        if prepared.output_format is not None and any(isinstance(key, int) for each in found.errors for key in each.path):
            # The format may have moved lists to other positions.
            raise PlanBailout
        errors = [make_error_entry(each.error, list(each.path)) for each in found.errors] if found.errors else []
        result = OperationResult(
            found.data, errors, viewer_id, context.files, rate_usage=context.rate_usage, is_formatted=prepared.output_format is not None
        )
        return result if is_surely_small(prepared, context) else await limit_answer(result, prepared, context)

    async def _result_of_execution(self, execution: ExecutionResult, prepared: PreparedOperation, context: Context) -> OperationResult:
        errors = [make_graphql_error_entry(error, context.request_id) for error in execution.errors or ()]
        viewer_id = context.viewer_or_none.id if context.viewer_or_none else None
        result = OperationResult(execution.data, errors, viewer_id, context.files, rate_usage=context.rate_usage)
        return result if is_surely_small(prepared, context) else await limit_answer(result, prepared, context)


__all__ = ["ErrorEntry", "Graph", "InvalidOperation", "OperationResult", "PreparedOperation", "prepare", "prepare_document"]
