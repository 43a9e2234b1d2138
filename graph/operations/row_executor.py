"""Executes the fields of rows without graphql-core's general execution, which costs ten times as much per column.

Only declared fields (`graph/fields/declarations.py`) are executed here. Columns are read and serialized directly. The relations and names
of a level are requested from their loaders before the level is executed, so that fields do not wait individually. All other fields, and
columns with errors, are executed by graphql-core, which reports the errors.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, TypeGuard, TypeVar

import graphql
from graphql import DocumentNode, ExecutionResult, Executor, GraphQLNonNull, GraphQLObjectType, Undefined, is_leaf_type
from graphql.pyutils import AwaitableOrValue, gather_with_cancel

from graph.fields.resolvers import AttributeSource, LoaderSource, field_source_of, is_row_type
from graph.operations.time_slices import SliceScheduler, is_used_up, run_in_slices

T = TypeVar("T")

ValueReader = Callable[[Any], Any]
Fields = dict[str, Any]
_NO_ATTRIBUTES: dict[str, Any] = {}


@dataclass(slots=True)
class _SelectionPlan:
    """How the fields of one selection set on one type are executed; `empty_result` has their response keys in order."""

    empty_result: dict[str, None]
    columns: list[tuple[str, ValueReader, list[Any]]]
    loader_sources: list[LoaderSource]
    other_fields: Fields
    # A reference, so that the id under which the plan is cached is not reused.
    fields: Fields


class _ListCompletion:
    """Completes the items of a list as graphql-core does, but in time slices: a coroutine continues when a slice is used up."""

    def __init__(
        self, executor: "RowExecutor", items: list[Any], item_type: Any, details: list[Any], info: Any, path: Any, context: Any
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
    """Runs an operation by graphql-core with `RowExecutor`. No coroutine is left running or unawaited."""
    coroutines = CoroutineTracker()
    try:
        result = graphql.execute(
            schema,
            document,
            root_value=root,
            context_value=context,
            variable_values=variables,
            operation_name=operation_name,
            executor_class=RowExecutor,
            is_awaitable=coroutines.track,
            middleware=middleware,
        )
        return result if isinstance(result, ExecutionResult) else await result
    finally:
        coroutines.close()


class RowExecutor(Executor[Any]):
    """graphql-core's executor with a faster execution of objects that are rows."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.scheduler: SliceScheduler = getattr(self.context_value, "scheduler", None) or SliceScheduler()
        self._selection_plans: dict[int, _SelectionPlan] = {}
        self._completed_rows: dict[tuple[int, int], tuple[Any, dict[str, Any]]] = {}

    def execute_fields(
        self, parent_type: GraphQLObjectType, source_value: Any, path: Any, grouped_field_set: Fields, position_context: Any
    ) -> AwaitableOrValue[dict[str, Any]]:
        if not is_row_type(parent_type):
            return super().execute_fields(parent_type, source_value, path, grouped_field_set, position_context)
        # A row that occurs many times, such as the author of a page of issues, is executed once.
        key = (id(source_value), id(grouped_field_set))
        if (completed := self._completed_rows.get(key)) is not None:
            return completed[1]
        plan = self._find_plan(parent_type, grouped_field_set)
        waiting = self._request_loads(plan, (source_value,))
        if waiting:
            return self._execute_row_after(waiting, plan, parent_type, source_value, path, position_context)
        return self._execute_row(plan, parent_type, source_value, path, position_context)

    def complete_iterable_value(
        self, item_type: Any, field_details_list: list[Any], info: Any, path: Any, items: Iterable[Any], position_context: Any
    ) -> AwaitableOrValue[list[Any]]:
        kind = item_type.of_type if isinstance(item_type, GraphQLNonNull) else item_type
        if is_row_type(kind):
            items = list(items)
            plan = self._find_plan(kind, self.collect_subfields(kind, field_details_list)[0])
            waiting = self._request_loads(plan, items)
            if waiting:
                return self._complete_list_after(
                    waiting, _ListCompletion(self, items, item_type, field_details_list, info, path, position_context)
                )
        return _ListCompletion(self, list(items), item_type, field_details_list, info, path, position_context).complete()

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

    async def _execute_row_after(self, waiting: list["asyncio.Future[Any]"], *arguments: Any) -> dict[str, Any]:
        await _wait_all(waiting)
        await self.scheduler.pause()
        completed: Any = self._execute_row(*arguments)
        return await completed if self.is_awaitable(completed) else completed  # type: ignore[no-any-return]

    async def _complete_list_after(self, waiting: list["asyncio.Future[Any]"], items: "_ListCompletion") -> list[Any]:
        await _wait_all(waiting)
        return await items.complete_in_slices()

    def _execute_row(
        self, plan: _SelectionPlan, parent_type: GraphQLObjectType, source: Any, path: Any, position_context: Any
    ) -> AwaitableOrValue[dict[str, Any]]:
        results: dict[str, Any] = plan.empty_result.copy()
        errors = len(self.collected_errors.errors)
        other_fields = plan.other_fields
        for name, read, details in plan.columns:
            try:
                results[name] = read(source)
            except Exception:
                # graphql-core executes the field again and reports the error.
                other_fields = {**other_fields, name: details}
        if other_fields:
            other_results: Any = super().execute_fields(parent_type, source, path, other_fields, position_context)
            if self.is_awaitable(other_results):
                return _merge_when_done(results, other_results)
            results.update(other_results)
        if len(self.collected_errors.errors) == errors:
            self._completed_rows[id(source), id(plan.fields)] = (source, results)
        return results

    def _request_loads(self, plan: _SelectionPlan, rows: Iterable[Any]) -> list["asyncio.Future[Any]"]:
        """Requests all keys of these rows' relations from the loaders, and returns the futures of those that are not loaded yet."""
        waiting: dict[asyncio.Future[Any], None] = {}
        for source in plan.loader_sources:
            loader = source.loader(self.context_value)
            for row in rows:
                key = getattr(row, source.key, None)
                if key is not None and isinstance(found := loader.load(key), asyncio.Future):
                    waiting[found] = None
        return list(waiting)

    def _find_plan(self, parent_type: GraphQLObjectType, fields: Fields) -> _SelectionPlan:
        plan = self._selection_plans.get(id(fields))
        if plan is None:
            plan = self._selection_plans[id(fields)] = self._make_plan(parent_type, fields)
        return plan

    def _make_plan(self, parent_type: GraphQLObjectType, fields: Fields) -> _SelectionPlan:
        plan = _SelectionPlan(dict.fromkeys(fields), [], [], {}, fields)
        for name, details in fields.items():
            field = parent_type.fields.get(details[0].node.name.value)
            source = field_source_of(field) if field is not None else None
            if field is not None and isinstance(source, AttributeSource) and (read := _column_reader(field.type, source.key)) is not None:
                plan.columns.append((name, read, details))
                continue
            if isinstance(source, LoaderSource):
                plan.loader_sources.append(source)
            plan.other_fields[name] = details
        return plan


