"""Explains a plan: its nodes, the SQL of each, what resolvers compute and why. Nothing of this is on the path of a request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphql import GraphQLError, get_operation_ast
from graphql.execution.values import get_variable_values
from sqlalchemy import Dialect

from graph.context import Context, StaticSettings
from graph.documents.documents import PreparedOperation
from graph.errors import NotFound, OperationError
from graph.fields.declarations import ByNumber, ProjectLookup, ToMany, ToOne
from graph.fields.metadata import metadata_of
from graph.fields.resolvers import declaration_of
from graph.planner.cache import plan_cache_of
from graph.planner.errors import PlanBailout, Unplannable, WrongArguments
from graph.planner.ir.completers import AbstractCompleter, ListCompleter, ObjectCompleter, SubfieldCompleter
from graph.planner.ir.connection_step import ConnectionStep, EdgesSelection
from graph.planner.ir.project_root import ProjectRoot
from graph.planner.ir.relations import Relations
from graph.planner.ir.row_by_number import RowByNumber
from graph.planner.ir.row_view import ColumnValue, ConstantPart, Derived, EmbeddedObject, RelatedRow, RowView
from graph.planner.ir.selection import DeferredField, Selection
from graph.planner.ir.steps import AttributeStep, BatchStep, LoaderStep, ResolverStep
from graph.planner.plan import OperationPlan
from graph.planner.run.connections import page_statements
from graph.planner.run.project_root import prepare_project_statement
from graph.planner.run.relations import relations_statement
from graph.planner.run.row_by_number import row_statement
from graph.planner.run.state import PlanRun
from storage import tables
from storage.database.statements.compiled_statements import CompiledStatement


class ExplainError(Exception):
    """The operation cannot be explained. The message says why."""


@dataclass(slots=True)
class ExplainedStatement:
    """A statement of a node.

    `rows`, `milliseconds` and `database_plan` are those of a run; None without an analysis.
    """

    sql: str
    parameters: list[Any]
    rows: int | None = None
    milliseconds: float | None = None
    database_plan: list[str] | None = None


@dataclass(slots=True)
class ExplainedNode:
    """A node of a plan.

    `reason` says why a resolver or a loader computes the field; None for what statements and columns answer.
    """

    key: str
    kind: str
    field_name: str = ""
    columns: list[str] = field(default_factory=list)
    """The response keys that are read from the rows or objects of this node, without a further call."""
    reason: str | None = None
    statements: list[ExplainedStatement] = field(default_factory=list)
    children: list["ExplainedNode"] = field(default_factory=list)
    values: int | None = None
    """The objects that the node was run for."""
    milliseconds: float | None = None
    """From the node's start to its last value, the nodes below it included."""


@dataclass(slots=True)
class Explanation:
    """`unplanned` says why graphql-core executes the whole operation; `nodes` is empty then.

    `stopped` says why a run bailed out, or its first error.
    """

    nodes: list[ExplainedNode] = field(default_factory=list)
    unplanned: str | None = None
    stopped: str | None = None
    milliseconds: float | None = None


def explain(prepared: PreparedOperation, variables: Mapping[str, Any], dialect: Dialect, settings: StaticSettings) -> Explanation:
    """The plan of an operation, without a database. A parameter that only a run knows is `<name>`.

    Raises ExplainError where the variables or arguments do not fit the operation.
    """
    compiled = compile_plan(prepared, variables, dialect, settings)
    if isinstance(compiled, str):
        return Explanation(unplanned=compiled)
    plan, values = compiled
    nobody: Any = None
    context = Context(nobody, nobody, tables.User(id=0, username="viewer", name="", email=""), "explain")
    return Explanation(explain_plan(plan, context, values).nodes)


def compile_plan(
    prepared: PreparedOperation, variables: Mapping[str, Any], dialect: Dialect, settings: StaticSettings
) -> tuple[OperationPlan, Any] | str:
    """A new plan and the coerced variables, or why the operation has no plan. Raises ExplainError."""
    plans = plan_cache_of(prepared)
    if plans is None:
        return f"a {prepared.kind} is planned only where it is a query, or a mutation of one field"
    values = plans.coerce(variables)
    if values is None:
        raise ExplainError(_describe_wrong_variables(prepared, variables))
    try:
        return plans.compile(plans.directive_values(values), dialect, settings), values
    except WrongArguments as error:
        raise ExplainError(str(error)) from error
    except Unplannable as error:
        return f"graphql-core executes what plans do not know: {error}"


