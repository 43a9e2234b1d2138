"""Releases: notes about tags."""

from collections.abc import Mapping

from graph.context import Context
from graph.errors import Conflict, NotFound, Required
from graph.operations.loaders import Loader
from graph.rules import validation
from graph.rules.git import refs
from storage import tables
from storage.git.refs.ref_names import TAGS
from storage.tables.git import releases
from storage.tables.projects import projects


async def load_release(context: Context, project_id: int, tag: str) -> tables.Release | None:
    """The release of a tag; one statement for all tags of a level."""
    return await _loader(context).get((project_id, tag))


def _loader(context: Context) -> Loader[tuple[int, str], tables.Release]:
    async def fetch(keys: list[tuple[int, str]]) -> Mapping[tuple[int, str], tables.Release]:
        rows = await context.all(releases.of_tags({project_id for project_id, _ in keys}, {tag for _, tag in keys}))
        return {(row.project_id, row.tag): row for row in rows}

    return context.loader("releases", fetch)


async def add_release(context: Context, project: tables.Project, tag: str, description: str) -> tables.Release:
    """Insert the release of a tag that has none. Raises Required, Invalid."""
    row = tables.Release(project_id=project.id, tag=tag, description=_validate(description))
    row.created_at = row.updated_at = context.now()
    _loader(context).clear((project.id, tag))
    return await context.add(row)


async def create_release(context: Context, project: tables.Project, tag: str, description: str) -> tables.Release:
    """Write the release of a tag. Raises NotFound, Required, Invalid, Conflict."""
    await _lock_tag(context, project, tag)
    if await load_release(context, project.id, tag) is not None:
        raise Conflict("tagName", "Release already exists")
    return await add_release(context, project, tag, description)


async def update_release(context: Context, project: tables.Project, tag: str, description: str) -> tables.Release:
    """Change the description of a release. Raises NotFound (Tag, Release), Required, Invalid."""
    await _lock_tag(context, project, tag)
    row = await load_release(context, project.id, tag)
    if row is None:
        raise NotFound("Release")
    row.description, row.updated_at = _validate(description), context.now()
    await context.session.flush()
    return row


async def _lock_tag(context: Context, project: tables.Project, tag: str) -> None:
    """Lock the project, so that the tag stays until the transaction ends. Raises NotFound without such a tag."""
    await context.first(projects.for_update(project.id))
    if not await refs.current(context, project.id, [TAGS + tag]):
        raise NotFound("Tag")


def _validate(description: str) -> str:
    if not description.strip():
        raise Required("description")
    return validation.validate_string("description", description)
