"""A list in a request has at most 1,000 values, in every position, with plans and without."""

from typing import Any

import pytest

from graph.errors import Code
from graph.operations.list_lengths import MAX_LIST_LENGTH
from storage import tables
from tests.make import DataFactory
from tests.support.api_clients import Ask

FILTER = "query ($path: String!, $filter: IssueFilter) { project(path: $path) { issues(filter: $filter) { totalCount } } }"
LIST = "query ($path: String!, $iids: [Int!]) { project(path: $path) { issues(filter: {iid: $iids}) { totalCount } } }"
NODES = "query ($ids: [ID!]!) { nodes(ids: $ids) { id } }"
CREATE = "mutation ($input: CreateIssueInput!) { createIssue(input: $input) { issue { iid } userErrors { field } } }"


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.project(owner=owner)


class TestLongLists:
    async def test_in_variables_are_rejected(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        path, numbers = str(project.id), [*range(MAX_LIST_LENGTH + 1)]
        names = [f"name {number}" for number in numbers]
        sent: list[tuple[str, dict[str, Any], str]] = [
            (FILTER, {"path": path, "filter": {"iid": numbers}}, "$filter.iid"),
            (FILTER, {"path": path, "filter": {"labels": names, "state": ["OPENED"]}}, "$filter.labels"),
            (LIST, {"path": path, "iids": numbers}, "$iids"),
            (NODES, {"ids": names}, "$ids"),
            (CREATE, {"input": {"projectPath": path, "title": "T", "labels": names}}, "$input.labels"),
        ]
        for text, variables, name in sent:
            for _ in range(3):
                outcome = await ask(text, owner, **variables)
                assert outcome.data is None
                assert [(error.code, error.message) for error in outcome.errors] == [
                    (
                        Code.LIMIT_EXCEEDED,
                        f"The list {name} has 1,001 values, which exceeds the limit of 1,000. Send fewer values, or several requests.",
                    )
                ]
        assert await make.count(tables.Issue) == 0

    async def test_in_the_operation_are_rejected(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        numbers = " ".join(["1"] * (MAX_LIST_LENGTH + 1))
        for text, name in (
            (f'{{ project(path: "{project.id}") {{ issues(filter: {{iid: [{numbers}]}}) {{ totalCount }} }} }}', "issues(filter.iid)"),
            (
                f'query ($v: [Int!] = [{numbers}]) {{ project(path: "{project.id}") {{ issues(filter: {{iid: $v}}) {{ totalCount }} }} }}',
                "$v",
            ),
            (f"{{ ...F }} fragment F on Query {{ nodes(ids: [{numbers}]) {{ id }} }}", "nodes(ids)"),
        ):
            outcome = await ask(text, owner)
            assert [error.code for error in outcome.errors] == [Code.LIMIT_EXCEEDED]
            assert outcome.errors[0].message.startswith(f"The list {name} has 1,001 values, which exceeds the limit of 1,000.")

    async def test_at_the_limit_are_answered(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        await make.issue(project)
        numbers = [*range(1, MAX_LIST_LENGTH + 1)]
        for text, variables in ((FILTER, {"filter": {"iid": numbers}}), (LIST, {"iids": numbers})):
            for _ in range(3):
                data = await ask.data(text, owner, path=str(project.id), **variables)
                assert data["project"]["issues"]["totalCount"] == 1
