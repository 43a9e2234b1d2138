"""The lists that people look at every day find their first rows by an index, however many rows there are."""

import pytest

from graph.context import Services
from storage import tables
from tests.graph.planner.test_explain import all_nodes, analyze_query
from tests.make import DataFactory

LISTS = {
    "issues of all projects": ("{ issues(scope: ALL, first: 20) { nodes { title } } }", "ix_issues_created_at"),
    "issues of an assignee": ("{ issues(scope: ASSIGNED, first: 20) { nodes { title } } }", "ix_issues_assignee_id_created_at"),
    "issues of an author": ("{ issues(first: 20) { nodes { title } } }", "ix_issues_author_id_created_at"),
    "merge requests of all projects": (
        "{ mergeRequests(scope: ALL, first: 20) { nodes { title } } }",
        "ix_merge_requests_created_at",
    ),
    "merge requests of an assignee": (
        "{ mergeRequests(scope: ASSIGNED, first: 20) { nodes { title } } }",
        "ix_merge_requests_assignee_id_created_at",
    ),
    "merge requests of an author": ("{ mergeRequests(first: 20) { nodes { title } } }", "ix_merge_requests_author_id_created_at"),
    "builds of a branch": (
        'query ($path: String!) { project(path: $path) { builds(first: 20, filter: {ref: ["topic"]}) { nodes { name } } } }',
        "ix_builds_project_id_ref_id",
    ),
    "builds of a name": (
        'query ($path: String!) { project(path: $path) { builds(first: 20, filter: {name: ["deploy"]}) { nodes { status } } } }',
        "ix_builds_project_id_name_id",
    ),
}


@pytest.fixture
async def ann(make: DataFactory) -> tables.User:
    """The owner of a project at `acme/web` with an issue of hers."""
    ann = await make.user("ann")
    project = await make.project(owner=ann, group=await make.group(path="acme", owner=ann), path="web")
    await make.issue(project, author=ann)
    return ann


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", LISTS)
async def test_of_sqlite_are_not_sorted(services: Services, ann: tables.User, name: str) -> None:
    query, index = LISTS[name]
    explanation = await analyze_query(services, query, ann)
    plans = ["\n".join(each.database_plan or ()) for node in all_nodes(explanation.nodes) for each in node.statements]
    (plan,) = (each for each in plans if index in each)
    assert "TEMP B-TREE" not in plan
