"""The policy as SQL conditions, for lists that show only rows that the viewer may see or act on.

They follow the table of `policy.py`. `sql_policy.py` has those of statements that are compiled once for all viewers.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, and_, or_

from graph.context import Context
from graph.rules.permissions.policy import RULES, Action, PolicyRule
from storage import tables
from storage.caches import CacheBounds, LruCache
from storage.tables import AccessLevel
from storage.tables.accounts import access_conditions
from storage.tables.projects import snippets

VIEWER_CONDITIONS = CacheBounds("conditions of viewers", max_entries=400, max_bytes=4 * 2**20)
"""Building the conditions of a viewer takes 0.4 ms, more than most statements that contain them."""
_CONDITIONS_BYTES = 11_000
_conditions: LruCache[tuple[Action | None, int, bool], list[Any]] = LruCache(VIEWER_CONDITIONS, lambda _, conditions: _CONDITIONS_BYTES)
"""By action, viewer, and whether the viewer is an administrator; without an action those to see a project."""


def visible_project_conditions(context: Context) -> list[Any]:
    """SQL conditions on `Project` for lists that span projects."""
    return [] if context.viewer.admin else _find_conditions(context, None)


def allowed_project_conditions(context: Context, action: Action) -> list[Any]:
    """SQL conditions on `Project` under which the viewer may perform the action in it.

    The action must be open to non-members, and allowed in archived projects.
    """
    return _find_conditions(context, action)


def _find_conditions(context: Context, action: Action | None) -> list[Any]:
    viewer = context.viewer
    key = action, viewer.id, viewer.admin
    found = _conditions.get(key)
    if found is None:
        if action is None:
            found = [access_conditions.visible_projects(viewer.id)]
        else:
            found = conditions_of_viewer(action, viewer.id, is_admin=viewer.admin)
        _conditions.put(key, found)
    return list(found)


def conditions_of_viewer(action: Action, viewer_id: Any, *, is_admin: bool) -> list[Any]:
    """As `allowed_project_conditions`, for a viewer whose id may be a parameter of the statement."""
    rule = RULES[action]
    feature_conditions = _required_features(rule, tables.Project)
    return feature_conditions if is_admin else [_sharing_condition(rule, viewer_id), *feature_conditions]


def any_allowed(conditions: Mapping[Action, ColumnElement[bool]], viewer_id: Any, *, is_admin: bool) -> ColumnElement[bool]:
    """The SQL condition that for one of the actions its condition is met and the viewer may perform it in `Project`."""
    alternatives: dict[tuple[AccessLevel, str | None], list[ColumnElement[bool]]] = {}
    rules: dict[tuple[AccessLevel, str | None], PolicyRule] = {}
    for action, condition in conditions.items():
        rule = RULES[action]
        key = rule.min_level, rule.visibility_switch
        rules[key] = rule
        alternatives.setdefault(key, []).append(and_(condition, *_required_features(rule, tables.Project)))
    return or_(
        *(or_(*found) if is_admin else and_(or_(*found), _sharing_condition(rules[key], viewer_id)) for key, found in alternatives.items())
    )


def _sharing_condition(rule: PolicyRule, viewer_id: Any) -> ColumnElement[bool]:
    """The SQL condition on `Project` under which a viewer who is not an administrator may act in it, regardless of its features."""
    assert rule.includes_non_members and not rule.requires_unarchived, rule  # noqa: S101
    if rule.min_level <= AccessLevel.GUEST and rule.visibility_switch is None:
        return access_conditions.visible_projects(viewer_id)
    switch = getattr(tables.Project, rule.visibility_switch) if rule.visibility_switch is not None else None
    return access_conditions.shared_or_at_level(viewer_id, rule.min_level, switch)


def open_action_features(action: Action, project: Any) -> list[ColumnElement[bool]]:
    """SQL conditions on the features of a project with the columns `project`, for an action that all may perform who see the project."""
    rule = RULES[action]
    assert _is_open_to_non_members(rule) and rule.min_level <= AccessLevel.GUEST, action  # noqa: S101
    return _required_features(rule, project)


def _is_open_to_non_members(rule: PolicyRule) -> bool:
    """Whether non-members may act in every project that they may see, regardless of its features."""
    return rule.includes_non_members and rule.visibility_switch is None and not rule.requires_unarchived


def _required_features(rule: PolicyRule, project: Any) -> list[ColumnElement[bool]]:
    features = [getattr(project, name) for name in (*((rule.feature,) if rule.feature else ()), *rule.any_feature)]
    return [or_(*features)] if features else []


def visible_group_conditions(context: Context) -> list[Any]:
    """SQL conditions on `Namespace` for lists of groups."""
    return [] if context.viewer.admin else [access_conditions.listed_groups(context.viewer.id)]


def creatable_namespace_conditions(context: Context) -> list[Any]:
    """SQL conditions on `Namespace` for lists of those in which the viewer may create projects."""
    level = RULES[Action.CREATE_PROJECT].min_level
    return [] if context.viewer.admin else [access_conditions.namespaces_at_level(context.viewer.id, level)]


def visible_snippet_conditions(context: Context) -> list[Any]:
    """SQL conditions on `Snippet` for lists of snippets in projects that the viewer may see."""
    return [] if context.viewer.admin else [snippets.visible_to(context.viewer.id)]
