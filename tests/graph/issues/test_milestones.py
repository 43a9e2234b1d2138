"""Milestones through the graph."""

import asyncio
from collections import Counter
from datetime import date
from typing import Any

import pytest

from graph.fields.entities import global_id
from graph.rules.issues import milestones
from graph.rules.states import MILESTONE_TRANSITIONS, MilestoneTransition
from storage import tables
from storage.tables import AccessLevel, IssueState, MilestoneState
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

LIST = """query ($path: String!, $filter: MilestoneFilter, $first: Int) { project(path: $path) {
    milestones(filter: $filter, first: $first) { totalCount nodes { iid title openIssuesCount closedIssuesCount percentComplete
      project { path } viewerCan { update } } } } }"""
ONE = """query ($path: String!, $iid: Int, $title: String, $databaseId: Int) { project(path: $path) {
    milestone(iid: $iid, title: $title, databaseId: $databaseId) {
      id databaseId iid projectId title description dueDate state restPath } } }"""
ISSUES = """query ($path: String!, $filter: IssueFilter, $orderBy: IssueOrder, $first: Int) { project(path: $path) { milestones {
    nodes { title issues(filter: $filter, orderBy: $orderBy, first: $first) { nodes { title milestone { title } } } } } } }"""
NODE = "query ($id: ID!) { node(id: $id) { ... on Milestone { title } } }"
FIELDS = "milestone { databaseId iid title description dueDate state percentComplete } userErrors { field message code }"
CREATE = f"mutation ($input: CreateMilestoneInput!) {{ createMilestone(input: $input) {{ {FIELDS} }} }}"
DELETE = "mutation ($input: DeleteMilestoneInput!) { deleteMilestone(input: $input) { deletedId userErrors { code } } }"
UPDATE = f"mutation ($input: UpdateMilestoneInput!) {{ updateMilestone(input: $input) {{ {FIELDS} }} }}"


async def run_mutation(ask: Ask, operation: str, viewer: tables.User, **input: Any) -> dict[str, Any]:
    """The milestone that a mutation answers, which must succeed."""
    ((payload,),) = [list((await ask.data(operation, viewer, input=input)).values())]
    assert payload["userErrors"] == []
    milestone: dict[str, Any] = payload["milestone"]
    return milestone


async def errors(ask: Ask, operation: str, viewer: tables.User, **input: Any) -> list[tuple[str, str]]:
    """(field, code) of the user errors of a mutation, which must answer no milestone."""
    ((payload,),) = [list((await ask.data(operation, viewer, input=input)).values())]
    assert payload["milestone"] is None
    return [(error["field"], error["code"]) for error in payload["userErrors"]]


class TestListMilestones:
    async def test_goes_newest_first_and_filters(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        for title, state in (("v1", MilestoneState.CLOSED), ("v2", MilestoneState.ACTIVE), ("Later", MilestoneState.ACTIVE)):
            await make.milestone(project, title=title, state=state)

        async def titles(**filter: Any) -> list[str]:
            data = await ask.data(LIST, owner, path=str(project.id), filter=filter)
            return [milestone["title"] for milestone in data["project"]["milestones"]["nodes"]]

        assert await titles() == ["Later", "v2", "v1"]
        assert await titles(state=["CLOSED"]) == ["v1"]
        assert await titles(iid=[1, 3], state=["ACTIVE", "CLOSED"]) == ["Later", "v1"]
        assert await titles(search="V") == ["v2", "v1"]
        assert await titles(search="_") == []

    async def test_counts_issues_at_the_same_cost_for_one_milestone_and_for_thirty(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder
    ) -> None:
        project = await make.project(owner=(owner := await make.user()))
        *_, last = [await make.milestone(project) for _ in range(30)]
        for state in (IssueState.OPENED, IssueState.CLOSED, IssueState.CLOSED):
            await make.issue(project, state=state, milestone_id=last.id)

        with statements.record() as one:
            await ask.data(LIST, owner, path=str(project.id), first=1)
        with statements.assert_at_most(len(one)):
            data = await ask.data(LIST, owner, path=str(project.id), first=30)

        nodes = data["project"]["milestones"]["nodes"]
        counts = [(node["openIssuesCount"], node["closedIssuesCount"], node["percentComplete"]) for node in nodes]
        assert counts == [(1, 2, 66)] + [(0, 0, 0)] * 29

    async def test_counts_are_null_where_issues_are_disabled(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), issues_enabled=False)
        await make.milestone(project, title="v1")

        (node,) = (await ask.data(LIST, owner, path=str(project.id)))["project"]["milestones"]["nodes"]

        assert (node["openIssuesCount"], node["closedIssuesCount"], node["percentComplete"]) == (None, None, None)

    async def test_is_forbidden_where_merge_requests_are_disabled_too(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), issues_enabled=False, merge_requests_enabled=False)
        milestone = await make.milestone(project)

        assert await ask.codes(LIST, owner, path=str(project.id)) == ["FORBIDDEN"]
        assert await ask.codes(ONE, owner, path=str(project.id), iid=1) == ["FORBIDDEN"]
        assert await ask.data(NODE, owner, id=global_id("Milestone", milestone.id)) == {"node": None}


