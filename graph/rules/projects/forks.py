"""Forks: projects that are created as a copy of another one and refer to it.

A fork is created like any project with an imported repository: see `graph/rules/projects/projects.py` for the order of steps. The copy
is made first, outside the transaction.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog

from graph.context import Context
from graph.errors import Conflict, Invalid, NotFound, UnreadableRepository
from graph.operations.loaders import Loader
from graph.rules.git import refs
from graph.rules.permissions import policy
from graph.rules.projects import projects
from storage import tables
from storage.git.repositories import StagedRepository
from storage.git.repository import NotARepository
from storage.tables.accounts import access_conditions
from storage.tables.projects import projects as statements

log = structlog.get_logger("graph")

COPIED_COLUMNS = ("description", *projects.FEATURE_COLUMNS, "tag_list")
"""Columns that a fork copies from its source."""


async def resolve_visibility(context: Context, source: tables.Project, requested: tables.Visibility | None) -> int:
    """The visibility of the fork: the requested one, or that of the source.

    Raises Invalid when it is wider than that of the source, and as `projects.resolve_visibility` does.
    """
    level = tables.Visibility(source.visibility_level) if requested is None else requested
    if level > source.visibility_level:
        raise too_wide_error()
    return await projects.resolve_visibility(context, level)


async def require_no_wider(context: Context, project: tables.Project, level: int) -> None:
    """Raises Invalid when a fork would be more visible than its source."""
    if project.forked_from_id is not None:
        source = await context.rows_by_id(tables.Project).get(project.forked_from_id)
        if source is not None and level > source.visibility_level:
            raise too_wide_error()


def too_wide_error() -> Invalid:
    return Invalid("visibility", "cannot be wider than that of the project it is forked from")


@asynccontextmanager
async def stage_copy(context: Context, source: tables.Project) -> AsyncIterator[StagedRepository]:
    """Stage a copy of the source's branches and tags; see `projects.stage_repository`. Raises Unavailable."""
    async with AsyncExitStack() as stack:
        # Copying uses a full core. Operations beyond the limit wait until their own timeout.
        async with context.services.fork_semaphore:
            try:
                # Git copies the refs that its files show.
                await refs.project_refs(context.services, source.id)
                async with context.services.repositories.use(source.id) as repository:
                    staged = await stack.enter_async_context(projects.stage_repository(context, repository, None))
            except (Invalid, NotARepository) as error:
                log.warning("repository cannot be copied", project_id=source.id, error=str(error), request_id=context.request_id)
                raise UnreadableRepository from error
        yield staged


async def find_sources(context: Context, projects: Sequence[tables.Project]) -> list[tables.Project | None]:
    """The project that each was forked from; None when there is none or the viewer may not see it."""
    ids = [project.forked_from_id for project in projects]
    visible = await policy.filter_visible_projects(context, [key for key in ids if key is not None])
    found = await context.rows_by_id(tables.Project).get_many(visible)
    return [None if key is None else found.get(key) for key in ids]


@dataclass(frozen=True, slots=True)
class ForkRelation:
    """A project and the one that it is a fork of."""

    project: tables.Project
    source: tables.Project


async def link_fork(context: Context, project: tables.Project, source: tables.Project) -> ForkRelation:
    """Make the project a fork of another one. Raises Conflict, Invalid, NotFound."""
    # Links that are made at the same moment could form a cycle that none of them sees.
    await context.session.execute(statements.lock_fork_links(context.services.database.dialect))
    locked = {each.id: each for each in await context.all(statements.all_for_update({project.id, source.id}))}
    if len(locked) < len({project.id, source.id}):
        raise NotFound("Project")
    row, source = locked[project.id], locked[source.id]
    if row.forked_from_id is not None:
        raise Conflict(None, "Project already forked")
    if await context.value(statements.is_fork_of(source.id, row.id)):
        raise Invalid("sourcePath", "cannot be the project itself, a fork of it or a fork of its forks")
    if row.visibility_level > source.visibility_level:
        raise too_wide_error()
    row.forked_from_id, row.updated_at = source.id, context.now()
    await context.session.flush()
    context.loaders.clear()
    return ForkRelation(row, source)


async def unlink_fork(context: Context, project: tables.Project) -> ForkRelation | None:
    """Make the project a fork of none; returns the relation that it had. Raises NotFound."""
    row = await projects.lock_project(context, project)
    if row.forked_from_id is None:
        return None
    source = await context.rows_by_id(tables.Project).get(row.forked_from_id)
    row.forked_from_id, row.updated_at = None, context.now()
    await context.session.flush()
    return ForkRelation(row, source) if source is not None else None


async def count_forks(context: Context, project_ids: Sequence[int]) -> list[int]:
    """Number of forks of each project that the viewer may see; one statement for all projects of a level."""
    found = await count_loader(context).get_many(project_ids)
    return [found[key] or 0 for key in project_ids]


def count_loader(context: Context) -> Loader[int, int]:
    """The loader of the numbers of forks that the viewer may see, by project id; None for none."""

    async def fetch(ids: list[int]) -> Mapping[int, int]:
        if context.viewer.admin:
            return dict(map(tuple, await context.tuples(access_conditions.FORK_COUNTS, project_ids=ids)))
        rows = await context.tuples(access_conditions.VISIBLE_FORK_COUNTS, project_ids=ids, user_id=context.viewer.id)
        return dict(map(tuple, rows))

    return context.loader("fork counts", fetch)
