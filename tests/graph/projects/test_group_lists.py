"""Lists of the objects of all projects of a group: one order, whatever the projects, windows, filters and totals."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from storage import tables
from storage.tables import IssueState
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

ISSUES = """query ($first: Int, $after: String, $last: Int, $before: String, $offset: Int, $filter: IssueFilter, $orderBy: IssueOrder) {
    group(path: "tools") { issues(first: $first, after: $after, last: $last, before: $before, offset: $offset, filter: $filter,
    orderBy: $orderBy) { totalCount nodes { title } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } }"""
OLDEST_FIRST = {"field": "CREATED_AT", "direction": "ASC"}


class GroupOfProjects:
    """A group of four projects, one of them archived, with 12 issues in the others, of which every third is closed."""

    def __init__(self, ask: Ask, viewer: tables.User) -> None:
        self._ask = ask
        self._viewer = viewer

    async def titles(self, **arguments: Any) -> list[str]:
        return [node["title"] for node in (await self.page(**arguments))["nodes"]]

    async def page(self, **arguments: Any) -> dict[str, Any]:
        found: dict[str, Any] = (await self._ask.data(ISSUES, self._viewer, **arguments))["group"]["issues"]
        return found


@pytest.fixture
async def group(ask: Ask, make: DataFactory) -> GroupOfProjects:
    owner = await make.user()
    namespace = await make.group(owner=owner, path="tools")
    projects = [await make.project(group=namespace, archived=number == 3) for number in range(4)]
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(12):
        state = IssueState.CLOSED if number % 3 == 0 else IssueState.OPENED
        # Two of each moment, so that the order is also that of the ids.
        created = moment + timedelta(hours=number // 2)
        await make.issue(projects[(number * 5) % 3], title=str(number), state=state, created_at=created, updated_at=moment)
    await make.issue(projects[3], title="archived", created_at=moment)
    await make.issue(await make.project(), title="elsewhere", created_at=moment)
    return GroupOfProjects(ask, owner)


ALL = [str(number) for number in reversed(range(12))]


class TestWindows:
    async def test_all_rows_newest_first(self, group: GroupOfProjects) -> None:
        page = await group.page(first=20)
        assert [node["title"] for node in page["nodes"]] == ALL
        assert page["totalCount"] == 12
        assert (page["pageInfo"]["hasNextPage"], page["pageInfo"]["hasPreviousPage"]) == (False, False)

    @pytest.mark.parametrize("size", [1, 2, 5])
    async def test_page_after_page(self, group: GroupOfProjects, size: int) -> None:
        found, cursor = [], None
        while True:
            page = await group.page(first=size, after=cursor)
            found += [node["title"] for node in page["nodes"]]
            cursor = page["pageInfo"]["endCursor"]
            if not page["pageInfo"]["hasNextPage"]:
                break
        assert found == ALL

    async def test_backwards(self, group: GroupOfProjects) -> None:
        last = await group.page(last=5)
        assert [node["title"] for node in last["nodes"]] == ALL[-5:]
        before = await group.titles(last=4, before=last["pageInfo"]["startCursor"])
        assert before == ALL[-9:-5]

    @pytest.mark.parametrize("offset", [0, 3, 11, 12, 40])
    async def test_offsets(self, group: GroupOfProjects, offset: int) -> None:
        assert await group.titles(first=4, offset=offset) == ALL[offset : offset + 4]


class TestFiltersAndOrders:
    async def test_by_state(self, group: GroupOfProjects) -> None:
        page = await group.page(first=3, filter={"state": ["CLOSED"]})
        assert ([node["title"] for node in page["nodes"]], page["totalCount"]) == (["9", "6", "3"], 4)

    async def test_by_title(self, group: GroupOfProjects) -> None:
        page = await group.page(first=3, filter={"search": "1"})
        assert ([node["title"] for node in page["nodes"]], page["totalCount"]) == (["11", "10", "1"], 3)

    async def test_in_another_order(self, group: GroupOfProjects) -> None:
        assert await group.titles(first=5, orderBy=OLDEST_FIRST) == ALL[::-1][:5]
        # All were updated at the same moment, so that the order is that of the ids.
        assert await group.titles(first=3, orderBy={"field": "UPDATED_AT", "direction": "DESC"}) == ALL[:3]


class TestCost:
    async def test_the_page_is_one_statement_that_reads_few_rows(
        self, group: GroupOfProjects, statements: StatementRecorder, dialect: str
    ) -> None:
        with statements.record() as seen:
            assert len(await group.titles(first=2)) == 2
        (statement,) = [each for each in seen if "FROM issues" in each and "issues.title" in each]
        # The first rows of each project, and the page among them.
        assert statement.count("LIMIT 3") == 2