class TestMilestone:
    async def test_is_found_by_number_title_and_id(self, ask: Ask, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project(owner=owner)
        elsewhere = await make.milestone(other, title="elsewhere")
        milestone = await make.milestone(project, title="v1", description="First", due_date=date(2016, 2, 29))

        for key in ({"iid": 1}, {"title": "v1"}, {"databaseId": milestone.id}):
            data = await ask.data(ONE, owner, path=str(project.id), **key)
            assert data["project"]["milestone"] == {
                "id": global_id("Milestone", milestone.id),
                "databaseId": milestone.id,
                "iid": 1,
                "projectId": project.id,
                "title": "v1",
                "description": "First",
                "dueDate": "2016-02-29",
                "state": "ACTIVE",
                "restPath": f"/api/v3/projects/{project.id}/milestones/{milestone.id}",
            }
        for wrong in ({"iid": 2}, {"title": "V1"}, {"databaseId": elsewhere.id}):
            assert await ask.codes(ONE, owner, path=str(project.id), **wrong) == ["NOT_FOUND"]
        for wrong in ({}, {"iid": 1, "title": "v1"}, {"iid": 1, "databaseId": milestone.id}, {"title": "v1", "databaseId": milestone.id}):
            assert await ask.codes(ONE, owner, path=str(project.id), **wrong) == ["BAD_REQUEST"]

    async def test_is_a_node_visible_with_the_project(self, ask: Ask, make: DataFactory) -> None:
        milestone = await make.milestone(await make.project(owner=(owner := await make.user())), title="v1")

        assert await ask.data(NODE, owner, id=global_id("Milestone", milestone.id)) == {"node": {"title": "v1"}}
        assert await ask.data(NODE, await make.user(), id=global_id("Milestone", milestone.id)) == {"node": None}

    async def test_has_its_issues_filtered_and_sorted(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(owner=(owner := await make.user()))
        first, second = await make.milestone(project, title="v1"), await make.milestone(project, title="v2")
        await make.issue(project, title="Old", milestone_id=first.id, state=IssueState.CLOSED)
        await make.issue(project, title="New", milestone_id=first.id)
        await make.issue(project, title="Other", milestone_id=second.id)

        async def titles(**variables: Any) -> dict[str, list[str]]:
            data = await ask.data(ISSUES, owner, path=str(project.id), **variables)
            nodes = data["project"]["milestones"]["nodes"]
            assert all(issue["milestone"]["title"] == node["title"] for node in nodes for issue in node["issues"]["nodes"])
            return {node["title"]: [issue["title"] for issue in node["issues"]["nodes"]] for node in nodes}

        with statements.record() as two:
            assert await titles() == {"v1": ["New", "Old"], "v2": ["Other"]}
        assert await titles(filter={"state": ["CLOSED"]}) == {"v1": ["Old"], "v2": []}
        assert await titles(orderBy={"field": "CREATED_AT", "direction": "ASC"}) == {"v1": ["Old", "New"], "v2": ["Other"]}
        assert await titles(first=1) == {"v1": ["New"], "v2": ["Other"]}
        for _ in range(10):
            await make.milestone(project)
        with statements.assert_at_most(len(two)):
            await titles()


class TestCreateMilestone:
    async def test_counts_numbers_in_the_project(self, ask: Ask, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project(owner=owner)
        await make.milestone(other)

        milestone = await run_mutation(ask, CREATE, owner, projectPath=str(project.id), title=" v1 ", dueDate="2016-02-29")

        assert milestone.pop("databaseId") > 0
        assert milestone == {
            "iid": 1,
            "title": "v1",
            "description": "",
            "dueDate": "2016-02-29",
            "state": "ACTIVE",
            "percentComplete": 0,
        }
        assert (await run_mutation(ask, CREATE, owner, projectPath=str(project.id), title="v2"))["iid"] == 2

    async def test_rejects_invalid_values(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        path = str(project.id)

        assert await errors(ask, CREATE, owner, projectPath=path, title=" ") == [("title", "REQUIRED")]
        assert await errors(ask, CREATE, owner, projectPath=path, title="x" * 256) == [("title", "INVALID")]
        assert await errors(ask, CREATE, owner, projectPath=path, title="v1", description="x" * 1_000_001) == [("description", "INVALID")]
        (error,) = (await ask(CREATE, owner, input={"projectPath": path, "title": "v1", "dueDate": "2015-02-29"})).errors or []
        assert (error.code, "A Date must be an ISO 8601 date such as 2016-01-19." in error.message) == ("BAD_REQUEST", True)
        assert await make.count(tables.Milestone) == 0

    async def test_concurrent_duplicate_titles_succeed_once_without_a_gap_in_numbers(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        input = {"projectPath": str(project.id), "title": "v1"}

        codes = await asyncio.gather(*(ask.codes(CREATE, owner, input=input) for _ in range(32)))

        assert Counter(map(tuple, codes)) == {(): 1, ("TAKEN",): 31}
        assert (await run_mutation(ask, CREATE, owner, projectPath=str(project.id), title="v2"))["iid"] == 2

    async def test_numbers_many_at_once_without_gaps(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        made = await asyncio.gather(
            *(run_mutation(ask, CREATE, owner, projectPath=str(project.id), title=f"v{number}") for number in range(24))
        )

        assert sorted(milestone["iid"] for milestone in made) == list(range(1, 25))


class TestUpdateMilestone:
    async def test_changes_only_given_fields_and_null_clears(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone = await make.milestone(project, title="v1", description="First", due_date=date(2016, 2, 29))
        gid, path = global_id("Milestone", milestone.id), str(project.id)

        by_id = await run_mutation(ask, UPDATE, owner, id=gid, title="v2")
        assert (by_id["title"], by_id["description"], by_id["dueDate"]) == ("v2", "First", "2016-02-29")
        by_number = await run_mutation(
            ask, UPDATE, owner, projectPath=path, iid=1, description=None, dueDate=None, title=None, stateEvent=None
        )
        assert (by_number["title"], by_number["description"], by_number["dueDate"]) == ("v2", "", None)
        later = await run_mutation(ask, UPDATE, owner, projectPath=path, databaseId=milestone.id, dueDate="2017-12-31")
        assert later["dueDate"] == "2017-12-31"

    @pytest.mark.parametrize("state", list(MilestoneState))
    @pytest.mark.parametrize("event", list(MilestoneTransition))
    async def test_follows_the_state_machine(self, ask: Ask, make: DataFactory, state: MilestoneState, event: MilestoneTransition) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone = await make.milestone(project, state=state)

        found = await run_mutation(ask, UPDATE, owner, id=global_id("Milestone", milestone.id), stateEvent=event.name)

        assert found["state"] == MILESTONE_TRANSITIONS.get((state, event), state).name
        assert found["state"] == ("CLOSED" if event is MilestoneTransition.CLOSE else "ACTIVE")

    async def test_concurrent_closings_are_one_activity(self, ask: Ask, make: DataFactory, dialect: str) -> None:
        milestone = await make.milestone(await make.project(owner=(owner := await make.user())))
        input = {"id": global_id("Milestone", milestone.id), "stateEvent": "CLOSE"}

        found = await asyncio.gather(*(run_mutation(ask, UPDATE, owner, **input) for _ in range(6)))

        assert [each["state"] for each in found] == ["CLOSED"] * 6
        assert await make.count(tables.Activity) == 1

    async def test_rejects_a_duplicate_title(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone, _ = await make.milestone(project, title="v1"), await make.milestone(project, title="v2")

        taken = await errors(ask, UPDATE, owner, id=global_id("Milestone", milestone.id), title="v2", stateEvent="CLOSE")

        assert taken == [("title", "TAKEN")]
        stored = await make.fetch(tables.Milestone, milestone.id)
        assert stored is not None
        assert (stored.title, stored.state) == ("v1", MilestoneState.ACTIVE)


class TestDeleteMilestone:
    async def test_takes_it_away_from_its_issues_and_merge_requests(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        doomed, kept = await make.milestone(project, title="v1"), await make.milestone(project, title="v2")
        issue, other = await make.issue(project, milestone_id=doomed.id), await make.issue(project, milestone_id=kept.id)
        request = await make.merge_request(project, milestone_id=doomed.id)

        data = await ask.data(DELETE, owner, input={"projectPath": str(project.id), "iid": 1})

        assert data["deleteMilestone"] == {"deletedId": global_id("Milestone", doomed.id), "userErrors": []}
        stored = [
            await make.fetch(tables.Issue, issue.id),
            await make.fetch(tables.Issue, other.id),
            await make.fetch(tables.MergeRequest, request.id),
        ]
        assert [row.milestone_id for row in stored if row is not None] == [None, kept.id, None]
        assert await ask.codes(DELETE, owner, input={"projectPath": str(project.id), "iid": 1}) == ["NOT_FOUND"]
        assert (await run_mutation(ask, CREATE, owner, projectPath=str(project.id), title="v1"))["iid"] == 3


class TestMilestonePermissions:
    @pytest.mark.parametrize(
        ("level", "may"),
        [(AccessLevel.GUEST, False), (AccessLevel.DEVELOPER, False), (AccessLevel.MASTER, True), (AccessLevel.OWNER, True)],
    )
    async def test_masters_and_above(self, ask: Ask, make: DataFactory, level: AccessLevel, may: bool) -> None:
        member = await make.user()
        project = await make.project(members=[(member, level)])
        milestone = await make.milestone(project)
        expected = [] if may else ["FORBIDDEN"]

        data = await ask.data(LIST, member, path=str(project.id))

        assert data["project"]["milestones"]["nodes"][0]["viewerCan"] == {"update": may}
        assert await ask.codes(CREATE, member, input={"projectPath": str(project.id), "title": "v1"}) == expected
        assert await ask.codes(UPDATE, member, input={"id": global_id("Milestone", milestone.id), "title": "v2"}) == expected

    async def test_checks_permission_before_the_milestone(self, ask: Ask, make: DataFactory) -> None:
        developer, outsider = await make.user(), await make.user()
        project = await make.project(members=[(developer, AccessLevel.DEVELOPER)])
        milestone = await make.milestone(project)

        for wrong in ({"iid": 99}, {"databaseId": 999_999}, {}):
            input = {"projectPath": str(project.id), **wrong}
            assert await ask.codes(UPDATE, developer, input=input) == ["FORBIDDEN"]
            assert await ask.codes(UPDATE, outsider, input=input) == ["NOT_FOUND"]
        assert await ask.codes(UPDATE, outsider, input={"id": global_id("Milestone", milestone.id)}) == ["NOT_FOUND"]


@pytest.mark.parametrize(("opened", "closed", "percent"), [(0, 0, 0), (1, 0, 0), (0, 1, 100), (1, 1, 50), (2, 1, 33), (1, 999, 99)])
def test_rounds_the_share_of_closed_issues_down(opened: int, closed: int, percent: int) -> None:
    assert milestones.compute_percent_complete({IssueState.OPENED: opened, IssueState.CLOSED: closed}) == percent
