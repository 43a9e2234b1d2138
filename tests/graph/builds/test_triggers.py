"""Triggers through the graph: how they are listed and named."""

from storage.tables import AccessLevel
from tests.make import DataFactory
from tests.support.api_clients import Ask

CREATE = "mutation ($path: String!) { createTrigger(input: {projectPath: $path}) { trigger { id token } userErrors { code } } }"
DELETE = "mutation ($input: DeleteTriggerInput!) { deleteTrigger(input: $input) { deletedId userErrors { code } } }"
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
            (owner, {"token": first["token"]}, "NOT_FOUND"),
            (owner, {"projectPath": path}, "NOT_FOUND"),
            (owner, {"projectPath": str(other.id), "token": first["token"]}, "NOT_FOUND"),
        ):
            outcome = await ask(DELETE, viewer, input=input)
            assert [str(error.code) for error in outcome.errors] == [code], input

        for input, deleted in (({"id": first["id"]}, first), ({"projectPath": path, "token": second["token"]}, second)):
            assert (await ask.data(DELETE, owner, input=input))["deleteTrigger"] == {"deletedId": deleted["id"], "userErrors": []}
        assert (await ask.data(LIST, owner, path=path))["project"]["triggers"]["nodes"] == []
