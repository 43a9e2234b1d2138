"""The data set of a run: the same rows for the same scale, on both databases.

At scale 1: 50 users, 200 projects, 100,000 issues, 300,000 notes; commits, builds and merge requests are in `build_rows.py`.
"""

import asyncio
import random
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.dataset import build_rows, project_history
from benchmarks.dataset.bulk_insert import insert_rows
from benchmarks.dataset.project_history import ProjectHistory
from benchmarks.dataset.vacuum import vacuum
from storage import tables
from storage.database.engine import Database
from storage.migrations import upgrade
from storage.secrets import digest_token
from storage.tables import AccessLevel, CounterKind, IssueState, MilestoneState, NamespaceKind, Visibility

USERS = 50
PROJECTS = 200
ISSUES = 500
"""Issues of each project."""
NOTES = 3
"""Notes of each issue."""
LABELS = 8
MILESTONES = 3
MEMBERS = 4
"""Members of each project beside its owner."""
GROUP, GROUP_PROJECTS = "company", 25
"""A group of which the client is not a member, and the number of its public projects, which are empty."""
START = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ("fix", "add", "the", "build", "page", "when", "user", "opens", "merge", "list", "slow", "crash", "token", "path", "name", "commit")


@dataclass(frozen=True)
class Dataset:
    """What a client needs to know of the rows: the token of a user without admin rights, the private projects that list that user as a
    member, and (project, issue) pairs of them.

    `history_projects` are those of the projects whose repositories have the history that builds and merge requests are about;
    `pending_projects` are other projects, in which builds can be pending.
    """

    token: str
    projects: tuple[int, ...]
    issues: tuple[tuple[int, int], ...]
    history_projects: tuple[int, ...] = ()
    pending_projects: tuple[int, ...] = ()


def token_of(user_id: int) -> str:
    return f"bench-token-{user_id:04}"


def path_of(project: int) -> str:
    """The full path of a project."""
    return f"user{_owner(project)}/project{project}"


def seed(url: str, scale: float = 1.0) -> Dataset:
    """Migrates an empty database and fills it; `scale` multiplies the number of projects and of everything in them."""
    projects = _project_count(scale)
    upgrade(url)
    with tempfile.TemporaryDirectory() as folder:
        history = project_history.create_repository(Path(folder) / "history.git")
    asyncio.run(_seed(url, projects, history))
    return describe_dataset(scale)


