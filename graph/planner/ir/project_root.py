"""The project that an operation looks up, and what its statement selects beside it."""

from collections.abc import Sequence
from functools import cache
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, TypeGuard

from sqlalchemy import select
from sqlalchemy.inspection import inspect

from graph.planner.codegen.row_serializer import RowObjectFactory
from graph.planner.errors import PlanBailout
from graph.planner.ir.connection_step import ConnectionStep
from graph.planner.ir.row_by_number import RowByNumber
from graph.planner.ir.row_view import RowView
from graph.planner.ir.selection import Selection
from graph.planner.ir.steps import BatchNode, ResolverStep
from graph.planner.run.awaiting import run_to_completion
from graph.planner.run.levels import begin_level
from graph.planner.run.row_by_number import join_row_to_project
from graph.planner.run.state import PlanRun
from graph.planner.sql.parent_join import ProjectStatement, ProjectSubquery
from graph.rules.lookup import parse_project_key
from graph.rules.policy import POLICY_COLUMNS, can_see_project
from graph.rules.project_access import key_parameters, prime_missing_project, prime_project
from storage import tables
from storage.database.compiled_statements import CompiledStatement, SqlDialect
from storage.database.statement_cache import result_processor


class PreparedProjectStatement(NamedTuple):
    """The statement of a project root in one run, and the values of its parameters."""

    key: Any
    statement: ProjectStatement
    values: dict[str, Any]


class ProjectRoot(BatchNode):
    """The project of a path or an id, which the argument `argument_name` has.

    One row of the project is joined to its statement, or one page where nothing else is selected. Where only such rows are selected, only
    the columns that the policy reads are selected of the project.
    """

    def __init__(
        self, key: str, selection: Selection, arguments: int, argument_name: str, sql_dialect: SqlDialect, *, is_only_field: bool
    ) -> None:
        """`is_only_field`: one field of the project is selected."""
        self.key = key
        self.selection = selection
        self._arguments = arguments
        self._argument_name = argument_name
        self._dialect = sql_dialect.dialect
        self.joined_step: RowByNumber | ConnectionStep | None = next(
            (each for each in selection.batch_steps if can_join_project(each, is_only_field=is_only_field)), None
        )
        self.other_batch_steps = [each for each in selection.batch_steps if each is not self.joined_step]
        only_step = selection.batch_steps[0] if is_only_field and selection.batch_steps else None
        self._needs_policy_columns_only = (isinstance(only_step, ConnectionStep) and only_step.parent_is_project) or (
            isinstance(only_step, RowByNumber) and _needs_only_its_row(only_step.view)
        )
        columns = inspect(tables.Project).columns
        names = sorted(POLICY_COLUMNS) if self._needs_policy_columns_only else columns.keys()
        is_materialized = isinstance(self.joined_step, ConnectionStep)
        self._subqueries = [_project_subquery(tuple(names), by_path=by_path, is_materialized=is_materialized) for by_path in (False, True)]
        self._statements: dict[bool, CompiledStatement] = {}
        self._column_count = len(names)
        processors = {name: result_processor(columns[name].type, self._dialect) for name in names}
        self._make_project = RowObjectFactory(tables.Project, {name: ((place,), processors[name]) for place, name in enumerate(names)})

    async def execute(self, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        """Raises what the policy and the arguments raise, and PlanBailout where there is no such project."""
        context, selection = run.context, self.selection
        key, project_statement, values = self.prepare_statement(run)
        statement = project_statement.statement
        rows = await context.session.fetch(statement.sql, statement.bind(values), statement.text_columns)
        if not rows:
            prime_missing_project(context, key)
            raise PlanBailout
        found = rows[0][project_statement.project_offset :]
        project = self._make_project(found)
        prime_project(
            context, project, found[self._column_count : self._column_count + 3], None if self._needs_policy_columns_only else key
        )
        if not await can_see_project(context, project):
            raise PlanBailout
        filled = selection.serialize((project,))
        if self.joined_step is not None:
            filled[0][self.joined_step.key] = await project_statement.build_result(project, rows)
        if selection.steps or self.other_batch_steps:
            await run_to_completion(lambda work: begin_level(run, (project,), filled, selection.steps, self.other_batch_steps, work))
        for answer in answers:
            answer[self.key] = filled[0]

    def prepare_statement(self, run: PlanRun) -> PreparedProjectStatement:
        """Raises what the arguments raise, and PlanBailout for a viewer or a project that does not exist."""
        viewer = run.context.viewer_or_none
        key = parse_project_key(run.arguments[self._arguments][self._argument_name])
        if viewer is None or key is None:
            raise PlanBailout
        subquery = self._subqueries[not isinstance(key, int)]
        if isinstance(self.joined_step, RowByNumber):
            statement = join_row_to_project(self.joined_step, run, subquery)
        else:
            join = self.joined_step
            statement = join.join_project(run, subquery) if join is not None else self._select_project_only(subquery)
        return PreparedProjectStatement(key, statement, {"user_id": viewer.id, **key_parameters(key), **statement.values})

    def _select_project_only(self, subquery: ProjectSubquery) -> ProjectStatement:
        """The statement of the project alone."""
        statement = self._statements.get(subquery.by_path)
        if statement is None:
            statement = self._statements[subquery.by_path] = CompiledStatement(
                select(*subquery.columns), self._dialect, subquery.parameter_names
            )
        return ProjectStatement(statement, {}, 0, _return_no_result)


@cache
def _project_subquery(names: tuple[str, ...], *, by_path: bool, is_materialized: bool) -> ProjectSubquery:
    """Cached for all plans, because its columns take more memory than the rest of a plan."""
    columns = inspect(tables.Project).columns
    return ProjectSubquery([columns[name] for name in names], by_path=by_path, is_materialized=is_materialized)


async def _return_no_result(project: Any, rows: Sequence[Any]) -> None:
    return None


def can_join_project(step: BatchNode, *, is_only_field: bool) -> TypeGuard[RowByNumber | ConnectionStep]:
    """Whether the statement that finds the project can select this as well.

    The columns of the project are in each row of a page, so they must be few. On SQLite a further statement costs less.
    """
    return isinstance(step, RowByNumber) or (
        is_only_field and isinstance(step, ConnectionStep) and step.parent_is_project and not step.is_sqlite
    )


def _needs_only_its_row(view: RowView) -> bool:
    """Whether everything selected of a row is read off it, by resolvers that are not asynchronous."""
    if view.batch_steps or not all(isinstance(step, ResolverStep) and not iscoroutinefunction(step.resolve) for step in view.steps):
        return False
    return all(_needs_only_its_row(related.view) for _, related in view.relations)
