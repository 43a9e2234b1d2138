"""Tags and releases in v3."""

import asyncio

import pytest

from storage import tables
from storage.tables import AccessLevel
from tests.make import DataFactory
from tests.support.api_clients import Api
from tests.support.git.git_history import git


@pytest.fixture
async def people(make: DataFactory) -> dict[str, tables.User]:
    return {"reporter": await make.user(), "developer": await make.user(name="Dev", email="dev@example.org")}


@pytest.fixture
async def project(make: DataFactory, people: dict[str, tables.User]) -> tables.Project:
    members = zip(people.values(), (AccessLevel.REPORTER, AccessLevel.DEVELOPER), strict=True)
    return await make.project(history={"commits": 8, "tags": 2}, members=members)


def path_of(project: tables.Project, rest: str = "") -> str:
    return f"/projects/{project.id}/repository/tags{rest}"


class TestTags:
    """GET and POST /projects/:id/repository/tags, DELETE /projects/:id/repository/tags/:tag_name"""

    async def test_are_listed_by_name_downwards(
        self, any_api: Api, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        path = make.services.repositories.path_of(project.id)
        await make.save(tables.Release(project_id=project.id, tag="v1", description="First"))

        second, first = (await any_api.get(path_of(project), people["reporter"])).json()

        assert (first["name"], first["message"], first["release"]) == ("v1", None, {"tag_name": "v1", "description": "First"})
        assert (second["name"], second["release"]) == ("v2", None)
        assert second["message"] == git(path, "tag", "-l", "--format=%(contents)", "v2").rstrip("\n")
        assert second["commit"]["id"] == git(path, "rev-parse", "v2^{commit}")

    async def test_a_message_makes_an_annotated_tag(
        self, any_api: Api, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        path = make.services.repositories.path_of(project.id)
        plain = await any_api.post(path_of(project), people["developer"], tag_name="v3", ref="topic")
        noted = await any_api.post(
            path_of(project), people["developer"], tag_name="rel/v4", ref="master", message="Größer\n\nMore.", release_description="Notes"
        )

        assert (plain.status_code, noted.status_code) == (201, 201)
        assert (plain.json()["message"], plain.json()["release"]) == (None, None)
        assert noted.json()["message"] == "Größer\n\nMore."
        assert noted.json()["release"] == {"tag_name": "rel/v4", "description": "Notes"}
        assert git(path, "cat-file", "-t", "v3") == "commit"
        raw = git(path, "cat-file", "tag", "rel/v4")
        assert raw.startswith(f"object {git(path, 'rev-parse', 'master')}\ntype commit\ntag rel/v4\ntagger Dev <dev@example.org> ")
        assert git(path, "fsck", "--strict") == ""

    async def test_reports_why_a_tag_was_not_created(self, any_api: Api, project: tables.Project, people: dict[str, tables.User]) -> None:
        for name, ref, message in (
            ("v1", "master", "Tag already exists"),
            ("v1/x", "master", "The name conflicts with an existing branch or tag."),
            ("a b", "master", "Tag name invalid"),
            ("..", "master", "Tag name invalid"),
            ("v9", "unknown", "Invalid reference name"),
            ("v9", "@{-1}", "Invalid reference name"),
            ("", "master", '400 (Bad request) "tag_name" not given'),
        ):
            response = await any_api.post(path_of(project), people["developer"], tag_name=name, ref=ref, message="M")
            assert (response.status_code, response.json()) == (400, {"message": message})

    async def test_deletes_a_tag_with_its_release(
        self, any_api: Api, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        await any_api.post(path_of(project), people["developer"], tag_name="a/b", ref="master", release_description="Notes")
        for name in ("a/b", "v2"):
            response = await any_api.delete(path_of(project, f"/{name}"), people["developer"])
            assert (response.status_code, response.json()) == (200, {"tag_name": name})
        response = await any_api.delete(path_of(project, "/v2"), people["developer"])
        assert (response.status_code, response.json()) == (404, {"message": "No such tag"})
        assert [each["name"] for each in (await any_api.get(path_of(project), people["reporter"])).json()] == ["v1"]
        assert await make.count(tables.Release) == 0

    async def test_concurrent_deletions_succeed_once(self, any_api: Api, project: tables.Project, people: dict[str, tables.User]) -> None:
        responses = await asyncio.gather(*(any_api.delete(path_of(project, "/v2"), people["developer"]) for _ in range(8)))

        assert sorted(each.status_code for each in responses) == [200] + [404] * 7
        assert [each.json() for each in responses if each.status_code == 404] == [{"message": "No such tag"}] * 7


class TestReleases:
    """POST and PUT /projects/:id/repository/tags/:tag_name/release"""

    async def test_are_created_once_and_changed(self, any_api: Api, project: tables.Project, people: dict[str, tables.User]) -> None:
        developer, path = people["developer"], path_of(project, "/v1/release")
        for description in (" ", "Early"):
            missing = await any_api.put(path, developer, description=description)
            assert (missing.status_code, missing.json()) == (404, {"message": "Release does not exist"})
        created = await any_api.post(path, developer, description="First")
        again = await any_api.post(path, developer, description="Again")
        changed = await any_api.put(path, developer, description="Second")

        assert (created.status_code, created.json()) == (201, {"tag_name": "v1", "description": "First"})
        assert (again.status_code, again.json()) == (409, {"message": "Release already exists"})
        assert (changed.status_code, changed.json()) == (200, {"tag_name": "v1", "description": "Second"})
        for request in (any_api.post, any_api.put):
            for description in ("X", " ", {}):
                response = await request(path_of(project, "/unknown/release"), developer, description=description)
                assert (response.status_code, response.json()) == (404, {"message": "Tag does not exist"})
            response = await request(path, developer, description=" ")
            assert (response.status_code, response.json()) == (400, {"message": '400 (Bad request) "description" not given'})
