"""Jobs with `when: manual`: they wait for somebody who plays them, and nothing waits for them."""

import pytest

from graph.operations.execution import Graph
from storage import tables
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.graph.builds.test_pipelines import PushScenario
from tests.graph.runners.test_build_claims import RunnerCalls
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

FILE = """
compile: {stage: build, script: make}
first: {script: a, when: manual}
second: {script: b, when: manual, tags: [prod], allow_failure: false}
deploy: {stage: deploy, script: c}
"""
PLAY = "mutation ($input: BuildInput!) { playBuild(input: $input) { build { status user { username } } userErrors { code } } }"
CANCEL = "mutation ($input: BuildInput!) { cancelBuild(input: $input) { build { status } userErrors { code } } }"
RETRY = "mutation ($input: BuildInput!) { retryBuild(input: $input) { build { status } userErrors { code } } }"
UPDATE = "mutation ($input: UpdateBuildInput!) { updateBuild(input: $input) { userErrors { code } } }"
CREATE = "mutation ($input: CreateBuildInput!) { createBuild(input: $input) { userErrors { code field } } }"
REPORT = "mutation ($input: CreateCommitStatusInput!) { createCommitStatus(input: $input) { userErrors { code } } }"
STATE = """query ($path: String!) { project(path: $path) {
    builds { nodes { name status viewerCan { play cancel retry } } }
    buildStats { rows { counts { total pending } } }
    pipelines { nodes { status stages { name status builds { name } } } }
    commit(rev: "master") { status rollup { state counts { total success } } } } }"""


@pytest.fixture
async def pushes(make: DataFactory) -> PushScenario:
    owner = await make.user("ada")
    project = await make.project(owner=owner, history={"commits": 2}, visibility=Visibility.PUBLIC)
    return PushScenario(make, await make.indexed(project), owner)


class TestPlay:
    async def test_a_manual_job_waits_and_delays_nothing(
        self, ask: Ask, graph: Graph, make: DataFactory, pushes: PushScenario, statements: StatementRecorder
    ) -> None:
        await pushes(FILE)
        await pushes.finish("compile")
        found = await pushes.builds()
        assert {name: str(build.status) for name, build in found.items()} == {
            "compile": "success",
            "first": "manual",
            "second": "manual",
            "deploy": "pending",
        }
        assert (found["first"].queue, found["second"].queue, found["deploy"].queue) == (None, None, "")
        runner = RunnerCalls(graph, make.runner_token(await make.runner(tags=["prod"])))
        assert await runner.claim_id() == found["deploy"].id
        assert await runner.claim_id() is None

        await pushes.finish("deploy")
        shown = (await ask.data(STATE, pushes.pusher, path=str(pushes.project.id)))["project"]
        assert shown["commit"] == {"status": "SUCCESS", "rollup": {"state": "SUCCESS", "counts": {"total": 2, "success": 2}}}
        assert shown["buildStats"] == {"rows": [{"counts": {"total": 2, "pending": 0}}]}
        (pipeline,) = shown["pipelines"]["nodes"]
        assert pipeline["status"] == "SUCCESS"
        assert [(stage["name"], stage["status"], len(stage["builds"])) for stage in pipeline["stages"]] == [
            *[("build", "SUCCESS", 1), ("test", "NONE", 2), ("deploy", "SUCCESS", 1)]
        ]
        abilities = {build["name"]: build["viewerCan"] for build in shown["builds"]["nodes"]}
        assert abilities["second"] == {"play": True, "cancel": False, "retry": False}
        assert abilities["deploy"] == {"play": False, "cancel": False, "retry": True}

        developer, reporter = await make.user("dev"), await make.user()
        await make.save(
            tables.ProjectMember(project_id=pushes.project.id, user_id=developer.id, access_level=AccessLevel.DEVELOPER),
            tables.ProjectMember(project_id=pushes.project.id, user_id=reporter.id, access_level=AccessLevel.REPORTER),
        )
        second = {"projectPath": str(pushes.project.id), "databaseId": found["second"].id}
        assert await ask.codes(PLAY, reporter, input=second) == ["FORBIDDEN"]
        for query, change in ((CANCEL, {}), (UPDATE, {"status": "RUNNING"}), (UPDATE, {"status": "MANUAL"}), (RETRY, {})):
            await ask.codes(query, developer, input={**second, **change})
            assert (await pushes.builds())["second"].status is CheckStatus.MANUAL
        with statements.assert_at_most(14):
            answer = await ask.data(PLAY, developer, input=second)
        assert answer["playBuild"] == {"build": {"status": "PENDING", "user": {"username": "dev"}}, "userErrors": []}
        assert await ask.codes(PLAY, developer, input=second) == ["FORBIDDEN"]
        assert await ask.codes(PLAY, developer, input={**second, "databaseId": found["deploy"].id}) == ["FORBIDDEN"]
        assert await runner.claim_id() == found["second"].id

        assert await pushes.finish("second", to=CheckStatus.FAILED) == []
        shown = (await ask.data(STATE, pushes.pusher, path=str(pushes.project.id)))["project"]
        assert (shown["commit"]["rollup"]["state"], shown["pipelines"]["nodes"][0]["status"]) == ("FAILED", "FAILED")
        assert (await ask.data(RETRY, developer, input=second))["retryBuild"]["build"] == {"status": "PENDING"}

    async def test_a_pipeline_of_manual_jobs_only_has_no_state(self, ask: Ask, pushes: PushScenario) -> None:
        await pushes("a: {script: x, when: manual}\nb: {stage: deploy, script: y, when: manual}")
        assert {name: str(build.status) for name, build in (await pushes.builds()).items()} == {"a": "manual", "b": "manual"}
        shown = (await ask.data(STATE, pushes.pusher, path=str(pushes.project.id)))["project"]
        assert (shown["commit"]["status"], shown["pipelines"]["nodes"][0]["status"]) == ("NOT_FOUND", "NONE")

    async def test_many_are_as_many_statements(self, pushes: PushScenario, statements: StatementRecorder) -> None:
        counts = []
        for number in (1, 1, 30):
            jobs = "".join(f"m{n}: {{script: x, when: manual}}\nj{n}: {{script: x, environment: e}}\n" for n in range(number))
            update = await pushes.commit(jobs, message=f"{number} {len(counts)}")
            with statements.record() as seen:
                await pushes.record_push(update)
            counts.append(len(seen))
        assert counts[1] == counts[2]

    async def test_no_other_system_reports_it(self, ask: Ask, pushes: PushScenario) -> None:
        about = {"projectPath": str(pushes.project.id), "sha": "master"}
        assert await ask.codes(CREATE, pushes.pusher, input={**about, "name": "x", "status": "MANUAL"}) == ["INVALID"]
        assert await ask.codes(REPORT, pushes.pusher, input={**about, "name": "x", "state": "MANUAL"}) == ["INVALID"]
