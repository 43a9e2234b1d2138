"""What an analysis of a plan measures, on both databases. The command is tested in tests/forgefront/commands/test_explain.py."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from graphql import parse

from graph.context import Services
from graph.operations.execution import Graph
from graph.operations.transaction import session_for
from graph.planner.analysis import analyze
from graph.planner.explain import ExplainedNode, Explanation, explain
from storage import tables
from tests.make import DataFactory, token_of
from tests.support.database.statements import StatementRecorder
from tests.support.queries.oracle import prepare_document
from tests.support.week_fixture import NOW, WeekData, create_week

ISSUES = """query ($path: String!) { project(path: $path) { name owner { username } issues(first: 20) { totalCount
    nodes { iid webUrl author { username } notes(first: 2) { nodes { body author { username } } } } }
    milestones { nodes { title issues(first: 1) { nodes { title } } } } issue(iid: 1) { labels } } }"""
VARIABLES = {"path": "acme/web"}


@pytest.fixture
async def week(make: DataFactory, tmp_path: Path) -> WeekData:
    return await create_week(make, tmp_path / "story.git")


async def analyze_query(services: Services, query: str, viewer: tables.User) -> Explanation:
    async with session_for(services.database, writing=False) as session:
        return await analyze(services, session, viewer, prepare_document(parse(query)), VARIABLES)


def all_nodes(nodes: list[ExplainedNode]) -> Iterator[ExplainedNode]:
    for node in nodes:
        yield node
        yield from all_nodes(node.children)


async def test_measures_every_node_that_runs(services: Services, week: WeekData) -> None:
    explanation = await analyze_query(replace(services, clock=lambda: NOW), ISSUES, week.ann)
    assert explanation.stopped is None
    nodes = list(all_nodes(explanation.nodes))
    assert all(each.kind != "outside of all nodes" for each in nodes)
    measured = [each for each in nodes if each.milliseconds is not None]
    assert {"project", "issues", "milestones", "notes", "owner"} <= {each.key for each in measured}
    statements = [each for node in nodes for each in node.statements]
    assert all(each.rows is not None and each.database_plan for each in statements)


async def test_runs_the_statements_that_a_plan_runs(
    graph: Graph, services: Services, week: WeekData, statements: StatementRecorder
) -> None:
    fixed = replace(services, clock=lambda: NOW)
    planned = Graph(fixed, planner=True)
    prepared = prepare_document(parse(ISSUES))
    for _ in range(2):
        await planned.run(prepared, VARIABLES, token_of(week.ann), request_id="x")
    with statements.record() as seen:
        result = await planned.run(prepared, VARIABLES, token_of(week.ann), request_id="x")
    assert not result.errors
    explanation = await analyze_query(fixed, ISSUES, week.ann)
    assert len(seen) == sum(len(node.statements) for node in all_nodes(explanation.nodes))


async def test_a_later_run_is_not_measured(services: Services, week: WeekData) -> None:
    """An analysis replaces the steps of its own plan, never those of a cached one."""
    fixed = replace(services, clock=lambda: NOW)
    await analyze_query(fixed, ISSUES, week.ann)
    planned = Graph(fixed)
    result = await planned.run(prepare_document(parse(ISSUES)), VARIABLES, token_of(week.ann), request_id="x")
    assert not result.errors


async def test_an_explanation_needs_no_database_and_has_the_same_statements(services: Services, week: WeekData) -> None:
    query = "query ($path: String!) { project(path: $path) { issue(iid: 1) { title } } }"
    prepared, dialect = prepare_document(parse(query)), services.database.engine.dialect
    (explained,) = explain(prepared, VARIABLES, dialect, services.static_settings).nodes
    (analyzed,) = (await analyze_query(services, query, week.ann)).nodes
    assert [each.sql for each in explained.statements] == [each.sql for each in analyzed.statements]
