"""Counters of rows: they are those of the rows, whatever changes these, and totals of lists are read from them."""

import asyncio
import random
from typing import Any

from sqlalchemy import delete, func, insert, select, text, update
from sqlmodel import col

from graph.context import Services
from storage import integrity, tables
from storage.database.engine import Database
from storage.tables import CheckStatus, IssueState, MergeRequestState, row_counts
from tests.make import DataFactory
from tests.support.api_clients import Ask

SHA = "a" * 40
TOTALS = """query ($path: String!, $issues: IssueFilter, $requests: MergeRequestFilter, $builds: BuildFilter) { project(path: $path) {
    openIssuesCount issues(first: 1, filter: $issues) { totalCount nodes { iid } }
    mergeRequests(first: 1, filter: $requests) { totalCount nodes { iid } }
    builds(first: 1, filter: $builds) { totalCount nodes { id } } } }"""
EACH = "{ projects(first: 5) { nodes { databaseId openIssuesCount issues(first: 1) { totalCount } builds(first: 1) { totalCount } } } }"


async def run(database: Database, *statements: Any) -> None:
    async with database.write_session() as session:
        for statement in statements:
            await session.execute(statement)
        await session.commit()


async def number_of(database: Database, *statements: Any) -> list[int]:
    async with database.read_session() as session:
        return [(await session.execute(statement)).scalar_one() for statement in statements]


async def fill(make: DataFactory) -> list[tables.Project]:
    """Two projects of one owner with rows in all states."""
    owner = await make.user()
    projects = [await make.project(owner=owner) for _ in range(2)]
    for project in projects:
        for number in range(6):
            await make.issue(project, state=IssueState.CLOSED if number % 3 else IssueState.OPENED)
            await make.merge_request(project, state=list(MergeRequestState)[number % len(MergeRequestState)])
            await make.build(project, SHA, status=list(CheckStatus)[number % len(CheckStatus)])
    return projects


class TestCounters:
    async def test_are_those_of_the_rows_after_any_change(self, services: Services, make: DataFactory) -> None:
        database, choices = services.database, random.Random(5)
        projects = await fill(make)
        issue, request, build = tables.Issue, tables.MergeRequest, tables.Build

        def some(table: Any) -> Any:
            return table.id % 3 == choices.randrange(3)

        def choose_change() -> Any:
            project = choices.choice(projects).id
            return choices.choice(
                (
                    update(issue).where(some(issue)).values(state=choices.choice(list(IssueState))),
                    update(issue).where(some(issue)).values(title="no counted column"),
                    update(request).where(some(request)).values(state=choices.choice(list(MergeRequestState))),
                    update(build).where(some(build)).values(status=choices.choice(list(CheckStatus))),
                    update(build).where(some(build)).values(current_id=choices.choice((None, build.id))),
                    update(build).where(some(build)).values(project_id=project),
                    delete(request).where(col(request.id) == choices.randrange(12)),
                    delete(build).where(col(build.id) == choices.randrange(12)),
                )
            )

        for _ in range(60):
            await run(database, choose_change(), choose_change())
        assert await integrity.find_wrong_counts(database) == []

        async with database.write_session() as session:
            await session.execute(delete(issue))
            await session.rollback()
        assert await integrity.find_wrong_counts(database) == []

        await run(database, delete(tables.Project).where(col(tables.Project.id) == projects[0].id))
        assert await integrity.find_wrong_counts(database) == []
        of_deleted = select(func.count()).where(col(tables.RowCount.project_id) == projects[0].id)
        assert await number_of(database, of_deleted) == [0]

    async def test_of_transactions_at_the_same_time(self, services: Services, make: DataFactory, dialect: str) -> None:
        """On PostgreSQL their differences are merged meanwhile."""
        database = services.database
        project = (await fill(make))[0]
        values: dict[str, Any] = {
            "project_id": project.id,
            "author_id": project.creator_id,
            "title": "One of many",
            "state": IssueState.OPENED,
        }
        values |= {"created_at": project.created_at, "updated_at": project.updated_at}

        async def write(writer: int) -> None:
            for number in range(10):
                iid = 1000 * (writer + 1) + number
                await run(database, insert(tables.Issue).values(iid=iid, **values))
                if dialect == "postgresql":
                    await run(database, text(f"SELECT merge_row_counts({project.id}, 'issues')"))
                await run(database, update(tables.Issue).where(col(tables.Issue.iid) == iid).values(state=IssueState.CLOSED))

        counters = row_counts.conditions_of(tables.CountedKind.ISSUES)

        async def read() -> None:
            issues = select(func.count()).where(col(tables.Issue.project_id) == project.id).scalar_subquery()
            counted = select(row_counts.total()).where(col(tables.RowCount.project_id) == project.id, *counters)
            for _ in range(20):
                assert await number_of(database, select(issues - counted.scalar_subquery())) == [0]

        await asyncio.gather(*map(write, range(4)), read())
        assert await integrity.find_wrong_counts(database) == []
        if dialect == "postgresql":
            # A write may have merged them just before, with a probability of 1 in 32.
            await run(database, text(f"SELECT merge_row_counts({project.id}, 'issues')"))
            rows = select(func.count()).select_from(tables.RowCount).where(col(tables.RowCount.project_id) == project.id, *counters)
            states = select(func.count(func.distinct(col(tables.Issue.state)))).where(col(tables.Issue.project_id) == project.id)
            assert await number_of(database, rows) == await number_of(database, states)
        assert await integrity.find_wrong_counts(database) == []

    async def test_are_corrected(self, services: Services, make: DataFactory, ask: Ask) -> None:
        database = services.database
        project = (await fill(make))[0]
        owner = await make.fetch(tables.User, project.creator_id or 0)
        wrong = col(tables.RowCount.kind) == tables.CountedKind.ISSUES, col(tables.RowCount.project_id) == project.id
        await run(database, delete(tables.RowCount).where(*wrong))
        found = await integrity.find_wrong_counts(database)
        assert found == [
            f"project {project.id}: 4 more issues in the state closed than counted",
            f"project {project.id}: 2 more issues in the state opened than counted",
        ]
        await integrity.correct_counts(database)
        assert await integrity.find_wrong_counts(database) == []
        await make.issue(project)
        await run(database, update(tables.Issue).where(col(tables.Issue.project_id) == project.id).values(state=IssueState.OPENED))
        assert await integrity.find_wrong_counts(database) == []
        assert owner is not None
        assert (await ask.data(TOTALS, owner, path=str(project.id)))["project"]["openIssuesCount"] == 7


