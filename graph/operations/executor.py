"""Executes operations by graphql-core, in time slices.

Long lists pause when a slice of the event loop is used up, so that other operations go on; the relations of their rows are requested
before, so that loaders fetch once. Nothing else differs from graphql-core: values come from the fields' resolvers, and graphql-core
serializes them.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Iterable
from types import CoroutineType
from typing import Any, TypeGuard, TypeVar

import graphql
from graphql import DocumentNode, ExecutionResult, Executor, GraphQLNonNull
from graphql.pyutils import AwaitableOrValue, gather_with_cancel

from graph.fields.resolvers import LoaderSource, field_source_of, is_row_type
from graph.operations.time_slices import SliceScheduler, is_used_up, run_in_slices

T = TypeVar("T")


class _ListCompletion:
    """Completes the items of a list as graphql-core does, but in time slices: a coroutine continues when a slice is used up."""

    def __init__(
        self, executor: "SlicedExecutor", items: list[Any], item_type: Any, details: list[Any], info: Any, path: Any, context: Any
    ) -> None:
        self._executor = executor
        self._items = items
        self._completion_arguments = (item_type, details, info)
        self._path = path
        self._context = context
        self._completed: list[Any] = []
        self._awaited: list[int] = []
        self._ticket: int | None = None

    def complete(self) -> AwaitableOrValue[list[Any]]:
        if not self._complete_slice():
            return self.complete_in_slices()
        return self._await_items() if self._awaited else self._completed

    async def complete_in_slices(self) -> list[Any]:
        self._ticket = await self._executor.scheduler.pause(self._ticket)
        while not self._complete_slice():
            self._ticket = await self._executor.scheduler.pause(self._ticket)
        return await self._await_items() if self._awaited else self._completed

    def _complete_slice(self) -> bool:
        """Completes at least one item, and more until the slice is used up. Returns whether all items are completed."""
        executor, completed, awaited = self._executor, self._completed, self._awaited
        completed_before = len(completed)
        try:
            for index in range(completed_before, len(self._items)):
                if index > completed_before and is_used_up():
                    return False
                item, path = self._items[index], self._path.add_key(index, None)
                if executor.is_awaitable(item):
                    completed.append(executor.complete_awaitable_list_item_value(item, *self._completion_arguments, path, self._context))
                    awaited.append(index)
                elif executor.complete_list_item_value(item, completed, *self._completion_arguments, path, self._context):
                    awaited.append(index)
                else:
                    continue
                # graphql-core calls this for everything that it creates except items of lists; `CoroutineTracker` needs it.
                executor.is_awaitable(completed[index])
        except Exception:
            unfinished = [completed[index] for index in awaited] + [
                item for item in self._items[len(completed) :] if executor.is_awaitable(item)
            ]
            executor.settle_in_background(unfinished)
            raise
        return True

    async def _await_items(self) -> list[Any]:
        completed, awaited = self._completed, self._awaited
        if len(awaited) == 1:
            completed[awaited[0]] = await completed[awaited[0]]
        else:
            scheduler = self._executor.scheduler
            values = await gather_with_cancel(*(run_in_slices(completed[index], scheduler) for index in awaited))
            for index, value in zip(awaited, values, strict=True):
                completed[index] = value
        return completed


async def execute_document(
    schema: Any,
    document: DocumentNode,
    context: Any,
    variables: dict[str, Any],
    operation_name: str | None,
    *,
    root: Any = None,
    middleware: list[Any] | None = None,
) -> ExecutionResult:
    """Runs an operation by graphql-core with `SlicedExecutor`. No coroutine is left running or unawaited."""
    coroutines = CoroutineTracker()
    try:
        result = graphql.execute(
            schema,
            document,
            root_value=root,
            context_value=context,
            variable_values=variables,
            operation_name=operation_name,
            executor_class=SlicedExecutor,
            is_awaitable=coroutines.track,
            middleware=middleware,
        )
        return result if isinstance(result, ExecutionResult) else await result
    finally:
        coroutines.close()


class SlicedExecutor(Executor[Any]):
    """graphql-core's executor, with lists in time slices, and awaitables that loaders share between fields."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.scheduler: SliceScheduler = getattr(self.context_value, "scheduler", None) or SliceScheduler()

    def complete_iterable_value(
        self, item_type: Any, field_details_list: list[Any], info: Any, path: Any, items: Iterable[Any], position_context: Any
    ) -> AwaitableOrValue[list[Any]]:
        items = list(items)
        completion = _ListCompletion(self, items, item_type, field_details_list, info, path, position_context)
        waiting = self._request_relations(item_type, field_details_list, items)
        return _complete_after(waiting, completion) if waiting else completion.complete()

    def _request_relations(self, item_type: Any, field_details_list: list[Any], rows: list[Any]) -> list["asyncio.Future[Any]"]:
        """Requests all keys of the rows' relations from the loaders before a slice can end, so that each loader fetches once.

        Returns the futures of what is not loaded yet.
        """
        kind = item_type.of_type if isinstance(item_type, GraphQLNonNull) else item_type
        if not is_row_type(kind):
            return []
        waiting: dict[asyncio.Future[Any], None] = {}
        for details in self.collect_subfields(kind, field_details_list)[0].values():
            field = kind.fields.get(details[0].node.name.value)
            source = field_source_of(field) if field is not None else None
            if not isinstance(source, LoaderSource):
                continue
            loader = source.loader(self.context_value)
            for row in rows:
                key = getattr(row, source.key, None)
                if key is not None and isinstance(found := loader.load(key), asyncio.Future):
                    waiting[found] = None
        return list(waiting)

    def settle_in_background(self, awaitables: list[Awaitable[Any]]) -> None:
        """Drops the siblings of a failed field. graphql-core would run them to their end, although nobody reads their results."""
        for each in awaitables:
            if isinstance(each, asyncio.Future):
                # A future may be shared, so it continues, and another waiter reports its error.
                each.add_done_callback(_retrieve_exception)

    async def with_abort_signal(self, awaitable: Awaitable[T]) -> T:
        """Awaits a resolver's result. After a failed field graphql-core cancels its siblings; futures are shielded, because loaders share
        them with other fields."""
        await self.scheduler.pause()
        value: T = await super().with_abort_signal(asyncio.shield(awaitable) if isinstance(awaitable, asyncio.Future) else awaitable)
        await self.scheduler.pause()
        return value


