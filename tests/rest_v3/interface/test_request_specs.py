"""Decisions taken from the request specs of GitLab 8.5 (docs/decisions.md 35-40), under both profiles."""

import pytest

from storage import tables
from storage.tables import CheckStatus
from tests.make import DataFactory, ssh_key
from tests.support.api_clients import Api
from tests.support.git.git_history import commit_to_branch


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def admin(make: DataFactory) -> tables.User:
    return await make.admin()


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.project(owner=owner, history={"commits": 8})


class Test35ArtifactsAreBinary:
    async def test_a_download_has_a_binary_content_type(
        self, any_api: Api, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        build = await make.build(project, "a" * 40, status=CheckStatus.SUCCESS)
        await make.artifact(build, b"0123456789", filename="a.zip")
        path = f"/projects/{project.id}/builds/{build.id}/artifacts"

        whole, part = [await any_api.request("GET", path, owner, headers=requested) for requested in ({}, {"Range": "bytes=1-2"})]

        assert (whole.status_code, part.status_code) == (200, 206)
        for response in (whole, part):
            assert response.headers["Content-Transfer-Encoding"] == "binary"
            assert response.headers["Content-Disposition"] == 'attachment; filename="a.zip"'


class Test36TargetUrlsMayBeRelative:
    @pytest.mark.parametrize("address", ["url", "/builds/1", "builds/1?a=b#c", "//ci.example/1", "https://ci.example/1", "1:2"])
    async def test_they_are_taken_as_they_are(self, any_api: Api, owner: tables.User, project: tables.Project, address: str) -> None:
        response = await any_api.post(f"/projects/{project.id}/statuses/master", owner, state="success", target_url=address)

        assert (response.status_code, response.json()["target_url"]) == (201, address)

    @pytest.mark.parametrize("address", ["javascript:alert(1)", "ftp://ci.example/", "data:,x", " vbscript:x", "http://"])
    async def test_other_schemes_are_rejected(self, any_api: Api, owner: tables.User, project: tables.Project, address: str) -> None:
        response = await any_api.post(f"/projects/{project.id}/statuses/master", owner, state="success", target_url=address)

        assert (response.status_code, response.json()) == (400, {"message": {"target_url": ["must be a valid URL"]}})


class Test37IdsThatAreNotDigits:
    PATHS = ("/users/{}", "/hooks/{}", "/user/keys/{}", "/user/emails/{}")

    @pytest.mark.parametrize("path", PATHS)
    @pytest.mark.parametrize("word", ["ASDF", "1a", "-1", "1.0", "2147483648", "%D9%A3", "%00"])
    async def test_are_not_found_on_delete(self, any_api: Api, admin: tables.User, path: str, word: str) -> None:
        response = await any_api.delete(path.format(word), admin)

        assert (response.status_code, response.json()) == (404, {"message": f"404{self.noun_of(any_api, path)}"})

    def noun_of(self, api: Api, path: str) -> str:
        return " User Not Found" if api.profile == "gitlab-8.5" and path == "/users/{}" else " Not found"

    @pytest.mark.parametrize("path", PATHS)
    @pytest.mark.parametrize("word", ["0", "4711", "2147483647"])
    async def test_unknown_numbers_are_no_failure(self, any_api: Api, admin: tables.User, path: str, word: str) -> None:
        response = await any_api.delete(path.format(word), admin)

        is_failure = any_api.profile == "gitlab-8.5" and path == "/users/{}"
        expected = (404, {"message": "404 User Not Found"}) if is_failure else (200, None)
        assert (response.status_code, response.json()) == expected

    @pytest.mark.parametrize("path", ["/users/{}/keys/{}", "/users/{}/emails/{}"])
    async def test_those_of_others_are_not_found_either_way(self, any_api: Api, owner: tables.User, admin: tables.User, path: str) -> None:
        for user, word in ((owner.id, "ASDF"), (owner.id, 4711), ("ASDF", 1)):
            assert (await any_api.delete(path.format(user, word), admin)).status_code == 404

    async def test_an_invalid_id_looks_the_same_without_permission(self, any_api: Api, owner: tables.User) -> None:
        for word in ("ASDF", "4711"):
            assert (await any_api.delete(f"/users/{word}", owner)).status_code == 403
            assert (await any_api.delete(f"/users/{word}")).status_code == 401


class Test38InvalidLabelNames:
    DOCUMENT = {"message": {"labels": ["'?' is invalid", "'a&b' is invalid"]}}
    OF_THE_TIME = {"message": {"labels": {"?": {"title": ["is invalid"]}, "a&b": {"title": ["is invalid"]}}}}

    async def test_of_issues(self, api: Api, legacy_api: Api, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        path, issue = f"/projects/{project.id}/issues", await make.issue(project)

        for each, body in ((api, self.DOCUMENT), (legacy_api, self.OF_THE_TIME)):
            created = await each.post(path, owner, title="T", labels="good, ?, a&b")
            changed = await each.put(f"{path}/{issue.id}", owner, labels="good, ?, a&b")
            assert [(response.status_code, response.json()) for response in (created, changed)] == [(400, body)] * 2
        assert await make.count(tables.Label) == 0

    async def test_of_merge_requests(
        self, api: Api, legacy_api: Api, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        commit_to_branch(make.services.repositories.path_of(project.id), "feature", {"door.txt": b"a door"}, start="master")
        path, merge_request = f"/projects/{project.id}/merge_requests", await make.merge_request(project)
        values = {"source_branch": "feature", "target_branch": "master", "title": "T", "labels": "good, ?, a&b"}

        for each, body in ((api, self.DOCUMENT), (legacy_api, self.OF_THE_TIME)):
            created = await each.post(path, owner, **values)
            changed = await each.put(f"{path}/{merge_request.id}", owner, labels="good, ?, a&b")
            assert [(response.status_code, response.json()) for response in (created, changed)] == [(400, body)] * 2

    async def test_with_other_errors_beside(self, legacy_api: Api, owner: tables.User, project: tables.Project) -> None:
        too_long = "x" * 256

        response = await legacy_api.post(f"/projects/{project.id}/issues", owner, title="T", labels=f"?,{too_long},it's?")

        assert response.json()["message"]["labels"] == {
            "?": {"title": ["is invalid"]},
            too_long: {"title": ["is too long (maximum is 255 characters)"]},
            "it's?": {"title": ["is invalid"]},
        }


class Test39UnknownTargetBranches:
    async def test_are_rejected_on_update_by_the_document(
        self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        merge_request = await make.merge_request(project)

        response = await api.put(f"/projects/{project.id}/merge_requests/{merge_request.id}", owner, target_branch="unknown")

        assert (response.status_code, list(response.json()["message"])) == (400, ["target_branch"])
        assert (await make.fetch(tables.MergeRequest, merge_request.id)).target_branch == "master"  # type: ignore[union-attr]

    async def test_are_accepted_by_the_legacy_profile(
        self, legacy_api: Api, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        commit_to_branch(make.services.repositories.path_of(project.id), "feature", {"door.txt": b"a door"}, start="master")
        merge_request = await make.merge_request(project, source_branch="feature")
        path = f"/projects/{project.id}/merge_requests/{merge_request.id}"

        changed = await legacy_api.put(path, owner, target_branch="unknown")
        merged = await legacy_api.put(f"{path}/merge", owner)

        assert (changed.status_code, changed.json()["target_branch"]) == (200, "unknown")
        assert changed.json()["merge_status"] == "cannot_be_merged"
        assert (merged.status_code, merged.json()) == (406, {"message": "Branch cannot be merged"})
        back = await legacy_api.put(path, owner, target_branch="master")
        assert (back.status_code, back.json()["target_branch"]) == (200, "master")
        assert (await legacy_api.put(f"{path}/merge", owner)).json()["state"] == "merged"

    async def test_names_that_no_branch_may_have_are_rejected_by_both(
        self, any_api: Api, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        merge_request = await make.merge_request(project)
        path = f"/projects/{project.id}/merge_requests/{merge_request.id}"

        for name in ("a\0b", "x" * 256):
            assert (await any_api.put(path, owner, target_branch=name)).status_code == 400
        assert (await any_api.post(path.rpartition("/")[0], owner, source_branch="topic", target_branch="no", title="T")).status_code == 400


class Test40KeysOfAnotherUser:
    """POST /users/:id/keys, and its sibling for e-mails."""

    @pytest.mark.parametrize(("noun", "name"), [("keys", "title"), ("emails", "email")])
    async def test_an_unknown_user_is_404_before_a_missing_parameter_is_400(
        self, any_api: Api, owner: tables.User, admin: tables.User, noun: str, name: str
    ) -> None:
        for user in (4711, "ASDF"):
            response = await any_api.post(f"/users/{user}/{noun}", admin)
            assert (response.status_code, response.json()) == (404, {"message": "404 Not found"})
        response = await any_api.post(f"/users/{owner.id}/{noun}", admin)
        assert (response.status_code, response.json()) == (400, {"message": f'400 (Bad request) "{name}" not given'})

    async def test_missing_parameters_are_reported_in_order(self, any_api: Api, owner: tables.User, admin: tables.User) -> None:
        for values, missing in (({"title": "a"}, "key"), ({"key": ssh_key(1)}, "title"), ({"title": " ", "key": ssh_key(1)}, "title")):
            response = await any_api.post(f"/users/{owner.id}/keys", admin, **values)
            assert (response.status_code, response.json()) == (400, {"message": f'400 (Bad request) "{missing}" not given'})

    async def test_others_see_403(self, any_api: Api, owner: tables.User) -> None:
        for user in (owner.id, 4711):
            assert (await any_api.post(f"/users/{user}/keys", owner)).status_code == 403
            assert (await any_api.post(f"/users/{user}/keys")).status_code == 401
