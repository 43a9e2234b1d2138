"""The section Versioning of the interface document."""

from typing import Any

import pytest

from storage.tables import CheckStatus
from tests.make import DataFactory, token_of
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api


@cites("Versioning: every call stands below /api/v3")
@pytest.mark.parametrize("prefix", ["", "/api", "/api/v2", "/api/v4", "/api/v3/v3", "/v3", "/api/V3"])
async def test_no_other_prefix_is_served(api: Api, make: DataFactory, prefix: str) -> None:
    headers = {"PRIVATE-TOKEN": token_of(await make.user())}

    assert (await api.client.get("/api/v3/user", headers=headers)).status_code == 200
    assert (await api.client.get(f"{prefix}/user", headers=headers)).status_code == 404


@cites("Versioning: only the path chooses the version")
@pytest.mark.parametrize(
    "settings",
    [
        {"headers": {"Accept": "application/vnd.forge.v4+json"}},
        {"headers": {"Accept": "application/json; version=4"}},
        {"headers": {"Accept": "text/html"}},
        {"headers": {"API-Version": "4", "X-Api-Version": "2"}},
        {"params": {"version": "4", "v": "4", "api_version": "4"}},
    ],
)
async def test_only_the_path_selects_the_version(api: Api, make: DataFactory, settings: dict[str, Any]) -> None:
    user = await make.user()
    plain = await api.get("/user", user)

    response = await api.request("GET", "/user", user, **settings)

    assert (response.status_code, response.content) == (plain.status_code, plain.content)
    assert response.headers["Content-Type"] == plain.headers["Content-Type"] == "application/json"


@cites("Versioning: artifacts are served under every profile")
async def test_artifacts_are_served_under_every_profile(api: Api, legacy_api: Api, make: DataFactory) -> None:
    project = await make.project(owner=(owner := await make.user()))
    build = await make.build(project, "f" * 40, status=CheckStatus.SUCCESS)
    await make.artifact(build, b"what was built")

    for each in (api, legacy_api):
        response = await each.get(f"/projects/{project.id}/builds/{build.id}/artifacts", owner)
        assert (response.status_code, response.content) == (200, b"what was built")


@cites("Versioning: commit statuses are those of the statuses endpoints, under every profile")
async def test_commit_statuses_are_the_same_under_every_profile(api: Api, legacy_api: Api, make: DataFactory) -> None:
    project = await make.project(owner=(owner := await make.user()), history={"commits": 4})
    for each, name in ((api, "new"), (legacy_api, "old")):
        posted = await each.post(f"/projects/{project.id}/statuses/master", owner, state="running", name=name)
        assert (posted.status_code, posted.json()["status"]) == (201, "running")
        listed = await each.get(f"/projects/{project.id}/repository/commits/master/statuses", owner)
        assert posted.json() in listed.json()
        # The paths of the service before them.
        for path in (f"/projects/{project.id}/services/ci", f"/projects/{project.id}/repository/commits/master/status"):
            assert (await each.get(path, owner)).status_code == 404
