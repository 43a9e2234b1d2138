"""Environments and deployments: `environment` in the CI file, who deployed what when, and stopping an environment."""

import pytest

from graph.operations.execution import Graph
from graph.rules.builds.job_variables import environment_slug, expand, ref_slug
from graph.rules.ci.config_errors import PipelineConfigError
from graph.rules.ci.config_parser import parse_config
from storage import tables
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.graph.builds.test_pipelines import PushScenario
from tests.graph.runners.test_build_claims import RunnerCalls
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

FILE = """
variables: {DOMAIN: example.com}
review:
  script: deploy
  environment:
    name: review/$CI_BUILD_REF_NAME
    url: https://$CI_BUILD_REF_SLUG.${DOMAIN}/
    on_stop: stop
stop:
  script: undeploy
  when: manual
  environment: {name: review/$CI_BUILD_REF_NAME, action: stop}
broken: {script: x, environment: production}
odd: {script: x, environment: {name: odd, url: $NOTHING}}
"""
LIST = """query ($path: String!, $filter: EnvironmentFilter, $first: Int = 30) { project(path: $path) {
    environments(filter: $filter, first: $first) { totalCount nodes {
        databaseId name externalUrl stopJob createdAt stoppedAt viewerCan { stop } project { path }
        lastDeployment { sha ref tag createdAt user { username } build { name deployment { environment { name } } } commit { title } }
        deployments { totalCount nodes { build { attempt } } } } }
    deployments { nodes { ref environment { name } } } } }"""
STAGES = """
stages: [deploy, cleanup, report]
app: {stage: deploy, script: x, environment: {name: app, on_stop: stop}}
other: {stage: deploy, script: x}
stop: {stage: cleanup, script: undeploy, when: WHEN, environment: {name: app, action: stop}}
last: {stage: report, script: x}
"""
STOP = "mutation ($input: StopEnvironmentInput!) { stopEnvironment(input: $input) { environment { stoppedAt } userErrors { code } } }"
RETRY = "mutation ($input: BuildInput!) { retryBuild(input: $input) { userErrors { code } } }"


