"""Triggers through the graph: how they are listed and named, and when they create builds."""

from typing import Any

import pytest

from graph.rules.ci import pipeline_planner
from storage.tables import AccessLevel
from tests.graph.builds.test_pipelines import PushScenario
from tests.make import DataFactory
from tests.support.api_clients import Ask

CREATE = "mutation ($path: String!) { createTrigger(input: {projectPath: $path}) { trigger { id token } userErrors { code } } }"
DELETE = "mutation ($input: DeleteTriggerInput!) { deleteTrigger(input: $input) { deletedId userErrors { code } } }"
TRIGGER = "mutation ($input: TriggerBuildsInput!) { triggerBuilds(input: $input) { userErrors { code message } } }"
UPDATE = "mutation ($input: UpdateProjectInput!) { updateProject(input: $input) { userErrors { code } } }"
LIST = "query ($path: String!) { project(path: $path) { triggers { nodes { id } } } }"


class TestDeletion:
    async def test_by_id_or_by_token_with_the_project(self, ask: Ask, make: DataFactory) -> None:
        owner, developer, outsider = await make.user(), await make.user(), await make.user()
        project, other = await make.project(owner=owner, members=[(developer, AccessLevel.DEVELOPER)]), await make.project(owner=owner)
        path = str(project.id)
        first, second = [(await ask.data(CREATE, owner, path=path))["createTrigger"]["trigger"] for _ in range(2)]

        for viewer, input, code in (
            (outsider, {"id": first["id"]}, "NOT_FOUND"),
            (developer, {"id": first["id"]}, "FORBIDDEN"),
            (owner, {"id": second["id"] + "x"}, "NOT_FOUND"),
            (owner, {"token": first["token"]}, "BAD_REQUEST"),
            (owner, {"projectPath": path}, "BAD_REQUEST"),
            (owner, {"projectPath": str(other.id), "token": first["token"]}, "NOT_FOUND"),
        ):
            outcome = await ask(DELETE, viewer, input=input)
            assert [str(error.code) for error in outcome.errors] == [code], input

        for input, deleted in (({"id": first["id"]}, first), ({"projectPath": path, "token": second["token"]}, second)):
            assert (await ask.data(DELETE, owner, input=input))["deleteTrigger"] == {"deletedId": deleted["id"], "userErrors": []}
        assert (await ask.data(LIST, owner, path=path))["project"]["triggers"]["nodes"] == []


class TestBuilds:
    @pytest.mark.parametrize("switch", [{"buildsEnabled": False}, {"archived": True}])
    async def test_are_not_created_if_they_are_disabled_while_the_file_is_read(
        self, switch: dict[str, bool], ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 2})
        await PushScenario(make, await make.indexed(project), owner).commit("a: {script: x}")
        path = str(project.id)
        token = (await ask.data(CREATE, owner, path=path))["createTrigger"]["trigger"]["token"]
        plan_ref = pipeline_planner.plan_ref

        async def plan_then_switch(*arguments: Any) -> Any:
            found = await plan_ref(*arguments)
            assert found is not None
            assert (await ask.data(UPDATE, owner, input={"projectPath": path, **switch}))["updateProject"]["userErrors"] == []
            return found

        monkeypatch.setattr(pipeline_planner, "plan_ref", plan_then_switch)
        outcome = await ask.data(TRIGGER, None, input={"projectPath": path, "token": token, "ref": "master"})

        assert outcome["triggerBuilds"]["userErrors"] == [{"code": "NOT_ALLOWED", "message": "No builds created"}]
        assert await PushScenario(make, project, owner).builds() == {}