def describe_dataset(scale: float = 1.0) -> Dataset:
    """What a client needs to know of the rows that `seed` makes at this scale."""
    projects = _project_count(scale)
    own_projects = [number for number in range(1, projects + 1) if _members(number)[0] == 1 and _visibility(number) == Visibility.PRIVATE]
    listed_projects = tuple(own_projects[:20])
    every = max(ISSUES // 10, 1)
    issues = tuple((project, (project - 1) * ISSUES + 1 + index) for project in listed_projects for index in range(0, ISSUES, every))
    # The last one has another history (`suites/transfers.py`).
    history_projects = listed_projects[2:-1]
    others = tuple(sorted(set(range(1, projects + 1)) - set(listed_projects)))
    return Dataset(
        token_of(1),
        listed_projects,
        issues,
        history_projects,
        others,
    )


def _project_count(scale: float) -> int:
    """The number of projects at a scale."""
    return max(int(PROJECTS * scale), 16)


async def _seed(url: str, projects: int, history: ProjectHistory) -> None:
    database = Database(url)
    try:
        async with database.engine.execution_options(writing=True).begin() as connection:
            await insert_rows(connection, _tables(projects, history))
        # Without statistics, the first query plans would be guesses.
        await vacuum(database)
    finally:
        await database.close()


def _tables(projects: int, history: ProjectHistory) -> Iterator[tuple[Any, Iterable[dict[str, Any]]]]:
    """Every table with its rows, parents first. The rows have no ids: an empty database counts them from 1 in this order."""
    yield tables.User, (_user(number) for number in range(1, USERS + 1))
    yield (
        tables.Token,
        (
            {"user_id": number, "name": "private", "digest": digest_token(token_of(number)), "sealed": "", "created_at": START}
            for number in range(1, USERS + 1)
        ),
    )
    yield (
        tables.Namespace,
        (
            {
                "kind": NamespaceKind.USER,
                "name": f"User {number}",
                "path": f"user{number}",
                "path_key": f"user{number}",
                "description": "",
                "owner_id": number,
                **_timestamps(),
            }
            for number in range(1, USERS + 1)
        ),
    )
    group = {"kind": NamespaceKind.GROUP, "name": "Company", "path": GROUP, "path_key": GROUP, "description": "", "owner_id": None}
    yield tables.Namespace, iter([{**group, **_timestamps()}])
    yield tables.GroupMember, iter([{"group_id": USERS + 1, "user_id": 2, "access_level": int(AccessLevel.OWNER), **_timestamps()}])
    numbers = range(1, projects + 1)
    yield tables.Project, (_project(number) for number in numbers)
    yield tables.Project, (_group_project(number) for number in range(1, GROUP_PROJECTS + 1))
    yield (
        tables.ProjectMember,
        (
            {"project_id": number, "user_id": user, "access_level": int(AccessLevel.DEVELOPER), **_timestamps()}
            for number in numbers
            for user in _members(number)
        ),
    )
    yield (
        tables.Milestone,
        (
            {
                "project_id": number,
                "iid": iid,
                "title": f"Release {iid}",
                "description": "What comes next.",
                "due_date": (START + timedelta(days=30 * iid)).date(),
                "state": MilestoneState.ACTIVE,
                **_timestamps(),
            }
            for number in numbers
            for iid in range(1, MILESTONES + 1)
        ),
    )
    yield (
        tables.Label,
        (
            {"project_id": number, "title": f"label {index}", "color": "#428BCA", "description": None, "template": False, **_timestamps()}
            for number in numbers
            for index in range(1, LABELS + 1)
        ),
    )
    yield tables.Issue, _issues(numbers)
    yield tables.IssueLabel, _issue_labels(projects)
    yield tables.Counter, ({"project_id": number, "kind": CounterKind.ISSUE, "value": ISSUES} for number in numbers)
    yield tables.Note, _notes(projects)
    yield from build_rows.tables_with_rows(projects, history, people_of, start=START, labels_each=LABELS, milestones_each=MILESTONES)


def _timestamps(minutes: int = 0) -> dict[str, datetime]:
    timestamp = START + timedelta(minutes=minutes)
    return {"created_at": timestamp, "updated_at": timestamp}


def _owner(project: int) -> int:
    return 2 + project % (USERS - 1)


def _members(project: int) -> list[int]:
    """The members beside the owner; user 1 is one of every second project."""
    others = [2 + (project + step) % (USERS - 1) for step in range(1, MEMBERS + 1)]
    return [1, *others] if project % 2 else others


def people_of(project: int) -> list[int]:
    """The owner and the members."""
    return [_owner(project), *_members(project)]


def _visibility(project: int) -> Visibility:
    return (Visibility.PRIVATE, Visibility.PRIVATE, Visibility.INTERNAL, Visibility.PUBLIC)[project % 4]


def _words(random: random.Random, count: int) -> str:
    return " ".join(random.choices(WORDS, k=count))


def _add_defaults(table: Any, values: dict[str, Any]) -> dict[str, Any]:
    """The row with the defaults of its table's other columns."""
    fields = table.model_fields
    return {
        **{
            column.key: fields[column.key].get_default(call_default_factory=True)
            for column in table.__table__.columns
            if column.key != "id"
        },
        **values,
    }


def _user(number: int) -> dict[str, Any]:
    name = f"user{number}"
    values = {"username": name, "name": f"User {number}", "email": f"{name}@example.org", "confirmed": True, "bio": "Writes code."}
    return _add_defaults(tables.User, {**values, **_timestamps()})


def _project(number: int) -> dict[str, Any]:
    values = {
        # A personal namespace has the id of its user.
        "namespace_id": _owner(number),
        "creator_id": _owner(number),
        "name": f"Project {number}",
        "path": f"project{number}",
        "path_key": f"project{number}",
        "description": "A project of the benchmark.",
        "visibility_level": int(_visibility(number)),
        "last_activity_at": START,
        # The service reads the refs of the repositories at its first start.
        "refs_version": 0,
    }
    return _add_defaults(tables.Project, {**values, **_timestamps()})


def _group_project(number: int) -> dict[str, Any]:
    name = f"tool{number}"
    group = {"namespace_id": USERS + 1, "creator_id": 2, "visibility_level": int(Visibility.PUBLIC)}
    return {**_project(number), **group, "name": name, "path": name, "path_key": name}


def _issues(projects: Iterable[int]) -> Iterator[dict[str, Any]]:
    dice = random.Random(1)
    for project in projects:
        users = people_of(project)
        for iid in range(1, ISSUES + 1):
            closed = dice.random() < 0.4
            dates = _timestamps(iid * 60 + project % 60)
            yield {
                "project_id": project,
                "iid": iid,
                "author_id": dice.choice(users),
                "assignee_id": dice.choice(users) if dice.random() < 0.7 else None,
                "milestone_id": (project - 1) * MILESTONES + dice.randint(1, MILESTONES) if dice.random() < 0.5 else None,
                "title": _words(dice, 6),
                "description": _words(dice, 40),
                "state": IssueState.CLOSED if closed else IssueState.OPENED,
                "closed_at": dates["updated_at"] if closed else None,
                **dates,
            }


def _issue_labels(projects: int) -> Iterator[dict[str, Any]]:
    dice = random.Random(2)
    for issue in range(1, projects * ISSUES + 1):
        first = (issue - 1) // ISSUES * LABELS + 1
        for index in sorted(dice.sample(range(LABELS), dice.randint(0, 3))):
            yield {"issue_id": issue, "label_id": first + index}


def _notes(projects: int) -> Iterator[dict[str, Any]]:
    dice = random.Random(3)
    for issue in range(1, projects * ISSUES + 1):
        project = (issue - 1) // ISSUES + 1
        users = people_of(project)
        for index in range(NOTES):
            yield {
                "project_id": project,
                "issue_id": issue,
                "author_id": dice.choice(users),
                "body": _words(dice, 20),
                "attachment": None,
                "system": False,
                "upvote": False,
                "downvote": False,
                **_timestamps(issue % 50_000 + index),
            }
