"""Begins the fields that are evaluated for each object: reads attributes, requests keys from loaders, calls resolvers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import strawberry

from graph.context import Context
from graph.planner.ir.steps import AttributeStep, FieldPath, FieldStep, FieldValues, LoaderStep, ResolverStep
from graph.planner.run.state import PlanRun, close_coroutines


@dataclass(slots=True)
class ResolverInfo:
    """The part of GraphQLResolveInfo that resolvers read."""

    context: Context
    parent_type: Any
    path: FieldPath
    field_nodes: Sequence[Any]
    fragments: Mapping[str, Any]
    variable_values: Any


def begin_step(step: FieldStep, run: PlanRun, objects: Sequence[Any]) -> FieldValues:
    """The values of a field, and an awaitable for each that is not there yet. Awaits nothing."""
    return STEP_STARTERS[type(step)](step, run, objects)


def _read_attribute(step: AttributeStep, run: PlanRun, objects: Sequence[Any]) -> FieldValues:
    return [getattr(each, step.attribute) for each in objects]


def _request_from_loader(step: LoaderStep, run: PlanRun, objects: Sequence[Any]) -> FieldValues:
    name, load = step.field_source.key, step.field_source.loader(run.context).load
    return [None if (key := getattr(each, name)) is None else load(key) for each in objects]


def is_loaded(step: FieldStep, run: PlanRun, objects: Sequence[Any]) -> bool:
    """Whether a loader has the field of each object already, so that it takes no statement."""
    if not isinstance(step, LoaderStep):
        return False
    loader = step.field_source.loader(run.context)
    keys = [getattr(each, step.field_source.key) for each in objects]
    return all(key is None or loader.is_loaded(key) for key in keys)


def _call_resolver(step: ResolverStep, run: PlanRun, objects: Sequence[Any]) -> FieldValues:
    arguments = run.arguments[step.arguments] if step.arguments is not None else {}
    if step.info is not None:
        arguments = {**arguments, step.info: make_info(step, run)}
    values: FieldValues = []
    try:
        for each in objects:
            if step.root is None:
                values.append(step.resolve(each, **arguments))
            else:
                values.append(step.resolve(**arguments, **({step.root: each} if step.root else {})))
    except BaseException:
        close_coroutines(values)
        raise
    return values


STEP_STARTERS: dict[type[FieldStep], Callable[[Any, PlanRun, Sequence[Any]], FieldValues]] = {
    AttributeStep: _read_attribute,
    LoaderStep: _request_from_loader,
    ResolverStep: _call_resolver,
}


def make_info(step: ResolverStep, run: PlanRun) -> Any:
    """The `info` argument of the resolver."""
    resolver_info: Any = ResolverInfo(run.context, step.parent_type, step.path, step.nodes, run.fragments, run.variables)
    return strawberry.Info(_raw_info=resolver_info, _field=step.definition)