class TestTotals:
    async def test_of_lists_and_their_filters(self, services: Services, make: DataFactory, ask: Ask) -> None:
        project = (await fill(make))[0]
        owner = await make.fetch(tables.User, project.creator_id or 0)
        assert owner is not None
        build = tables.Build
        await run(services.database, update(build).where(col(build.name) == "job1").values(current_id=build.id))

        async def totals(**filters: Any) -> list[int]:
            first, second = [await ask.data(TOTALS, owner, path=str(project.id), **filters) for _ in range(2)]
            assert first == second, "graphql-core and the plan differ"
            return [first["project"][name]["totalCount"] for name in ("issues", "mergeRequests", "builds")]

        async def rows(issues: Any = (), requests: Any = (), builds: Any = ()) -> list[int]:
            filters = ((tables.Issue, issues), (tables.MergeRequest, requests), (build, (col(build.current_id).is_(None), *builds)))
            selects = [
                select(func.count()).select_from(table).where(table.project_id == project.id, *conditions) for table, conditions in filters
            ]
            return await number_of(services.database, *selects)

        assert await totals() == await rows()
        states = {"issues": {"state": ["CLOSED"]}, "requests": {"state": ["OPENED", "MERGED"]}, "builds": {"unplayed": False}}
        assert await totals(**states) == await rows(
            [col(tables.Issue.state) == IssueState.CLOSED],
            [col(tables.MergeRequest.state).in_([MergeRequestState.OPENED, MergeRequestState.MERGED])],
            [col(build.status) != CheckStatus.MANUAL],
        )
        others = {"issues": {"state": ["CLOSED"], "iid": [1, 2]}, "requests": {"search": "request 3"}}
        assert await totals(**others, builds={"status": ["FAILED"], "ref": ["other"]}) == [1, 1, 0]
        assert await totals(issues={"state": []}, requests={"state": []}, builds={"status": []}) == [0, 0, 0]

        # Of several projects at once.
        answers = [await ask.data(EACH, owner) for _ in range(2)]
        assert answers[0] == answers[1]
        shown = next(each for each in answers[0]["projects"]["nodes"] if each["databaseId"] == project.id)
        expected = await rows([col(tables.Issue.state) == IssueState.OPENED])
        assert (shown["openIssuesCount"], shown["issues"]["totalCount"], shown["builds"]["totalCount"]) == (expected[0], 6, expected[2])
