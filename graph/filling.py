"""Fills the fields of rows without the general machinery of graphql-core, which costs ten times what a column does.

Only what is declared (`graph/declare.py`) is filled here: a column is read and spelled at once; the rows and names that a level needs are
asked of their loaders before the level is filled, so that nothing in it waits on its own. Whatever else a selection asks for, and
whatever goes wrong with a column, takes graphql-core's way, with its errors.
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

from graph.installing import Loading, Reading, filling_of, is_filled
from graph.time_slices import Pieces, in_slices, is_used_up

T = TypeVar("T")

Read = Callable[[Any], Any]
Fields = dict[str, Any]
_EMPTY: dict[str, Any] = {}


@dataclass(slots=True)
class _Plan:
    """How the fields of one selection on one type are filled; `blank` has their names, in the order of the answer."""

    blank: dict[str, None]
    columns: list[tuple[str, Read, list[Any]]]
    loads: list[Loading]
    others: Fields
    # Kept, since the plan is found by its identity.
    fields: Fields


class _Items:
    """The items of a list, completed as graphql-core does it, but in time slices: where one is used up, the rest is left to a coroutine."""

    def __init__(
        self, executor: "Filler", items: list[Any], item_type: Any, details: list[Any], info: Any, path: Any, context: Any
    ) -> None:
        self._executor = executor
        self._items = items
        self._given = (item_type, details, info)
        self._path = path
        self._context = context
        self._completed: list[Any] = []
        self._awaited: list[int] = []
        self._ticket: int | None = None

    def complete(self) -> AwaitableOrValue[list[Any]]:
        if not self._complete_some():
            return self.complete_in_slices()
        return self._gathered() if self._awaited else self._completed

    async def complete_in_slices(self) -> list[Any]:
        self._ticket = await self._executor.pieces.pause(self._ticket)
        while not self._complete_some():
            self._ticket = await self._executor.pieces.pause(self._ticket)
        return await self._gathered() if self._awaited else self._completed

    def _complete_some(self) -> bool:
        """Completes at least one item, and more as long as the slice is not used up. Returns whether that was all."""
        executor, completed, awaited = self._executor, self._completed, self._awaited
        begun = len(completed)
        try:
            for index in range(begun, len(self._items)):
                if index > begun and is_used_up():
                    return False
                item, path = self._items[index], self._path.add_key(index, None)
                if executor.is_awaitable(item):
                    completed.append(executor.complete_awaitable_list_item_value(item, *self._given, path, self._context))
                    awaited.append(index)
                elif executor.complete_list_item_value(item, completed, *self._given, path, self._context):
                    awaited.append(index)
                else:
                    continue
                # graphql-core asks this of all that it makes but the items of lists.
                executor.is_awaitable(completed[index])
        except Exception:
            left = [completed[index] for index in awaited] + [item for item in self._items[len(completed) :] if executor.is_awaitable(item)]
            executor.settle_in_background(left)
            raise
        return True

    async def _gathered(self) -> list[Any]:
        completed, awaited = self._completed, self._awaited
        if len(awaited) == 1:
            completed[awaited[0]] = await completed[awaited[0]]
        else:
            pieces = self._executor.pieces
            values = await gather_with_cancel(*(in_slices(completed[index], pieces) for index in awaited))
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
    """Runs an operation by graphql-core, with the rows filled as here. Nothing of it is left running or unawaited."""
    awaitables = Awaitables()
    try:
        result = graphql.execute(
            schema,
            document,
            root_value=root,
            context_value=context,
            variable_values=variables,
            operation_name=operation_name,
            executor_class=Filler,
            is_awaitable=awaitables.add,
            middleware=middleware,
        )
        return result if isinstance(result, ExecutionResult) else await result
    finally:
        awaitables.close()


class Filler(Executor[Any]):
    """graphql-core's executor, but for the objects that are rows."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.pieces: Pieces = getattr(self.context_value, "pieces", None) or Pieces()
        self._plans: dict[int, _Plan] = {}
        self._filled: dict[tuple[int, int], tuple[Any, dict[str, Any]]] = {}

    def execute_fields(
        self, parent_type: GraphQLObjectType, source_value: Any, path: Any, grouped_field_set: Fields, position_context: Any
    ) -> AwaitableOrValue[dict[str, Any]]:
        if not is_filled(parent_type):
            return super().execute_fields(parent_type, source_value, path, grouped_field_set, position_context)
        # A row that stands in many places, such as the author of a page of issues, is filled once.
        key = (id(source_value), id(grouped_field_set))
        if (filled := self._filled.get(key)) is not None:
            return filled[1]
        plan = self._plan(parent_type, grouped_field_set)
        waiting = self._ask(plan, (source_value,))
        if waiting:
            return self._fill_after(waiting, plan, parent_type, source_value, path, position_context)
        return self._fill(plan, parent_type, source_value, path, position_context)

    def complete_iterable_value(
        self, item_type: Any, field_details_list: list[Any], info: Any, path: Any, items: Iterable[Any], position_context: Any
    ) -> AwaitableOrValue[list[Any]]:
        kind = item_type.of_type if isinstance(item_type, GraphQLNonNull) else item_type
        if is_filled(kind):
            items = list(items)
            plan = self._plan(kind, self.collect_subfields(kind, field_details_list)[0])
            waiting = self._ask(plan, items)
            if waiting:
                return self._complete_after(waiting, _Items(self, items, item_type, field_details_list, info, path, position_context))
        return _Items(self, list(items), item_type, field_details_list, info, path, position_context).complete()

    def settle_in_background(self, awaitables: list[Awaitable[Any]]) -> None:
        """Drops what stands beside a field that failed. graphql-core would run it to its end, though nobody reads what comes of it."""
        for each in awaitables:
            if isinstance(each, asyncio.Future):
                # It may be shared, so it goes on, and its error is somebody else's to report.
                each.add_done_callback(_retrieve)

    async def with_abort_signal(self, awaitable: Awaitable[T]) -> T:
        """Awaits what a resolver gave. Where a field fails, graphql-core calls off the others that its parent has; what they share with
        fields elsewhere, as the futures of loaders, goes on."""
        await self.pieces.pause()
        value: T = await super().with_abort_signal(asyncio.shield(awaitable) if isinstance(awaitable, asyncio.Future) else awaitable)
        await self.pieces.pause()
        return value

    async def _fill_after(self, waiting: list["asyncio.Future[Any]"], *given: Any) -> dict[str, Any]:
        await _settled(waiting)
        await self.pieces.pause()
        filled: Any = self._fill(*given)
        return await filled if self.is_awaitable(filled) else filled  # type: ignore[no-any-return]

    async def _complete_after(self, waiting: list["asyncio.Future[Any]"], items: "_Items") -> list[Any]:
        await _settled(waiting)
        return await items.complete_in_slices()

    def _fill(
        self, plan: _Plan, parent_type: GraphQLObjectType, source: Any, path: Any, position_context: Any
    ) -> AwaitableOrValue[dict[str, Any]]:
        results: dict[str, Any] = plan.blank.copy()
        errors = len(self.collected_errors.errors)
        others = plan.others
        for name, read, details in plan.columns:
            try:
                results[name] = read(source)
            except Exception:
                # graphql-core says what is wrong, and where.
                others = {**others, name: details}
        if others:
            rest: Any = super().execute_fields(parent_type, source, path, others, position_context)
            if self.is_awaitable(rest):
                return _merged(results, rest)
            results.update(rest)
        if len(self.collected_errors.errors) == errors:
            self._filled[id(source), id(plan.fields)] = (source, results)
        return results

    def _ask(self, plan: _Plan, rows: Iterable[Any]) -> list["asyncio.Future[Any]"]:
        """Asks the loaders for all that these rows' relations need, and gives what is not there yet."""
        waiting: dict[asyncio.Future[Any], None] = {}
        for loading in plan.loads:
            loader = loading.loader(self.context_value)
            for row in rows:
                key = getattr(row, loading.key, None)
                if key is not None and isinstance(found := loader.load(key), asyncio.Future):
                    waiting[found] = None
        return list(waiting)

    def _plan(self, parent_type: GraphQLObjectType, fields: Fields) -> _Plan:
        plan = self._plans.get(id(fields))
        if plan is None:
            plan = self._plans[id(fields)] = self._made(parent_type, fields)
        return plan

    def _made(self, parent_type: GraphQLObjectType, fields: Fields) -> _Plan:
        plan = _Plan(dict.fromkeys(fields), [], [], {}, fields)
        for name, details in fields.items():
            field = parent_type.fields.get(details[0].node.name.value)
            filling = filling_of(field) if field is not None else None
            if field is not None and isinstance(filling, Reading) and (read := _read_of(field.type, filling.key)) is not None:
                plan.columns.append((name, read, details))
                continue
            if isinstance(filling, Loading):
                plan.loads.append(filling)
            plan.others[name] = details
        return plan


