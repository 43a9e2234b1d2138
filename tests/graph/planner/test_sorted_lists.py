"""The lists that people look at every day find their first rows by an index, however many rows there are."""

import re
from datetime import UTC, datetime

import pytest
from sqlalchemy import select, text
from sqlmodel import col

from graph.context import Services
from storage import tables
from storage.tables import CheckStatus
from tests.graph.planner.test_explain import all_nodes, analyze_query
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.many_rows import insert_numbered, numbered
from tests.support.database.statements import StatementRecorder

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


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("condition", "index"),
    [({"name": ["deploy"]}, "ix_builds_project_id_name_id"), ({"status": ["RUNNING"]}, "ix_builds_project_id_status_id")],
)
async def test_builds_of_postgresql_are_found_by_plans_of_prepared_statements(
    planned_ask: Ask, services: Services, ann: tables.User, statements: StatementRecorder, condition: dict[str, list[str]], index: str
) -> None:
    """Such a plan is made without the values, so that a rare one must not be searched among all builds."""
    async with services.database.read_session() as reader:
        project_id = await reader.scalar(select(col(tables.Project.id)))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    common = {
        "project_id": project_id,
        "sha": "a" * 40,
        "ref": "main",
        "status": CheckStatus.SUCCESS,
        "created_at": moment,
        "updated_at": moment,
    }
    async with services.database.write_session() as session:
        await insert_numbered(session, tables.Build, 3_000, lambda number: {**common, "name": numbered("job", number % 4)})
        await session.execute(text("ANALYZE builds"))
        await session.commit()
    query = (
        "query ($path: String!, $filter: BuildFilter) { project(path: $path) { builds(first: 20, filter: $filter) { nodes { name } } } }"
    )
    with statements.record() as seen:
        assert (await planned_ask.data(query, ann, path=str(project_id), filter=condition))["project"]["builds"]["nodes"] == []
    (statement,) = (each for each in seen if "FROM builds" in each)
    async with services.database.engine.connect() as connection:
        await connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_generic_plan")
        await connection.exec_driver_sql(f"PREPARE page AS {statement}")
        values = ", ".join(["NULL"] * len(set(re.findall(r"\$\d+", statement))))
        plan = "\n".join(row[0] for row in await connection.exec_driver_sql(f"EXPLAIN EXECUTE page({values})"))
        await connection.exec_driver_sql("DEALLOCATE page")
    assert f"Scan Backward using {index} on builds" in plan, plan
