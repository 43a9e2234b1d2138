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

    @pytest.mark.parametrize("planner", [True, False], ids=["planned", "unplanned"])
    async def test_ignores_the_case_of_all_letters(self, services: Services, make: DataFactory, planner: bool) -> None:
        owner = await make.user()
        project = await make.project(owner=owner)
        for title in ("Über [alle] Maße * 100%_/", "uber", "ÉTÉ", "Ωmega?", "ΩMEGA", "İstanbul"):
            await make.issue(project, title=title)
        ask = Ask(Graph(services, planner=planner))
        text = "query ($p: String!, $s: String!) { project(path: $p) { issues(filter: {search: $s}) { totalCount nodes { title } } } }"

        for term, found in {
            "über": {"Über [alle] Maße * 100%_/"},
            "ÜBER [ALLE] MAßE * 100%_/": {"Über [alle] Maße * 100%_/"},
            "ü?er": set(),
            "ß*": set(),
            "ü%": set(),
            "été": {"ÉTÉ"},
            "Été": {"ÉTÉ"},
            "ωMEGA": {"Ωmega?", "ΩMEGA"},
            "ωmega?": {"Ωmega?"},
            "İstan": {"İstanbul"},
            "[ü]ber": set(),
        }.items():
            for _ in range(2):
                issues = (await ask.data(text, owner, p=str(project.id), s=term))["project"]["issues"]
                assert ({each["title"] for each in issues["nodes"]}, issues["totalCount"]) == (found, len(found)), term

    async def test_finds_people_projects_and_groups_by_all_letters(self, ask: Ask, api: Api, make: DataFactory) -> None:
        admin = await make.admin()
        user = await make.user(name="Jürgen ÅS")
        group = await make.group(owner=user, name="Équipe")
        project = await make.project(owner=user, name="Größe", description="ÄÖ")
        await make.label(project, "Café")
        await make.milestone(project, title="Übung")
        text = """query ($p: String!, $name: String, $group: String, $project: String, $label: String, $milestone: String) {
          users(filter: {search: $name}) { nodes { databaseId } } groups(filter: {search: $group}) { nodes { databaseId } }
          namespaces(filter: {search: $group}) { nodes { databaseId } } projects(filter: {search: $project}) { nodes { databaseId } }
          project(path: $p) { labels(filter: {search: $label}) { totalCount } milestones(filter: {search: $milestone}) { totalCount } } }"""
        terms = {"name": "JÜRGEN ås", "group": "équipe", "project": "äö", "label": "CAFÉ", "milestone": "übung"}

        data = await ask.data(text, admin, p=str(project.id), **terms)

        found = {key: [each["databaseId"] for each in data[key]["nodes"]] for key in ("users", "groups", "namespaces", "projects")}
        assert found == {"users": [user.id], "groups": [group.id], "namespaces": [group.id], "projects": [project.id]}
        assert (data["project"]["labels"], data["project"]["milestones"]) == ({"totalCount": 1}, {"totalCount": 1})
        assert [each["id"] for each in (await api.get("/users", admin, search="JÜRGEN")).json()] == [user.id]
        assert [each["id"] for each in (await api.get("/projects/search/GRÖ", user)).json()] == [project.id]

    async def test_is_400_in_v3(self, api: Api, make: DataFactory) -> None:
        admin = await make.admin()
        for path in ("/users", "/groups"):
            response = await api.get(path, admin, search="a" * 2_000)
            assert response.status_code == 400, path
