"""Mutations in plans: the resolver runs once, and its result is replayed to graphql-core.

Where a plan bails out, graphql-core executes the whole operation again. A change must not happen twice, so the mutation's field then
gets the payload, or the error, of the first run; everything else, such as the fields of the payload, is read again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from graph.context import Context
from graph.operations.executor import is_awaitable


@dataclass(frozen=True, slots=True)
class MutationResult:
    """The result of the operation's one mutation: a payload, or an error."""

    payload: Any = None
    error: Exception | None = None


def run_once(resolve: Callable[..., Any], info: str) -> Callable[..., Any]:
    """Wraps a mutation's resolver to store its result in `Context.mutation_result`.

    `info` is the name of its parameter.
    """

    @wraps(resolve)
    async def resolver(**arguments: Any) -> Any:
        context: Context = arguments[info].context
        try:
            payload = resolve(**arguments)
            if is_awaitable(payload):
                payload = await payload
        except Exception as error:
            context.mutation_result = MutationResult(error=error)
            raise
        context.mutation_result = MutationResult(payload)
        return payload

    return resolver


def replay(resolve: Callable[..., Any], root: Any, info: Any, **arguments: Any) -> Any:
    """Middleware of graphql-core: the root field of a mutation that ran returns its stored result."""
    result = info.context.mutation_result
    if result is None or info.path.prev is not None or info.field_name == "__typename":
        return resolve(root, info, **arguments)
    if result.error is not None:
        raise result.error
    return result.payload
