"""Claims and updates of builds by a runner of 2016."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from graph.context import Services
from graph.rules.runners.status_reports import LOST_MESSAGE, recover_lost_builds
from storage import tables
from storage.database.clock import now
from storage.tables import CheckStatus
from storage.tables.builds import artifacts
from tests.ci_v1.conftest import INFO, LegacyRunner
from tests.ci_v1.shapes import check_shape
from tests.make import EXTERNAL_URL, DataFactory, token_of

NOT_FOUND = {"message": "404 Not Found"}
FORBIDDEN = {"message": "403 Forbidden"}


async def trace_of(services: Services, build_id: int) -> str:
    async with services.database.read_session() as session:
        parts = [part for (part,) in await session.read(artifacts.parts_of_trace(build_id))]
    return b"".join([await services.objects.read(part.key) for part in parts]).decode()


class TestRegister:
    """POST /builds/register"""

    async def test_returns_the_oldest_build_with_all_that_the_runner_needs(
        self, make: DataFactory, project: tables.Project, runner: LegacyRunner
    ) -> None:
        options = {
            "image": "ruby:2.2",
            "services": ["postgres"],
            "variables": {"RAILS_ENV": "test"},
            "artifacts": {"paths": ["bin/"], "name": "bin", "expire_in": "1 week"},
            "cache": {"paths": ["vendor/"]},
            "after_script": ["make clean"],
            "dependencies": [],
            "timeout": 600,
        }
        build = await make.pending_build(project, name="compile", stage="build", commands="make\nmake check", options=options)
        await make.pending_build(project)

        response = await runner.claim()

        assert response.status_code == 201
        answer = response.json()
        token = answer["token"]
        variables = {variable["key"]: variable for variable in answer.pop("variables")}
        assert answer == {
            "id": build.id,
            "ref": "master",
            "tag": False,
            "sha": "a" * 40,
            "status": "running",
            "name": "compile",
            "token": token,
            "stage": "build",
            "project_id": project.id,
            "project_name": "Engine",
            "commands": "make\nmake check",
            "repo_url": f"http://gitlab-ci-token:{token}@{EXTERNAL_URL.removeprefix('http://')}/ada/engine.git",
            "before_sha": "0" * 40,
            "allow_git_fetch": True,
            "options": {
                "image": "ruby:2.2",
                "services": ["postgres"],
                "artifacts": {"name": "bin", "untracked": False, "paths": ["bin/"], "when": "on_success", "expire_in": "1 week"},
                "cache": {"paths": ["vendor/"]},
                "after_script": ["make clean"],
                "dependencies": [],
            },
            "timeout": 600,
            "depends_on_builds": [],
        }
        assert variables["RAILS_ENV"] == {"key": "RAILS_ENV", "value": "test", "public": True}
        assert variables["CI_BUILD_NAME"]["value"] == "compile"
        assert (variables["CI_BUILD_TOKEN"]["value"], variables["CI_BUILD_TOKEN"]["public"]) == (token, False)
        row = await make.fetch(tables.Build, build.id)
        assert row is not None and row.status is CheckStatus.RUNNING

    async def test_excludes_absent_job_options(self, runner_with_build: LegacyRunner) -> None:
        assert runner_with_build.build["options"] == {}
        assert runner_with_build.build["timeout"] == 3600

    async def test_includes_builds_of_earlier_stages(self, make: DataFactory, project: tables.Project, runner: LegacyRunner) -> None:
        pipeline = tables.Pipeline(project_id=project.id, sha="a" * 40, ref="master")
        await make.save(pipeline)
        common: dict[str, Any] = {"pipeline_id": pipeline.id}
        first = await make.build(project, "a" * 40, status=CheckStatus.SUCCESS, name="compile", stage="build", stage_index=0, **common)
        await make.build(project, "a" * 40, status=CheckStatus.SUCCESS, name="lint", stage="test", stage_index=1, **common)
        await make.artifact(first, b"12345", filename="bin.zip")
        await make.build(project, "a" * 40, status=CheckStatus.SUCCESS, name="generate", stage="build", stage_index=0, **common)
        await make.build(project, "a" * 40, status=CheckStatus.MANUAL, name="sign", stage="build", stage_index=0, **common)
        await make.pending_build(project, name="all", stage="test", stage_index=1, **common)
        assert [build["name"] for build in (await runner.claim()).json()["depends_on_builds"]] == ["compile", "generate"]
        needs = {"needs": ["compile"], "dependencies": ["compile"]}
        await make.pending_build(project, name="check", stage="test", stage_index=1, options=needs, **common)

        answer = (await runner.claim()).json()
        assert answer["options"] == {"dependencies": ["compile"]}

        (dependency,) = answer["depends_on_builds"]
        assert check_shape("Build", dependency) == {
            "id": first.id,
            "ref": "master",
            "tag": False,
            "sha": "a" * 40,
            "status": "success",
            "name": "compile",
            "token": answer["token"],
            "stage": "build",
            "project_id": project.id,
            "project_name": "Engine",
            "artifacts_file": {"filename": "bin.zip", "size": 5},
        }

    async def test_stores_runner_info(self, make: DataFactory, runner: LegacyRunner) -> None:
        assert (await runner.claim()).status_code == 404

        (row,) = [await make.fetch(tables.Runner, 1)]
        assert row is not None and row.contacted_at is not None
        assert {key: getattr(row, key) for key in INFO} == INFO

    async def test_answers_404_where_nothing_waits(self, runner: LegacyRunner) -> None:
        response = await runner.claim()

        assert (response.status_code, response.json()) == (404, NOT_FOUND)

    async def test_answers_404_to_an_inactive_runner(self, ci: httpx.AsyncClient, make: DataFactory, project: tables.Project) -> None:
        await make.pending_build(project)
        runner = LegacyRunner(ci, make.runner_token(await make.runner(active=False)))

        assert (await runner.claim()).status_code == 404

    async def test_assigns_builds_by_tags(self, ci: httpx.AsyncClient, make: DataFactory, project: tables.Project) -> None:
        build = await make.pending_build(project, tags=("ruby",))
        other, fitting = [LegacyRunner(ci, make.runner_token(await make.runner(tags=tags))) for tags in ([], ["linux", "ruby"])]

        assert (await other.claim()).status_code == 404
        assert (await fitting.claim()).json()["id"] == build.id

    async def test_answers_403_to_an_unknown_token(self, ci: httpx.AsyncClient, make: DataFactory) -> None:
        for token in ("wrong", "fr-" + "x" * 20, token_of(await make.admin()), "", None):
            response = await LegacyRunner(ci, token).claim()  # type: ignore[arg-type]
            assert (response.status_code, response.json()) == (403, FORBIDDEN)

    async def test_answers_403_to_the_token_of_a_build(self, ci: httpx.AsyncClient, runner_with_build: LegacyRunner) -> None:
        assert (await LegacyRunner(ci, runner_with_build.build["token"]).claim()).status_code == 403

    async def test_accepts_forms_and_no_info(
        self, ci: httpx.AsyncClient, make: DataFactory, project: tables.Project, runner: LegacyRunner
    ) -> None:
        await make.pending_build(project)

        assert (await ci.post("builds/register", data={"token": runner.token})).status_code == 201


class TestUpdate:
    """PUT /builds/:id"""

    async def test_appends_only_new_bytes_of_the_trace(self, services: Services, runner_with_build: LegacyRunner) -> None:
        whole = ""
        for piece in ("$ make\n", "Größe: 12\n", "", "done\n"):
            whole += piece
            response = await runner_with_build.update(trace=whole, state="running")
            assert (response.status_code, response.json()) == (200, True)

        assert await trace_of(services, runner_with_build.build["id"]) == whole

    @pytest.mark.parametrize("state", ["success", "failed"])
    async def test_ends_the_build_with_its_trace(
        self, make: DataFactory, services: Services, runner_with_build: LegacyRunner, state: str
    ) -> None:
        response = await runner_with_build.update(state=state, trace="all of it\n")

        assert (response.status_code, response.json()) == (200, True)
        row = await make.fetch(tables.Build, runner_with_build.build["id"])
        assert row is not None and (row.status, row.finished_at is not None) == (CheckStatus(state), True)
        assert await trace_of(services, row.id) == "all of it\n"

    async def test_reporting_the_final_status_twice_succeeds(self, runner_with_build: LegacyRunner) -> None:
        for report in ({"state": "success", "trace": "all of it\n"}, {"state": "success"}):
            assert [(await runner_with_build.update(**report)).status_code for _ in range(2)] == [200, 200]
        assert (await runner_with_build.update(state="failed", trace="all of it\n")).status_code == 404

    async def test_accepts_a_trace_of_megabytes(self, services: Services, runner_with_build: LegacyRunner) -> None:
        whole = "\x1b[32mgrün\x1b[0m\n" * 200_000

        assert (await runner_with_build.update(trace=whole)).status_code == 200

        assert await trace_of(services, runner_with_build.build["id"]) == whole

    async def test_joins_a_character_split_between_two_updates(self, services: Services, runner_with_build: LegacyRunner) -> None:
        # The runner of the time cuts its bytes anywhere, and JSON then has U+FFFD for each that stands alone.
        for trace in ("Gr", "Gr\ufffd", "Größ\ufffd", "Größe"):
            assert (await runner_with_build.update(trace=trace)).status_code == 200

        assert await trace_of(services, runner_with_build.build["id"]) == "Größe"

    async def test_replaces_unstorable_characters(self, services: Services, runner_with_build: LegacyRunner) -> None:
        await runner_with_build.update(trace="a\0b\ufffd", state="success")

        assert await trace_of(services, runner_with_build.build["id"]) == "a\ufffdb\ufffd"

    async def test_a_shorter_trace_replaces_the_stored_one(self, services: Services, runner_with_build: LegacyRunner) -> None:
        for trace in ("one two", "ONE", "ONE two three"):
            assert (await runner_with_build.update(trace=trace)).status_code == 200

        assert await trace_of(services, runner_with_build.build["id"]) == "ONE two three"

    async def test_the_output_after_a_lost_runner_is_complete(
        self, make: DataFactory, services: Services, runner_with_build: LegacyRunner
    ) -> None:
        build_id = runner_with_build.build["id"]
        await runner_with_build.update(trace="an output that is lost with its runner")
        await recover_lost_builds(replace(services, clock=lambda: now() + timedelta(seconds=70)))
        assert (await runner_with_build.claim()).status_code == 201

        for trace in ("$ make\n", "$ make\nand all of its output, longer than the message\n"):
            assert (await runner_with_build.update(trace=trace)).status_code == 200
            assert await trace_of(services, build_id) == LOST_MESSAGE + trace
        assert (await runner_with_build.update(trace="$ cc\n", state="failed")).status_code == 200
        assert await trace_of(services, build_id) == LOST_MESSAGE + "$ cc\n"

    async def test_the_last_report_replaces_what_a_process_that_was_not_lost_has_sent(
        self, services: Services, runner_with_build: LegacyRunner
    ) -> None:
        """Both processes have the token of the runner, and send their whole traces."""
        build_id = runner_with_build.build["id"]
        await runner_with_build.update(trace="$ make\n")
        await recover_lost_builds(replace(services, clock=lambda: now() + timedelta(seconds=70)))
        assert (await runner_with_build.claim()).status_code == 201

        await runner_with_build.update(trace="$ cc\n")
        await runner_with_build.update(trace="$ make\nfrom the process that was not lost\n")
        trace = "$ cc\nfrom the second process, which has written more in the end\n"
        for _ in range(2):
            assert (await runner_with_build.update(trace=trace, state="success")).status_code == 200
        assert await trace_of(services, build_id) == LOST_MESSAGE + trace

    async def test_reports_cancellation_to_the_runner(
        self, make: DataFactory, services: Services, runner_with_build: LegacyRunner, ask: Any
    ) -> None:
        cancel = 'mutation ($id: Int!) { cancelBuild(input: {projectPath: "ada/engine", databaseId: $id}) { userErrors { code } } }'
        await runner_with_build.update(trace="so far")
        await ask.data(cancel, await make.admin(), id=runner_with_build.build["id"])

        for fields in ({"trace": "so far and on"}, {"state": "running"}, {"state": "success", "trace": "so far and on"}, {}):
            response = await runner_with_build.update(**fields)
            assert (response.status_code, response.json()) == (404, NOT_FOUND)
        assert await trace_of(services, runner_with_build.build["id"]) == "so far"

    async def test_answers_404_for_a_build_of_another_runner(
        self, ci: httpx.AsyncClient, make: DataFactory, runner_with_build: LegacyRunner
    ) -> None:
        other = LegacyRunner(ci, make.runner_token(await make.runner()))

        for fields in ({"trace": "mine"}, {"state": "success"}):
            assert (await other.update(runner_with_build.build["id"], **fields)).status_code == 404
        row = await make.fetch(tables.Build, runner_with_build.build["id"])
        assert row is not None and (row.status, row.trace_size) == (CheckStatus.RUNNING, 0)

    async def test_answers_404_for_a_build_that_waits(self, make: DataFactory, project: tables.Project, runner: LegacyRunner) -> None:
        build = await make.pending_build(project)

        assert (await runner.update(build.id, state="success")).status_code == 404

    async def test_verifies_a_token_by_a_missing_build(self, ci: httpx.AsyncClient, runner: LegacyRunner) -> None:
        good = await runner.update(-1)
        bad = await LegacyRunner(ci, "fr-" + "x" * 20).update(-1)

        assert (good.status_code, good.json()) == (404, NOT_FOUND)
        assert (bad.status_code, bad.json()) == (403, FORBIDDEN)

    async def test_answers_403_to_a_user(self, ci: httpx.AsyncClient, make: DataFactory, runner_with_build: LegacyRunner) -> None:
        admin = token_of(await make.admin())

        with_token = await LegacyRunner(ci, admin).update(runner_with_build.build["id"], state="failed")
        with_header = await ci.put(f"builds/{runner_with_build.build['id']}", json={"state": "failed"}, headers={"PRIVATE-TOKEN": admin})

        assert (with_token.status_code, with_header.status_code) == (403, 403)
        row = await make.fetch(tables.Build, runner_with_build.build["id"])
        assert row is not None and row.status is CheckStatus.RUNNING

    async def test_treats_other_states_as_running(self, make: DataFactory, runner_with_build: LegacyRunner) -> None:
        for state in ("running", "pending", "canceled", "nonsense"):
            assert (await runner_with_build.update(state=state)).status_code == 200
        row = await make.fetch(tables.Build, runner_with_build.build["id"])
        assert row is not None and row.status is CheckStatus.RUNNING

    async def test_continues_as_a_new_attempt_after_a_retry(
        self, make: DataFactory, runner_with_build: LegacyRunner, services: Services, ask: Any
    ) -> None:
        await runner_with_build.update(state="failed", trace="first")
        retry = 'mutation ($id: Int!) { retryBuild(input: {projectPath: "ada/engine", databaseId: $id}) { userErrors { code } } }'
        await ask.data(retry, await make.admin(), id=runner_with_build.build["id"])

        late = await runner_with_build.update(state="success", trace="first and more")

        assert late.status_code == 404
