"""Lookups of projects and groups that load the object and the viewer's access to it in one statement."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from graph.context import Context
from graph.operations.answer_relations import AnswerRelations
from graph.rules.permissions.policy import can_see_project, group_visibility_loader, project_level_loader
from storage import tables
from storage.tables.accounts import access_conditions, members
from storage.tables.base import Row, row_in_project
from storage.tables.projects.projects import of_path_keys

R = TypeVar("R", bound=Row)

PROJECTS_LOADER = "projects by key"
"""Key of the loader in `Context.loaders`."""


async def load_projects(context: Context, keys: list[int | tuple[str, str]]) -> Mapping[int | tuple[str, str], tables.Project]:
    """Load projects by id or by path key (namespace path, project path), in lower case.

    Also primes the viewer's access levels in them. One project takes one statement, any number takes at most three.
    """
    viewer = context.viewer_or_none
    known, levels = context.rows_by_id(tables.Project), project_level_loader(context)
    if viewer is not None and not viewer.admin and len(keys) == 1:
        (key,) = keys
        statement = members.PROJECT_BY_ID if isinstance(key, int) else members.PROJECT_BY_PATH
        found = await _load_one_project(context, statement, key, {})
        return {key: found[0]} if found else {}
    projects: dict[int | tuple[str, str], tables.Project] = {}
    paths = [key for key in keys if not isinstance(key, int)]
    if paths:
        requested_paths = set(paths)
        for namespace, project in await context.tuples(of_path_keys(paths)):
            if (namespace, project.path_key) in requested_paths:
                projects[namespace, project.path_key] = project
                known.prime(project.id, project)
    ids = [key for key in keys if isinstance(key, int)]
    projects.update({key: project for key, project in (await known.get_many(ids)).items() if project is not None} if ids else {})
    if viewer is not None and not viewer.admin:
        await levels.get_many([project.id for project in projects.values()])
    return projects


async def load_project_with(
    context: Context, key: int | tuple[str, str], table: type[R], name: str, value: int, relations: AnswerRelations | None = None
) -> tuple[tables.Project | None, R | None]:
    """Like `load_projects` for one project, with a row of `table` in it.

    The row is the one whose column `name` (`id` or `iid`) equals `value`. Takes one statement unless the project is already loaded, or
    the viewer is an administrator or anonymous. The statement also reads the `relations` of the row, for the answer.
    """
    projects = context.loader(PROJECTS_LOADER, partial(load_projects, context))
    if context.viewer_or_none is None or context.viewer.admin or projects.is_loaded(key):
        project = await projects.get(key)
        rows = await context.tuples(*row_in_project(table, project.id, name, value)) if project is not None else []
        return project, rows[0][0] if rows else None
    session = context.session
    with_versions = session.reads_versions
    statement: Any = members.project_with_child(table, name, by_path=not isinstance(key, int), with_versions=with_versions)
    if relations is not None:
        statement = relations.add_to(statement, context)
    found = await _load_one_project(context, statement, key, {"value": value})
    if found is None:
        projects.prime(key, None)
        return None, None
    project, child, *related = found
    if with_versions:
        project_version, child_version, *related = related
        session.keep_version(project, project_version)
        if child is not None:
            session.keep_version(child, child_version)
    if relations is not None and child is not None:
        relations.prime(child, related, context)
    return project, child


async def _load_one_project(context: Context, statement: Any, key: int | tuple[str, str], values: dict[str, Any]) -> tuple[Any, ...] | None:
    """The row that the statement returns for the project with this key, without the viewer's levels.

    Primes the project and the viewer's access level.
    """
    rows = await context.session.read_known(statement, {**key_parameters(key), **values, "user_id": context.viewer.id})
    for project, as_member, in_group, as_owner, *others in rows:
        prime_project(context, project, (as_member, in_group, as_owner), key)
        return (project, *others)
    return None


def prime_project(
    context: Context, project: tables.Project, levels: Sequence[int | None], key: int | tuple[str, str] | None = None
) -> None:
    """Prime the loaders with a project and the viewer's access levels in it.

    With `key`, by which the project was looked up, the row is complete; without it, the row has only the columns that the policy reads.
    """
    project_id = project.id
    # Not a generator: it would take as long as the rest.
    project_level_loader(context).prime(project_id, max([level or 0 for level in levels]))
    if key is None:
        context.policy_projects[project_id] = project
    else:
        context.rows_by_id(tables.Project).prime(project_id, project)
        context.loader(PROJECTS_LOADER, partial(load_projects, context)).prime(key, project)


def prime_missing_project(context: Context, key: int | tuple[str, str]) -> None:
    """Prime the loader with the fact that no project has this key."""
    context.loader(PROJECTS_LOADER, partial(load_projects, context)).prime(key, None)


def key_parameters(key: int | tuple[str, str]) -> dict[str, Any]:
    """Parameters of the statements that find a project by this key."""
    return {"id": key} if isinstance(key, int) else {"namespace": key[0], "path": key[1]}


async def load_group(context: Context, key: int | str) -> tables.Namespace | None:
    """Load a namespace by id or lower-case path; prime whether the viewer may see it as a group."""
    by = (access_conditions.GROUP_BY_ID, {"id": key}) if isinstance(key, int) else (access_conditions.GROUP_BY_PATH, {"path": key})
    rows = await context.tuples(by[0], user_id=context.viewer.id, **by[1])
    for group, is_visible in rows:
        context.rows_by_id(tables.Namespace).prime(group.id, group)
        group_visibility_loader(context).prime(group.id, bool(is_visible))
    return rows[0][0] if rows else None


async def load_projects_in_group(context: Context, group_id: int) -> Sequence[tables.Project]:
    """The unarchived projects of the group that the viewer may see, ordered by id.

    All groups of one level share one statement, which also primes the viewer's access levels in the projects.
    """

    async def fetch(ids: list[int]) -> Mapping[int, list[tables.Project]]:
        known, levels = context.rows_by_id(tables.Project), project_level_loader(context)
        found: dict[int, list[tables.Project]] = {key: [] for key in ids}
        for project, *viewer_levels in await context.tuples(members.PROJECTS_IN_GROUPS, group_ids=ids, user_id=context.viewer.id):
            levels.prime(project.id, max(level or 0 for level in viewer_levels))
            known.prime(project.id, project)
            if await can_see_project(context, project):
                found[project.namespace_id].append(project)
        return {key: sorted(some, key=lambda project: project.id) for key, some in found.items()}

    return await context.loader("projects in groups", fetch).get(group_id) or ()
