"""The section Errors of the interface document, over whole tables of calls."""

from typing import Any

from tests.make import DataFactory, ssh_key
from tests.rest_v3.support.further_calls import FURTHER_CALLS
from tests.rest_v3.support.interface_document import DOCUMENTED_CALLS
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api
from tests.support.scenario import Scenario, valid_v3_request

MISSING_VALUES = "2147483646"
"""An id that could be."""

IDEMPOTENT = {
    "DELETE /hooks/:id",
    "DELETE /users/:id",
    "DELETE /user/keys/:id",
    "DELETE /user/emails/:id",
    "DELETE /projects/:id/members/:user_id",
}
"""Calls that answer 200 for what is not there, as the document says at each."""

CALLS = (*DOCUMENTED_CALLS, *FURTHER_CALLS)
READS = [documented.call for documented in CALLS if documented.call.startswith("GET /projects/:id")]


async def send(api: Api, method: str, path: str, viewer: Any, params: dict[str, Any]) -> Any:
    return await api.request(method, path, viewer, **{"params" if method in ("GET", "DELETE") else "json": params})


class TestMissingObjects:
    @cites("Errors: 404 for what is not there", "Errors: every failure has a status and a message")
    async def test_are_404_in_every_parameter(self, api: Api, scenario: Scenario) -> None:
        """Each part of each path in turn, with the rest of it right."""
        for documented in CALLS:
            names = documented.call.partition(" ")[2].split("/")
            for index, name in enumerate(names):
                if not name.startswith(":") or name == ":query":
                    continue
                method, path, params = await valid_v3_request(scenario, documented.call, "AD")
                segments = path.split("/")
                segments[index] = "f" * 40 if name == ":sha" else MISSING_VALUES

                response = await send(api, method, "/".join(segments), scenario.users["AD"], params)

                is_last = index == len(names) - 1
                expected = 405 if documented.status == 405 else 200 if documented.call in IDEMPOTENT and is_last else 404
                assert response.status_code == expected, (documented.call, name, response.text)
                assert expected == 200 or response.json()["message"]

    @cites("Errors: 404 for missing artifacts")
    async def test_missing_artifacts_are_404(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        build = await make.build(project, "f" * 40)

        for key in (build.id, MISSING_VALUES):
            response = await api.get(f"/projects/{project.id}/builds/{key}/artifacts", owner)
            assert (response.status_code, response.json()) == (404, {"message": "404 Not Found"})

    @cites("Errors: 404 for reads of a private project by a non-member")
    async def test_private_projects_are_404_for_others(self, api: Api, scenario: Scenario) -> None:
        for call in READS:
            method, path, params = await valid_v3_request(scenario, call, "OU")
            absent = path.replace(f"/projects/{scenario.private.id}", f"/projects/{MISSING_VALUES}")

            hidden, missing = [await send(api, method, each, scenario.users["OU"], params) for each in (path, absent)]

            assert hidden.status_code == missing.status_code == 404, call
            assert hidden.json() == missing.json() == {"message": "404 Project Not Found"}


class TestInvalidKeysAndEmails:
    @cites("Errors: 400 for a key that cannot be created", "Errors: the message of a wrong key or e-mail maps fields to lists of texts")
    async def test_of_keys(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        await api.post("/user/keys", user, title="Laptop", key=ssh_key(1))

        taken = await api.post("/user/keys", await make.user(), title="Laptop", key=f"{ssh_key(1)} another comment")
        broken = await api.post("/user/keys", user, title="", key="nonsense")

        assert (taken.status_code, broken.status_code) == (400, 400)
        assert taken.json()["message"]["fingerprint"] == ["has already been taken"]
        assert all(isinstance(text, str) for texts in taken.json()["message"].values() for text in texts)

    @cites("Errors: 400 for an e-mail that cannot be created", "Errors: the message of a wrong key or e-mail maps fields to lists of texts")
    async def test_of_addresses(self, api: Api, make: DataFactory) -> None:
        first = await make.user()

        response = await api.post("/user/emails", await make.user(), email=first.email)

        assert (response.status_code, response.json()) == (400, {"message": {"email": ["has already been taken"]}})
