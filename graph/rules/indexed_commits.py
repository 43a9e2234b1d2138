"""The rows of the index of commits: what is kept of a commit, how a chunk of them is written, and how they are read.

A commit is read from its row only where the row tells the very same: a text that was cut, and an instant that the index cannot hold, are
git's to tell.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, func
from sqlalchemy.exc import IntegrityError

from graph.context import Context, Services
from graph.errors import NotFound
from graph.rules import building
from graph.rules.building import Key
from graph.transaction import kept
from storage.git.commits import Commit
from storage.tables import checks, commits

LONGEST_TEXT = 1_000
"""Characters of a name, an address or a title in the index."""
MOST_PARENTS = 1_000


LAST_YEAR = 9999
"""Instants of this year may have been moved to its end."""

SHORT = 8
"""Digits of the short id."""


def may_be_cut(text: Any) -> ColumnElement[bool]:
    """The condition that the text of this column may have been longer."""
    return func.length(text) >= LONGEST_TEXT


def may_be_moved(instant: Any) -> ColumnElement[bool]:
    """The condition that the instant of this column may have been another."""
    found: ColumnElement[bool] = instant >= datetime(LAST_YEAR, 1, 1, tzinfo=UTC)
    return found


class IndexedCommit:
    """A commit of a project as the index tells of it: all of a `ProjectCommit` (`graph/rules/commits.py`) but its message and its
    parents. Both times carry the offset that the commit records."""

    project_id: int
    oid: str
    short_oid: str
    title: str
    author_name: str
    author_email: str
    authored_at: datetime
    committer_name: str
    committer_email: str
    committed_at: datetime

    @property
    def id(self) -> str:
        """What its global id holds."""
        return f"{self.project_id}-{self.oid}"

    @property
    def key(self) -> Key:
        return self.project_id, self.oid


async def of_keys(context: Context, keys: Collection[Key], *, checked: bool) -> Mapping[Key, IndexedCommit]:
    """Those of these commits of which the index tells: one statement for all, `checked` with the checks of all of them."""
    statement, values = checks.newest_and_facts(keys) if checked else commits.facts(keys)
    rows = await context.tuples(statement, **values)
    if checked:
        building.keep(context, keys, [(build, status) for *_, build, status in rows])
        rows = [facts for *facts, _, _ in rows if facts[0] is not None]
    found = (of_facts(*row) for row in rows)
    return {(commit.project_id, commit.oid): commit for commit in found if commit is not None}


def of_facts(
    project_id: int,
    oid: str,
    title: str,
    author_name: str,
    author_email: str,
    authored_at: datetime,
    authored_offset: int,
    committer_name: str,
    committer_email: str,
    committed_at: datetime,
    committed_offset: int,
) -> IndexedCommit | None:
    """The commit of a row of FACTS; None where the row may not tell all."""
    if max(len(author_name), len(author_email), len(committer_name), len(committer_email)) >= LONGEST_TEXT:
        return None
    if authored_at.year >= LAST_YEAR or committed_at.year >= LAST_YEAR:
        return None
    commit = IndexedCommit()
    # At once, as an object that is filled one by one costs three times as much.
    commit.__dict__ = {
        "project_id": project_id,
        "oid": oid,
        "short_oid": oid[:SHORT],
        "title": title,
        "author_name": author_name,
        "author_email": author_email,
        "authored_at": zoned(authored_at, authored_offset),
        "committer_name": committer_name,
        "committer_email": committer_email,
        "committed_at": zoned(committed_at, committed_offset),
    }
    return commit


def zoned(moment: datetime, offset: int) -> datetime:
    """An instant as the commit records it, with its offset in minutes."""
    return moment.astimezone(_zone(offset)) if offset else moment


@lru_cache(maxsize=256)
def _zone(minutes: int) -> timezone:
    return timezone(timedelta(minutes=minutes))


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
