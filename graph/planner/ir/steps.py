"""The steps of a level that are evaluated for each object, and the protocols of steps and completers."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import strawberry

from graph.context import Context
from graph.fields.resolvers import LoaderSource

FieldValues = list[Any]


@dataclass(frozen=True, slots=True)
class FieldPath:
    """The path to a field as far as resolvers read it; the items of a list have no type name."""

    typename: str | None
    prev: "FieldPath | None" = None


@dataclass(frozen=True, slots=True)
class ResolverInfo:
    """The part of GraphQLResolveInfo that resolvers read."""

    context: Context
    parent_type: Any
    path: FieldPath
    field_nodes: Sequence[Any]
    fragments: Mapping[str, Any]
    variable_values: Any


@dataclass(frozen=True, slots=True)
class PlanRun:
    """One run of a plan; `arguments` are those of each field that takes any."""

    context: Context
    variables: Any
    fragments: Mapping[str, Any]
    arguments: Sequence[dict[str, Any]]


@dataclass(slots=True)
class PendingWork:
    """What is to be awaited of the levels begun so far: `coroutines` complete these `values`."""

    coroutines: list[Coroutine[Any, Any, None]]
    values: list[FieldValues]

    def close(self) -> None:
        """Closes coroutines that nothing will await."""
        close_coroutines(self.coroutines)
        for values in self.values:
            close_coroutines(values)


class Completer(Protocol):
    """Turns the values of one field, of all objects of a level, into the answer."""

    @property
    def is_async(self) -> bool:
        """Whether something may have to be awaited; if not, `complete_sync` is called."""
        ...

    def complete_sync(self, values: FieldValues) -> FieldValues: ...

    def begin(self, run: PlanRun, values: FieldValues, work: PendingWork) -> FieldValues | None:
        """The answers, complete when the work is done; None where `complete` must be awaited."""
        ...

    async def complete(self, run: PlanRun, values: FieldValues) -> FieldValues: ...


class FieldStep(Protocol):
    """A field that is evaluated for each object of a level."""

    key: str
    completer: Completer

    def begin(self, run: PlanRun, objects: Sequence[Any]) -> FieldValues:
        """The values, and an awaitable for each that is not there yet. Awaits nothing."""
        ...


class BatchedStep(Protocol):
    """A field, or several, that is evaluated for all objects of a level at once."""

    async def execute(self, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        """Writes its keys into the objects' answers.

        Raises PlanBailout, and what the policy and resolvers raise.
        """
        ...


@dataclass(slots=True)
class AttributeStep:
    """An attribute; some of them, such as the count of a page, are awaited."""

    key: str
    completer: Completer
    attribute: str

    def begin(self, run: PlanRun, objects: Sequence[Any]) -> FieldValues:
        return [getattr(each, self.attribute) for each in objects]


@dataclass(slots=True)
class LoaderStep:
    """A field that a loader loads by a key of each object."""

    key: str
    completer: Completer
    field_source: LoaderSource

    def begin(self, run: PlanRun, objects: Sequence[Any]) -> FieldValues:
        name, load = self.field_source.key, self.field_source.loader(run.context).load
        return [None if (key := getattr(each, name)) is None else load(key) for each in objects]


@dataclass(slots=True)
class ResolverStep:
    """A field whose resolver is called for each object."""

    key: str
    completer: Completer
    resolve: Callable[..., Any]
    definition: Any
    nodes: Sequence[Any]
    parent_type: Any
    path: FieldPath
    root: str | None
    """The name of the parameter that takes the object; None: the first; "": there is none."""
    info: str | None
    arguments: int | None
    """The index in `PlanRun.arguments`; None without arguments."""

    @property
    def batch_resolver(self) -> Callable[..., Awaitable[FieldValues]] | None:
        """The resolver of all objects at once, where the field declares one (`batch=`)."""
        return self.definition.metadata.get("batch")  # type: ignore[no-any-return]

    def make_info(self, run: PlanRun) -> Any:
        """The `info` argument of the resolver."""
        resolver_info: Any = ResolverInfo(run.context, self.parent_type, self.path, self.nodes, run.fragments, run.variables)
        return strawberry.Info(_raw_info=resolver_info, _field=self.definition)

    def begin(self, run: PlanRun, objects: Sequence[Any]) -> FieldValues:
        arguments = run.arguments[self.arguments] if self.arguments is not None else {}
        if self.info is not None:
            arguments = {**arguments, self.info: self.make_info(run)}
        values: FieldValues = []
        try:
            for each in objects:
                if self.root is None:
                    values.append(self.resolve(each, **arguments))
                else:
                    values.append(self.resolve(**arguments, **({self.root: each} if self.root else {})))
        except BaseException:
            close_coroutines(values)
            raise
        return values


def close_coroutines(values: Sequence[Any]) -> None:
    """Closes the coroutines among these values."""
    for value in values:
        if isinstance(value, Coroutine):
            value.close()
