"""Decides what the statement that finds a project selects beside it."""

from functools import lru_cache
from inspect import iscoroutinefunction
from typing import TypeGuard

from sqlalchemy import Dialect
from sqlalchemy.inspection import inspect

from graph.planner.codegen.row_serializer import compile_object_maker
from graph.planner.ir.completers import LeafCompleter, ListCompleter, ObjectCompleter, SubfieldCompleter
from graph.planner.ir.connection_step import ConnectionStep
from graph.planner.ir.project_root import ProjectRoot, RevisionField
from graph.planner.ir.relations import Relations
from graph.planner.ir.row_by_number import RowByNumber
from graph.planner.ir.row_view import RowObjects, RowView
from graph.planner.ir.selection import ConstantField, DeferredField, ObjectPart, Selection
from graph.planner.ir.steps import AttributeStep, BatchNode, Completer, FieldStep, ResolverStep
from graph.planner.resolve.fields import ResolvedField
from graph.planner.sql.parent_join import project_subquery
from graph.rules.permissions.policy import POLICY_COLUMNS
from storage import tables
from storage.database.statements.compiled_statements import SqlDialect
from storage.database.statements.statement_cache import result_processor

VERSION_COLUMNS = POLICY_COLUMNS | {"refs_version"}
"""Project columns where a page of its rows is selected, whose commits may be known by the version of the refs (`refs.known_version`)."""
REVISION_COLUMNS = POLICY_COLUMNS | {"default_branch", "refs_version"}
"""Project columns that, with the viewer's access level, decide which files of which commit a name shows."""


def make_project_root(
    resolved: ResolvedField, selection: Selection, arguments: int, argument_name: str, sql_dialect: SqlDialect, *, is_only_field: bool
) -> ProjectRoot:
    """The node of a project, of which one field is selected (`is_only_field`) or several.

    Where only rows of the project are selected, only the columns that the policy reads are selected of the project itself.
    """
    joined_step = next((each for each in selection.batch_steps if _can_join_project(each, is_only_field=is_only_field)), None)
    only_step = selection.batch_steps[0] if is_only_field and selection.batch_steps else None
    revision_field = _find_revision_field(selection) if is_only_field else None
    selected: frozenset[str] | None = None
    if revision_field is not None:
        selected = REVISION_COLUMNS
    elif isinstance(only_step, ConnectionStep) and only_step.parent_is_project:
        selected = VERSION_COLUMNS
    elif isinstance(only_step, RowByNumber) and _needs_only_its_row(only_step.view):
        selected = POLICY_COLUMNS
    names, projects = _project_objects(sql_dialect.dialect, selected)
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
        selected is None,
        len(names),
        projects,
        revision_field,
    )


def _find_revision_field(selection: Selection) -> RevisionField | None:
    """The only field of a project, if its whole answer is determined by a commit."""
    step = selection.steps[0] if len(selection.steps) == 1 and not selection.batch_steps else None
    if not isinstance(step, ResolverStep) or step.arguments is None or not _is_pure(step.completer):
        return None
    name = step.facts.revision_argument
    return RevisionField(name, step.arguments) if name is not None else None


def _is_pure(completer: Completer) -> bool:
    """Whether the answers are determined by the values alone."""
    match completer:
        case LeafCompleter():
            return True
        case ListCompleter(items):
            return _is_pure(items)
        case ObjectCompleter(selection):
            return not selection.batch_steps and all(map(_is_pure_part, selection.parts)) and all(map(_is_pure_step, selection.steps))
        case SubfieldCompleter(objects):
            return _is_pure(objects)
    return False


def _is_pure_part(part: ObjectPart) -> bool:
    return isinstance(part, ConstantField | DeferredField)


def _is_pure_step(step: FieldStep) -> bool:
    is_pure = isinstance(step, AttributeStep) or (isinstance(step, ResolverStep) and step.facts.is_pure)
    return is_pure and _is_pure(step.completer)


@lru_cache(maxsize=8)
def _project_objects(dialect: Dialect, selected: frozenset[str] | None) -> tuple[tuple[str, ...], RowObjects]:
    """The names of the selected columns (None: all), and the objects of a project with them, which all plans share."""
    columns = inspect(tables.Project).columns
    names = tuple(columns.keys() if selected is None else sorted(selected))
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