def _describe_wrong_variables(prepared: PreparedOperation, variables: Mapping[str, Any]) -> str:
    operation = get_operation_ast(prepared.document, prepared.name)
    definitions = operation.variable_definitions if operation is not None else ()
    found = get_variable_values(prepared.schema, definitions or (), dict(variables))
    problems = [error.message for error in found] if isinstance(found, list) else []
    return "\n".join(("the variables do not fit the operation", *problems))


def explain_plan(plan: OperationPlan, context: Context, values: Any) -> "PlanWalk":
    """The explained nodes of a plan. Raises ExplainError."""
    walk = PlanWalk(_start_run(plan, context, values))
    try:
        walk.nodes += walk.selection_nodes(plan.root, is_list=False)
    except (PlanBailout, NotFound) as error:
        raise ExplainError("a project, a number or an id is missing or malformed, so there is no statement to explain") from error
    except OperationError as error:
        raise ExplainError(str(error)) from error
    return walk


def _start_run(plan: OperationPlan, context: Context, values: Any) -> PlanRun:
    try:
        return plan.start_run(context, values)
    except (OperationError, GraphQLError) as error:
        raise ExplainError(str(error)) from error


class _Placeholders(dict[str, Any]):
    """Parameter values; one that only a run knows is its name in angle brackets."""

    def __missing__(self, name: str) -> str:
        return f"<{name}>"


def _statement(compiled: CompiledStatement, values: Mapping[str, Any]) -> ExplainedStatement:
    known = _Placeholders(values)
    try:
        parameters = list(compiled.bind(known))
    except (TypeError, ValueError, AttributeError):
        # A processor does not take a placeholder.
        parameters = [f"{name} = {value!r}" for name, value in known.items()]
    return ExplainedStatement(compiled.sql, parameters)


