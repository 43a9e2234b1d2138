"""Mutations in plans: the resolver runs once, and what it gave is kept for graphql-core.

Where a plan cannot go on, graphql-core answers the whole operation anew. A change must not be made anew, so its field is then given the
payload, or the error, that its resolver has given already; all else, such as what the payload selects, is read again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from graph.context import Context
from graph.operations.row_executor import is_awaitable


@dataclass(frozen=True, slots=True)
class MutationResult:
    """What the resolver of an operation's one mutation gave: a payload, or an error."""

    payload: Any = None
    error: Exception | None = None


def run_once(resolve: Callable[..., Any], info: str) -> Callable[..., Any]:
    """A mutation's resolver that leaves what it gives in `Context.mutation_result`. `info` is the name of its parameter."""

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
    """Middleware of graphql-core's: a mutation that was run has given what it gave."""
    result = info.context.mutation_result
    if result is None or info.path.prev is not None or info.field_name == "__typename":
        return resolve(root, info, **arguments)
    if result.error is not None:
        raise result.error
    return result.payload
