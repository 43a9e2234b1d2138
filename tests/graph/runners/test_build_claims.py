"""Claims of builds: which build a runner gets, with which data, and builds of lost runners."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

import orjson
import pytest
from sqlalchemy import select, text, update

from graph.context import Context, Services
from graph.errors import Forbidden, NotFound, Unauthenticated
from graph.git_access import GitAccess
from graph.http.endpoint import make_graphql_app
from graph.jobs import maintenance
from graph.jobs.runner_queue import OldestBuildsQuery, RunnerQueue
from graph.operations.execution import Graph
from graph.operations.transaction import session_for
from graph.rules.builds import traces
from graph.rules.runners import status_reports
from graph.rules.runners.build_queues import accepted_queues, accepts_queue
from storage import tables
from storage.database.clock import now
from storage.database.engine import Database
from storage.database.pg_notify import Notifications
from storage.tables import CheckStatus
from storage.tables.builds import builds, runners
from tests.make import DataFactory, alter_token, token_of
from tests.support.api_clients import Ask
from tests.support.database.many_rows import insert_numbered
from tests.support.database.statement_plans import explain, record_values
from tests.support.database.statements import StatementRecorder
from tests.support.servers.streams import background_tasks
from tests.support.waiting import wait_until

CLAIM = """
mutation ($input: ClaimBuildInput!) {
  claimBuild(input: $input) {
    build { databaseId status startedAt runner { databaseId } }
    job {
      token script afterScript variables { key value public } timeoutSeconds leaseSeconds repositoryUrl sha ref tag stage name
      allowGitFetch image traceOffset traceLimit artifacts { paths untracked name when }
    }
    userErrors { field message code }
  }
}
"""
REPORT = "mutation ($input: UpdateBuildInput!) { updateBuild(input: $input) { build { status coverage } userErrors { message code } } }"
APPEND = "mutation ($input: AppendBuildTraceInput!) { appendBuildTrace(input: $input) { build { status } userErrors { message code } } }"
UPLOAD = "mutation ($input: CreateArtifactUploadInput!) { createArtifactUpload(input: $input) { upload { url } userErrors { code } } }"
CANCEL = "mutation ($input: BuildInput!) { cancelBuild(input: $input) { userErrors { code } } }"
RETRY = "mutation ($input: BuildInput!) { retryBuild(input: $input) { userErrors { code } } }"
SWITCH = "mutation ($input: UpdateProjectInput!) { updateProject(input: $input) { userErrors { code } } }"


class RunnerCalls:
    """A runner, as it describes itself to the service."""

    def __init__(self, graph: Graph, token: str) -> None:
        self.graph = graph
        self.token = token

    async def __call__(self, query: str, token: str | None = None, **given: Any) -> Any:
        """The payload of a mutation, or the code of the error instead of one."""
        outcome = await self.graph.run_document(query, {"input": given}, None, token or self.token, request_id="test")
        if outcome.errors:
            return str(outcome.errors[0].code)
        assert outcome.data is not None
        ((_, payload),) = outcome.data.items()
        return payload

    async def claim(self, **given: Any) -> dict[str, Any] | None:
        """The job and in it the number of the build; None when there is none."""
        payload = await self(CLAIM, **given)
        assert payload["userErrors"] == []
        return {**payload["job"], "id": payload["build"]["databaseId"]} if payload["build"] else None

    async def claim_id(self) -> int | None:
        found = await self.claim()
        return found["id"] if found else None

    async def code(self, query: str, token: str | None = None, **given: Any) -> str:
        payload = await self(query, token, **given)
        if isinstance(payload, str):
            return payload
        return payload["userErrors"][0]["code"] if payload["userErrors"] else "ok"


@pytest.fixture
def calls(graph: Graph, make: DataFactory) -> Callable[[tables.Runner], RunnerCalls]:
    return lambda runner: RunnerCalls(graph, make.runner_token(runner))


Calling = Callable[[tables.Runner], RunnerCalls]


async def row_of(make: DataFactory, build: int) -> tables.Build:
    row = await make.fetch(tables.Build, build)
    assert row is not None
    return row


class TestBuildSelection:
    async def test_the_oldest_first(self, calls: Calling, make: DataFactory) -> None:
        project, other = await make.project(), await make.project()
        expected = [(await make.pending_build(each)).id for each in (other, project, other)]
        runner = calls(await make.runner())

        assert [await runner.claim_id() for _ in range(4)] == [*expected, None]

    async def test_a_claimed_build_is_running(self, calls: Calling, make: DataFactory) -> None:
        build, runner = await make.pending_build(await make.project()), await make.runner()

        payload = await calls(runner)(CLAIM, name="r", version="1", revision="abc", platform="linux", architecture="x86_64")

        assert payload["build"]["status"] == "RUNNING"
        assert payload["build"]["runner"] == {"databaseId": runner.id}
        row = await row_of(make, build.id)
        assert row.lease_until is not None and row.started_at is not None
        assert timedelta(seconds=55) < row.lease_until - row.started_at <= timedelta(seconds=61)
        output = await make.fetch(tables.Runner, runner.id)
        assert output is not None
        assert (output.name, output.version, output.revision, output.platform, output.architecture) == ("r", "1", "abc", "linux", "x86_64")
        assert output.contacted_at is not None

    @pytest.mark.parametrize(
        ("tags", "untagged", "taken"),
        [([], True, [0]), (["a"], True, [0, 1]), (["a", "b"], False, [1, 2]), (["b", "c"], True, [0]), ([], False, [])],
    )
    async def test_all_its_tags_are_the_runners(
        self, calls: Calling, make: DataFactory, tags: list[str], untagged: bool, taken: list[int]
    ) -> None:
        project = await make.project()
        builds = [(await make.pending_build(project, tags=each)).id for each in ((), ("a",), ("a", "b"))]
        # (It need not be of use to anybody.)
        runner = calls(await make.runner(tags=tags, run_untagged=untagged))

        assert [await runner.claim_id() for _ in range(len(taken) + 1)] == [*(builds[place] for place in taken), None]

    async def test_a_project_runner_claims_only_its_projects(self, calls: Calling, make: DataFactory) -> None:
        first, second, foreign = [await make.project() for _ in range(3)]
        await make.pending_build(foreign)
        builds = [(await make.pending_build(each, tags=tags)).id for each, tags in ((second, ("a",)), (first, ()), (second, ("b",)))]
        runner = calls(await make.runner(first, second, tags=["a"]))

        assert [await runner.claim_id() for _ in range(3)] == [builds[0], builds[1], None]

    async def test_an_inactive_runner_claims_nothing(self, calls: Calling, make: DataFactory) -> None:
        await make.pending_build(await make.project())

        assert await calls(await make.runner(active=False)).claim(waitSeconds=20) is None

    async def test_builds_of_external_systems_are_not_claimed(self, calls: Calling, make: DataFactory) -> None:
        await make.build(await make.project(), "a" * 40)

        assert await calls(await make.runner()).claim() is None

    async def test_a_build_token_cannot_claim(self, calls: Calling, make: DataFactory) -> None:
        project = await make.project()
        await make.pending_build(project)
        await make.pending_build(project)
        runner = calls(await make.runner())
        job = await runner.claim()
        assert job is not None

        assert await runner(CLAIM, job["token"]) == "FORBIDDEN"


class TestManyQueues:
    """Queues that other runners serve do not hide those of a runner."""

    async def create_queues(self, make: DataFactory, project: tables.Project, number: int) -> None:
        for name in (f"!{number:05}" for number in range(number)):
            await make.pending_build(project, tags=(name,))

    @pytest.mark.parametrize("tags", [("docker",), ("docker", "linux"), ()])
    async def test_of_other_projects(
        self, tags: tuple[str, ...], calls: Calling, make: DataFactory, statements: StatementRecorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runners, "MAX_QUEUES", 3)
        await self.create_queues(make, await make.project(), 7)
        build = await make.pending_build(await make.project(), tags=tags)

        with statements.record() as seen:
            assert await calls(await make.runner(tags=["docker", "linux"])).claim_id() == build.id

        assert sum("RECURSIVE" in statement for statement in seen) == 3

    async def test_of_another_project_of_the_runner(self, calls: Calling, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runners, "MAX_QUEUES", 3)
        other, project = await make.project(), await make.project()
        await self.create_queues(make, other, 7)
        build = await make.pending_build(project, tags=("docker",))

        assert await calls(await make.runner(other, project, tags=["docker"])).claim_id() == build.id

    def test_accepted_queues_are_those_that_a_runner_accepts(self) -> None:
        oldest = dict.fromkeys(["", ",", "a", "a,b", "a,c", "b", "c", ",a", ",c", ",a,b", "a b", "aa"], 1)
        for shared, run_untagged, tags in itertools.product((True, False), (True, False), ([], ["a"], ["b", "a"])):
            runner = tables.Runner(description="r", token_digest="x", shared=shared, run_untagged=run_untagged, tags=tags)
            assert set(accepted_queues(oldest, runner)) == {queue for queue in oldest if accepts_queue(queue, runner)}


class TestBuildsDisabled:
    @pytest.mark.parametrize("switch", [{"buildsEnabled": False}, {"archived": True}])
    async def test_builds_wait_until_builds_are_enabled_again(
        self, ask: Ask, calls: Calling, make: DataFactory, switch: dict[str, Any]
    ) -> None:
        project = await make.project(owner=(owner := await make.user()))
        build = await make.pending_build(project, tags=("b", "a"))
        outside = await make.build(project, "a" * 40)
        runner = calls(await make.runner(tags=["a", "b"]))

        await ask.data(SWITCH, owner, input={"projectPath": str(project.id), **switch})
        assert (await row_of(make, build.id)).queue is None
        assert await runner.claim_id() is None

        back = {name: not value for name, value in switch.items()}
        await ask.data(SWITCH, owner, input={"projectPath": str(project.id), **back})
        assert (await row_of(make, build.id)).queue == "a,b"
        assert (await row_of(make, outside.id)).queue is None
        assert await runner.claim_id() == build.id

    @pytest.mark.parametrize(
        ("switch", "is_claimed"), [({"buildsEnabled": False}, True), ({"archived": True}, True), ({"archived": True}, False)]
    )
    async def test_builds_that_end_meanwhile_can_be_retried_later(
        self, ask: Ask, calls: Calling, make: DataFactory, switch: dict[str, Any], is_claimed: bool
    ) -> None:
        project = await make.project(owner=(owner := await make.user()))
        build = await make.pending_build(project, tags=("a",))
        runner = calls(await make.runner(tags=["a"]))
        about = {"projectPath": str(project.id), "databaseId": build.id}
        if is_claimed:
            assert await runner.claim_id() == build.id

        await ask.data(SWITCH, owner, input={"projectPath": str(project.id), **switch})
        if is_claimed:
            await runner(REPORT, databaseId=build.id, status="FAILED")
        else:
            await ask.data(CANCEL, owner, input=about)
        await ask.data(SWITCH, owner, input={"projectPath": str(project.id), **{name: not value for name, value in switch.items()}})
        await ask.data(RETRY, owner, input=about)

        assert (await row_of(make, build.id)).queue == "a"
        assert await runner.claim_id() == build.id

    async def test_builds_added_while_disabled_are_not_claimed(self, calls: Calling, make: DataFactory) -> None:
        off = await make.project(builds_enabled=False)
        for _ in range(3):
            await make.pending_build(off)
        build = await make.pending_build(await make.project())
        runner = calls(await make.runner())

        assert await runner.claim_id() == build.id
        assert await runner.claim_id() is None

    @pytest.mark.parametrize(("columns", "queue"), [({"builds_enabled": False}, None), ({"shared_runners_enabled": False}, ",")])
    async def test_a_claim_that_has_met_such_a_build_waits_without_a_transaction(
        self, columns: dict[str, Any], queue: str | None, services: Services, make: DataFactory
    ) -> None:
        services = replace(services, runner_queue=RunnerQueue(cache_seconds=20.0, poll_seconds=20.0))
        # Queued while the switch was being changed.
        build = await make.pending_build(await make.project(**columns))
        runner = RunnerCalls(Graph(services), make.runner_token(await make.runner()))
        waiting = asyncio.create_task(runner.claim(waitSeconds=20))
        await wait_until(lambda: services.runner_queue._waiting == 1)

        assert (await row_of(make, build.id)).queue == queue
        async with services.database.write_session() as session:
            assert await session.scalar(select(tables.Build.id).with_for_update(nowait=True)) == build.id
            await session.execute(update(tables.Build).values(description="x"))
            await session.commit()
        services.runner_queue.close()
        assert await waiting is None


class TestSharedRunnersDisabled:
    async def test_shared_runners_skip_the_project(self, ask: Ask, calls: Calling, make: DataFactory) -> None:
        owner = await make.user()
        project, refusing = await make.project(owner=owner), await make.project(shared_runners_enabled=False)
        added, build = await make.pending_build(refusing, tags=("a",)), await make.pending_build(project, tags=("a",))
        shared, own = calls(await make.runner(tags=["a"])), calls(await make.runner(project, tags=["a"]))

        async def switch(*, enabled: bool) -> None:
            await ask.data(SWITCH, owner, input={"projectPath": str(project.id), "sharedRunnersEnabled": enabled})

        await switch(enabled=False)
        assert await shared.claim_id() is None
        assert (await row_of(make, build.id)).queue == ",a"
        await switch(enabled=True)
        assert (await row_of(make, build.id)).queue == "a"
        await switch(enabled=False)
        assert await own.claim_id() == build.id
        # It was queued while shared runners were being disabled.
        assert await calls(await make.runner(refusing, tags=["a"])).claim_id() == added.id


class TestConcurrentClaims:
    @pytest.mark.parametrize("own", [False, True])
    async def test_a_queue_whose_builds_are_locked_is_left_out(
        self, own: bool, calls: Calling, make: DataFactory, statements: StatementRecorder
    ) -> None:
        database = make.services.database
        if database.dialect != "postgresql":
            pytest.skip("SQLite has no locks of rows")
        projects = [await make.project(), await make.project()]
        locked, free, last = [await make.pending_build(projects[index], tags=tags) for index, tags in ((0, ("a",)), (1, ()), (1, ("a",)))]
        runner = calls(await make.runner(*(projects if own else []), tags=["a"]))
        async with database.write_session() as session:
            await session.execute(builds.for_update(locked.id))
            assert {await runner.claim_id() for _ in range(2)} == {free.id, last.id}
            with statements.record() as seen:
                assert await runner.claim_id() is None
            assert sum("SKIP LOCKED" in statement for statement in seen) == 1
        assert await runner.claim_id() == locked.id

    async def test_two_runners_never_claim_the_same_build(self, calls: Calling, make: DataFactory) -> None:
        project = await make.project()
        builds = {(await make.pending_build(project)).id for _ in range(12)}
        runners_ = [calls(await make.runner()) for _ in range(6)]

        async def work(runner: RunnerCalls) -> list[int]:
            return [found for _ in range(4) if (found := await runner.claim_id()) is not None]

        taken = [found for each in await asyncio.gather(*(work(runner) for runner in runners_)) for found in each]
        assert sorted(taken) == sorted(builds)

    async def test_two_processes_never_claim_the_same_build(self, services: Services, make: DataFactory) -> None:
        project, runner = await make.project(), await make.runner()
        builds = {(await make.pending_build(project)).id for _ in range(10)}
        processes = [
            RunnerCalls(Graph(replace(services, runner_queue=RunnerQueue(cache_seconds=0.0))), make.runner_token(runner)) for _ in range(5)
        ]

        taken = await asyncio.gather(*(process.claim_id() for process in processes for _ in range(2)))

        assert sorted(filter(None, taken)) == sorted(builds)


class TestClaimPayload:
    async def test_contains_everything_the_runner_needs(self, calls: Calling, make: DataFactory) -> None:
        owner = await make.user("ann")
        project = await make.project(owner=owner, path="tool")
        options = {
            "variables": {"LEVEL": "9"},
            "after_script": ["echo bye"],
            "image": "ruby:2.2",
            "artifacts": {"paths": ["pkg/", "*.log"], "name": "packages", "when": "always"},
        }
        await make.save(pipeline := tables.Pipeline(project_id=project.id, sha="a" * 40, ref="v1", tag=True, before_sha="b" * 40))
        build = await make.pending_build(
            project, commands="make\nmake test", name="rspec", stage="test", ref="v1", tag=True, options=options, pipeline_id=pipeline.id
        )

        job = await calls(await make.runner()).claim()

        assert job is not None
        variables = {each["key"]: each["value"] for each in job.pop("variables")}
        token = job["token"]
        assert job == {
            "id": build.id,
            "token": token,
            "script": ["make\nmake test"],
            "afterScript": ["echo bye"],
            "timeoutSeconds": 3600,
            "leaseSeconds": 60,
            "repositoryUrl": "http://forge.example/ann/tool.git",
            "sha": "a" * 40,
            "ref": "v1",
            "tag": True,
            "stage": "test",
            "name": "rspec",
            "allowGitFetch": True,
            "image": "ruby:2.2",
            "traceOffset": 0,
            "traceLimit": 64 * 2**20,
            "artifacts": {"paths": ["pkg/", "*.log"], "untracked": False, "name": "packages", "when": "ALWAYS"},
        }
        assert variables.pop("CI_SERVER_VERSION") == variables.pop("CI_SERVER_REVISION") != ""
        assert variables == {
            "CI": "true",
            "GITLAB_CI": "true",
            "CI_SERVER": "yes",
            "CI_SERVER_NAME": "Forgefront",
            "CI_SERVER_URL": "http://forge.example",
            "CI_PROJECT_ID": str(project.id),
            "CI_BUILD_ID": str(build.id),
            "CI_BUILD_REF": "a" * 40,
            "CI_BUILD_BEFORE_SHA": "b" * 40,
            "CI_BUILD_REF_NAME": "v1",
            "CI_BUILD_REF_SLUG": "v1",
            "CI_BUILD_NAME": "rspec",
            "CI_BUILD_STAGE": "test",
            "CI_BUILD_TAG": "v1",
            "CI_BUILD_TOKEN": token,
            "CI_BUILD_REPO": f"http://gitlab-ci-token:{token}@forge.example/ann/tool.git",
            "LEVEL": "9",
        }

    async def test_the_tokens_are_not_public(self, calls: Calling, make: DataFactory) -> None:
        await make.pending_build(await make.project())

        job = await calls(await make.runner()).claim()

        assert job is not None
        assert {each["key"] for each in job["variables"] if not each["public"]} == {"CI_BUILD_TOKEN", "CI_BUILD_REPO"}
        assert not any(job["token"] in each["value"] for each in job["variables"] if each["public"])


class TestRepositoryAccess:
    async def test_is_fetched_with_the_builds_token_while_it_runs(self, services: Services, calls: Calling, make: DataFactory) -> None:
        project = await make.project(owner=await make.user("ann"), path="tool")
        await make.project(owner=await make.user("bob"), path="tool")
        build = await make.pending_build(project)
        runner = calls(await make.runner())
        job = await runner.claim()
        assert job is not None
        access = GitAccess(services)

        granted = await access.authorize_fetch("Ann/Tool", job["token"], "test")
        assert (granted.project_id, granted.viewer_id) == (project.id, None)
        with pytest.raises(NotFound):
            await access.authorize_fetch("bob/tool", job["token"], "test")
        with pytest.raises(Forbidden):
            await access.authorize_push("ann/tool", job["token"], "test")
        for wrong in (alter_token(job["token"]), runner.token, f"fb-{build.id + 1}-" + "x" * 20, f"fb-{2**33}-" + "x" * 20):
            with pytest.raises(Unauthenticated):
                await access.authorize_fetch("ann/tool", wrong, "test")

        assert await runner.code(REPORT, job["token"], databaseId=build.id, status="SUCCESS") == "ok"
        with pytest.raises(Unauthenticated):
            await access.authorize_fetch("ann/tool", job["token"], "test")


class TestReports:
    @pytest.mark.parametrize("by_build", [False, True])
    async def test_the_runner_reports_the_result(self, calls: Calling, make: DataFactory, by_build: bool) -> None:
        build = await make.pending_build(await make.project(), options={"coverage": r"(\d+)% covered"})
        runner = calls(await make.runner())
        job = await runner.claim()
        assert job is not None
        token = job["token"] if by_build else None

        assert await runner.code(APPEND, token, databaseId=build.id, text="running\n87% covered\n", offset=0) == "ok"
        payload = await runner(REPORT, token, databaseId=build.id, status="SUCCESS")

        assert payload == {"build": {"status": "SUCCESS", "coverage": 87.0}, "userErrors": []}
        row = await row_of(make, build.id)
        assert row.finished_at is not None and row.lease_until is None
        # The request is repeated after a lost answer.
        assert await runner.code(REPORT, token, databaseId=build.id, status="SUCCESS") == "ok"
        assert await runner.code(REPORT, token, databaseId=build.id, status="FAILED") == "CONFLICT"
        assert await runner.code(APPEND, token, databaseId=build.id, text="more", offset=19) == "CONFLICT"

    async def test_rejects_builds_of_another_runner(self, calls: Calling, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        mine, foreign = await make.pending_build(project), await make.pending_build(project)
        waiting = await make.pending_build(project)
        runner, other = calls(await make.runner()), calls(await make.runner())
        job = await runner.claim()
        assert job is not None
        assert job["id"] == mine.id
        assert await other.claim_id() == foreign.id

        for query, more in ((REPORT, {"status": "FAILED"}), (APPEND, {"text": "x", "offset": 0}), (UPLOAD, {"filename": "a.zip"})):
            assert await runner.code(query, databaseId=mine.id, **(more if query is not REPORT else {})) == "ok"
            assert await runner.code(query, databaseId=foreign.id, **more) == "CONFLICT"
            assert await runner.code(query, databaseId=waiting.id, **more) == "NOT_FOUND"
            assert await runner.code(query, job["token"], databaseId=foreign.id, **more) == "NOT_FOUND"
        assert (await row_of(make, foreign.id)).status is CheckStatus.RUNNING
        assert owner is not None

    async def test_a_canceled_build_is_reported_to_the_runner(self, ask: Ask, calls: Calling, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        build = await make.pending_build(project)
        runner = calls(await make.runner())
        await runner.claim_id()
        cancel = "mutation ($input: BuildInput!) { cancelBuild(input: $input) { userErrors { code } } }"

        await ask.data(cancel, owner, input={"projectPath": str(project.id), "databaseId": build.id})

        payload = await runner(REPORT, databaseId=build.id, status="RUNNING")
        assert payload["userErrors"] == [{"message": "The build was canceled.", "code": "CONFLICT"}]

    async def test_a_runner_does_not_cancel(self, calls: Calling, make: DataFactory) -> None:
        build = await make.pending_build(await make.project())
        runner = calls(await make.runner())
        await runner.claim_id()

        assert await runner.code(REPORT, databaseId=build.id, status="CANCELED") == "NOT_ALLOWED"

    async def test_the_runner_requeues_a_build(self, calls: Calling, make: DataFactory) -> None:
        build = await make.pending_build(await make.project())
        runner, other = calls(await make.runner()), calls(await make.runner())
        job = await runner.claim()
        assert job is not None
        await runner(APPEND, job["token"], databaseId=build.id, text="half\n", offset=0)

        assert await runner.code(REPORT, job["token"], databaseId=build.id, status="PENDING") == "ok"

        again = await other.claim()
        assert again is not None
        assert (again["id"], again["traceOffset"]) == (build.id, len(status_reports.RETURNED_MESSAGE))
        assert await runner.code(REPORT, job["token"], databaseId=build.id, status="SUCCESS") == "UNAUTHENTICATED"
        assert await runner.code(REPORT, databaseId=build.id, status="SUCCESS") == "CONFLICT"


class TestLease:
    async def services_later(self, services: Services, seconds: float) -> Services:
        moment = services.clock() + timedelta(seconds=seconds)
        return replace(services, clock=lambda: moment)

    async def test_is_renewed_by_each_report(self, services: Services, calls: Calling, make: DataFactory) -> None:
        build, runner = await make.pending_build(await make.project()), await make.runner()
        await calls(runner).claim_id()
        first = (await row_of(make, build.id)).lease_until
        assert first is not None

        for seconds, renewed in ((5, False), (30, True)):
            graph = Graph(await self.services_later(services, seconds))
            for query, more in ((APPEND, {"text": "", "offset": 0}), (REPORT, {"status": "RUNNING"})):
                assert await RunnerCalls(graph, make.runner_token(runner)).code(query, databaseId=build.id, **more) == "ok"
            until = (await row_of(make, build.id)).lease_until
            assert until is not None
            assert (until > first) is renewed

    async def test_reports_about_a_build_are_contacts_of_its_runner(self, services: Services, calls: Calling, make: DataFactory) -> None:
        build, runner = await make.pending_build(await make.project()), await make.runner()
        await calls(runner).claim_id()
        claimed = await make.fetch(tables.Runner, runner.id)
        assert claimed is not None and claimed.contacted_at is not None

        for seconds in (30, 90):
            graph = Graph(await self.services_later(services, seconds))
            assert await RunnerCalls(graph, make.runner_token(runner)).code(REPORT, databaseId=build.id, status="RUNNING") == "ok"
            row = await make.fetch(tables.Runner, runner.id)
            assert row is not None and row.contacted_at is not None
            assert (row.contacted_at - claimed.contacted_at >= timedelta(seconds=89)) is (seconds == 90)

    async def test_an_expired_lease_requeues_the_same_attempt(self, services: Services, calls: Calling, make: DataFactory) -> None:
        build, lost = await make.pending_build(await make.project()), calls(await make.runner())
        job = await lost.claim()
        assert job is not None
        await lost(APPEND, databaseId=build.id, text="some\n", offset=0)

        await status_reports.recover_lost_builds(await self.services_later(services, 50))
        assert (await row_of(make, build.id)).status is CheckStatus.RUNNING
        await status_reports.recover_lost_builds(await self.services_later(services, 70))

        row = await row_of(make, build.id)
        assert (row.status, row.attempt, row.runner_id, row.started_at) == (CheckStatus.PENDING, 1, None, None)
        assert row.trace_size == len(status_reports.LOST_MESSAGE)
        assert await calls(await make.runner()).claim_id() == build.id
        assert await lost.code(REPORT, databaseId=build.id, status="SUCCESS") == "CONFLICT"
        assert await lost.code(APPEND, job["token"], databaseId=build.id, text="late", offset=5) == "UNAUTHENTICATED"

    async def test_is_not_taken_from_a_live_runner_after_an_outage(self, services: Services, calls: Calling, make: DataFactory) -> None:
        ids = [(await make.pending_build(await make.project())).id for _ in range(2)]
        live, lost = calls(await make.runner()), calls(await make.runner())
        assert [await live.claim_id(), await lost.claim_id()] == ids
        later = await self.services_later(services, 1000)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await maintenance.run(later)

        async def recover(seconds: float) -> list[CheckStatus]:
            await status_reports.recover_lost_builds(await self.services_later(services, seconds))
            return [(await row_of(make, build)).status for build in ids]

        assert await recover(1050) == [CheckStatus.RUNNING] * 2
        assert await RunnerCalls(Graph(await self.services_later(services, 1050)), live.token).code(REPORT, databaseId=ids[0]) == "ok"
        assert await recover(1061) == [CheckStatus.RUNNING, CheckStatus.PENDING]

    async def test_is_taken_from_a_lost_runner_after_the_clock_was_set_back(
        self, services: Services, calls: Calling, make: DataFactory
    ) -> None:
        build = await make.pending_build(await make.project())
        assert await calls(await make.runner()).claim_id() == build.id
        services.lease_grace.begin(services.clock() + timedelta(seconds=4600))

        async def recover(seconds: float) -> CheckStatus:
            await status_reports.recover_lost_builds(await self.services_later(services, seconds))
            return (await row_of(make, build.id)).status

        assert [await recover(1000), await recover(1059)] == [CheckStatus.RUNNING] * 2
        assert await recover(1061) is CheckStatus.PENDING

    async def test_a_build_that_cannot_be_recovered_does_not_prevent_the_others(
        self, services: Services, calls: Calling, make: DataFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        builds = [await make.pending_build(await make.project()) for _ in range(3)]
        runner, return_to_queue = calls(await make.runner()), status_reports.return_to_queue
        for build in builds:
            assert await runner.claim_id() == build.id

        async def return_others(context: Context, build: tables.Build, message: str) -> None:
            if build.id == builds[0].id:
                raise RuntimeError("the first one")
            await return_to_queue(context, build, message)

        monkeypatch.setattr(status_reports, "return_to_queue", return_others)
        with pytest.raises(RuntimeError, match="the first one"):
            await status_reports.recover_lost_builds(await self.services_later(services, 70))
        assert [(await row_of(make, build.id)).status for build in builds] == [CheckStatus.RUNNING, *[CheckStatus.PENDING] * 2]

    async def test_it_is_started_four_times_at_most(self, services: Services, calls: Calling, make: DataFactory) -> None:
        build, runner = await make.pending_build(await make.project()), calls(await make.runner())
        for _ in range(4):
            assert (await row_of(make, build.id)).status is CheckStatus.PENDING
            assert await runner.claim_id() == build.id
            await runner(APPEND, databaseId=build.id, text="some\n", offset=0)
            await status_reports.recover_lost_builds(await self.services_later(services, 70))

        row = await row_of(make, build.id)
        assert row.status is CheckStatus.FAILED
        async with session_for(services.database, writing=False) as session:
            lines = await traces.read_tail(Context(services, session, None, "test"), row, 10)
        assert lines[-1] == status_reports.ABANDONED_MESSAGE.strip()

    async def test_a_build_far_beyond_its_time_has_failed(self, services: Services, calls: Calling, make: DataFactory) -> None:
        build = await make.pending_build(await make.project())
        await calls(await make.runner()).claim_id()
        async with make.services.database.write_session() as session:
            await session.execute(text("UPDATE builds SET lease_until = '2100-01-01 00:00:00.000000'"))
            await session.commit()

        await status_reports.recover_lost_builds(await self.services_later(services, 3650))
        assert (await row_of(make, build.id)).status is CheckStatus.RUNNING
        await status_reports.recover_lost_builds(await self.services_later(services, 3670))

        assert (await row_of(make, build.id)).status is CheckStatus.FAILED

    async def test_expiry_is_a_maintenance_job(self) -> None:
        assert status_reports.recover_lost_builds in maintenance.JOBS


class TestWaiting:
    async def test_waits_until_a_build_is_created(self, ask: Ask, services: Services, make: DataFactory) -> None:
        services = replace(services, runner_queue=RunnerQueue(cache_seconds=10.0, poll_seconds=10.0))
        project = await make.project(owner=(owner := await make.user()))
        build = await make.pending_build(project, status=CheckStatus.FAILED, started_at=now(), finished_at=now())
        graph, runner = Graph(services), await make.runner()
        waiting = asyncio.create_task(RunnerCalls(graph, make.runner_token(runner)).claim(waitSeconds=20))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        retry = "mutation ($input: BuildInput!) { retryBuild(input: $input) { userErrors { code } } }"

        variables = {"input": {"projectPath": str(project.id), "databaseId": build.id}}
        outcome = await graph.run_document(retry, variables, None, token_of(owner), request_id="test")
        assert outcome.errors == []

        async with asyncio.timeout(8):
            job = await waiting
        assert job is not None and job["id"] == build.id

    async def test_builds_of_another_process_are_claimed_within_the_poll_interval(self, services: Services, make: DataFactory) -> None:
        graph = Graph(replace(services, runner_queue=RunnerQueue(cache_seconds=0.1, poll_seconds=0.2)))
        project, runner = await make.project(), await make.runner()
        waiting = asyncio.create_task(RunnerCalls(graph, make.runner_token(runner)).claim(waitSeconds=20))
        await asyncio.sleep(0.3)
        build = await make.pending_build(project)

        async with asyncio.timeout(8):
            job = await waiting
        assert job is not None and job["id"] == build.id

    async def test_builds_of_another_process_wake_those_that_wait_here(self, services: Services, make: DataFactory) -> None:
        database = services.database
        here, there = RunnerQueue(cache_seconds=10.0, poll_seconds=10.0), RunnerQueue()
        notifications = [Notifications(database, {queue.channel: queue.receive}) for queue in (here, there)]
        running = [each.run() for each in notifications] + [there.run(notifications[1]), here.run(notifications[0])]
        async with background_tasks(*running):
            if database.dialect != "postgresql":
                pytest.skip("SQLite has one server process")
            await wait_until(lambda: all(each.is_connected for each in notifications))
            graph, runner = Graph(replace(services, runner_queue=here)), await make.runner()
            waiting = asyncio.create_task(RunnerCalls(graph, make.runner_token(runner)).claim(waitSeconds=20))
            await wait_until(lambda: here._waiting == 1)
            build = await make.pending_build(await make.project())
            there.notify()

            async with asyncio.timeout(8):
                job = await waiting
        assert job is not None and job["id"] == build.id

    async def test_a_runner_that_changes_while_it_waits(self, ask: Ask, services: Services, make: DataFactory) -> None:
        graph = Graph(replace(services, runner_queue=RunnerQueue(cache_seconds=0.1, poll_seconds=0.2)))
        change = "mutation ($input: UpdateRunnerInput!) { updateRunner(input: $input) { runner { active } } }"
        project = await make.project()
        paused, retagged, fitting = [await make.runner(tags=["linux"]) for _ in range(3)]
        waiting = [asyncio.create_task(RunnerCalls(graph, make.runner_token(each)).claim(waitSeconds=2)) for each in (paused, retagged)]
        await asyncio.sleep(0.3)
        admin = await make.admin()
        await ask.data(change, admin, input={"databaseId": paused.id, "active": False})
        await ask.data(change, admin, input={"databaseId": retagged.id, "tags": ["windows"]})
        build = await make.pending_build(project, tags=("linux",))

        assert await asyncio.gather(*waiting) == [None, None]
        job = await RunnerCalls(graph, make.runner_token(fitting)).claim()
        assert job is not None and job["id"] == build.id

    async def test_waiting_ends_at_its_timeout_and_on_shutdown(self, graph: Graph, make: DataFactory) -> None:
        runner = RunnerCalls(graph, make.runner_token(await make.runner()))
        started = perf_counter()
        assert await runner.claim(waitSeconds=1) is None
        assert 0.9 < perf_counter() - started < 15
        waiting = asyncio.create_task(runner.claim(waitSeconds=20))
        await asyncio.sleep(0.1)
        graph.services.runner_queue.close()
        async with asyncio.timeout(8):
            assert await waiting is None

    async def test_a_build_is_not_assigned_to_a_runner_that_disconnects_meanwhile(self, services: Services, make: DataFactory) -> None:
        disconnected = asyncio.Event()

        class Queue(RunnerQueue):
            async def oldest_builds(self, query: OldestBuildsQuery) -> Mapping[str, int]:
                found = await super().oldest_builds(query)
                disconnected.set()
                return found

        serve = make_graphql_app(Graph(replace(services, runner_queue=Queue())))
        build, token = await make.pending_build(await make.project()), make.runner_token(await make.runner())
        query = "mutation { claimBuild(input: {waitSeconds: 20}) { build { databaseId } } }"
        received = [{"type": "http.request", "body": orjson.dumps({"query": query}), "more_body": False}]

        async def receive() -> Any:
            if not received:
                await disconnected.wait()
                return {"type": "http.disconnect"}
            return received.pop()

        async def send(message: Any) -> None:
            pass

        headers = [(b"content-type", b"application/json"), (b"private-token", token.encode())]
        await serve({"type": "http", "method": "POST", "path": "/graphql", "query_string": b"", "headers": headers}, receive, send)

        assert (await row_of(make, build.id)).status is CheckStatus.PENDING

    async def test_a_disconnected_runner_claims_nothing(self, services: Services, make: DataFactory) -> None:
        serve = make_graphql_app(Graph(replace(services, runner_queue=RunnerQueue(cache_seconds=0.1, poll_seconds=0.2))))
        project, token = await make.project(), make.runner_token(await make.runner())
        query = "mutation { claimBuild(input: {waitSeconds: 20}) { build { databaseId } } }"
        received = [{"type": "http.disconnect"}, {"type": "http.request", "body": orjson.dumps({"query": query}), "more_body": False}]
        waited = asyncio.Event()

        async def receive() -> Any:
            if len(received) == 1:
                waited.set()
            return received.pop()

        async def send(message: Any) -> None:
            pass

        headers = [(b"content-type", b"application/json"), (b"private-token", token.encode())]
        scope = {"type": "http", "method": "POST", "path": "/graphql", "query_string": b"", "headers": headers}
        requested = asyncio.create_task(serve(scope, receive, send))
        await waited.wait()
        await asyncio.sleep(0.05)
        build = await make.pending_build(project)

        async with asyncio.timeout(8):
            await requested
        assert (await row_of(make, build.id)).status is CheckStatus.PENDING

    async def test_many_waiting_runners_share_one_query(self, services: Services, make: DataFactory, statements: StatementRecorder) -> None:
        """50 runners that wait cost their own sign-ins, and one look for all of them."""
        graph = Graph(replace(services, runner_queue=RunnerQueue(cache_seconds=10.0, poll_seconds=0.1)))
        runner = RunnerCalls(graph, make.runner_token(await make.runner(contacted_at=now())))
        await runner.claim()
        with statements.record() as seen:
            assert await asyncio.gather(*(runner.claim(waitSeconds=1) for _ in range(50))) == [None] * 50
        assert len(seen) == 50


class TestCost:
    """Claiming with two thousand builds waiting costs what it costs with a hundred."""

    async def create_builds(self, database: Database, project: tables.Project, number: int, tags: list[str]) -> None:
        moment = datetime(2016, 1, 1, tzinfo=UTC)
        row = {"sha": "a" * 40, "ref": "master", "name": "job", "status": CheckStatus.PENDING, "commands": "true"}
        row |= {"project_id": project.id, "queue": ",".join(tags), "tags": tags, "created_at": moment, "updated_at": moment}
        async with database.write_session() as session:
            await insert_numbered(session, tables.Build, number, lambda _: row)
            await session.commit()

    @pytest.mark.parametrize("own", [False, True])
    async def test_is_the_same(self, calls: Calling, make: DataFactory, statements: StatementRecorder, own: bool) -> None:
        project, database = await make.project(), make.services.database
        row = await make.runner(*([project] if own else []), tags=["b"], contacted_at=now())
        runner, counts, examined = calls(row), [], dict[str, str]()
        for waiting in (100, 1_900):
            await self.create_builds(database, project, waiting, ["a"])
            for _ in range(2):
                await make.pending_build(project, tags=("b",))
            async with database.write_session() as session:
                await session.execute(text("ANALYZE"))
                await session.commit()
            numbers = []
            for _ in range(2):
                with statements.record() as seen, record_values(database) as executed:
                    assert await runner.claim_id() is not None
                numbers.append(len(seen))
            # One of the two may be the first after a cache expired.
            counts.append(min(numbers))
            examined = await explain(database, executed)

        assert counts[0] == counts[1]
        assert counts[0] <= 20
        assert any("builds" in plan for plan in examined.values())
        # SQLite's ANY skips through an index of another column first.
        scans = ("SCAN builds", "ANY(") if database.dialect == "sqlite" else ("Seq Scan on builds",)
        assert [statement for statement, plan in examined.items() if any(scan in plan for scan in scans)] == []

    async def test_no_statement_scans_pending_builds(self, make: DataFactory) -> None:
        project, database = await make.project(), make.services.database
        await self.create_builds(database, project, 2_000, [])
        found = {
            "oldest_of_queues": runners.oldest_of_queues(),
            "following_queues": runners.oldest_of_queues("a"),
            "oldest_of_own_queues": runners.oldest_of_own_queues((await make.runner(project)).id),
            "next_of": runners.next_for_update("", None),
            "next_of_own": runners.next_for_update("", project.id),
            "oldest_id": runners.oldest_id(""),
        }
        prefix = "EXPLAIN QUERY PLAN" if database.dialect == "sqlite" else "EXPLAIN (ANALYZE, COSTS OFF)"
        async with database.write_session() as session:
            await session.execute(text("ANALYZE"))
            for name, statement in found.items():
                compiled = statement.compile(database.engine.sync_engine, compile_kwargs={"literal_binds": True})
                rows = (await session.execute(text(f"{prefix} {str(compiled).replace(':', chr(92) + ':')}"))).all()
                plan = "\n".join(str(row[-1]) for row in rows)
                if database.dialect == "sqlite":
                    touching = [line for line in plan.splitlines() if "builds" in line]
                    assert touching, name
                    # Any other index has to be skipped through, sorted, or filtered by the project.
                    index = "ix_builds_project_id_queue_id (project_id=? AND queue>?" if "own" in name else "ix_builds_queue_id (queue>?"
                    assert all(f"USING INDEX {index}" in line for line in touching), (name, plan)
                    assert "TEMP B-TREE" not in plan, (name, plan)
                else:
                    assert "Seq Scan on builds" not in plan, (name, plan)
                    assert "rows=2000" not in plan, (name, plan)
            await session.close()


async def test_every_pending_build_is_counted_once(make: DataFactory) -> None:
    """What the two looks see is the same."""
    project = await make.project()
    builds = [(await make.pending_build(project, tags=tags)) for tags in ((), ("a",), ("a", "b"), (), ("b",))]
    runner = await make.runner(project)
    async with make.services.database.read_session() as session:
        everywhere = {tuple(row) for row in await session.read(runners.oldest_of_queues())}
        own = {(row[0], row[2]) for row in await session.read(runners.oldest_of_own_queues(runner.id))}
        assert (await session.execute(select(tables.Build.id))).all()

    assert everywhere == own == {("", builds[0].id), ("a", builds[1].id), ("a,b", builds[2].id), ("b", builds[4].id)}
