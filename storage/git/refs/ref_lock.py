"""The lock under which packs are dropped: no ref of the project has moved since it was read, and none moves until the packs are dropped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy import update
from sqlmodel import col

from storage.database.clock import now
from storage.database.engine import Database, DatabaseSession
from storage.tables.git import refs
from storage.tables.projects import projects
from storage.tables.projects.projects import Project


@dataclass(frozen=True, slots=True)
class RefLock:
    """A transaction that has locked the project of refs, and gives them a new `version`. It is committed at the end of the block."""

    session: DatabaseSession
    version: int


@asynccontextmanager
async def lock_refs(database: Database, project_id: int, version: int) -> AsyncIterator[RefLock | None]:
    """Locks the refs of a project if they still have this version; yields None if not, or if the project was deleted.

    The new version makes every host compare its packs with the database before it uses the repository again, and every move of a ref that
    was prepared before find out that packs were dropped (`Repositories.may_lack`).
    """
    async with database.write_session() as session:
        project = await session.scalar(projects.for_update(project_id))
        if project is None or project.refs_version != version:
            yield None
            return
        lock = RefLock(session, refs.next_version(version, now()))
        statement = update(Project).where(col(Project.id) == project_id).values(refs_version=lock.version)
        await session.execute(statement.execution_options(synchronize_session=False))
        yield lock
        await session.commit()
