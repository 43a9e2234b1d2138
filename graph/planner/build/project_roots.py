"""Decides what the statement that finds a project selects beside it."""

from functools import lru_cache
from inspect import iscoroutinefunction
from typing import TypeGuard

from sqlalchemy import Dialect
from sqlalchemy.inspection import inspect

from graph.planner.codegen.row_serializer import compile_object_maker
from graph.planner.ir.connection_step import ConnectionStep
from graph.planner.ir.project_root import ProjectRoot
from graph.planner.ir.relations import Relations
from graph.planner.ir.row_by_number import RowByNumber
from graph.planner.ir.row_view import RowObjects, RowView
from graph.planner.ir.selection import Selection
from graph.planner.ir.steps import BatchNode, ResolverStep
from graph.planner.resolve.fields import ResolvedField
from graph.planner.sql.parent_join import project_subquery
from graph.rules.policy import POLICY_COLUMNS
from storage import tables
from storage.database.compiled_statements import SqlDialect
from storage.database.statement_cache import result_processor


def make_project_root(
    resolved: ResolvedField, selection: Selection, arguments: int, argument_name: str, sql_dialect: SqlDialect, *, is_only_field: bool
) -> ProjectRoot:
    """The node of a project, of which one field is selected (`is_only_field`) or several.

    Where only rows of the project are selected, only the columns that the policy reads are selected of the project itself.
    """
    joined_step = next((each for each in selection.batch_steps if _can_join_project(each, is_only_field=is_only_field)), None)
    only_step = selection.batch_steps[0] if is_only_field and selection.batch_steps else None
    has_all_columns = not (
        (isinstance(only_step, ConnectionStep) and only_step.parent_is_project)
        or (isinstance(only_step, RowByNumber) and _needs_only_its_row(only_step.view))
    )
    names, projects = _project_objects(sql_dialect.dialect, has_all_columns)
    is_materialized = isinstance(joined_step, ConnectionStep)
    return ProjectRoot(
        resolved.key,
        resolved.error_position,
        selection,
        arguments,
        argument_name,
        sql_dialect,
        joined_step,
        [each for each in selection.batch_steps if each is not joined_step],
        {by_path: project_subquery(names, by_path=by_path, is_materialized=is_materialized) for by_path in (False, True)},
        has_all_columns,
        len(names),
        projects,
    )


@lru_cache(maxsize=8)
def _project_objects(dialect: Dialect, has_all_columns: bool) -> tuple[tuple[str, ...], RowObjects]:
    """The names of the columns, and the objects of a project with them, which all plans share."""
    columns = inspect(tables.Project).columns
    names = tuple(columns.keys() if has_all_columns else sorted(POLICY_COLUMNS))
    objects = RowObjects(
        tables.Project, {name: ((index,), result_processor(columns[name].type, dialect)) for index, name in enumerate(names)}
    )
    objects.make = compile_object_maker(objects)
    return names, objects


def _can_join_project(step: BatchNode, *, is_only_field: bool) -> TypeGuard[RowByNumber | Relations | ConnectionStep]:
    """Whether the statement that finds the project can select this as well.

    The columns of the project are in each row of a page, so they must be few. On SQLite a further statement costs less.
    """
    return isinstance(step, RowByNumber | Relations) or (
        is_only_field and isinstance(step, ConnectionStep) and step.parent_is_project and not step.is_sqlite
    )


def _needs_only_its_row(view: RowView) -> bool:
    """Whether everything selected of a row is read off it, by resolvers that are not asynchronous."""
    if view.batch_steps or not all(isinstance(step, ResolverStep) and not iscoroutinefunction(step.resolve) for step in view.steps):
        return False
    return all(_needs_only_its_row(related.view) for _, related in view.relations)
