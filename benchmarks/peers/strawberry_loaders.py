"""The DataLoaders of strawberry's peer: each asks once for all keys of a level, in a session of its own."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import tuple_
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession
from strawberry.dataloader import DataLoader

from benchmarks.peer import IssueLabel, Label, Milestone, User
from benchmarks.peer_work import Build, Commit


class Loaders:
    """Those of one request."""

    def __init__(self, sessions: Callable[[], AsyncSession]) -> None:
        self._sessions = sessions
        self.users: DataLoader[int, User] = DataLoader(self._users)
        self.milestones: DataLoader[int, Milestone] = DataLoader(self._milestones)
        self.labels: DataLoader[int, list[str]] = DataLoader(self._labels)
        self.commits: DataLoader[tuple[int, str], Commit | None] = DataLoader(self._commits)
        self.builds: DataLoader[tuple[int, str, int], list[Build]] = DataLoader(self._builds)

    async def _all(self, statement: Any) -> list[Any]:
        async with self._sessions() as session:
            return list((await session.exec(statement)).all())

    async def _users(self, ids: list[int]) -> list[User]:
        rows = {row.id: row for row in await self._all(select(User).where(col(User.id).in_(ids)))}
        return [rows[id] for id in ids]

    async def _milestones(self, ids: list[int]) -> list[Milestone]:
        rows = {row.id: row for row in await self._all(select(Milestone).where(col(Milestone.id).in_(ids)))}
        return [rows[id] for id in ids]

    async def _labels(self, issues: list[int]) -> list[list[str]]:
        """The titles by issue, sorted."""
        joined = select(IssueLabel.issue_id, Label.title).join(Label, col(Label.id) == IssueLabel.label_id)
        found: dict[int, list[str]] = {}
        for issue, title in await self._all(joined.where(col(IssueLabel.issue_id).in_(issues)).order_by(Label.title)):
            found.setdefault(issue, []).append(title)
        return [found.get(issue, []) for issue in issues]

    async def _commits(self, keys: list[tuple[int, str]]) -> list[Commit | None]:
        wanted = select(Commit).where(tuple_(col(Commit.project_id), col(Commit.oid)).in_(keys))
        rows = {(row.project_id, row.oid): row for row in await self._all(wanted)}
        return [rows.get(key) for key in keys]

    async def _builds(self, keys: list[tuple[int, str, int]]) -> list[list[Build]]:
        """The newest `first` by (project, commit, first); all keys of a level have the same `first`."""
        commits = [key[:2] for key in keys]
        place = func.row_number().over(partition_by=[Build.project_id, Build.sha], order_by=col(Build.id).desc()).label("place")
        of_commits = select(Build.id, place).where(
            tuple_(col(Build.project_id), col(Build.sha)).in_(commits), col(Build.current_id).is_(None)
        )
        places = of_commits.subquery()
        wanted = select(Build).join(places, places.c.id == Build.id).where(places.c.place <= max(first for *_, first in keys))
        found: dict[tuple[int, str], list[Build]] = {}
        for row in await self._all(wanted.order_by(col(Build.id).desc())):
            found.setdefault((row.project_id, row.sha), []).append(row)
        return [found.get((project, sha), [])[:first] for project, sha, first in keys]
