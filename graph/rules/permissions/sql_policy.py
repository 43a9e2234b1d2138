"""The policy in statements that are compiled once for all viewers."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Integer, and_, or_

from graph.rules.permissions.policy import Action
from graph.rules.permissions.policy_conditions import conditions_of_viewer, open_action_features
from storage import tables
from storage.database.statements.compiled_statements import named_parameter
from storage.tables.accounts import access_conditions


@dataclass(frozen=True, slots=True)
class SqlViewer:
    """The viewer of a statement. `is_admin` is a constant where administrators have a statement of their own."""

    id: Any
    is_admin: Any


VIEWER_ID = "viewer_id"
VIEWER_IS_ADMIN = "viewer_is_admin"
SQL_VIEWER = SqlViewer(named_parameter(VIEWER_ID, Integer), named_parameter(VIEWER_IS_ADMIN, Boolean))
"""The parameters to which `viewer_values` gives the values of a run."""


def viewer_values(viewer: tables.User) -> dict[str, Any]:
    """The values of the parameters of `SQL_VIEWER`."""
    return {VIEWER_ID: viewer.id, VIEWER_IS_ADMIN: viewer.admin}


def visible_conditions(viewer: SqlViewer) -> list[ColumnElement[bool]]:
    """SQL conditions on `Project` under which the viewer, whose `is_admin` is a constant, may see it."""
    return [] if viewer.is_admin else [access_conditions.visible_projects(viewer.id)]


def listed_conditions(viewer: SqlViewer) -> list[ColumnElement[bool]]:
    """The same conditions as `visible_conditions`, for a list of all projects."""
    return [] if viewer.is_admin else [access_conditions.listed_projects(viewer.id)]


def visible_group_conditions(viewer: SqlViewer) -> list[ColumnElement[bool]]:
    """SQL conditions on `Namespace` under which the viewer, whose `is_admin` is a constant, may see the group."""
    return [] if viewer.is_admin else [access_conditions.visible_groups(viewer.id)]


def allowed_conditions(action: Action, viewer: SqlViewer) -> list[ColumnElement[bool]]:
    """As `policy_conditions.allowed_project_conditions`, for a viewer whose `is_admin` is a constant."""
    return conditions_of_viewer(action, viewer.id, is_admin=viewer.is_admin)


def can_see_in_sql(project: Any, viewer: SqlViewer) -> ColumnElement[bool]:
    """As `policy.can_see_project`, of the project with the columns `project`."""
    return or_(viewer.is_admin, access_conditions.visible_projects(viewer.id, project))


def can_in_sql(action: Action, project: Any, viewer: SqlViewer) -> ColumnElement[bool]:
    """As `policy.can`, of the project with the columns `project`, for an action that all may perform who see the project."""
    return and_(*open_action_features(action, project), can_see_in_sql(project, viewer))


def in_allowed_projects(table: Any, action: Action, viewer: SqlViewer) -> ColumnElement[bool]:
    """The SQL condition that a row of `table` is of a project in which the viewer may perform the action."""
    return access_conditions.in_projects(table.project_id, *allowed_conditions(action, viewer))
