"""Queries that run once after the start."""

import asyncio
import gc
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graph.context import Services
from graph.documents import trusted_documents
from graph.documents.documents import prepare
from graph.jobs.build_analytics import USED_NAME, USED_SECONDS, BuildAnalytics
from graph.operations import sample_rows, warm_up
from graph.operations.execution import Graph
from graph.planner.cache import PlanCache
from storage.analytics.build_copy_writer import write_copy
from storage.database.statements.statement_cache import StatementCache
from storage.secrets import digest_token
from storage.tables import CheckStatus
from storage.tables.accounts.users import USER_BY_TOKEN
from tests.make import DataFactory, token_of
from tests.support.api_clients import Ask
from tests.support.database.statements import requires_planner
from tests.support.merge_requests import MergeRequestFactory

BUILDS = "query ($path: String!) { project(path: $path) { buildStats { rows { counts { total } } } } }"
ROWS = sample_rows.SampleRows("dev", 7, "dev/web", "team", "main", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
DASHBOARDS = [each.operation.prepared for each in trusted_documents.read_built_in(trusted_documents.DASHBOARDS).documents]


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(warm_up, "PAUSE_RATIO", 0.0)


class TestWarmUp:
    @requires_planner
    async def test_plans_and_then_runs_every_query_in_another_iteration_of_the_event_loop(
        self, services: Services, make: DataFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await make.project(owner=await make.user())
        queries = [each.formatted(None) for each in DASHBOARDS]  # type: ignore[arg-type]
        results: list[Any] = []
        compiled: list[PlanCache] = []
        iterations_after: list[PlanCache] = []
        run = Graph.run_as_admin

        async def record(*arguments: Any, **settings: Any) -> Any:
            assert len(iterations_after) == min(len(results) + 1, 12)
            results.append(await run(*arguments, **settings))
            return results[-1]

        monkeypatch.setattr(Graph, "run_as_admin", record)
        compile_plan = PlanCache.compile

        def record_plan(cache: PlanCache, *arguments: Any) -> Any:
            compiled.append(cache)
            asyncio.get_running_loop().call_soon(iterations_after.append, cache)
            return compile_plan(cache, *arguments)

        monkeypatch.setattr(PlanCache, "compile", record_plan)
        # The eight queries of a project run for its path and for its id.
        assert await warm_up.warm_up(Graph(services), queries, []) == len(results) == 12 + 8
        assert len(compiled) == 12
        errors = {error.message for result in results for error in result.errors}
        # The project has neither a group nor a repository, and errors of arguments would have other messages.
        assert all("not found" in message for message in errors), errors
        assert any(result.data is not None and result.data.get("project") for result in results)

    async def test_collects_garbage_between_queries_only(
        self, services: Services, make: DataFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await make.project(owner=await make.user())
        was_enabled: list[bool] = []
        run = Graph.run_as_admin

        async def record(*arguments: Any, **settings: Any) -> Any:
            was_enabled.append(gc.isenabled())
            return await run(*arguments, **settings)

        monkeypatch.setattr(Graph, "run_as_admin", record)
        collected: list[int] = []
        monkeypatch.setattr(gc, "collect", collected.append)
        count = await warm_up.warm_up(Graph(services, planner=True), [DASHBOARDS[0].formatted(None)], [])
        assert was_enabled == [False] * count
        assert collected == [1] * count
        assert gc.isenabled()

    @requires_planner
    async def test_compiles_the_statement_of_tokens(self, services: Services, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        owner = await make.user()
        await make.project(owner=owner)
        services.database.statement_cache._constants.pop(id(USER_BY_TOKEN))
        await warm_up.warm_up(Graph(services), [], [])
        compiled: list[Any] = []
        monkeypatch.setattr(StatementCache, "_read_compiled", lambda *arguments: compiled.append(arguments))
        found = await services.token_cache.find(services.database, digest_token(token_of(owner)), services.clock())
        assert found is not None and found.user.id == owner.id
        assert compiled == []

    async def test_opens_the_copy_of_builds_only_if_somebody_has_asked_lately(
        self, services: Services, make: DataFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.build(project, "a" * 40)
        folder, queries = tmp_path / "analytics", [each.formatted(None) for each in DASHBOARDS]  # type: ignore[arg-type]
        planned: list[PlanCache] = []
        compile_plan = PlanCache.compile
        monkeypatch.setattr(PlanCache, "compile", lambda cache, *arguments: planned.append(cache) or compile_plan(cache, *arguments))

        async def warm_up_new_process(min_builds: int = 0) -> int:
            """The number of builds in the copy that the warm-up has opened."""
            analytics = BuildAnalytics(services.database, folder, min_builds=min_builds, write_copy=write_copy)
            if min_builds == 0:
                await analytics.maintain()
            await warm_up.warm_up(Graph(replace(services, build_analytics=analytics)), queries, [])
            found = analytics.state.builds
            await analytics.close()
            return found

        assert await warm_up_new_process() == 0
        # All are planned nevertheless.
        assert len(planned) == 12
        assert not (folder / USED_NAME).exists()

        analytics = BuildAnalytics(services.database, folder, min_builds=0, write_copy=write_copy)
        ask = Ask(Graph(replace(services, build_analytics=analytics)))
        assert await ask.data(BUILDS, owner, path=str(project.id)) == {"project": {"buildStats": {"rows": [{"counts": {"total": 1}}]}}}
        await analytics.close()
        used_at = (folder / USED_NAME).stat().st_mtime
        assert await warm_up_new_process() == 1
        assert (folder / USED_NAME).stat().st_mtime == used_at, "the warm-up itself was recorded"

        os.utime(folder / USED_NAME, (used_at, used_at - USED_SECONDS))
        assert await warm_up_new_process() == 0
        # With few builds the database answers, and the queries are run.
        results: list[Any] = []
        run = Graph.run_as_admin
        monkeypatch.setattr(Graph, "run_as_admin", lambda *arguments, **settings: results.append(arguments) or run(*arguments, **settings))
        assert await warm_up_new_process(1_000) == 1
        assert len(results) == 12 + 8

    async def test_does_nothing_without_a_project(self, services: Services) -> None:
        assert await warm_up.warm_up(Graph(services), DASHBOARDS, []) == 0

    async def test_does_nothing_without_plans(self, services: Services, make: DataFactory) -> None:
        await make.project(owner=await make.user())
        assert await warm_up.warm_up(Graph(services, planner=False), DASHBOARDS, []) == 0


class TestSampleRows:
    async def test_are_those_of_a_project_with_a_red_branch_and_a_repository(self, services: Services, make: DataFactory) -> None:
        async def find(has_repository: Callable[[int], bool] = lambda project_id: True) -> sample_rows.SampleRows:
            async with services.database.read_session() as session:
                found = await sample_rows.find_sample_rows(session, services.clock, has_repository)
            assert found is not None
            return found

        red, green = [await make.indexed(await make.project(history={"commits": 3}, owner=await make.user())) for _ in range(2)]
        author = await make.user()
        red_head, green_head = [(await MergeRequestFactory(make, project, author).tip()) or "" for project in (red, green)]
        last_active = await find()
        assert last_active.project_id == green.id and last_active.further == {}
        await make.build(red, red_head, status=CheckStatus.FAILED)
        build = await make.build(green, green_head, status=CheckStatus.SUCCESS)
        newest = await make.build(await make.project(owner=author), "0" * 40)
        assert (await find()).project_id == red.id
        assert (await find(lambda project_id: False)).project_id == newest.project_id
        issue = await make.issue(green, author=author)
        request = await make.merge_request(green, author=author, head_oid=green_head)
        note = await make.note(issue, author=author)
        await make.issue(green, author=author)
        found = await find(lambda project_id: project_id == green.id)
        assert found.project_id == green.id
        assert found.further == {
            ("Build", "databaseId"): build.id,
            ("Note", "databaseId"): note.id,
            ("Issue", "databaseId"): issue.id,
            ("Issue", "iid"): issue.iid,
            ("MergeRequest", "databaseId"): request.id,
            ("MergeRequest", "iid"): request.iid,
            ("Commit", "rev"): green_head,
        }


class TestSampleVariables:
    def test_name_rows_by_the_use_of_a_variable(self) -> None:
        query = prepare(
            "query Q($p: String!, $g: String!, $b: String!, $n: Int!, $r: DateTimeRange!, $more: String) {"
            " project(path: $p) { branch(name: $b) { name } issues(first: $n, after: $more) { totalCount }"
            " mergeRequestStats(filter: {merged: $r}, bucket: WEEK) { merged } } group(path: $g) { name } }",
            "Q",
        )
        found = sample_rows.sample_variables(query, ROWS, by_id=False)
        assert found == {
            "p": "dev/web",
            "g": "team",
            "b": "main",
            "n": 20,
            "r": {"since": ROWS.since, "until": ROWS.until},
        }

    def test_request_projects_of_v3_by_id(self) -> None:
        query = prepare("query Q($id: String!) { project(path: $id) { name } }", "Q")
        assert sample_rows.sample_variables(query, ROWS, by_id=True) == {"id": "7"}
