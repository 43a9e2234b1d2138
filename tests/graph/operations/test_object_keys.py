"""Objects are named by exactly one key: a second one would be ignored, and the wrong object read, changed or deleted."""

from typing import Any

import pytest

from graph.context import Services
from graph.operations.execution import Graph
from storage import tables
from storage.tables import IssueState
from tests.make import DataFactory
from tests.support.api_clients import Ask


class TestFields:
    @pytest.mark.parametrize("planner", [True, False], ids=["planned", "unplanned"])
    @pytest.mark.parametrize("field", ["issue", "mergeRequest", "milestone"])
    async def test_take_exactly_one_key(self, services: Services, make: DataFactory, field: str, planner: bool) -> None:
        project = await make.project(owner=(owner := await make.user()))
        first = {"issue": make.issue, "mergeRequest": make.merge_request, "milestone": make.milestone}[field]
        row: Any = await first(project)
        ask = Ask(Graph(services, planner=planner))
        text = f"query ($p: String!, $iid: Int, $id: Int) {{ project(path: $p) {{ name {field}(iid: $iid, databaseId: $id) {{ iid }} }} }}"

        for keys in ({"iid": row.iid}, {"id": row.id}, {"iid": row.iid, "id": None}, {"iid": None, "id": row.id}):
            for _ in range(2):
                assert (await ask.data(text, owner, p=str(project.id), **keys))["project"][field] == {"iid": row.iid}
        for keys in ({}, {"iid": None, "id": None}, {"iid": row.iid, "id": row.id}, {"iid": row.iid, "id": 999}):
            for _ in range(2):
                result = await ask(text, owner, p=str(project.id), **keys)
                assert result.data == {"project": {"name": project.name, field: None}}
                assert [(error.code, error.path) for error in result.errors] == [("BAD_REQUEST", ["project", field])]
                assert result.errors[0].message.startswith("Give ")


class TestMutations:
    async def test_of_an_issue_take_exactly_one_key(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue, other = await make.issue(project), await make.issue(project)
        text = "mutation ($input: IssueInput!) { closeIssue(input: $input) { issue { iid } userErrors { message } } }"

        wrong: list[dict[str, Any]] = [{}, {"id": None}, {"iid": issue.iid}, {"databaseId": issue.id, "projectPath": None}]
        path = {"projectPath": str(project.id)}
        for input in (*wrong, path, {**path, "iid": None}, {**path, "iid": issue.iid, "databaseId": other.id}):
            result = await ask(text, owner, input=input)
            assert [error.message for error in result.errors] == ["Give `id`, or `projectPath` with either `iid` or `databaseId`."], input
        for each in (issue, other):
            unchanged = await make.fetch(tables.Issue, each.id)
            assert unchanged is not None and unchanged.state is IssueState.OPENED
        assert await ask.codes(text, owner, input={**path, "iid": issue.iid}) == []

    async def test_of_a_label_take_exactly_one_key(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.label(project, "bug")
        other = await make.label(project, "slow")
        text = "mutation ($input: DeleteLabelInput!) { deleteLabel(input: $input) { deletedId userErrors { message } } }"

        for input in (
            {"name": "bug"},
            {"projectPath": str(project.id)},
            {"projectPath": str(project.id), "name": "bug", "databaseId": other.id},
        ):
            result = await ask(text, owner, input=input)
            assert [error.message for error in result.errors] == ["Give `id`, or `projectPath` with either `name` or `databaseId`."], input
        assert await make.count(tables.Label) == 2
        assert await ask.codes(text, owner, input={"projectPath": str(project.id), "databaseId": other.id}) == []

    @pytest.mark.parametrize(
        "call",
        [
            "blockUser(input: {}) { user { id } }",
            "deleteUser(input: {id: null}) { user { id } }",
            "deleteSshKey(input: {}) { sshKey { id } }",
            "deleteEmail(input: {userId: 1}) { email { id } }",
            "updateHook(input: {}) { hook { id } }",
            "testHook(input: {id: null}) { delivery { id } }",
            "deleteHook(input: {databaseId: null}) { hook { id } }",
            "redeliverHook(input: {}) { delivery { id } }",
        ],
    )
    async def test_of_users_and_what_they_own_need_a_key(self, ask: Ask, make: DataFactory, call: str) -> None:
        result = await ask(f"mutation {{ {call} }}", await make.admin())
        assert [(error.code, error.message) for error in result.errors] == [("BAD_REQUEST", "Give `id` or `databaseId`.")]

    @pytest.mark.parametrize(
        ("call", "key"),
        [
            ('deleteTrigger(input: {projectPath: "%s"}) { trigger { id } }', "token"),
            ('deleteTrigger(input: {token: "x"}) { trigger { id } }', "token"),
            ('createCommitComment(input: {projectPath: "%s", note: "Why?"}) { commitComment { id } }', "rev"),
            ('createCommitComment(input: {rev: "master", note: "Why?"}) { commitComment { id } }', "rev"),
        ],
    )
    async def test_name_the_key_that_is_missing(self, ask: Ask, make: DataFactory, call: str, key: str) -> None:
        project = await make.project(owner=(owner := await make.user()))
        result = await ask(f"mutation {{ {call.replace('%s', str(project.id))} }}", owner)
        assert [(error.code, error.message) for error in result.errors] == [("BAD_REQUEST", f"Give `id`, or `projectPath` with `{key}`.")]
