"""Keyset connections: pages, cursors, counts, and concurrent inserts and deletes."""

import asyncio
import base64
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graph.context import Services
from graph.operations.execution import Graph
from storage import tables
from storage.tables import AccessLevel
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.database_selection import half_for_dialect
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2020, 1, 1, tzinfo=UTC)
PAGE = """query ($path: String!, $first: Int, $after: String, $last: Int, $before: String, $offset: Int, $order: IssueOrder) {
    project(path: $path) { issues(first: $first, after: $after, last: $last, before: $before, offset: $offset, orderBy: $order) {
        totalCount nodes { title } edges { cursor node { title } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } }"""


CREATE = """mutation ($path: String!, $title: String!) { createIssue(input: {projectPath: $path, title: $title}) {
    issue { iid } userErrors { code } } }"""


async def page(ask: Ask, viewer: tables.User, project: tables.Project, **arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await ask.data(PAGE, viewer, path=str(project.id), **arguments))["project"]["issues"]
    return found


def titles(connection: dict[str, Any]) -> list[str]:
    return [node["title"] for node in connection["nodes"]]


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    """Ten issues, "0" the oldest, in pairs of equal instants."""
    project = await make.project(owner=owner)
    for number in range(10):
        await make.issue(project, title=str(number), created_at=MOMENT + timedelta(hours=number // 2))
    return project


class TestPages:
    async def test_pages_forward_with_has_next_page(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        first = await page(ask, owner, project, first=4)
        second = await page(ask, owner, project, first=4, after=first["pageInfo"]["endCursor"])
        third = await page(ask, owner, project, first=4, after=second["pageInfo"]["endCursor"])

        assert [titles(part) for part in (first, second, third)] == [["9", "8", "7", "6"], ["5", "4", "3", "2"], ["1", "0"]]
        assert [part["pageInfo"]["hasNextPage"] for part in (first, second, third)] == [True, True, False]
        assert [part["pageInfo"]["hasPreviousPage"] for part in (first, second, third)] == [False, True, True]
        assert [part["totalCount"] for part in (first, second, third)] == [10, 10, 10]

    async def test_goes_backward_from_the_end(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        last = await page(ask, owner, project, last=3)
        before = await page(ask, owner, project, last=3, before=last["pageInfo"]["startCursor"])

        assert titles(last) == ["2", "1", "0"]
        assert titles(before) == ["5", "4", "3"]
        assert (last["pageInfo"]["hasPreviousPage"], last["pageInfo"]["hasNextPage"]) == (True, False)
        assert before["pageInfo"]["hasNextPage"] is True

    async def test_stops_before_a_cursor(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        edges = (await page(ask, owner, project, first=10))["edges"]

        assert titles(await page(ask, owner, project, first=10, after=edges[1]["cursor"], before=edges[4]["cursor"])) == ["7", "6"]

    async def test_skips_by_offset_for_page_numbers(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        assert titles(await page(ask, owner, project, first=3, offset=8)) == ["1", "0"]

    async def test_sorts_with_ties_by_id(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        order = {"field": "CREATED_AT", "direction": "ASC"}

        start = await page(ask, owner, project, first=3, order=order)
        rest = await page(ask, owner, project, first=3, after=start["pageInfo"]["endCursor"], order=order)

        assert titles(start) + titles(rest) == ["0", "1", "2", "3", "4", "5"]

    async def test_rows_appear_once_during_concurrent_writes(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        seen: list[str] = []
        cursor = None
        while True:
            part = await page(ask, owner, project, first=2, after=cursor)
            seen += titles(part)
            await make.issue(project, title="new", created_at=MOMENT + timedelta(days=1))
            if not part["pageInfo"]["hasNextPage"]:
                break
            cursor = part["pageInfo"]["endCursor"]

        assert seen == [str(number) for number in range(9, -1, -1)]

    async def test_walks_ten_pages_while_another_client_inserts(self, ask: Ask, make: DataFactory, owner: tables.User) -> None:
        project, other = await make.project(owner=owner), await make.user()
        await make.member(project, other, AccessLevel.MASTER)
        rows = [{"iid": 1000 + number, "title": str(number), "created_at": MOMENT + timedelta(hours=number // 7)} for number in range(50)]
        await make.save(*(tables.Issue(project_id=project.id, author_id=owner.id, updated_at=MOMENT, **row) for row in rows))
        walked = asyncio.Event()

        async def insert() -> int:
            """Newest rows, and rows between those that are there with the very same instants."""
            written = 0
            while not walked.is_set():
                written += 1
                await ask.data(CREATE, other, path=str(project.id), title=f"new {written}")
                await make.issue(project, title="between", created_at=MOMENT + timedelta(hours=written % 8))
            return written

        inserting = asyncio.create_task(insert())
        seen, cursor, pages = [], None, 0
        while True:
            part = await page(ask, owner, project, first=5, after=cursor)
            seen += [title for title in titles(part) if title.isdigit()]
            pages += 1
            if not part["pageInfo"]["hasNextPage"]:
                break
            cursor = part["pageInfo"]["endCursor"]
            # An answer that waits for nothing gives nobody else a turn.
            await asyncio.sleep(0)
        walked.set()

        assert await inserting > 0
        assert pages >= 10
        assert seen == [str(number) for number in range(49, -1, -1)]

    async def test_is_empty_without_rows(self, ask: Ask, make: DataFactory, owner: tables.User) -> None:
        empty = await page(ask, owner, await make.project(owner=owner))

        assert empty == {
            "totalCount": 0,
            "nodes": [],
            "edges": [],
            "pageInfo": {"hasNextPage": False, "hasPreviousPage": False, "startCursor": None, "endCursor": None},
        }


class TestWrongArguments:
    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            ({"first": 101}, "LIMIT_EXCEEDED"),
            ({"first": -1}, "BAD_REQUEST"),
            ({"first": 1, "last": 1}, "BAD_REQUEST"),
            ({"first": 1, "offset": -1}, "BAD_REQUEST"),
            ({"last": 1, "offset": 1}, "BAD_REQUEST"),
            ({"after": "nonsense"}, "BAD_REQUEST"),
            ({"after": "WyJ4Il0"}, "BAD_REQUEST"),
            ({"after": "é"}, "BAD_REQUEST"),
            ({"after": "WyJpc3N1ZXM6LWNyZWF0ZWRfYXQiLCJubyBkYXRlIiwxXQ"}, "BAD_REQUEST"),
        ],
    )
    async def test_are_rejected(self, ask: Ask, owner: tables.User, project: tables.Project, arguments: dict[str, Any], code: str) -> None:
        assert await ask.codes(PAGE, owner, path=str(project.id), **arguments) == [code]

    async def test_a_cursor_is_bound_to_its_ordering(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        cursor = (await page(ask, owner, project, first=1))["pageInfo"]["endCursor"]

        codes = await ask.codes(PAGE, owner, path=str(project.id), after=cursor, order={"field": "UPDATED_AT", "direction": "DESC"})

        assert codes == ["BAD_REQUEST"]

    @pytest.mark.parametrize("planner", [True, False], ids=["planned", "unplanned"])
    async def test_a_cursor_is_bound_to_its_list(self, services: Services, make: DataFactory, owner: tables.User, planner: bool) -> None:
        project = await make.project(owner=owner, history={"commits": 10, "tags": 2})
        await make.issue(project)
        await make.merge_request(project)
        await make.snippet(project)
        ask = Ask(Graph(services, planner=planner))
        lists = ("issues(%s)", "mergeRequests(%s)", "snippets(%s)", "branches(%s)", "tags(%s)", "tags(direction: DESC, %s)")
        text = "query ($path: String!, $c: String) { project(path: $path) { list: %s { edges { cursor } } } }"
        texts = [text % (each % "first: 1, after: $c") for each in lists]
        found = [(await ask.data(each, owner, path=str(project.id)))["project"]["list"]["edges"][0]["cursor"] for each in texts]

        for index, each in enumerate(texts):
            errors = [(await ask(each, owner, path=str(project.id), c=cursor)).errors for cursor in found]
            assert [position for position, error in enumerate(errors) if not error] == [index], each
            assert {error[0].code for error in errors if error} == {"BAD_REQUEST"}


class TestPagesOfManyParents:
    QUERY = """query { issues(first: 30) { nodes { title
        notes(first: 2) { totalCount nodes { body } pageInfo { hasNextPage endCursor } } } } }"""

    async def test_are_loaded_in_one_statement(
        self, ask: Ask, make: DataFactory, owner: tables.User, statements: StatementRecorder
    ) -> None:
        project = await make.project(owner=owner)
        for number in range(12):
            issue = await make.issue(project, title=str(number))
            for note in range(number % 4):
                await make.note(issue, body=f"{number}.{note}")

        with statements.assert_at_most(8):
            nodes = (await ask.data(self.QUERY, owner))["issues"]["nodes"]

        for node in nodes:
            number = int(node["title"])
            assert node["notes"]["totalCount"] == number % 4
            assert [note["body"] for note in node["notes"]["nodes"]] == [f"{number}.{note}" for note in range(min(number % 4, 2))]
            assert node["notes"]["pageInfo"]["hasNextPage"] is (number % 4 > 2)


FORGED: tuple[Any, ...] = (
    None,
    True,
    False,
    [],
    ["a", 1],
    {"a": 1},
    "",
    "a\0b",
    "\ud800",
    -1,
    1.5,
    2**31,
    2**63,
    10**400,
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "2016-01-01T00:00:00",
    "2016-01-01",
    "é" * 3_000,
    "\u20ac",
)
"""What no cursor has in the place of a value, for some of its lists."""
LISTS = (
    "issues(first: 1, %s)",
    "issues(first: 1, orderBy: {field: UPDATED_AT, direction: ASC}, %s)",
    "mergeRequests(first: 1, %s)",
    "labels(first: 1, %s)",
    "milestones(first: 1, %s)",
    "members(first: 1, %s)",
    "snippets(first: 1, %s)",
    "branches(first: 1, %s)",
    "tags(first: 1, %s)",
    "builds(first: 1, %s)",
    "commits(first: 1, %s)",
    "tree(first: 1, recursive: true, %s)",
    'compare(from: "topic", to: "master") { commits(first: 1, %s)',
    'branch(name: "master") { history(first: 1, firstParent: true, %s)',
    'branch(name: "master") { history(first: 1, path: "README", %s)',
)


def forgeries(cursor: str) -> Iterator[str]:
    """Cursors like this one with one of its values forged, none, or one too many."""
    mark, *values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    found = [[mark], [mark, *values, 1], [[mark], *values], [True, *values], {mark: values}, None, mark]
    found += [[mark, *values[:index], forged, *values[index + 1 :]] for index in range(len(values)) for forged in FORGED]
    for each in found:
        yield base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=")


class TestForgedCursors:
    """Whatever stands in a cursor, it is a place in the list or a bad request, and nothing in the log."""

    @pytest.mark.parametrize("planner", [True, False], ids=["planned", "unplanned"])
    async def test_are_rejected(
        self, services: Services, make: DataFactory, dialect: str, caplog: pytest.LogCaptureFixture, planner: bool
    ) -> None:
        owner = await make.user()
        project = await make.project(owner=owner, history={"commits": 6})
        sha = await services.repositories.read(project.id, lambda repository: repository.resolve("master"))
        await make.indexed(project)
        for _ in range(2):
            await make.issue(project)
            await make.merge_request(project)
            await make.label(project)
            await make.milestone(project)
            await make.snippet(project)
            await make.build(project, sha or "")
            await make.member(project, await make.user(), AccessLevel.GUEST)
        ask = Ask(Graph(services, planner=planner))
        tried = 0
        for each in LISTS:
            inner = f"{each} {{ pageInfo {{ endCursor }} }} {'}' * each.count('{ ')}"
            text = f"query ($path: String!, $c: String) {{ project(path: $path) {{ {inner} }} }}"
            found = await ask.data(text % "after: $c", owner, path=str(project.id))
            while "endCursor" not in found:
                (found,) = found.values()
            if found["endCursor"] is None:
                continue
            assert (await ask(text % "after: $c", owner, path=str(project.id), c=found["endCursor"])).errors == []
            for side in ("after", "before") if "commits" not in each and "history" not in each else ("after",):
                # In the suite each is tried on one database with plans, on the other without.
                for cursor in half_for_dialect(forgeries(found["endCursor"]), dialect, planner):
                    tried += 1
                    outcome = await ask(text % f"{side}: $c", owner, path=str(project.id), c=cursor)
                    assert {problem.code for problem in outcome.errors} <= {"BAD_REQUEST"}, (each, cursor, outcome.errors)
        assert tried > 250
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


class TestCounts:
    @pytest.mark.parametrize("planner", [True, False], ids=["planned", "unplanned"])
    async def test_of_one_page_below_many_rows_take_one_statement(
        self, services: Services, make: DataFactory, statements: StatementRecorder, planner: bool
    ) -> None:
        ask, project = Ask(Graph(services, planner=planner)), await make.project(owner=(owner := await make.user()))
        text = """query ($path: String!) { project(path: $path) { issues(first: 50) {
            nodes { project { issues(first: 1, filter: {search: "e"}) { totalCount nodes { iid } } } } } } }"""
        counts = []
        for number in (3, 20):
            for _ in range(number):
                await make.issue(project, title="Here")
            with statements.record() as seen:
                nodes = (await ask.data(text, owner, path=str(project.id)))["project"]["issues"]["nodes"]
            total = await make.count(tables.Issue)
            assert [node["project"]["issues"]["totalCount"] for node in nodes] == [total] * total
            counts.append(len(seen))

        assert counts[0] == counts[1]


class TestPagesWithoutPlans:
    @pytest.mark.parametrize(
        ("window", "is_numbered"),
        [
            ("first: 2", False),
            ("last: 2", False),
            ("first: 2, orderBy: {field: UPDATED_AT, direction: ASC}", False),
            ("first: 2, offset: 1", True),
        ],
    )
    async def test_of_many_parents_read_the_rows_of_the_pages_only(
        self, services: Services, make: DataFactory, statements: StatementRecorder, window: str, is_numbered: bool
    ) -> None:
        group = await make.group(owner=(owner := await make.user()))
        for number in range(4):
            project = await make.project(group=group)
            for day in range(number):
                await make.issue(project, created_at=MOMENT, updated_at=MOMENT + timedelta(days=day // 2), assignee_id=owner.id)
        text = f"""{{ projects(first: 10) {{ nodes {{ issues({window}, filter: {{assigneeUsername: "{owner.username}"}}) {{
            totalCount pageInfo {{ hasNextPage hasPreviousPage }} edges {{ cursor node {{ iid }} }} }} }} }} }}"""

        with statements.record() as seen:
            unplanned = await Ask(Graph(services, planner=False)).data(text, owner)
        assert unplanned == await Ask(Graph(services, planner=True)).data(text, owner)
        lengths = [len(node["issues"]["edges"]) for node in unplanned["projects"]["nodes"]]
        assert lengths == ([2, 1, 0, 0] if is_numbered else [2, 2, 1, 0])
        assert any("row_number" in statement for statement in seen) == is_numbered