class TestDeployments:
    async def test_are_recorded_when_the_build_succeeds(self, ask: Ask, graph: Graph, make: DataFactory) -> None:
        reporter = await make.user()
        project = await make.project(
            owner=(owner := await make.user("ada")), history={"commits": 2}, members=[(reporter, AccessLevel.REPORTER)]
        )
        pushes = PushScenario(make, await make.indexed(project), owner)
        sha = await pushes(FILE, "feature/Ünder_score")
        runner = RunnerCalls(graph, make.runner_token(await make.runner()))
        job = await runner.claim()
        assert job is not None
        variables = {each["key"]: each["value"] for each in job["variables"]}
        assert variables["CI_ENVIRONMENT_NAME"] == "review/feature/Ünder_score"
        assert variables["CI_ENVIRONMENT_SLUG"] == environment_slug("review/feature/Ünder_score")
        assert variables["CI_BUILD_REF_SLUG"] == "feature--nder-score"
        path = str(project.id)

        await pushes.finish("broken", to=CheckStatus.FAILED)
        await pushes.finish("review", "odd")
        answer = (await ask.data(LIST, reporter, path=path))["project"]
        odd, review = answer["environments"]["nodes"]
        assert (odd["name"], odd["externalUrl"], odd["stopJob"]) == ("odd", None, None)
        assert answer["environments"]["totalCount"] == 2
        assert {key: review[key] for key in ("name", "externalUrl", "stopJob", "stoppedAt", "viewerCan", "project")} == {
            "name": "review/feature/Ünder_score",
            "externalUrl": "https://feature--nder-score.example.com/",
            "stopJob": "stop",
            "stoppedAt": None,
            "viewerCan": {"stop": False},
            "project": {"path": project.path},
        }
        last = review["lastDeployment"]
        assert last["createdAt"] == review["createdAt"]
        assert {**last, "createdAt": None} == {
            "sha": sha,
            "ref": "feature/Ünder_score",
            "tag": False,
            "createdAt": None,
            "user": {"username": "ada"},
            "build": {"name": "review", "deployment": {"environment": {"name": review["name"]}}},
            "commit": {"title": "Change"},
        }
        assert [each["environment"]["name"] for each in answer["deployments"]["nodes"]] == ["odd", review["name"]]

        # The stop job is played; when it succeeds the environment is stopped. A new deployment starts it again.
        about = {"projectPath": path, "databaseId": review["databaseId"]}
        assert await ask.codes(STOP, reporter, input=about) == ["FORBIDDEN"]
        for _ in range(2):
            assert (await ask.data(STOP, owner, input=about))["stopEnvironment"] == {"environment": {"stoppedAt": None}, "userErrors": []}
            assert (await pushes.builds())["stop"].status is CheckStatus.PENDING
        await pushes.finish("stop")
        shown = (await ask.data(LIST, owner, path=path, filter={"stopped": True}))["project"]["environments"]["nodes"]
        assert [(each["name"], each["viewerCan"]) for each in shown] == [(review["name"], {"stop": False})]
        assert shown[0]["stoppedAt"] is not None
        await pushes.retry("review")
        await pushes.finish("review")
        shown = (await ask.data(LIST, owner, path=path, filter={"name": [review["name"]]}))["project"]["environments"]["nodes"][0]
        assert (shown["stoppedAt"], shown["deployments"]["totalCount"], shown["viewerCan"]) == (None, 2, {"stop": True})
        assert (await ask.data(STOP, owner, input=about))["stopEnvironment"]["environment"] == {"stoppedAt": None}
        assert ((await pushes.builds())["stop"].status, (await pushes.builds())["stop"].attempt) == (CheckStatus.PENDING, 2)

        # Without a stop job it is stopped at once.
        stopped = (await ask.data(STOP, owner, input={**about, "databaseId": odd["databaseId"]}))["stopEnvironment"]["environment"]
        assert stopped["stoppedAt"] is not None
        outsider = await make.user()
        assert await ask.codes(STOP, outsider, input=about) == ["NOT_FOUND"]

    @pytest.mark.parametrize(
        ("when", "end"), [("manual", CheckStatus.SUCCESS), ("on_success", CheckStatus.SUCCESS), ("manual", CheckStatus.FAILED)]
    )
    async def test_are_stopped_by_a_job_whose_stage_has_not_begun(self, ask: Ask, make: DataFactory, when: str, end: CheckStatus) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 2})
        pushes = PushScenario(make, await make.indexed(project), owner)
        await pushes(STAGES.replace("WHEN", when))
        await pushes.finish("app")
        assert "stop" not in await pushes.builds()
        (shown,) = (await ask.data(LIST, owner, path=str(project.id)))["project"]["environments"]["nodes"]
        about = {"projectPath": str(project.id), "databaseId": shown["databaseId"]}
        for _ in range(2):
            assert (await ask.data(STOP, owner, input=about))["stopEnvironment"] == {"environment": {"stoppedAt": None}, "userErrors": []}
        stop = (await pushes.builds())["stop"]
        assert (stop.status, stop.run_when, stop.queue, stop.user_id) == (CheckStatus.PENDING, when, "", owner.id)

        await pushes.finish("other", to=end)
        assert set(await pushes.finish("stop")) == ({"last"} if end is CheckStatus.SUCCESS else set())
        (shown,) = (await ask.data(LIST, owner, path=str(project.id)))["project"]["environments"]["nodes"]
        assert shown["stoppedAt"] is not None

    async def test_are_stopped_at_once_if_the_pipeline_has_no_such_job(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 2})
        pushes = PushScenario(make, await make.indexed(project), owner)
        await pushes(STAGES.replace("WHEN", "manual, only: [tags]"))
        await pushes.finish("app")
        (shown,) = (await ask.data(LIST, owner, path=str(project.id)))["project"]["environments"]["nodes"]
        about = {"projectPath": str(project.id), "databaseId": shown["databaseId"]}
        assert (await ask.data(STOP, owner, input=about))["stopEnvironment"]["environment"]["stoppedAt"] is not None

    async def test_of_many_environments_are_as_many_statements(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(owner=(owner := await make.user()), visibility=Visibility.PUBLIC)
        counts = []
        for _ in range(2):
            for _ in range(5):
                environment = await make.environment(project)
                build = await make.build(project, "a" * 40, status=CheckStatus.SUCCESS)
                common = {"project_id": project.id, "environment_id": environment.id, "build_id": build.id}
                await make.save(tables.Deployment(sha="a" * 40, ref="master", user_id=owner.id, **common))
            for _ in range(3):
                with statements.record() as seen:
                    await ask.data(LIST, owner, path=str(project.id))
            counts.append(len(seen))
        assert counts[0] == counts[1]

    def test_names_are_expanded_once(self) -> None:
        assert expand("a/${B}-$C$D.$$", {"B": "$C", "C": "c"}) == "a/$C-c.$$"
        assert environment_slug("production") == "production"
        slugs = {environment_slug(name) for name in ("review/a", "review-a/", "Review/a", "1", "a" * 30, "a" * 31, "ü")}
        assert len(slugs) == 7
        assert all(len(slug) <= 24 and slug[0].isalpha() and not slug.endswith("-") for slug in slugs)
        assert (ref_slug("-x" * 40 + "-"), ref_slug("A.B")) == (("-x" * 40)[:63].strip("-"), "a-b")


class TestFile:
    def test_errors_have_lines(self) -> None:
        for text, message in {
            "a: {script: x, environment: 'a?'}": "line 1: `a` job: environment: `a?` may have letters, digits, spaces and the characters"
            " - _ / . $ { } only.",
            "a:\n  script: x\n  environment:\n    url: http://x": "line 3: `a` job: environment: `name` is missing.",
            "a:\n  script: x\n  environment:\n    name: x\n    tier: y": "line 5: `a` job: environment: unknown key `tier`."
            " Supported: name, url, on_stop, action.",
            "a:\n  script: x\n  environment:\n    name: x\n    action: prepare": "line 5: `a` job: environment: action: `prepare` should be"
            " start or stop.",
            "a:\n  script: x\n  environment:\n    name: x\n    url: ftp://y": "line 5: `a` job: environment: url should begin with http://,"
            " https:// or a variable, and have at most 255 characters.",
            "a: {script: x, environment: {name: x, on_stop: b}}": "line 1: `a` job: environment: on_stop: `b` is not a job of the file.",
            "a: {script: x, environment: {name: x, on_stop: b}}\nb: {script: x, environment: {name: y, action: stop}}": "line 2: `a` job:"
            " environment: on_stop: `b` must have `environment` with the same name and `action: stop`.",
        }.items():
            with pytest.raises(PipelineConfigError) as caught:
                parse_config(text)
            assert str(caught.value) == message
