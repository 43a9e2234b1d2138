"""`retry` in the CI file: a runner's failed build starts again before its pipeline goes on."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlmodel import col

from graph.operations.execution import Graph
from graph.rules.builds.automatic_retries import FailureReason, is_retry_due
from graph.rules.ci.config_errors import PipelineConfigError
from graph.rules.ci.config_parser import parse_config
from graph.rules.runners import status_reports
from storage import tables
from storage.tables import CheckStatus, Visibility
from storage.tables.builds import builds as statements
from tests.graph.builds.test_pipelines import PushScenario
from tests.graph.runners.test_build_claims import REPORT, RunnerCalls
from tests.make import DataFactory, token_of

FILE = """
unit: {script: make, retry: 1, coverage: '/(\\d+)%/'}
deploy: {stage: deploy, script: c}
alarm: {stage: deploy, script: ring, when: on_failure}
"""


class TestRetry:
    async def test_starts_a_failed_build_again(self, graph: Graph, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 2}, visibility=Visibility.PUBLIC)
        pushes = PushScenario(make, await make.indexed(project), owner)
        await pushes(FILE)
        runner = RunnerCalls(graph, make.runner_token(await make.runner()))
        for status in ("FAILED", "FAILED"):
            job = await runner.claim()
            assert job is not None
            build = await make.fetch(tables.Build, job["id"])
            assert build is not None
            await make.trace(build, "7%\n")
            assert await runner.code(REPORT, job["token"], databaseId=job["id"], status=status) == "ok"
        found = await pushes.builds()
        assert {name: (build.status, build.attempt, build.coverage) for name, build in found.items()} == {
            "unit": (CheckStatus.FAILED, 2, 7.0),
            "alarm": (CheckStatus.PENDING, 1, None),
        }
        async with make.services.database.read_session() as session:
            (row,) = [
                row
                for (row,) in await session.read(
                    statements.attempts([found["unit"].id], [col(tables.Build.attempt) == 1], [col(tables.Build.id)], 0, 1)
                )
            ]
        assert (row.status, row.attempt, row.coverage, row.trace_size) == (CheckStatus.FAILED, 1, 7.0, 3)

        # The runner does not stop a build at its time limit.
        late = await make.pending_build(project, options={"retry": {"max": 1, "when": ["stuck_or_timeout_failure"]}})
        while await runner.claim_id() != late.id:
            pass
        moment = make.services.clock() + timedelta(hours=2)
        await status_reports.recover_lost_builds(replace(make.services, clock=lambda: moment))
        build = await make.fetch(tables.Build, late.id)
        assert build is not None
        assert (build.status, build.attempt) == (CheckStatus.PENDING, 2)

    async def test_a_runner_that_ends_a_build_at_its_time_limit_reports_no_failure_of_the_script(
        self, graph: Graph, make: DataFactory
    ) -> None:
        project = await make.project(owner=await make.user(), history={"commits": 1})
        runner = RunnerCalls(graph, make.runner_token(await make.runner()))
        for seconds, reason, status in (
            (1, "stuck_or_timeout_failure", CheckStatus.PENDING),
            (1, "script_failure", CheckStatus.FAILED),
            (60, "stuck_or_timeout_failure", CheckStatus.FAILED),
            (60, "script_failure", CheckStatus.PENDING),
        ):
            await make.pending_build(project, options={"timeout": seconds, "retry": {"max": 1, "when": [reason]}})
            job = await runner.claim()
            assert job is not None
            await asyncio.sleep(1.1 if seconds == 1 else 0)
            assert await runner.code(REPORT, job["token"], databaseId=job["id"], status="FAILED") == "ok"
            build = await make.fetch(tables.Build, job["id"])
            assert build is not None and build.status is status, (seconds, reason)
            if status is CheckStatus.PENDING:
                assert await runner.claim_id() == build.id

    async def test_a_runner_reports_its_own_failure_as_such(self, graph: Graph, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 1})
        runner = RunnerCalls(graph, make.runner_token(await make.runner()))
        for when, status in (("runner_system_failure", CheckStatus.PENDING), ("script_failure", CheckStatus.FAILED)):
            await make.pending_build(project, options={"retry": {"max": 1, "when": [when]}})
            job = await runner.claim()
            assert job is not None
            report = {"databaseId": job["id"], "status": "FAILED", "failureReason": "RUNNER_SYSTEM_FAILURE"}
            assert await runner.code(REPORT, job["token"], **report) == "ok"
            build = await make.fetch(tables.Build, job["id"])
            assert build is not None and build.status is status
            if status is CheckStatus.PENDING:
                assert await runner.claim_id() == build.id

        external = await make.build(project, "a" * 40)
        report = {"projectPath": str(project.id), "databaseId": external.id, "status": "FAILED", "failureReason": "SCRIPT_FAILURE"}
        assert await runner.code(REPORT, token_of(owner), **report) == "NOT_ALLOWED"

    def test_conditions(self) -> None:
        def due(retry: object, reason: FailureReason | None, attempt: int = 1) -> bool:
            build = tables.Build(project_id=1, sha="a", ref="a", name="a", status=CheckStatus.FAILED, attempt=attempt)
            build.options = {"retry": retry}
            return is_retry_due(build, reason)

        script, runner = FailureReason.SCRIPT_FAILURE, FailureReason.RUNNER_SYSTEM_FAILURE
        assert due({"max": 2}, script, 2) and due({"max": 1, "when": ["always"]}, runner)
        assert due({"max": 1, "when": [str(runner)]}, runner)
        assert not due({"max": 2}, script, 3)
        assert not due({"max": 0}, script)
        assert not due({"max": 1}, None)
        assert not due({"max": 1, "when": [str(runner)]}, script)
        assert not due(None, script)

    def test_of_a_file(self) -> None:
        (job,) = parse_config("a: {script: x, retry: {max: 2, when: runner_system_failure}}").jobs
        assert job.options["retry"] == {"max": 2, "when": ["runner_system_failure"]}
        for text, message in {
            "retry: 3": "line 3: `a` job: retry should be a number from 0 to 2.",
            "retry: {when: always}": "line 3: `a` job: retry: `max` is missing.",
            "retry: {max: x}": "line 3: `a` job: retry: max should be a number from 0 to 2.",
            "retry: {max: 1, times: 2}": "line 3: `a` job: retry: unknown key `times`. Supported: max, when.",
            "retry: {max: 1, when: [api_failure]}": "line 3: `a` job: retry: when: `api_failure` is not one of always, script_failure,"
            " stuck_or_timeout_failure, runner_system_failure.",
        }.items():
            with pytest.raises(PipelineConfigError) as caught:
                parse_config(f"a:\n  script: x\n  {text}\n")
            assert str(caught.value) == message
