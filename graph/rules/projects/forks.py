"""Forks: projects that begin as a copy of another one, and know it.

A fork comes as any project that is made from a repository (rules/projects.py says in which order): the copy first, outside the transaction.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog

from graph.context import Context
from graph.errors import Invalid, Unavailable
from graph.rules import policy
from graph.rules.policy import visible_project_conditions
from graph.rules.projects import projects
from storage import tables
from storage.tables import projects as statements

log = structlog.get_logger("graph")

COPIED_COLUMNS = ("description", *projects.FEATURE_COLUMNS, "tag_list")
"""What a fork begins with as its source has it."""


async def resolve_visibility(context: Context, source: tables.Project, requested: tables.Visibility | None) -> int:
    """Who sees the fork: as the source, or as wanted. Raises Invalid for wider than the source, and as `projects.resolve_visibility`."""
    level = tables.Visibility(source.visibility_level) if requested is None else requested
    if level > source.visibility_level:
        raise too_wide_error()
    return await projects.resolve_visibility(context, level)


async def require_no_wider(context: Context, project: tables.Project, level: int) -> None:
    """Raises Invalid when a fork would be seen by more people than its source."""
    if project.forked_from_id is not None:
        source = await context.rows_by_id(tables.Project).get(project.forked_from_id)
        if source is not None and level > source.visibility_level:
            raise too_wide_error()


def too_wide_error() -> Invalid:
    return Invalid("visibility", "cannot be wider than that of the project it is forked from")


@asynccontextmanager
async def stage_copy(context: Context, source: tables.Project) -> AsyncIterator[Path]:
    """A copy of the source's branches and tags that no project has yet; see `projects.stage_repository`. Raises Unavailable."""
    repository = context.services.repositories.path_of(source.id)
    async with AsyncExitStack() as stack:
        # A copy keeps a core busy; whoever is beyond the limit waits, as long as the operation may take.
        async with context.services.fork_semaphore:
            try:
                folder = await stack.enter_async_context(projects.stage_repository(context, repository, None))
            except Invalid as error:
                log.warning("repository cannot be copied", project_id=source.id, error=error.message, request_id=context.request_id)
                raise Unavailable("The repository cannot be read right now.") from error
        yield folder


async def find_source(context: Context, project: tables.Project) -> tables.Project | None:
    """What the project was forked from; None where the viewer may not see it."""
    if project.forked_from_id is None:
        return None
    source = await context.rows_by_id(tables.Project).get(project.forked_from_id)
    return source if source is not None and await policy.can_see_project(context, source) else None


async def count_forks(context: Context, project: tables.Project) -> int:
    """How many forks of it the viewer may see; one statement for all the projects of a level."""

    async def fetch(ids: list[int]) -> Mapping[int, int]:
        return dict(map(tuple, await context.tuples(statements.fork_counts(ids).where(*visible_project_conditions(context)))))

    return await context.loader("fork counts", fetch).get(project.id) or 0