async def _complete_after(waiting: list["asyncio.Future[Any]"], completion: _ListCompletion) -> list[Any]:
    """Completes a list once these are done. Failures are ignored: the field that awaits the value reports them with its path."""
    for each in waiting:
        try:
            await asyncio.shield(each)
        except Exception:  # noqa: S112 - see above
            continue
    return await completion.complete_in_slices()


def _retrieve_exception(done: "asyncio.Future[Any]") -> None:
    if not done.cancelled():
        done.exception()


class CoroutineTracker:
    """Tracks the coroutines of one execution, to close those that graphql-core never starts.

    These are siblings of a failed field, and coroutines of a task that was canceled before its first step. Python would report each of
    them on stderr as never awaited.
    """

    def __init__(self) -> None:
        self._coroutines: list[CoroutineType[Any, Any, Any]] = []

    def track(self, value: Any) -> TypeGuard[Awaitable[Any]]:
        """Whether a value is awaitable, as `is_awaitable`."""
        if type(value) is CoroutineType:
            self._coroutines.append(value)
            return True
        return is_awaitable(value)

    def close(self) -> None:
        """Closes coroutines that were never started. Call it after the execution."""
        coroutines, self._coroutines = self._coroutines, []
        for each in coroutines:
            if inspect.getcoroutinestate(each) == inspect.CORO_CREATED:
                each.close()


_AWAITABLE_TYPES: dict[type, bool] = {CoroutineType: True}


def is_awaitable(value: Any) -> TypeGuard[Awaitable[Any]]:
    """graphql-core's `is_awaitable`, cached by type, because it is called for every value of a result."""
    return is_awaitable_type(type(value))


def is_awaitable_type(kind: type) -> bool:
    """Whether values of a type are awaitable."""
    found = _AWAITABLE_TYPES.get(kind)
    if found is None:
        found = _AWAITABLE_TYPES[kind] = hasattr(kind, "__await__")
    return found
