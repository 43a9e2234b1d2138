"""The section Errors of the interface document, over whole tables of calls."""

from typing import Any

from tests.forge import Api
from tests.make import Make, ssh_key
from tests.rest_v3.document import DOCUMENTED
from tests.rest_v3.rules import cites
from tests.world import World, v3_request

NOBODY = "2147483646"
"""An id that could be."""

IDEMPOTENT = {"DELETE /hooks/:id", "DELETE /users/:id", "DELETE /user/keys/:id", "DELETE /user/emails/:id"}
"""Calls that answer 200 for what is not there, as the document says at each."""

READS = [documented.call for documented in DOCUMENTED if documented.call.startswith("GET /projects/:id")]


async def send(api: Api, method: str, path: str, viewer: Any, params: dict[str, Any]) -> Any:
    return await api.request(method, path, viewer, **{"params" if method in ("GET", "DELETE") else "json": params})


class TestWhatIsNotThere:
    @cites("Errors: 404 for what is not there", "Errors: every failure has a status and a message")
    async def test_is_404_wherever_it_is_named(self, api: Api, world: World) -> None:
        """Each part of each path in turn, with the rest of it right."""
        for documented in DOCUMENTED:
            names = documented.call.partition(" ")[2].split("/")
            for place, name in enumerate(names):
                if not name.startswith(":"):
                    continue
                method, path, params = await v3_request(world, documented.call, "AD")
                segments = path.split("/")
                segments[place] = "f" * 40 if name == ":sha" else NOBODY

                response = await send(api, method, "/".join(segments), world.users["AD"], params)

                expected = 405 if documented.status == 405 else 200 if documented.call in IDEMPOTENT else 404
                assert response.status_code == expected, (documented.call, name, response.text)
                assert expected == 200 or response.json()["message"]

    @cites("Errors: 404 for missing artifacts")
    async def test_are_artifacts_of_a_build_without(self, api: Api, make: Make) -> None:
        project = await make.project(owner=(owner := await make.user()))
        build = await make.build(project, "f" * 40)

        for key in (build.id, NOBODY):
            response = await api.get(f"/projects/{project.id}/builds/{key}/artifacts", owner)
            assert (response.status_code, response.json()) == (404, {"message": "404 Not Found"})

    @cites("Errors: 404 for reads of a private project by a non-member")
    async def test_is_a_private_project_for_others(self, api: Api, world: World) -> None:
        for call in READS:
            method, path, params = await v3_request(world, call, "OU")
            absent = path.replace(f"/projects/{world.private.id}", f"/projects/{NOBODY}")

            hidden, gone = [await send(api, method, each, world.users["OU"], params) for each in (path, absent)]

            assert hidden.status_code == gone.status_code == 404, call
            assert hidden.json() == gone.json() == {"message": "404 Project Not Found"}


class TestWrongKeysAndAddresses:
    @cites("Errors: 400 for a key that cannot be created", "Errors: the message of a wrong key or e-mail maps fields to lists of texts")
    async def test_of_keys(self, api: Api, make: Make) -> None:
        user = await make.user()
        await api.post("/user/keys", user, title="Laptop", key=ssh_key(1))

        taken = await api.post("/user/keys", await make.user(), title="Laptop", key=f"{ssh_key(1)} another comment")
        broken = await api.post("/user/keys", user, title="", key="nonsense")

        assert (taken.status_code, broken.status_code) == (400, 400)
        assert taken.json()["message"]["fingerprint"] == ["has already been taken"]
        assert all(isinstance(text, str) for texts in taken.json()["message"].values() for text in texts)

    @cites("Errors: 400 for an e-mail that cannot be created", "Errors: the message of a wrong key or e-mail maps fields to lists of texts")
    async def test_of_addresses(self, api: Api, make: Make) -> None:
        first = await make.user()

        response = await api.post("/user/emails", await make.user(), email=first.email)

        assert (response.status_code, response.json()) == (400, {"message": {"email": ["has already been taken"]}})
