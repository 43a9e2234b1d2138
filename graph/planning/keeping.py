"""Keeps the plans of operations: made when an operation is run again, and dropped with it."""

from collections.abc import Mapping
from typing import Any, Literal
from weakref import ref

from graphql import FragmentDefinitionNode, GraphQLError, OperationDefinitionNode, VariableNode
from sqlalchemy import Dialect

from graph.context import Fixed
from graph.operations import Prepared
from graph.planning.arguments import Variables
from graph.planning.compiling import Compiler, Plan, Unplannable
from graph.schema import graphql_schema as SCHEMA  # noqa: N812
from graph.schema import schema
from storage.caches import CacheBounds, LruCache

MOST_PLANS = 16
"""Of one operation, whose directives take variables; for further values graphql-core answers."""
PLANS = CacheBounds("plans", max_entries=300, max_bytes=12 * 2**20)
"""Of operations sent as texts: those that were run last."""
PREPARED_PLANS = CacheBounds("prepared plans", max_entries=2_000, max_bytes=32 * 2**20)
"""Of operations that were prepared at the start."""
OFTEN = 2
"""An operation sent as a text is planned when it is run for the second time: most of those that somebody tries out never are."""


class Plans:
    """The plans of one operation."""

    __slots__ = ("__weakref__", "_made", "_operation", "_prepared", "_runs", "_switches", "_variables", "name")

    def __init__(self, prepared: Prepared, operation: OperationDefinitionNode) -> None:
        self._prepared = prepared
        self._operation = operation
        self._switches = sorted(_switches(prepared))
        self._made: dict[tuple[Any, ...], Plan | None] = {}
        self._runs = 0
        self.name = ref(self, _forget)
        self._variables: Variables | Literal[False] | None = None

    def find(self, variables: Mapping[str, Any], dialect: Dialect, fixed: Fixed) -> tuple[Plan, Any] | None:
        """The plan for these variables, and the variables as it takes them; None: graphql-core is to answer."""
        tried = self._prepared.tried
        if tried:
            self._runs += 1
            if self._runs < OFTEN:
                return None
        if self._variables is None:
            self._variables = self._read_variables()
        values = self._variables.values(variables) if self._variables else None
        if values is None:
            return None
        switches = {name: values.coerced.get(name) for name in self._switches}
        key = (dialect.name, fixed, *switches.values())
        if key in self._made:
            plan = self._made[key]
            if tried:
                _PLANS.get(self.name)
        else:
            if len(self._made) >= MOST_PLANS:
                return None
            plan = self._made[key] = self._make(switches, dialect, fixed)
            (_PLANS if tried else _PREPARED).put(self.name, sum(plan_size(each) for each in self._made.values()))
        return None if plan is None else (plan, values)

    def drop(self) -> None:
        """Forgets the plans; they are made again when they are wanted."""
        self._made.clear()

    def _read_variables(self) -> Variables | Literal[False]:
        try:
            return Variables(SCHEMA, self._operation.variable_definitions or ())
        except (GraphQLError, TypeError):
            return False

    def _make(self, switches: dict[str, Any], dialect: Dialect, fixed: Fixed) -> Plan | None:
        fragments = {node.name.value: node for node in self._prepared.document.definitions if isinstance(node, FragmentDefinitionNode)}
        try:
            compiler = Compiler(SCHEMA, schema.schema_converter, fragments, switches, dialect, fixed, self._prepared.form)
            return compiler.plan(self._operation)
        except (Unplannable, GraphQLError, TypeError):
            # What is wrong with an argument is graphql-core's to say.
            return None


def plan_size(plan: Plan | None) -> int:
    """Estimates the bytes of a plan."""
    return 1_000 if plan is None else 4_000 + 2_900 * plan.fields


def _drop(name: "ref[Plans]", _: int) -> None:
    if (dropped := name()) is not None:
        dropped.drop()


_PLANS, _PREPARED = (LruCache[Any, int](bounds, lambda _, size: size, _drop) for bounds in (PLANS, PREPARED_PLANS))


def _forget(name: "ref[Plans]") -> None:
    """They go with their texts."""
    _PLANS.pop(name)
    _PREPARED.pop(name)


def plans_of(prepared: Prepared) -> Plans | None:
    """Where its plans are kept; None for what is never planned."""
    if prepared.kind != "query" and (prepared.kind != "mutation" or prepared.root is None):
        return None
    found = prepared.kept.get("plans")
    if found is None:
        operations = [node for node in prepared.document.definitions if isinstance(node, OperationDefinitionNode)]
        (operation,) = [node for node in operations if prepared.name is None or (node.name and node.name.value == prepared.name)]
        found = prepared.kept["plans"] = Plans(prepared, operation)
    return found


def _switches(prepared: Prepared) -> set[str]:
    """The variables that directives take."""
    found: set[str] = set()

    def walk(selections: Any) -> None:
        for node in selections.selections:
            for directive in node.directives or ():
                found.update(each.value.name.value for each in directive.arguments or () if isinstance(each.value, VariableNode))
            if getattr(node, "selection_set", None) is not None:
                walk(node.selection_set)

    for definition in prepared.document.definitions:
        walk(definition.selection_set)  # type: ignore[attr-defined]
    return found