def _column_reader(kind: Any, key: str) -> ValueReader | None:
    """Returns the function that reads and serializes a column; it raises if graphql-core has to report an error. None if not a leaf."""
    is_non_null = isinstance(kind, GraphQLNonNull)
    leaf = kind.of_type if is_non_null else kind
    if not is_leaf_type(leaf):
        return None
    serialize = serializer_of(leaf)
    absent = object()

    def read_value(row: Any) -> Any:
        # A loaded column is in the row's `__dict__`; attribute access would go through SQLAlchemy's instrumentation.
        value = getattr(row, "__dict__", _NO_ATTRIBUTES).get(key, absent)
        if value is absent:
            value = getattr(row, key)
        if value is None and not is_non_null:
            return None
        serialized = serialize(value)
        if serialized is None or serialized is Undefined:
            raise ValueError(key)
        return serialized

    return read_value


def serializer_of(leaf: Any) -> ValueReader:
    """Returns the serializer of a leaf type. Strawberry's enums compare a member with all others; here it is looked up."""
    members = getattr(leaf, "wrapped_cls", None)
    if members is None:
        return leaf.coerce_output_value  # type: ignore[no-any-return]
    names = {member: leaf.coerce_output_value(member) for member in members}
    return names.__getitem__


def _retrieve_exception(done: "asyncio.Future[Any]") -> None:
    if not done.cancelled():
        done.exception()


async def _merge_when_done(results: dict[str, Any], other_results: Any) -> dict[str, Any]:
    results.update(await other_results)
    return results


async def _wait_all(waiting: list["asyncio.Future[Any]"]) -> None:
    """Waits for all futures. Failures are ignored: the field that awaits the value reports them with its path."""
    for each in waiting:
        try:
            await asyncio.shield(each)
        except Exception:  # noqa: S112 - see above
            continue


class CoroutineTracker:
    """Tracks the coroutines of one execution, to close those that graphql-core never starts.

    These are siblings of a failed field, and coroutines of a task that was cancelled before its first step. Python would report each of
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