class PlanWalk:
    """Makes the explained nodes of a plan's nodes."""

    def __init__(self, run: PlanRun) -> None:
        self._run = run
        self.nodes: list[ExplainedNode] = []
        self.by_step: dict[int, ExplainedNode] = {}
        """By the `id` of the step."""
        self.selections: list[Any] = []
        """The selections, views and project roots, whose steps an analysis replaces."""

    def selection_nodes(self, selection: Selection | RowView, *, is_list: bool) -> list[ExplainedNode]:
        """The nodes below a selection. `is_list`: of several objects."""
        self.selections.append(selection)
        nodes = []
        for step in selection.steps:
            node = self.by_step[id(step)] = self._field_node(step, is_list=is_list)
            nodes.append(node)
        for batch_step in selection.batch_steps:
            node = self.by_step[id(batch_step)] = self._batch_node(batch_step, is_list=is_list)
            nodes.append(node)
        return nodes

    def _field_node(self, step: Any, *, is_list: bool) -> ExplainedNode:
        if isinstance(step, ResolverStep):
            node = ExplainedNode(step.key, "resolver", _field_name(step), reason=resolver_reason(step))
        elif isinstance(step, LoaderStep):
            reason = "a loader reads one relation of a level in as many statements as a join would; or the statement joins enough tables"
            node = ExplainedNode(step.key, "loader", step.field_source.key, reason=reason)
        else:
            assert isinstance(step, AttributeStep)  # noqa: S101 - there are no others
            node = ExplainedNode(step.key, "attribute", step.attribute)
        self._add_completed(node, step.completer, is_list=is_list)
        return node

    def _add_completed(self, node: ExplainedNode, completer: Any, *, is_list: bool) -> None:
        if isinstance(completer, ListCompleter):
            self._add_completed(node, completer.items, is_list=True)
        elif isinstance(completer, SubfieldCompleter):
            self._add_completed(node, completer.objects, is_list=is_list)
        elif isinstance(completer, ObjectCompleter):
            node.columns += _column_keys(completer.selection)
            node.children += self.selection_nodes(completer.selection, is_list=is_list)
        elif isinstance(completer, AbstractCompleter):
            for name, selection in completer.selections.items():
                children = self.selection_nodes(selection, is_list=is_list)
                node.children.append(ExplainedNode("", "on type", name, _column_keys(selection), children=children))

    def _batch_node(self, step: Any, *, is_list: bool) -> ExplainedNode:
        if isinstance(step, ProjectRoot):
            node = ExplainedNode(step.key, "project root", columns=_column_keys(step.selection))
            node.statements.append(self._project_statement(step))
            node.children += self.selection_nodes(step.selection, is_list=is_list)
            self.selections.append(step)
            if step.joined_step is not None:
                joined = self.by_step[id(step.joined_step)]
                joined.kind += ", joined to the project's statement"
                joined.statements.clear()
            return node
        if isinstance(step, ConnectionStep):
            node = ExplainedNode(step.key, "pages of several parents" if is_list else "page")
            node.statements += [_statement(*each) for each in page_statements(step, self._run, many=is_list)]
            self._add_connection(node, step)
            return node
        if isinstance(step, RowByNumber):
            node = ExplainedNode(step.key, "row by number")
            node.statements.append(_statement(*row_statement(step, self._run, many=is_list)))
            self._add_view(node, step.view, is_list=is_list)
            return node
        if isinstance(step, Relations):
            node = ExplainedNode(", ".join(sorted(step.keys)), "relations of objects")
            node.statements.append(_statement(relations_statement(step, self._run), {}))
            self._add_view(node, step.view, is_list=is_list)
            return node
        assert isinstance(step, BatchStep)  # noqa: S101 - there are no others
        node = self._field_node(step.resolver_step, is_list=is_list)
        node.kind = "batch resolver"
        return node

    def _project_statement(self, step: ProjectRoot) -> ExplainedStatement:
        prepared = prepare_project_statement(step, self._run)
        if prepared is None:
            raise PlanBailout
        return _statement(prepared.statement.statement, {**prepared.values, "user_id": "<viewer id>"})

    def _add_connection(self, node: ExplainedNode, step: ConnectionStep) -> None:
        for key, part in step.connected.parts:
            if isinstance(part, RowView):
                child = ExplainedNode(key, "rows of the page")
                self._add_view(child, part, is_list=True)
                node.children.append(child)
            elif isinstance(part, EdgesSelection):
                for edge_key, edge in part.parts:
                    if isinstance(edge, RowView):
                        child = ExplainedNode(f"{key}.{edge_key}", "rows of the page")
                        self._add_view(child, edge, is_list=True)
                        node.children.append(child)
                    else:
                        node.columns.append(f"{key}.{edge_key}")
            else:
                node.columns.append(key)

    def _add_view(self, node: ExplainedNode, view: RowView, *, is_list: bool) -> None:
        for key, part in view.parts:
            if isinstance(part, ColumnValue | Derived | ConstantPart | EmbeddedObject):
                node.columns.append(key)
            elif isinstance(part, RelatedRow):
                child = ExplainedNode(key, "joined row")
                self._add_view(child, part.view, is_list=is_list)
                node.children.append(child)
        node.children += self.selection_nodes(view, is_list=is_list)


def _column_keys(selection: Selection) -> list[str]:
    return [part.key for part in selection.parts if not isinstance(part, DeferredField)]


def _field_name(step: ResolverStep) -> str:
    return f"{step.parent_type.name}.{step.nodes[0].name.value}"


def resolver_reason(step: ResolverStep) -> str:
    """Why a resolver computes a field that a plan might have selected."""
    graphql_field = step.parent_type.fields[step.nodes[0].name.value]
    declared, metadata = declaration_of(graphql_field), metadata_of(graphql_field)
    if isinstance(declared, ToMany):
        return "the rows of the list are not of the table that the field declares"
    if isinstance(declared, ProjectLookup):
        return "several projects are looked up side by side; one loader finds them together"
    if isinstance(declared, ToOne | ByNumber):
        return "the related type has no table"
    if metadata.get("from_row") is not None:
        return "a loader reads as much by as many statements; or the row is a joined one, or its statement joins enough tables (from_row=)"
    if metadata.get("from_index") is not None:
        return "more is selected than the index has (from_index=), or the statement joins enough tables"
    together = " for all objects of the level at once (batch=)" if metadata.get("batch") is not None else ""
    if metadata.get("needs") is not None:
        return f"it is computed in Python{together} from the columns {', '.join(metadata['needs'])} (needs=)"
    if together:
        return f"it is computed in Python{together}"
    if step.path.prev is None:
        return "the field of the operation's root declares no table (project lookup or connection)"
    return "it is computed in Python; the field declares no columns (column, to_one, to_many, from_columns=)"
