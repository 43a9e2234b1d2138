"""A project with more issues than any page shows, inserted into a data set once, for paging."""

import asyncio
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlmodel import col, func, select

from benchmarks.dataset import seed
from benchmarks.dataset.bulk_insert import insert_rows
from storage import tables
from storage.database.engine import Database
from storage.tables import AccessLevel, CounterKind, IssueState, MilestoneState, Visibility

ISSUES = 12_000
"""More than the rows of 500 pages of 20."""
OWNER = 2
PATH = "long"
FULL_PATH = f"user{OWNER}/{PATH}"
PEOPLE = (1, 2, 3, 4, 5)


def insert_long_project(url: str, issues: int = ISSUES) -> bool:
    """Adds it to a database that `seed` filled; returns whether it was not there before. The caller of the data set is a member."""
    return asyncio.run(_insert_long_project(url, issues))


async def _insert_long_project(url: str, issues: int) -> bool:
    database = Database(url)
    try:
        async with database.engine.execution_options(writing=True).begin() as connection:
            found = select(tables.Project.id).where(col(tables.Project.path_key) == PATH, col(tables.Project.namespace_id) == OWNER)
            if (await connection.execute(found)).first() is not None:
                return False

            async def last(table: Any) -> int:
                return int((await connection.execute(select(func.max(table.id)))).scalar_one())

            await insert_rows(connection, [(tables.Project, iter([_project()]))])
            project = await last(tables.Project)
            await insert_rows(connection, [_members(project), _milestones(project), _labels(project)])
            milestones, labels = await last(tables.Milestone), await last(tables.Label)
            await insert_rows(connection, [_issues(project, milestones, issues)])
            first = await last(tables.Issue) - issues + 1
            await insert_rows(connection, [_issue_labels(first, labels, issues), _counter(project, issues)])
        async with database.engine.connect() as connection:
            await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(text("ANALYZE"))
        return True
    finally:
        await database.close()


TableRows = tuple[Any, Iterator[dict[str, Any]]]


def _timestamps(minutes: int = 0) -> dict[str, datetime]:
    timestamp = seed.START + timedelta(minutes=minutes)
    return {"created_at": timestamp, "updated_at": timestamp}


def _project() -> dict[str, Any]:
    names = {"name": "Long", "path": PATH, "path_key": PATH, "description": "A project of the benchmark, with many issues."}
    owner_columns = {"namespace_id": OWNER, "creator_id": OWNER, "visibility_level": int(Visibility.PRIVATE)}
    return {**names, **owner_columns, "last_activity_at": seed.START, **_timestamps()}


def _members(project: int) -> TableRows:
    columns = {"project_id": project, "access_level": int(AccessLevel.DEVELOPER), **_timestamps()}
    return tables.ProjectMember, ({**columns, "user_id": user} for user in PEOPLE if user != OWNER)


def _milestones(project: int) -> TableRows:
    columns = {
        "project_id": project,
        "description": "What comes next.",
        "due_date": seed.START.date(),
        "state": MilestoneState.ACTIVE,
        **_timestamps(),
    }
    return tables.Milestone, ({**columns, "iid": iid, "title": f"Release {iid}"} for iid in range(1, seed.MILESTONES + 1))


def _labels(project: int) -> TableRows:
    columns = {"project_id": project, "color": "#428BCA", "description": None, "template": False, **_timestamps()}
    return tables.Label, ({**columns, "title": f"label {number}"} for number in range(1, seed.LABELS + 1))


def _issues(project: int, last_milestone: int, count: int) -> TableRows:
    """Issues with an hour between them; every tenth has the timestamp of the one before."""
    dice = random.Random(8)
    rows = (
        {
            "project_id": project,
            "iid": iid,
            "author_id": dice.choice(PEOPLE),
            "assignee_id": dice.choice(PEOPLE) if dice.random() < 0.7 else None,
            "milestone_id": last_milestone - dice.randrange(seed.MILESTONES) if dice.random() < 0.5 else None,
            "title": " ".join(dice.choices(seed.WORDS, k=6)),
            "description": " ".join(dice.choices(seed.WORDS, k=40)),
            "state": IssueState.OPENED,
            "closed_at": None,
            **_timestamps((iid - (iid % 10 == 0)) * 60),
        }
        for iid in range(1, count + 1)
    )
    return tables.Issue, rows


def _issue_labels(first: int, last_label: int, count: int) -> TableRows:
    dice = random.Random(9)
    return tables.IssueLabel, (
        {"issue_id": issue, "label_id": last_label - index}
        for issue in range(first, first + count)
        for index in sorted(dice.sample(range(seed.LABELS), dice.randint(0, 3)))
    )


def _counter(project: int, count: int) -> TableRows:
    return tables.Counter, iter([{"project_id": project, "kind": CounterKind.ISSUE, "value": count}])
