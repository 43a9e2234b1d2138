"""Compares the index of a project with its refs and its repository. Read-only; all may change during the comparison."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from storage.database.engine import Database
from storage.git.history import commit_walk
from storage.git.refs.ref_names import BRANCHES
from storage.git.repositories import Repositories
from storage.git.repository import Repository
from storage.tables.git import commits, refs

BATCH_SIZE = 1_000


@dataclass
class IndexDifference:
    """Names of branches that are not in the index, and numbers of commits that are not, or that are only in the index."""

    missing: list[str] = field(default_factory=list)
    missing_commits: int = 0
    unknown_commits: int = 0

    def __bool__(self) -> bool:
        return bool(self.missing or self.missing_commits or self.unknown_commits)

    def describe(self) -> list[str]:
        """Returns one sentence per kind of difference."""
        lines = []
        if self.missing:
            lines.append(f"{_format_count(len(self.missing), 'branch', 'branches')} not in the index: {_summarize(self.missing)}")
        if self.missing_commits:
            lines.append(f"{_format_count(self.missing_commits, 'commit', 'commits')} not in the index")
        if self.unknown_commits:
            lines.append(f"{_format_count(self.unknown_commits, 'commit', 'commits')} in the index only")
        return lines


async def compare_index(database: Database, repositories: Repositories, project_id: int) -> IndexDifference:
    """Compares the branches and commits of a project's index with its repository. Raises NotARepository, GitCommandError."""
    async with database.read_session() as session:
        missing = [(name, oid) for _, name, oid in await session.read(refs.unindexed_branches(project_id))]
        heads = {oid for _, oid in (*missing, *await session.read(refs.indexed_heads(project_id)))}
    difference = IndexDifference(missing=sorted(name.removeprefix(BRANCHES) for name, _ in missing))
    chunks = await repositories.read(project_id, lambda repository: commit_walk.walk_ids(repository, heads))
    try:
        while chunk := await repositories.read(project_id, lambda _: next(chunks, None)):
            async with database.read_session() as session:
                difference.missing_commits += len(chunk) - len(await session.read(commits.existing_oids(project_id, chunk)))
    finally:
        chunks.close()
    async for absent in list_absent_commits(database, repositories, project_id):
        difference.unknown_commits += len(absent)
    return difference


async def list_absent_commits(database: Database, repositories: Repositories, project_id: int) -> AsyncIterator[list[str]]:
    """Yields batches of commits of the index that the repository does not have."""
    after = 0
    while True:
        async with database.read_session() as session:
            rows = await session.read(commits.rows_after(project_id, after, BATCH_SIZE))
        if not rows:
            return
        after, oids = rows[-1][0], [oid for _, oid in rows]

        def work(repository: Repository, oids: list[str] = oids) -> list[str]:
            return commit_walk.absent_ids(repository, oids)

        if absent := await repositories.read(project_id, work):
            yield absent


def _format_count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular} is" if number == 1 else f"{number} {plural} are"


def _summarize(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
