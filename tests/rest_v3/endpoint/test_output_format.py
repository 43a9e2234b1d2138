"""Plans and graphql-core give v3's output format: the same bytes."""

from pathlib import Path
from typing import Any

import pytest

from graph.operations.execution import Graph
from graph.operations.results import OperationResult
from tests.make import DataFactory
from tests.support.api_clients import Api
from tests.support.week_fixture import create_week

PATHS = (
    "/projects",
    "/projects/1",
    "/projects/1/issues",
    "/projects/1/issues/1",
    "/projects/1/issues/1/notes",
    "/projects/1/merge_requests",
    "/projects/1/merge_requests/1",
    "/projects/1/builds",
    "/projects/1/builds/1",
    "/projects/1/labels",
    "/projects/1/repository/commits",
    "/projects/1/repository/commits/master",
    "/projects/1/repository/commits/master/statuses",
    "/groups",
    "/users",
    "/user",
)
"""Enumerations, instants, inner connections and counts, in pages and alone; whether each of them is there does not matter."""


class TestResponse:
    async def test_is_the_same_from_a_plan_and_without_one(
        self, api: Api, graph: Graph, make: DataFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        story = await create_week(make, tmp_path / "story.git")
        formed: list[bool] = []
        run = graph.run

        async def watched(*given: Any, **settings: Any) -> OperationResult:
            outcome = await run(*given, **settings)
            formed.append(outcome.is_formatted)
            return outcome

        monkeypatch.setattr(graph, "run", watched)
        answers = []
        for graph.planner in (True, False):
            found = [await api.get(path, story.ann) for path in PATHS]
            answers.append([(response.status_code, response.content) for response in found])

        assert answers[0] == answers[1]
        assert [status for status, _ in answers[0]].count(200) >= 12
        assert sum(formed) >= 12
        assert not any(formed[len(formed) // 2 :])
