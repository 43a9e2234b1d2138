"""Flaky jobs from the columnar copy of builds: the same answers as from the database, whatever is requested and whatever changes."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, insert, update
from sqlmodel import col

from graph.context import Services
from graph.jobs.build_analytics import BuildAnalytics
from graph.rules.statistics import copied_flaky_builds
from storage import tables
from storage.git.history.log import list_history
from storage.tables import AccessLevel, CheckStatus, MergeRequestState, Visibility
from tests.make import DataFactory
from tests.support.build_copies import Both
from tests.support.database.database_selection import share_of_draws
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2016, 3, 20, tzinfo=UTC)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
"""Infinite timestamps of PostgreSQL."""
NAMES = ("unit", 'lint, and "more"', "Ünïcode\nline", "\\N", "", "Zebra", "a", "😀", "ﬀ")
ARGUMENTS = "$since: DateTime!, $first: Int, $after: String, $last: Int, $before: String, $offset: Int"
FLAKY = """flakyBuilds(since: $since, first: $first, after: $after, last: $last, before: $before, offset: $offset) {
    totalCount pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
    edges { cursor node { name stage flips runs rate wastedSeconds blockedMergeRequests lastCommit { oid } } } }"""
PROJECT = f"query ($path: String!, {ARGUMENTS}) {{ project(path: $path) {{ {FLAKY} }} }}"
PROJECTS = f"query ({ARGUMENTS}) {{ projects(first: 9) {{ nodes {{ fullPath {FLAKY} }} }} }}"


class FlakyBuildFactory:
    """Writes builds with few commits, jobs and timestamps, so that many of them are runs of the same, and some at the same time."""

    def __init__(self, services: Services, projects: list[tables.Project], shas: list[str]) -> None:
        self.random, self.services, self.projects, self.shas = random.Random(5), services, projects, shas

    def columns(self) -> dict[str, Any]:
        pick = self.random
        ended = MOMENT + timedelta(hours=pick.randrange(40), microseconds=pick.choice((0, 1, 999_999)))
        times: dict[str, Any] = {"started_at": ended - timedelta(seconds=pick.randrange(-3, 4000), microseconds=7), "finished_at": ended}
        name = pick.choice((None, None, None, *times))
        if name is not None:
            times[name] = pick.choice((None, FIRST, LAST))
        statuses = (CheckStatus.FAILED, CheckStatus.SUCCESS)
        return {
            "project_id": pick.choice(self.projects).id,
            "sha": pick.choice(self.shas),
            "ref": "main",
            "name": pick.choice(NAMES),
            "stage": pick.choice(("test", "Test")),
            "status": pick.choice((*statuses * 4, *CheckStatus)),
            "attempt": pick.randrange(1, 4),
            "allow_failure": pick.random() < 0.4,
            "created_at": MOMENT,
            **times,
        }

    async def insert(self, count: int) -> None:
        await self.run(insert(tables.Build).values([self.columns() for _ in range(count)]))

    async def run(self, *statements: Any) -> None:
        async with self.services.database.write_session() as session:
            for statement in statements:
                await session.execute(statement)
            await session.commit()

    async def change(self, number: int) -> None:
        """Changes some builds in one of four ways: another commit, other results, a retry, a deletion."""
        pick, build = self.random, tables.Build
        async with self.services.database.read_session() as session:
            ids = sorted(row[0] for row in await session.fetch("SELECT id FROM builds", ()))
        some, values = pick.sample(ids, 12), self.columns()
        changes = (("sha", "allow_failure"), ("status", "attempt", "finished_at"))
        if number % 4 < len(changes):
            await self.run(update(build).where(col(build.id).in_(some)).values({name: values[name] for name in changes[number % 4]}))
        elif number % 4 == 2:
            await self.run(update(build).where(col(build.id).in_(some[:-1])).values(current_id=some[-1]))
        else:
            await self.run(delete(build).where(col(build.id).in_(some)))
            await self.insert(12)


@pytest.fixture
async def users(make: DataFactory) -> list[tables.User]:
    return [await make.user(name) for name in ("owner", "zoe", "reporter")]


@pytest.fixture
async def projects(make: DataFactory, users: list[tables.User]) -> list[tables.Project]:
    members = [(users[2], AccessLevel.REPORTER)]
    return [
        await make.project(owner=users[0], path="site", members=members, history={"commits": 8, "merges_every": 0}),
        await make.project(owner=users[1], path="open", visibility=Visibility.PUBLIC),
        await make.project(owner=users[1], path="closed", merge_requests_enabled=False),
    ]


@pytest.fixture
async def builds(services: Services, make: DataFactory, projects: list[tables.Project]) -> FlakyBuildFactory:
    commits = await services.repositories.read(
        projects[0].id, lambda repository: list_history(repository, repository.resolve("master") or "", skip=0, limit=8)
    )
    found = FlakyBuildFactory(services, projects, [commit.oid for commit in commits])
    pick, link = found.random, tables.MergeRequestCommit
    for _ in range(12):
        target, source = pick.choice(projects), pick.choice(projects)
        state = pick.choice((MergeRequestState.MERGED, MergeRequestState.CLOSED))
        row = await make.merge_request(target, source_project_id=source.id, state=state)
        oids = pick.sample(found.shas, pick.randrange(1, 4))
        await make.save(*(link(merge_request_id=row.id, position=position, oid=oid) for position, oid in enumerate(oids)))
    return found


def random_page(pick: random.Random, cursors: list[str]) -> dict[str, Any]:
    """Arguments of a page from either end, between positions that earlier pages had."""
    since = pick.choice((FIRST, MOMENT - timedelta(days=9), MOMENT + timedelta(hours=pick.randrange(40), microseconds=1), LAST))
    found: dict[str, Any] = {"since": since.isoformat(), pick.choice(("first", "first", "last")): pick.choice((0, 1, 3, 100))}
    for name in ("after", "before"):
        if cursors and pick.random() < 0.3:
            found[name] = pick.choice(cursors)
    if len(found) == 2 and "first" in found and pick.random() < 0.3:
        found["offset"] = pick.randrange(4)
    return found


class TestAnswers:
    async def test_equal_those_of_the_database(
        self,
        make: DataFactory,
        both: Both,
        analytics: BuildAnalytics,
        builds: FlakyBuildFactory,
        users: list[tables.User],
        projects: list[tables.Project],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        await builds.insert(400)
        await analytics.rebuild()
        pick, count, admin = random.Random(3), share_of_draws(150, 3), await make.admin()
        viewers = {projects[0].id: [users[0], users[2], admin], projects[1].id: [*users, admin], projects[2].id: [users[1], admin]}
        cursors: list[str] = []
        blocked = commits = 0

        for number in range(count):
            if number % 3 == 2:
                await builds.change(number // 3)
            if number == count // 2:
                await analytics.rebuild()
                # From here on the merge requests of most jobs take a statement of their own.
                monkeypatch.setattr(copied_flaky_builds, "BATCH_COMMITS", 5)
            page = random_page(pick, cursors)
            if pick.random() < 0.3:
                data = await both.data(PROJECTS, pick.choice((*users, admin)), **page)
                found = [node["flakyBuilds"] for node in data["projects"]["nodes"]]
            else:
                project = pick.choice(projects)
                data = await both.data(PROJECT, pick.choice(viewers[project.id]), path=str(project.id), **page)
                found = [data["project"]["flakyBuilds"]]
            edges = [edge for each in found for edge in each["edges"]]
            cursors += [edge["cursor"] for edge in edges]
            blocked += sum(edge["node"]["blockedMergeRequests"] for edge in edges)
            commits += sum(edge["node"]["lastCommit"] is not None for edge in edges)

        assert cursors
        assert blocked
        assert commits

    async def test_take_as_many_statements_for_many_jobs_as_for_one(
        self,
        both: Both,
        analytics: BuildAnalytics,
        builds: FlakyBuildFactory,
        users: list[tables.User],
        projects: list[tables.Project],
        statements: StatementRecorder,
    ) -> None:
        await builds.insert(400)
        await analytics.rebuild()
        since = FIRST.isoformat()
        await both.data(PROJECTS, users[1], since=since, first=1)

        with statements.record() as one:
            await both.copied.data(PROJECT, users[1], path=str(projects[1].id), since=since, first=1)
        with statements.record() as many:
            data = await both.copied.data(PROJECTS, users[1], since=since, first=100)

        assert sum(len(node["flakyBuilds"]["edges"]) for node in data["projects"]["nodes"]) > 10
        assert len(many) <= len(one) + 2
