"""Time slices change nothing in what graphql-core answers, nor how often loaders fetch."""

import asyncio
import gc
from typing import Any

import graphql
import pytest
from graphql import Executor, build_schema, parse

from graph.context import Services
from graph.operations import executor, time_slices
from graph.operations.execution import Graph, OperationResult
from graph.operations.executor import SlicedExecutor
from graph.schema import graphql_schema
from storage import tables
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

LIST = """
query ($path: String!, $brief: Boolean!) {
  project(path: $path) {
    title: name
    issues(first: 30) {
      totalCount
      nodes {
        __typename id iid state createdAt closedAt @skip(if: $brief) labels labelNodes { name color }
        author { name ...person } assignee { ...person } milestone { title dueDate project: projectId }
        project { name issue(iid: 1) { title author { username } } }
        notes(first: 2) { nodes { body author { name } issue { iid author { id } } } }
      }
      edges { node { iid assignee { name } } }
    }
  }
}
fragment person on User { name username state avatarUrl webUrl }
"""


@pytest.fixture
async def project(make: DataFactory) -> tables.Project:
    owner, other = await make.user(), await make.user()
    project = await make.project(owner=owner, members=[(other, 30)])
    milestone = await make.milestone(project)
    labels = [await make.label(project, title) for title in ("b", "a")]
    for number in range(6):
        issue = await make.issue(
            project,
            author=(owner, other)[number % 2],
            assignee_id=(None, owner.id, other.id)[number % 3],
            milestone_id=milestone.id if number % 2 else None,
            labels=labels[: number % 3],
            state=tables.IssueState.CLOSED if number > 3 else tables.IssueState.OPENED,
        )
        await make.note(issue)
    return project


@pytest.fixture
def ask(services: Services) -> Ask:
    """What plans answer asks no executor."""
    return Ask(Graph(services, planner=False))


@pytest.fixture
def run_both(ask: Ask, make: DataFactory, project: tables.Project, monkeypatch: pytest.MonkeyPatch) -> Any:
    async def run(query: str, **variables: Any) -> tuple[OperationResult, OperationResult]:
        owner = await make.fetch(tables.User, project.creator_id or 0)
        outcomes = []
        for executor_class in (SlicedExecutor, Executor):
            monkeypatch.setattr(executor, "SlicedExecutor", executor_class)
            outcomes.append(await ask(query, owner, path=str(project.id), **variables))
        return outcomes[0], outcomes[1]

    return run


@pytest.mark.parametrize("brief", [True, False])
@pytest.mark.parametrize("seconds", [0.0, time_slices.SLICE_SECONDS])
async def test_both_executors_return_the_same(run_both: Any, brief: bool, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slices, "SLICE_SECONDS", seconds)
    sliced, general = await run_both(LIST, brief=brief)

    assert sliced.errors == general.errors == []
    assert repr(sliced.data) == repr(general.data)


@pytest.mark.parametrize(
    ("scalar", "field"), [("DateTime", "closedAt"), ("DateTime", "createdAt"), ("String", "author { username }"), ("String", "labels")]
)
async def test_places_errors_the_same(run_both: Any, scalar: str, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(value: Any) -> Any:
        raise ValueError("cannot be serialized")

    monkeypatch.setattr(graphql_schema.type_map[scalar], "coerce_output_value", refuse)
    sliced, general = await run_both("query ($path: String!) { project(path: $path) { issues { nodes { iid " + field + " } } } }")

    assert sliced.errors
    assert sorted(map(repr, sliced.errors)) == sorted(map(repr, general.errors))
    assert sliced.data == general.data


@pytest.mark.parametrize("seconds", [0.0, time_slices.SLICE_SECONDS])
async def test_loads_each_level_once(
    ask: Ask, make: DataFactory, project: tables.Project, statements: StatementRecorder, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch waits for the pieces of a list that are paused."""
    monkeypatch.setattr(time_slices, "SLICE_SECONDS", seconds)
    query = "query ($path: String!) { project(path: $path) { issues { nodes { author { name } assignee { name } labels } } } }"
    owner = await make.fetch(tables.User, project.creator_id or 0)

    # The viewer, the project, the level, the issues, all people, all labels.
    with statements.assert_at_most(6):
        await ask.data(query, owner, path=str(project.id))


class TestFailingField:
    async def test_does_not_cancel_loads_shared_with_other_fields(self) -> None:
        schema = build_schema("type Query { here: Part, there: Part } type Part { shared: Int, broken: Int! }")
        shared: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        class Part:
            def shared(self, info: Any) -> Any:
                return shared

        class Broken(Part):
            async def broken(self, info: Any) -> int:
                await asyncio.sleep(0)
                asyncio.get_running_loop().call_later(0.01, shared.set_result, 7)
                raise ValueError("broken")

        document, root = parse("{ there { shared } here { shared broken } }"), {"here": Broken(), "there": Part()}
        result: Any = graphql.execute(schema, document, root, executor_class=SlicedExecutor)
        answer = await result
        assert answer.data == {"there": {"shared": 7}, "here": None}
        assert [error.path for error in answer.errors] == [["here", "broken"]]


class TestLeftoverTasks:
    """Coroutines that graphql-core never starts are closed, so that Python writes nothing about them between the lines of the log."""

    SCHEMA = build_schema("type Query { part: Part, parts: [Part!] } type Part { slow: Int, broken: Int!, late: Int!, inner: Part }")

    @pytest.mark.parametrize(
        "text",
        [
            "{ part { slow broken } }",
            "{ part { broken slow } }",
            "{ part { slow late inner { slow inner { slow } } } }",
            "{ parts { slow inner { slow late } } part { late } }",
            "{ parts { slow broken } }",
            "{ parts { inner { slow } late slow } }",
        ],
    )
    async def test_no_task_is_left_after_a_field_error(self, text: str, recwarn: pytest.WarningsRecorder) -> None:
        answer = await executor.execute_document(
            self.SCHEMA, parse(text), None, {}, None, root={"part": FailingType(), "parts": [FailingType(), FailingType()]}
        )

        assert answer.errors
        gc.collect()
        assert [str(each.message) for each in recwarn if each.category is RuntimeWarning] == []
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    @pytest.mark.parametrize("turns", range(6))
    async def test_no_task_is_left_after_cancellation(self, turns: int, recwarn: pytest.WarningsRecorder) -> None:
        document = parse("{ parts { slow inner { slow inner { slow } } } part { slow inner { slow } } }")
        root = {"part": FailingType(), "parts": [FailingType(), FailingType()]}
        running = asyncio.create_task(executor.execute_document(self.SCHEMA, document, None, {}, None, root=root))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()

        with pytest.raises(asyncio.CancelledError):
            await running
        gc.collect()
        assert [str(each.message) for each in recwarn if each.category is RuntimeWarning] == []


class FailingType:
    async def slow(self, info: Any) -> int:
        await asyncio.sleep(0.01)
        return 1

    async def late(self, info: Any) -> int:
        raise ValueError("late")

    def broken(self, info: Any) -> int:
        raise ValueError("broken")

    async def inner(self, info: Any) -> "FailingType":
        await asyncio.sleep(0)
        return FailingType()
