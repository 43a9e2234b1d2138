"""Brings the files of a repository to the refs of the database, before git reads them."""

import asyncio

from storage.database.engine import Database, DatabaseSession
from storage.git.refs import projection
from storage.git.refs.projection import RefProjection
from storage.git.refs.ref_names import DEFAULT_HEAD
from storage.git.repositories import Repositories
from storage.tables.git import refs
from storage.tables.projects import projects


async def project_refs(database: Database, repositories: Repositories, project_id: int, version: int) -> None:
    """Makes the files show `version` of the refs, or a newer one, and have all objects of those. Raises OSError, NotARepository."""
    path = repositories.path_of(project_id)
    # Without a version, the files still have what the database has to adopt.
    if version == 0 or projection.read_version(path) == version or not await repositories.prepare_folder(project_id):
        return
    async with projection.lock(path):
        # Read under the lock, so that nobody replaces newer refs by older ones.
        async with database.read_session() as session:
            shown = await _read_projection(session, project_id)
        if shown is not None and projection.read_version(path) != shown.version:
            # After the refs were read: the packs of these refs are older than they.
            await repositories.fetch_packs(project_id, is_empty=not shown.refs)
            await asyncio.to_thread(projection.write, path, shown)


async def _read_projection(session: DatabaseSession, project_id: int) -> RefProjection | None:
    rows = await session.read(projects.by_id(project_id))
    if not rows:
        return None
    project = rows[0][0]
    # After the version: refs that are newer than the version are written again, older ones would stay.
    found = [(name, oid, peeled) for name, oid, peeled in await session.read(refs.of_project(project_id))]
    return RefProjection(project.refs_version, project.default_branch or project.unborn_branch or DEFAULT_HEAD, found)
