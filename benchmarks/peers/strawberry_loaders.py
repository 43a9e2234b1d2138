"""The DataLoaders of the peer on strawberry: each reads all keys of a level by one statement, in a session of its own."""

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import ColumnElement, and_, or_
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession
from strawberry.dataloader import DataLoader

from benchmarks.peers.sqlmodel_tables import Build, Commit, IssueLabel, Label, Milestone, User


def _in_projects(project_column: Any, column: Any, keys: Iterable[tuple[int, str]]) -> ColumnElement[bool]:
    """The condition for rows of any of these (project, value) pairs. SQLite would not use the index for a list of pairs."""
    by_project: dict[int, list[str]] = {}
    for project, value in keys:
        by_project.setdefault(project, []).append(value)
    return or_(*(and_(col(project_column) == project, col(column).in_(values)) for project, values in by_project.items()))


class Loaders:
    """The DataLoaders of one request."""

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
        statement = select(Commit).where(_in_projects(Commit.project_id, Commit.oid, keys))
        rows = {(row.project_id, row.oid): row for row in await self._all(statement)}
        return [rows.get(key) for key in keys]

    async def _builds(self, keys: list[tuple[int, str, int]]) -> list[list[Build]]:
        """The newest `first` by (project, commit, first); all keys of a level have the same `first`."""
        commits = [(project, sha) for project, sha, _ in keys]
        rank = func.row_number().over(partition_by=[Build.project_id, Build.sha], order_by=col(Build.id).desc()).label("rank")
        of_commits = select(Build.id, rank).where(_in_projects(Build.project_id, Build.sha, commits), col(Build.current_id).is_(None))
        ranked = of_commits.subquery()
        statement = select(Build).join(ranked, ranked.c.id == Build.id).where(ranked.c.rank <= max(first for *_, first in keys))
        found: dict[tuple[int, str], list[Build]] = {}
        for row in await self._all(statement.order_by(col(Build.id).desc())):
            found.setdefault((row.project_id, row.sha), []).append(row)
        return [found.get((project, sha), [])[:first] for project, sha, first in keys]
