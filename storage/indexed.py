"""How the index of a project differs from its repository. It only reads, and both as they are while it does."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from storage.database import Database
from storage.git import indexing
from storage.git.repositories import Repositories
from storage.git.repository import Repository
from storage.tables import branches, commits

AT_ONCE = 1_000


@dataclass
class Difference:
    """Names of branches, and of commits their numbers: `missing` are in the repository only, `unknown` in the index only."""

    missing: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    indexed: bool = True
    """Whether the index has any branch."""
    missing_commits: int = 0
    unknown_commits: int = 0

    def __bool__(self) -> bool:
        return bool(self.missing or self.moved or self.unknown or self.missing_commits or self.unknown_commits)

    def lines(self) -> list[str]:
        """Each difference in words."""
        told = [
            (self.missing, "branch", "branches", "not in the index"),
            (self.moved, "branch", "branches", "somewhere else in the index"),
            (self.unknown, "branch", "branches", "in the index only"),
        ]
        lines = [f"{_counted(len(names), one, many)} {what}: {_some(names)}" for names, one, many, what in told if names]
        if self.missing_commits:
            lines.append(f"{_counted(self.missing_commits, 'commit', 'commits')} not in the index")
        if self.unknown_commits:
            lines.append(f"{_counted(self.unknown_commits, 'commit', 'commits')} in the index only")
        return lines


async def compare(database: Database, repositories: Repositories, project_id: int) -> Difference:
    """Raises NotARepository, GitFailed."""
    async with database.reading() as session:
        known = dict(await session.read(branches.heads(project_id)))
    there = await repositories.read(project_id, indexing.heads)
    found = Difference(
        missing=sorted(there.keys() - known.keys()),
        moved=sorted(name for name in there.keys() & known.keys() if there[name] != known[name]),
        unknown=sorted(known.keys() - there.keys()),
        indexed=bool(known),
    )
    chunks = await repositories.read(project_id, lambda repository: indexing.new_ids(repository, set(there.values())))
    try:
        while chunk := await repositories.read(project_id, lambda _: next(chunks, None)):
            async with database.reading() as session:
                found.missing_commits += len(chunk) - len(await session.read(commits.known(project_id, chunk)))
    finally:
        chunks.close()
    async for absent in absent_commits(database, repositories, project_id):
        found.unknown_commits += len(absent)
    return found


async def absent_commits(database: Database, repositories: Repositories, project_id: int) -> AsyncIterator[list[str]]:
    """The commits of the index that the repository does not have, in parts."""
    after = 0
    while True:
        async with database.reading() as session:
            rows = await session.read(commits.after(project_id, after, AT_ONCE))
        if not rows:
            return
        after, oids = rows[-1][0], [oid for _, oid in rows]

        def work(repository: Repository, oids: list[str] = oids) -> list[str]:
            return indexing.absent(repository, oids)

        if absent := await repositories.read(project_id, work):
            yield absent


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one} is" if number == 1 else f"{number} {many} are"


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
