"""Issues through the graph."""

from datetime import UTC, datetime
from typing import Any

from storage.tables import IssueState, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

CREATE = "mutation ($input: CreateIssueInput!) { createIssue(input: $input) { issue { iid labels } userErrors { field message code } } }"
LIST = """query ($path: String!, $first: Int) { project(path: $path) { issues(first: $first) { totalCount
    nodes { iid title labels author { username } assignee { username } milestone { title } } pageInfo { hasNextPage endCursor } } } }"""


class TestListIssues:
    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(owner=(owner := await make.user()))
        label, milestone = await make.label(project), await make.milestone(project)
        for _ in range(30):
            await make.issue(project, author=await make.user(), assignee_id=owner.id, milestone_id=milestone.id, labels=[label])

        with statements.record() as one:
            await ask.data(LIST, owner, path=str(project.id), first=1)
        with statements.record() as thirty:
            data = await ask.data(LIST, owner, path=str(project.id), first=30)

        assert len(data["project"]["issues"]["nodes"]) == 30
        assert len(thirty) <= len(one)

    async def test_filters_by_time_ranges_whose_end_is_exclusive(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        days = [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
        for title, closed_at in zip("abc", (None, days[1], days[2]), strict=True):
            moment = days["abc".index(title)]
            state = IssueState.OPENED if closed_at is None else IssueState.CLOSED
            await make.issue(project, title=title, created_at=moment, updated_at=moment, state=state, closed_at=closed_at)
        query = """query ($path: String!, $filter: IssueFilter) { project(path: $path) {
            issues(filter: $filter) { totalCount nodes { title } } } }"""
        second = {"since": "2020-01-02T01:00:00+01:00", "until": "2020-01-03T00:00:00Z"}
        for ranges, expected in (
            ({"created": second}, "b"),
            ({"updated": second}, "b"),
            ({"closed": second}, "b"),
            ({"closed": {"until": "2021-01-01T00:00:00Z"}}, "cb"),
            ({"closed": {"until": "2021-01-01T00:00:00Z"}, "created": {"since": "2020-01-03T00:00:00Z"}}, "c"),
            ({"created": second, "state": ["OPENED"]}, ""),
        ):
            found = (await ask.data(query, owner, path=str(project.id), filter=ranges))["project"]["issues"]
            assert (titles(found), found["totalCount"]) == (list(expected), len(expected)), ranges


OWN = """{ created: issues { nodes { title } } assigned: issues(scope: ASSIGNED) { totalCount nodes { title } }
    createdRequests: mergeRequests { nodes { title } } assignedRequests: mergeRequests(scope: ASSIGNED) { totalCount nodes { title } } }"""
OF_GROUP = """query ($group: String!, $filter: IssueFilter) { group(path: $group) {
    issues(first: 10, filter: $filter) { totalCount nodes { title project { fullPath } } } } }"""


def titles(connection: Any) -> list[str]:
    return [each["title"] for each in connection["nodes"]]


class TestOwnWork:
    async def test_is_what_the_viewer_wrote_or_is_assigned_to_where_the_viewer_still_may_see_it(self, ask: Ask, make: DataFactory) -> None:
        viewer, other = await make.user(), await make.user()
        project = await make.project(owner=other, visibility=Visibility.PUBLIC)
        hidden = await make.project(owner=other)
        for place, prefix in ((project, "Shown"), (hidden, "Hidden")):
            await make.issue(place, author=viewer, title=f"{prefix}: written")
            await make.issue(place, author=other, assignee_id=viewer.id, title=f"{prefix}: assigned")
            await make.merge_request(place, author=viewer, title=f"{prefix}: proposed")
            await make.merge_request(place, author=other, assignee_id=viewer.id, title=f"{prefix}: to review")
        found = await ask.data(OWN, viewer)
        assert {name: titles(connection) for name, connection in found.items()} == {
            "created": ["Shown: written"],
            "assigned": ["Shown: assigned"],
            "createdRequests": ["Shown: proposed"],
            "assignedRequests": ["Shown: to review"],
        }
        assert found["assigned"]["totalCount"] == found["assignedRequests"]["totalCount"] == 1

        # The plan, which all viewers share but administrators, answers the same.
        assert await ask.data(OWN, viewer) == found
        admin = await make.admin()
        await make.issue(hidden, author=admin, title="Hidden from others")
        for _ in range(2):
            of_other, of_admin = [await ask.data(OWN, each) for each in (other, admin)]
            assert titles(of_other["created"]) == ["Hidden: assigned", "Shown: assigned"]
            assert titles(of_admin["created"]) == ["Hidden from others"]
            assert (await ask.data(OWN, viewer))["created"] == found["created"]

    async def test_is_read_by_one_statement(self, planned_ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        viewer = await make.user()
        project = await make.project(owner=viewer)
        for _ in range(3):
            await make.issue(project, author=viewer)
            await make.merge_request(project, author=viewer)
        for name in ("issues", "mergeRequests"):
            query = (
                f"{{ {name}(first: 2) {{ totalCount nodes {{ title author {{ username }} milestone {{ title }} project {{ name }} }} }} }}"
            )
            first, _ = [await planned_ask.data(query, viewer) for _ in range(2)]
            with statements.record() as recorded:
                assert await planned_ask.data(query, viewer) == first
            assert len(recorded) == 1, recorded

    async def test_is_filtered_by_the_state_of_builds_only_where_the_viewer_may_see_them(self, ask: Ask, make: DataFactory) -> None:
        viewer, other = await make.user(), await make.user()
        for visibility in (Visibility.PUBLIC, Visibility.PRIVATE):
            project = await make.project(owner=other, visibility=visibility)
            await make.merge_request(project, author=viewer, title=visibility.name)
        found = await ask.data("{ mergeRequests(filter: {headState: [NONE]}) { nodes { title } } }", viewer)
        assert titles(found["mergeRequests"]) == ["PUBLIC"]


class TestGroupIssues:
    async def test_are_those_of_the_projects_that_the_viewer_sees(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        owner, viewer = await make.user(), await make.user()
        group = await make.group(owner=owner)
        public = await make.project(group=group, visibility=Visibility.PUBLIC)
        private = await make.project(group=group)
        disabled = await make.project(group=group, visibility=Visibility.PUBLIC, issues_enabled=False)
        for number, project in enumerate((public, private, disabled)):
            await make.issue(project, author=owner, title=f"Issue {number}")
        await make.issue(await make.project(visibility=Visibility.PUBLIC, owner=owner), author=owner, title="Elsewhere")
        with statements.record() as one:
            seen = (await ask.data(OF_GROUP, viewer, group=group.path))["group"]["issues"]
        assert (titles(seen), seen["totalCount"]) == (["Issue 0"], 1)
        with statements.record() as two:
            assert titles((await ask.data(OF_GROUP, owner, group=group.path))["group"]["issues"]) == ["Issue 1", "Issue 0"]
        assert len(two) <= len(one) + 1
        filtered = (await ask.data(OF_GROUP, owner, group=group.path, filter={"search": "1"}))["group"]["issues"]
        assert titles(filtered) == ["Issue 1"]
