"""Stars of projects."""

from collections.abc import Mapping, Sequence

from graph.context import Context
from graph.operations.loaders import Loader
from storage import tables
from storage.tables.projects import stars


async def star_project(context: Context, project: tables.Project) -> tables.Project:
    """Star the project as the viewer; starring it again changes nothing."""
    await context.session.execute(stars.insert_missing(context.services.database.dialect, project.id, context.viewer.id, context.now()))
    return project


async def unstar_project(context: Context, project: tables.Project) -> tables.Project:
    """Remove the viewer's star, if there is one."""
    await context.session.execute(stars.remove(project.id, context.viewer.id))
    return project


async def count_stars(context: Context, project_ids: Sequence[int]) -> list[int]:
    """The number of stars of each project; one statement for all projects of a level."""
    found = await count_loader(context).get_many(project_ids)
    return [found[key] or 0 for key in project_ids]


def count_loader(context: Context) -> Loader[int, int]:
    """The loader of the numbers of stars by project id; None for none."""

    async def fetch(ids: list[int]) -> Mapping[int, int]:
        return dict(map(tuple, await context.tuples(stars.COUNTS, project_ids=ids)))

    return context.loader("star counts", fetch)


async def load_starred(context: Context, project_ids: Sequence[int]) -> list[bool]:
    """Whether the viewer has starred each project; one statement for all projects of a level."""

    async def fetch(ids: list[int]) -> Mapping[int, bool]:
        return dict.fromkeys(await context.all(stars.starred_ids(context.viewer.id, ids)), True)

    found = await context.loader("starred projects", fetch).get_many(project_ids)
    return [bool(found[key]) for key in project_ids]
