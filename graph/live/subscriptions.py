"""Opens subscriptions: resolves the root field to a filter, and makes the stream of its changes."""

import asyncio
from dataclasses import replace
from typing import Any

from graphql import Executor, create_source_event_stream

from graph.context import Context
from graph.documents.documents import AllowedOperation, find_variable_error
from graph.errors import BadRequest, Unauthenticated
from graph.live.broadcaster import ChangeFilter
from graph.live.subscription_streams import SubscriptionStream, TraceStream
from graph.live.trace_feeds import TraceFilter
from graph.operations import execution
from graph.operations.callers import authenticate
from graph.operations.execution import Graph
from graph.operations.executor import is_awaitable
from graph.operations.results import OperationResult, make_error_entry, make_graphql_error_entry, to_operation_error
from graph.operations.token_scopes import SCOPE_BY_KIND, require_scope
from graph.operations.transaction import session_for
from graph.schema import graphql_schema as SCHEMA  # noqa: N812
from storage.tables.base import MAX_ID


async def subscribe(
    graph: Graph,
    query: str,
    variables: dict[str, Any],
    operation_name: str | None,
    credential: str | None,
    *,
    request_id: str,
    after: int | None = None,
) -> SubscriptionStream | OperationResult:
    """Opens the stream of a subscription; returns an OperationResult with the errors if that fails.

    `after` is the last number that the client received, if it is not passed as an argument.
    """
    allowed = await graph.check_document(query, variables, operation_name, credential, request_id=request_id)
    if isinstance(allowed, list):
        return OperationResult(None, allowed)
    if (variable_error := find_variable_error(variables)) is not None:
        return OperationResult(None, [variable_error])
    try:
        async with asyncio.timeout(execution.OPERATION_TIMEOUT_SECONDS):
            filter_or_error = await _resolve_change_filter(graph, allowed, variables, credential, request_id)
            if isinstance(filter_or_error, OperationResult):
                return replace(filter_or_error, rate_usage=allowed.quote.usage)
            viewer_id, change_filter = filter_or_error
            if after is not None:
                # The output of a build that started again may have lower offsets than `afterBytes`; sequence numbers only increase.
                is_trace = isinstance(change_filter, TraceFilter)
                if is_trace:
                    change_filter = replace(change_filter, after=after)
                elif after > MAX_ID:
                    raise BadRequest("`Last-Event-ID` is not the `id` of an event of this subscription. Without it, the stream starts now.")
                else:
                    change_filter = replace(change_filter, after=max(after, change_filter.after or 0))
            stream_class = TraceStream if isinstance(change_filter, TraceFilter) else SubscriptionStream
            stream = stream_class(graph, allowed.prepared, variables, credential or "", viewer_id, request_id, change_filter)
            stream.rate_usage = allowed.quote.usage
            try:
                await stream.start()
            except BaseException:
                stream.close()
                raise
            return stream
    except Exception as error:
        return OperationResult(None, [make_error_entry(to_operation_error(error, request_id))], rate_usage=allowed.quote.usage)


async def _resolve_change_filter(
    graph: Graph, allowed: AllowedOperation, variables: dict[str, Any], credential: str | None, request_id: str
) -> tuple[int, ChangeFilter] | OperationResult:
    """Returns the viewer's id and the filter of the root field. Charges the viewer.

    Raises Unauthenticated, InsufficientScope, LimitExceeded.
    """
    prepared = allowed.prepared
    if prepared.kind != "subscription":
        raise BadRequest("The operation is not a subscription.")
    async with session_for(graph.services.database, writing=False) as session:
        identity = await authenticate(graph.services, session, credential)
        if identity is None:
            raise Unauthenticated
        require_scope(identity.scopes, SCOPE_BY_KIND[prepared.kind])
        viewer = identity.user
        graph.services.rate_limiter.charge(viewer.id, allowed.quote, graph.services.clock())
        context = Context(graph.services, session, viewer, request_id)
        # Positional, because the name of the variables' parameter differs between versions of graphql-core.
        executor = Executor.build(SCHEMA, prepared.document, None, context, variables, prepared.name, is_awaitable=is_awaitable)
        if isinstance(executor, list):
            return OperationResult(None, [make_graphql_error_entry(error, request_id) for error in executor], viewer.id)
        result: Any = create_source_event_stream(executor)
        result = await result if is_awaitable(result) else result
        if isinstance(result, ChangeFilter):
            return viewer.id, result
        return OperationResult(None, [make_graphql_error_entry(error, request_id) for error in result.errors or ()], viewer.id)
