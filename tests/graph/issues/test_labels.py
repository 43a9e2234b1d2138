"""Labels through the graph."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from graph.fields.entities import global_id
from storage import tables
from storage.tables import AccessLevel, IssueState
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2016, 1, 4, 15, 31, 46, 176000, tzinfo=UTC)
LIST = """query ($path: String!, $filter: LabelFilter, $first: Int, $after: String) { project(path: $path) {
    labels(filter: $filter, first: $first, after: $after) { totalCount pageInfo { hasNextPage endCursor }
      nodes { name openIssuesCount closedIssuesCount project { path } } } } }"""
ONE = """query ($path: String!, $name: String, $databaseId: Int) { project(path: $path) { label(name: $name, databaseId: $databaseId) {
    id databaseId projectId name color description template restPath createdAt updatedAt openIssuesCount } } }"""
NODE = "query ($id: ID!) { node(id: $id) { ... on Label { name } } }"
FIELDS = "label { databaseId name color description openIssuesCount } userErrors { field message code }"
CREATE = f"mutation ($input: CreateLabelInput!) {{ createLabel(input: $input) {{ {FIELDS} }} }}"
UPDATE = f"mutation ($input: UpdateLabelInput!) {{ updateLabel(input: $input) {{ {FIELDS} }} }}"
DELETE = f"mutation ($input: DeleteLabelInput!) {{ deleteLabel(input: $input) {{ {FIELDS} }} }}"
CREATE_ISSUE = "mutation ($input: CreateIssueInput!) { createIssue(input: $input) { userErrors { code } } }"
UPDATE_ISSUE = "mutation ($input: UpdateIssueInput!) { updateIssue(input: $input) { userErrors { code } } }"
CAN = "query ($path: String!) { project(path: $path) { viewerCan { adminLabels } } }"


async def names(ask: Ask, viewer: tables.User, project: tables.Project, **variables: Any) -> list[str]:
    data = await ask.data(LIST, viewer, path=str(project.id), **variables)
    return [label["name"] for label in data["project"]["labels"]["nodes"]]


async def run_mutation(ask: Ask, operation: str, viewer: tables.User, **input: Any) -> dict[str, Any]:
    """The label that a mutation answers, which must succeed."""
    ((payload,),) = [list((await ask.data(operation, viewer, input=input)).values())]
    assert payload["userErrors"] == []
    label: dict[str, Any] = payload["label"]
    return label


async def errors(ask: Ask, operation: str, viewer: tables.User, **input: Any) -> list[tuple[str, str]]:
    """(field, code) of the user errors of a mutation, which must answer no label."""
    ((payload,),) = [list((await ask.data(operation, viewer, input=input)).values())]
    assert payload["label"] is None
    return [(error["field"], error["code"]) for error in payload["userErrors"]]


class TestListLabels:
    async def test_goes_by_name_and_filters_by_name_and_text(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        for title in ("severe", "bug", "50% done", "defect"):
            await make.label(project, title)

        assert await names(ask, owner, project) == ["50% done", "bug", "defect", "severe"]
        assert await names(ask, owner, project, filter={"search": "E"}) == ["50% done", "defect", "severe"]
        assert await names(ask, owner, project, filter={"search": "%"}) == ["50% done"]
        assert await names(ask, owner, project, filter={"name": ["bug", "severe", "none"]}) == ["bug", "severe"]
        assert await names(ask, owner, project, filter={"name": [], "search": None}) == []

    async def test_continues_after_a_cursor_while_labels_come_and_go(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        for title in ("b", "d", "f"):
            await make.label(project, title)
        page = (await ask.data(LIST, owner, path=str(project.id), first=2))["project"]["labels"]
        assert (page["totalCount"], page["pageInfo"]["hasNextPage"]) == (3, True)
        for title in ("a", "e"):
            await make.label(project, title)
        await run_mutation(ask, DELETE, owner, projectPath=str(project.id), name="d")

        assert await names(ask, owner, project, after=page["pageInfo"]["endCursor"]) == ["e", "f"]

    async def test_counts_issues_at_the_same_cost_for_one_label_and_for_thirty(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder
    ) -> None:
        project = await make.project(owner=(owner := await make.user()))
        first, *_ = [await make.label(project, f"label {number:02}") for number in range(30)]
        for state in (IssueState.OPENED, IssueState.OPENED, IssueState.CLOSED):
            await make.issue(project, state=state, labels=[first])

        with statements.record() as one:
            await ask.data(LIST, owner, path=str(project.id), first=1)
        with statements.assert_at_most(len(one)):
            data = await ask.data(LIST, owner, path=str(project.id), first=30)

        counts = [(label["openIssuesCount"], label["closedIssuesCount"]) for label in data["project"]["labels"]["nodes"]]
        assert counts == [(2, 1)] + [(0, 0)] * 29

    async def test_counts_are_null_where_issues_are_disabled(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), issues_enabled=False)
        await make.label(project, "bug")

        data = await ask.data(LIST, owner, path=str(project.id))

        assert data["project"]["labels"]["nodes"] == [
            {"name": "bug", "openIssuesCount": None, "closedIssuesCount": None, "project": {"path": project.path}}
        ]

    async def test_is_forbidden_where_merge_requests_are_disabled_too(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), issues_enabled=False, merge_requests_enabled=False)
        label = await make.label(project, "bug")

        assert await ask.codes(LIST, owner, path=str(project.id)) == ["FORBIDDEN"]
        assert await ask.codes(ONE, owner, path=str(project.id), name="bug") == ["FORBIDDEN"]
        assert await ask.data(NODE, owner, id=global_id("Label", label.id)) == {"node": None}


class TestLabel:
    async def test_is_found_by_name_with_case_and_by_id(self, ask: Ask, make: DataFactory) -> None:
        project, other = await make.project(owner=(owner := await make.user())), await make.project(owner=owner)
        label = await make.label(project, "bug", color="#FF0000", description="Broken", created_at=MOMENT, updated_at=MOMENT)
        elsewhere = await make.label(other, "bug")

        data = await ask.data(ONE, owner, path=str(project.id), name="bug")

        found = data["project"]["label"]
        assert found == {
            "id": global_id("Label", label.id),
            "databaseId": label.id,
            "projectId": project.id,
            "name": "bug",
            "color": "#FF0000",
            "description": "Broken",
            "template": False,
            "createdAt": "2016-01-04T15:31:46.176000Z",
            "updatedAt": "2016-01-04T15:31:46.176000Z",
            "restPath": f"/api/v3/projects/{project.id}/labels",
            "openIssuesCount": 0,
        }
        by_id = await ask.data(ONE, owner, path=str(project.id), databaseId=label.id)
        assert by_id["project"]["label"]["name"] == "bug"
        for wrong in ({"name": "Bug"}, {"name": ""}, {"databaseId": elsewhere.id}):
            assert await ask.codes(ONE, owner, path=str(project.id), **wrong) == ["NOT_FOUND"]
        for wrong in ({}, {"databaseId": label.id, "name": "bug"}):
            assert await ask.codes(ONE, owner, path=str(project.id), **wrong) == ["BAD_REQUEST"]

    async def test_is_a_node_visible_with_the_project(self, ask: Ask, make: DataFactory) -> None:
        label = await make.label(await make.project(owner=(owner := await make.user())), "bug")

        assert await ask.data(NODE, owner, id=global_id("Label", label.id)) == {"node": {"name": "bug"}}
        assert await ask.data(NODE, await make.user(), id=global_id("Label", label.id)) == {"node": None}


class TestCreateLabel:
    async def test_stores_a_description(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        label = await run_mutation(ask, CREATE, owner, projectPath=str(project.id), name="bug", color="#ff0000", description="Broken")

        assert label.pop("databaseId") > 0
        assert label == {"name": "bug", "color": "#ff0000", "description": "Broken", "openIssuesCount": 0}

    async def test_reports_all_errors_at_once(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        path = str(project.id)

        assert await errors(ask, CREATE, owner, projectPath=path, name="a,b", color="red", description="x" * 1_000_001) == [
            ("name", "INVALID"),
            ("color", "INVALID"),
            ("description", "INVALID"),
        ]
        assert await errors(ask, CREATE, owner, projectPath=path, name=" ", color="#FF0000") == [("name", "REQUIRED")]
        assert await make.count(tables.Label) == 0

    async def test_rejects_a_duplicate_name(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.label(project, "bug")

        assert await errors(ask, CREATE, owner, projectPath=str(project.id), name="bug", color="#FF0000") == [(None, "CONFLICT")]

    async def test_concurrent_duplicates_succeed_once(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        input = {"projectPath": str(project.id), "name": "bug", "color": "#FF0000"}

        codes = await asyncio.gather(*(ask.codes(CREATE, owner, input=input) for _ in range(32)))

        assert Counter(map(tuple, codes)) == {(): 1, ("CONFLICT",): 31}
        assert await make.count(tables.Label) == 1


class TestUpdateLabel:
    async def test_renames_on_every_issue_and_changes_only_given_fields(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        label = await make.label(project, "bug", color="#FF0000", description="Broken")
        await make.issue(project, labels=[label])
        gid = global_id("Label", label.id)

        assert await run_mutation(ask, UPDATE, owner, id=gid, newName="defect") == {
            "databaseId": label.id,
            "name": "defect",
            "color": "#FF0000",
            "description": "Broken",
            "openIssuesCount": 1,
        }
        assert (await run_mutation(ask, UPDATE, owner, projectPath=str(project.id), name="defect", color="#00FF00"))["color"] == "#00FF00"
        assert (await run_mutation(ask, UPDATE, owner, projectPath=str(project.id), databaseId=label.id, description=None))[
            "description"
        ] is None

    async def test_rejects_a_duplicate_name(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.label(project, "bug")
        await make.label(project, "taken")

        assert await errors(ask, UPDATE, owner, projectPath=str(project.id), name="bug", newName="taken") == [("newName", "TAKEN")]
        assert await names(ask, owner, project) == ["bug", "taken"]

    async def test_concurrent_renames_to_one_name_succeed_once(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        labels = [await make.label(project) for _ in range(16)]

        codes = await asyncio.gather(
            *(ask.codes(UPDATE, owner, input={"id": global_id("Label", label.id), "newName": "one"}) for label in labels)
        )

        assert Counter(map(tuple, codes)) == {(): 1, ("TAKEN",): 15}

    async def test_concurrent_deletion_is_not_found(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        labels = [await make.label(project, f"label {number}") for number in range(12)]

        async def change(label: tables.Label, number: int) -> list[str]:
            input = {"projectPath": str(project.id), "databaseId": label.id}
            return (
                await ask.codes(UPDATE, owner, input={**input, "color": "#00FF00"})
                if number
                else await ask.codes(DELETE, owner, input=input)
            )

        codes = await asyncio.gather(*(change(label, number) for label in labels for number in range(3)))

        assert set(map(tuple, codes)) <= {(), ("NOT_FOUND",)}
        assert await make.count(tables.Label) == 0


class TestDeleteLabel:
    async def test_answers_the_label_as_it_was(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        label, stored = await make.label(project, "bug", color="#FF0000"), await make.label(project, "kept")
        issue = await make.issue(project, labels=[label, stored])

        found = await run_mutation(ask, DELETE, owner, id=global_id("Label", label.id))

        assert (found["databaseId"], found["name"], found["color"]) == (label.id, "bug", "#FF0000")
        query = "query ($path: String!, $id: Int!) { project(path: $path) { issue(databaseId: $id) { labels } } }"
        assert (await ask.data(query, owner, path=str(project.id), id=issue.id))["project"]["issue"]["labels"] == ["kept"]
        assert await ask.codes(DELETE, owner, input={"id": global_id("Label", label.id)}) == ["NOT_FOUND"]


class TestLabelsOfIssues:
    async def test_are_set_while_others_set_rename_and_delete_them(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        path = str(project.id)
        issues = [await make.issue(project) for _ in range(4)]

        async def create_issue(number: int) -> list[str]:
            return await ask.codes(CREATE_ISSUE, owner, input={"projectPath": path, "title": "T", "labels": orders[number % 2]})

        async def update_issue(number: int) -> list[str]:
            of_issue = {"projectPath": path, "databaseId": issues[number % 4].id}
            return await ask.codes(UPDATE_ISSUE, owner, input={**of_issue, "labels": orders[number % 2]})

        async def rename(number: int) -> list[str]:
            return await ask.codes(UPDATE, owner, input={"projectPath": path, "name": "abc"[number % 3], "newName": "bca"[number % 3]})

        async def delete(number: int) -> list[str]:
            return await ask.codes(DELETE, owner, input={"projectPath": path, "name": "abc"[number % 3]})

        orders = (["a", "b", "c"], ["c", "b", "a"])
        works = (create_issue, update_issue, rename, delete)
        codes = await asyncio.gather(*(work(number) for number in range(12) for work in works))

        found = [set(map(tuple, codes[index :: len(works)])) for index in range(len(works))]
        assert found[0] == found[1] == {()}
        assert found[2] <= {(), ("NOT_FOUND",), ("TAKEN",)}
        assert found[3] <= {(), ("NOT_FOUND",)}


class TestLabelPermissions:
    @pytest.mark.parametrize(("level", "may"), [(AccessLevel.GUEST, False), (AccessLevel.REPORTER, True), (AccessLevel.OWNER, True)])
    async def test_reporters_and_above(self, ask: Ask, make: DataFactory, level: AccessLevel, may: bool) -> None:
        member = await make.user()
        project = await make.project(members=[(member, level)])
        label = await make.label(project, "old")
        of_label = {"id": global_id("Label", label.id)}
        expected = [] if may else ["FORBIDDEN"]

        assert (await ask.data(CAN, member, path=str(project.id)))["project"]["viewerCan"] == {"adminLabels": may}
        assert await ask.codes(CREATE, member, input={"projectPath": str(project.id), "name": "new", "color": "#FF0000"}) == expected
        assert await ask.codes(UPDATE, member, input={**of_label, "color": "#FF0000"}) == expected
        assert await ask.codes(DELETE, member, input=of_label) == expected

    async def test_checks_permission_before_the_label(self, ask: Ask, make: DataFactory) -> None:
        guest, outsider = await make.user(), await make.user()
        project = await make.project(members=[(guest, AccessLevel.GUEST)])
        label = await make.label(project, "bug")

        for wrong in ({"name": "unknown"}, {"databaseId": 999_999}, {}):
            input = {"projectPath": str(project.id), **wrong}
            assert await ask.codes(DELETE, guest, input=input) == ["FORBIDDEN"]
            assert await ask.codes(DELETE, outsider, input=input) == ["NOT_FOUND"]
        assert await ask.codes(DELETE, outsider, input={"id": global_id("Label", label.id)}) == ["NOT_FOUND"]
