"""Search terms: their maximum length, wherever the schema accepts one."""

import pytest
from graphql import GraphQLInputObjectType

from graph.context import Services
from graph.operations.execution import Graph
from graph.rules.search_terms import MAX_SEARCH_LENGTH
from graph.schema import graphql_schema
from tests.make import DataFactory
from tests.support.api_clients import Api, Ask

SEARCHABLE_LISTS = {
    "UserFilter": "users(%s) { nodes { id } }",
    "GroupFilter": "groups(%s) { nodes { id } }",
    "NamespaceFilter": "namespaces(%s) { nodes { path } }",
    "ProjectFilter": "projects(%s) { nodes { id } }",
    "IssueFilter": 'project(path: "a/b") { issues(%s) { nodes { id } } }',
    "MergeRequestFilter": 'project(path: "a/b") { mergeRequests(%s) { nodes { id } } }',
    "MilestoneFilter": 'project(path: "a/b") { milestones(%s) { nodes { id } } }',
    "LabelFilter": 'project(path: "a/b") { labels(%s) { nodes { id } } }',
}


def test_every_filter_with_a_search_is_tried() -> None:
    inputs = [kind for kind in graphql_schema.type_map.values() if isinstance(kind, GraphQLInputObjectType)]
    assert {kind.name for kind in inputs if "search" in kind.fields} == set(SEARCHABLE_LISTS)


class TestSearchFilter:
    @pytest.mark.parametrize("planner", [True, False], ids=["planned", "unplanned"])
    @pytest.mark.parametrize("filter", SEARCHABLE_LISTS)
    async def test_accepts_at_most_a_thousand_characters(self, services: Services, make: DataFactory, filter: str, planner: bool) -> None:
        owner = await make.user()
        project = await make.project(owner=owner)
        ask = Ask(Graph(services, planner=planner))
        text = f"query ($s: String!) {{ {SEARCHABLE_LISTS[filter] % 'filter: {search: $s}'} }}".replace("a/b", str(project.id))

        for term in ("a", "%_\\" * 300, "é" * MAX_SEARCH_LENGTH, "\U0001f4a5" * MAX_SEARCH_LENGTH):
            assert (await ask(text, owner, s=term)).errors == []
        for term in ("a" * (MAX_SEARCH_LENGTH + 1), "%" * 60_000, "a" * 900_000):
            outcome = await ask(text, owner, s=term)
            assert [str(problem.code) for problem in outcome.errors] == ["BAD_REQUEST"]
            assert "the limit is 1,000. Use a shorter search term." in outcome.errors[0].message

    async def test_is_400_in_v3(self, api: Api, make: DataFactory) -> None:
        admin = await make.admin()
        for path in ("/users", "/groups"):
            response = await api.get(path, admin, search="a" * 2_000)
            assert response.status_code == 400, path