def _read_of(kind: Any, key: str) -> Read | None:
    """Reads and spells a column; raises where the general way must say what is wrong. None for what is not a leaf."""
    needed = isinstance(kind, GraphQLNonNull)
    leaf = kind.of_type if needed else kind
    if not is_leaf_type(leaf):
        return None
    spell = spelling_of(leaf)
    absent = object()

    def read(row: Any) -> Any:
        # A column that was read lies in the row itself; asking for it by its name passes through the mapping.
        value = getattr(row, "__dict__", _EMPTY).get(key, absent)
        if value is absent:
            value = getattr(row, key)
        if value is None and not needed:
            return None
        spelled = spell(value)
        if spelled is None or spelled is Undefined:
            raise ValueError(key)
        return spelled

    return read


def spelling_of(leaf: Any) -> Read:
    """Spells a value of the type. Strawberry's enumerations compare a member with all others each time; here it is looked up."""
    members = getattr(leaf, "wrapped_cls", None)
    if members is None:
        return leaf.coerce_output_value  # type: ignore[no-any-return]
    names = {member: leaf.coerce_output_value(member) for member in members}
    return names.__getitem__


def _retrieve(done: "asyncio.Future[Any]") -> None:
    if not done.cancelled():
        done.exception()


async def _merged(results: dict[str, Any], rest: Any) -> dict[str, Any]:
    results.update(await rest)
    return results


