"""Caches the plans of operations: compiled when an operation runs again, and dropped with it."""

from collections.abc import Mapping
from typing import Any, Literal
from weakref import ref

import structlog
from graphql import FragmentDefinitionNode, GraphQLError, OperationDefinitionNode, VariableNode
from sqlalchemy import Dialect

from graph.context import StaticSettings
from graph.documents.documents import PreparedOperation
from graph.planner.coerce.arguments import OperationVariables, VariableValues
from graph.planner.compiler import CompileTarget, compile_operation
from graph.planner.errors import Unplannable
from graph.planner.plan import OperationPlan
from graph.schema import graphql_schema as SCHEMA  # noqa: N812
from graph.schema import schema
from storage.caches import CacheBounds, LruCache

MAX_PLANS_PER_OPERATION = 16
"""For one operation whose directives take variables; graphql-core executes it for further values."""
PLAN_CACHE_BOUNDS = CacheBounds("plans", max_entries=150, max_bytes=5 * 2**20)
"""Operations that callers sent as strings: those that ran last."""
PREPARED_PLAN_CACHE_BOUNDS = CacheBounds("prepared plans", max_entries=2_000, max_bytes=32 * 2**20)
"""Operations that were prepared at the start."""
MIN_RUNS_TO_PLAN = 2
"""An operation that a caller sent is planned when it runs the second time, because most are sent once."""

log = structlog.get_logger("planner")


class PlanCache:
    """The plans of one operation."""

    __slots__ = ("__weakref__", "_directive_variables", "_operation", "_plans", "_prepared", "_run_count", "_variables", "cache_key")

    def __init__(self, prepared: PreparedOperation, operation: OperationDefinitionNode) -> None:
        self._prepared = prepared
        self._operation = operation
        self._directive_variables = sorted(_directive_variables(prepared))
        self._plans: dict[tuple[Any, ...], OperationPlan | None] = {}
        self._run_count = 0
        self.cache_key = ref(self, _remove_collected)
        hash(self.cache_key)  # A reference that was not hashed before its object was freed has no hash.
        self._variables: OperationVariables | Literal[False] | None = None

    def find(
        self, variables: Mapping[str, Any], dialect: Dialect, settings: StaticSettings, values: VariableValues | None = None
    ) -> tuple[OperationPlan, Any] | None:
        """The plan for these variables, and the coerced variables; None: graphql-core executes the operation.

        `values` are the coerced variables, if an earlier call with the same ones has returned them.
        """
        is_ad_hoc = self._prepared.is_ad_hoc
        if is_ad_hoc:
            self._run_count += 1
            if self._run_count < MIN_RUNS_TO_PLAN:
                return None
        if values is None and (values := self.coerce(variables)) is None:
            return None
        directive_values = self.directive_values(values)
        key = (dialect.name, settings, *directive_values.values())
        if key in self._plans:
            plan = self._plans[key]
            if is_ad_hoc:
                _TEXT_PLAN_SIZES.get(self.cache_key)
        else:
            if len(self._plans) >= MAX_PLANS_PER_OPERATION:
                return None
            plan = self._plans[key] = self._try_to_compile(directive_values, dialect, settings)
            (_TEXT_PLAN_SIZES if is_ad_hoc else _PREPARED_PLAN_SIZES).put(
                self.cache_key, sum(plan_size(each) for each in self._plans.values())
            )
        return None if plan is None else (plan, values)

    def clear(self) -> None:
        """Drops the plans; they are compiled again when they are needed."""
        self._plans.clear()

    def coerce(self, variables: Mapping[str, Any]) -> VariableValues | None:
        """The values of the operation's variables; None where graphql-core reports what is wrong with them."""
        if self._variables is None:
            self._variables = self._read_variables()
        return self._variables.coerce(variables) if self._variables else None

    def directive_values(self, values: VariableValues) -> dict[str, Any]:
        """The values of the variables that directives use."""
        return {name: values.coerced.get(name) for name in self._directive_variables}

    def _read_variables(self) -> OperationVariables | Literal[False]:
        try:
            return OperationVariables(SCHEMA, self._operation.variable_definitions or ())
        except GraphQLError:
            return False

    def _try_to_compile(self, directive_values: dict[str, Any], dialect: Dialect, settings: StaticSettings) -> OperationPlan | None:
        try:
            return self.compile(directive_values, dialect, settings)
        except Unplannable:
            return None
        except Exception:
            log_compile_error(self._prepared)
            return None

    def compile(self, directive_values: dict[str, Any], dialect: Dialect, settings: StaticSettings) -> OperationPlan:
        """A new plan, which is not cached. Raises Unplannable."""
        fragments = {node.name.value: node for node in self._prepared.document.definitions if isinstance(node, FragmentDefinitionNode)}
        output_format = self._prepared.output_format
        target = CompileTarget(SCHEMA, schema.schema_converter, dialect, settings, output_format)
        return compile_operation(self._operation, fragments, directive_values, target)


def log_compile_error(prepared: PreparedOperation) -> None:
    """Logs the current exception, a defect of the planner: graphql-core executes the operation. In tests it is raised."""
    log.exception("plan compilation failed", operation=prepared.name)


def plan_size(plan: OperationPlan | None) -> int:
    """Estimates the bytes of a plan."""
    return 1_000 if plan is None else 4_000 + 2_900 * plan.field_count


def _clear_evicted(cache_key: "ref[PlanCache]", _: int) -> None:
    if (plans := cache_key()) is not None:
        plans.clear()


_TEXT_PLAN_SIZES, _PREPARED_PLAN_SIZES = (
    LruCache[Any, int](bounds, lambda _, size: size, _clear_evicted) for bounds in (PLAN_CACHE_BOUNDS, PREPARED_PLAN_CACHE_BOUNDS)
)


def _remove_collected(cache_key: "ref[PlanCache]") -> None:
    """Drops the entries of an operation that is no longer used."""
    _TEXT_PLAN_SIZES.pop(cache_key)
    _PREPARED_PLAN_SIZES.pop(cache_key)


def plan_cache_of(prepared: PreparedOperation) -> PlanCache | None:
    """The plans of an operation; None for one that is never planned."""
    if prepared.kind != "query" and (prepared.kind != "mutation" or prepared.root_field is None):
        return None
    found = prepared.cache.get("plans")
    if found is None:
        operations = [node for node in prepared.document.definitions if isinstance(node, OperationDefinitionNode)]
        (operation,) = [node for node in operations if prepared.name is None or (node.name and node.name.value == prepared.name)]
        found = prepared.cache["plans"] = PlanCache(prepared, operation)
    return found


def _directive_variables(prepared: PreparedOperation) -> set[str]:
    """The variables that directives use."""
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
