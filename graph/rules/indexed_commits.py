"""The rows of the index of commits: what is kept of a commit, and how a chunk of them is written."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import IntegrityError

from graph.context import Context, Services
from graph.errors import NotFound
from graph.transaction import kept
from storage.git.commits import Commit
from storage.tables import commits

LONGEST_TEXT = 1_000
"""Characters of a name, an address or a title in the index."""
MOST_PARENTS = 1_000


async def write(services: Services, project_id: int, chunk: list[Commit]) -> None:
    """Writes what is not there yet, in a transaction of its own; where nothing is new no writer is kept waiting. Raises NotFound."""
    async with services.database.reading() as session:
        new = await fresh(Context(services, session, None, "index"), project_id, chunk)
    if new:
        try:
            async with kept(services.database) as session:
                await insert(session, services, project_id, new)
        except IntegrityError as error:
            # The commits of a project that is gone.
            raise NotFound("Project") from error


async def fresh(context: Context, project_id: int, chunk: list[Commit]) -> list[Commit]:
    """Those of these commits that the index of the project does not have."""
    there = set(await context.all(commits.known(project_id, [commit.oid for commit in chunk])))
    return [commit for commit in chunk if commit.oid not in there]


async def insert(session: Any, services: Services, project_id: int, chunk: list[Commit]) -> None:
    """Writes commits in the session's transaction. Raises IntegrityError where the project is gone."""
    if chunk:
        # In one order whoever writes, so that two who write the same never wait for each other.
        rows = [_row(project_id, commit) for commit in sorted(chunk, key=lambda commit: commit.oid)]
        await session.execute(commits.index(services.database.dialect), rows)


def _row(project_id: int, commit: Commit) -> dict[str, Any]:
    return {
        "project_id": project_id,
        "oid": commit.oid,
        "first_parent": commit.parents[0] if commit.parents else None,
        "parents": list(commit.parents[:MOST_PARENTS]),
        "author_name": commit.author_name[:LONGEST_TEXT],
        "author_email": commit.author_email[:LONGEST_TEXT],
        "authored_at": _instant(commit.authored_at),
        "authored_offset": _offset(commit.authored_at),
        "committer_name": commit.committer_name[:LONGEST_TEXT],
        "committer_email": commit.committer_email[:LONGEST_TEXT],
        "committed_at": _instant(commit.committed_at),
        "committed_offset": _offset(commit.committed_at),
        "title": commit.title[:LONGEST_TEXT],
    }


def _instant(moment: datetime) -> datetime:
    """In UTC; at the end of the year 9999 an offset can lead out of what a date holds."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _offset(moment: datetime) -> int:
    offset = moment.utcoffset()
    return int(offset.total_seconds() // 60) if offset else 0
