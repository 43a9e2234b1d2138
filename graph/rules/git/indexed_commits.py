"""Rows of the commit index: how commits are inserted and read.

A commit is read from its row only if the row is exact: truncated strings, and timestamps that the index cannot represent, are read from
git.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, func
from sqlalchemy.exc import IntegrityError

from graph.context import Context, Services
from graph.errors import NotFound
from graph.operations.transaction import write_transaction
from graph.rules.builds import commit_checks
from graph.rules.builds.commit_checks import CheckSummary, CommitKey
from storage.git.commits import GitCommit
from storage.tables.builds import checks
from storage.tables.builds.checks import INDEXED_COMMIT
from storage.tables.git import commits

MAX_STRING_LENGTH = 1_000
"""Characters of a name, an address or a title in the index."""
MAX_PARENTS = 1_000


MAX_YEAR = 9999
"""Timestamps in this year may have been clamped to its end."""

SHORT_OID_LENGTH = 8
"""Digits of the short id."""


def may_be_truncated(column: Any) -> ColumnElement[bool]:
    """The condition that the string in this column may be truncated."""
    return func.length(column) >= MAX_STRING_LENGTH


def may_be_clamped(column: Any) -> ColumnElement[bool]:
    """The condition that the timestamp in this column may be clamped."""
    condition: ColumnElement[bool] = column >= datetime(MAX_YEAR, 1, 1, tzinfo=UTC)
    return condition


class IndexedCommit:
    """A commit from the index: a `ProjectCommit` (graph/rules/git/commits.py) without message and parents.

    Both timestamps have the offset that the commit records.
    """

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
        """Its key in global ids."""
        return f"{self.project_id}-{self.oid}"

    @property
    def key(self) -> CommitKey:
        return self.project_id, self.oid


async def load_indexed_commits(context: Context, keys: Collection[CommitKey], *, with_checks: bool) -> Mapping[CommitKey, IndexedCommit]:
    """Load those of these commits that the index has, in one statement.

    `with_checks` primes the checks of all of them.
    """
    statement, values = checks.newest_and_summaries(keys) if with_checks else commits.summaries(keys)
    rows = await context.tuples(statement, **values)
    if with_checks:
        size = len(CheckSummary._fields)
        commit_checks.prime_checks(context, keys, [row[:size] for row in rows if row[0] != INDEXED_COMMIT])
        rows = [row[size:] for row in rows if row[0] == INDEXED_COMMIT]
    found = (build_indexed_commit(*row) for row in rows)
    return {(commit.project_id, commit.oid): commit for commit in found if commit is not None}


def build_indexed_commit(
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
    """The commit of a row of SUMMARY_COLUMNS; None when the row may not be exact."""
    if max(len(author_name), len(author_email), len(committer_name), len(committer_email)) >= MAX_STRING_LENGTH:
        return None
    if authored_at.year >= MAX_YEAR or committed_at.year >= MAX_YEAR:
        return None
    commit = IndexedCommit()
    # Assigning `__dict__` takes a third of the time of setting each attribute.
    commit.__dict__ = {
        "project_id": project_id,
        "oid": oid,
        "short_oid": oid[:SHORT_OID_LENGTH],
        "title": title,
        "author_name": author_name,
        "author_email": author_email,
        "authored_at": with_offset(authored_at, authored_offset),
        "committer_name": committer_name,
        "committer_email": committer_email,
        "committed_at": with_offset(committed_at, committed_offset),
    }
    return commit


def with_offset(moment: datetime, offset: int) -> datetime:
    """The timestamp with the commit's own offset, in minutes."""
    return moment.astimezone(_fixed_offset_zone(offset)) if offset else moment


@lru_cache(maxsize=256)
def _fixed_offset_zone(minutes: int) -> timezone:
    return timezone(timedelta(minutes=minutes))


async def write_missing_commits(services: Services, project_id: int, chunk: list[GitCommit]) -> None:
    """Insert commits that the index lacks, in a separate transaction.

    Takes no write lock if there are none. Raises NotFound.
    """
    async with services.database.read_session() as session:
        new = await filter_missing(Context(services, session, None, "index"), project_id, chunk)
    if new:
        try:
            async with write_transaction(services.database) as session:
                insert_commits(session, services, project_id, new)
        except IntegrityError as error:
            # The project was deleted.
            raise NotFound("Project") from error


async def filter_missing(context: Context, project_id: int, chunk: list[GitCommit]) -> list[GitCommit]:
    """Those of these commits that the project's index lacks."""
    existing = set(await context.all(commits.existing_oids(project_id, [commit.oid for commit in chunk])))
    return [commit for commit in chunk if commit.oid not in existing]


def insert_commits(session: Any, services: Services, project_id: int, chunk: Sequence[GitCommit]) -> None:
    """Insert commits in the session's transaction.

    Raises IntegrityError when the project has been deleted.
    """
    if chunk:
        # Sorted, so that concurrent transactions inserting the same commits never deadlock.
        rows = [_build_row(project_id, commit) for commit in sorted(chunk, key=lambda commit: commit.oid)]
        session.insert_later(commits.insert_missing(services.database.dialect), rows)


def _build_row(project_id: int, commit: GitCommit) -> dict[str, Any]:
    return {
        "project_id": project_id,
        "oid": commit.oid,
        "first_parent": commit.parents[0] if commit.parents else None,
        "parents": list(commit.parents[:MAX_PARENTS]),
        "author_name": commit.author_name[:MAX_STRING_LENGTH],
        "author_email": commit.author_email[:MAX_STRING_LENGTH],
        "authored_at": _to_utc(commit.authored_at),
        "authored_offset": _offset_minutes(commit.authored_at),
        "committer_name": commit.committer_name[:MAX_STRING_LENGTH],
        "committer_email": commit.committer_email[:MAX_STRING_LENGTH],
        "committed_at": _to_utc(commit.committed_at),
        "committed_offset": _offset_minutes(commit.committed_at),
        "title": commit.title[:MAX_STRING_LENGTH],
    }


def _to_utc(moment: datetime) -> datetime:
    """Convert to UTC; at the end of the year 9999 an offset can exceed the range of datetime."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _offset_minutes(moment: datetime) -> int:
    offset = moment.utcoffset()
    return int(offset.total_seconds() // 60) if offset else 0