async def _settled(waiting: list["asyncio.Future[Any]"]) -> None:
    """Waits for all. A failure is left to whoever asks for the value itself, and knows its place in the answer."""
    for each in waiting:
        try:
            await asyncio.shield(each)
        except Exception:  # noqa: S112 - see above
            continue


class Awaitables:
    """The coroutines of one execution. graphql-core leaves some behind that it never starts: those beside a field that failed, and those
    inside a task that was cancelled before its first step. Python would report each of them on stderr when it is collected."""

    def __init__(self) -> None:
        self._coroutines: list[CoroutineType[Any, Any, Any]] = []

    def add(self, value: Any) -> TypeGuard[Awaitable[Any]]:
        """Whether a value is awaitable, as `may_wait`."""
        if type(value) is CoroutineType:
            self._coroutines.append(value)
            return True
        return may_wait(value)

    def close(self) -> None:
        """Closes what was never started. To be called when the execution has ended."""
        coroutines, self._coroutines = self._coroutines, []
        for each in coroutines:
            if inspect.getcoroutinestate(each) == inspect.CORO_CREATED:
                each.close()


_KNOWN: dict[type, bool] = {CoroutineType: True}


def may_wait(value: Any) -> TypeGuard[Awaitable[Any]]:
    """graphql-core's `is_awaitable`, remembered by type: it is asked for every value of an answer."""
    return has_to_wait(type(value))


def has_to_wait(kind: type) -> bool:
    """`may_wait` of the values of a type."""
    known = _KNOWN.get(kind)
    if known is None:
        known = _KNOWN[kind] = hasattr(kind, "__await__")
    return known
