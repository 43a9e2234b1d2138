"""The profile `gitlab-8.5` by sections: names and order of keys, pages, statuses and bodies of that server (docs/wire-facts.md 17)."""

from typing import Any

import pytest

from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory, ssh_key
from tests.rest_v3.support.legacy_shapes import LEGACY_SHAPES
from tests.support.api_clients import Api
from tests.support.git.git_history import commit_to_branch
from tests.support.queries.permission_matrix import V3, parse_matrix
from tests.support.scenario import HOOK_URL, Scenario, valid_v3_request

CALLS = [call for call in parse_matrix(V3) if not call.endswith("/uploads")]
SHAPES_FOR_ADMINS = {"UserInList": "UserInListForAdmin", "User": "UserForAdmin"}
CALLS_OF_A_TEST = 30


@pytest.fixture
async def admin(make: DataFactory) -> tables.User:
    return await make.admin()


class TestEveryRoute:
    @pytest.mark.parametrize("start", range(0, len(CALLS), CALLS_OF_A_TEST))
    async def test_has_its_closed_shape_with_keys_in_order(self, legacy_api: Api, scenario: Scenario, start: int) -> None:
        """The client checks each body against the shapes of the profile, which the permission matrix does for the other one."""
        for call in CALLS[start : start + CALLS_OF_A_TEST]:
            for role in ("AD", "OU"):
                method, path, parameters = await valid_v3_request(scenario, call, role)
                settings: dict[str, Any] = {"params": parameters} if method in ("GET", "DELETE") else {"json": parameters}
                response = await legacy_api.request(method, path, scenario.users[role], **settings)
                assert response.status_code < 500, call
                route = legacy_api.app.find_route(method, path)
                if not response.is_success or route.is_text or route.file_key is not None:
                    continue
                name = SHAPES_FOR_ADMINS.get(route.shape, route.shape) if role == "AD" else route.shape
                shape = LEGACY_SHAPES.get(name)
                body = response.json()
                for entry in body if isinstance(body, list) else [body]:
                    if isinstance(shape, dict) and isinstance(entry, dict):
                        assert list(entry) == [key for key in shape if key in entry], call


class TestPages:
    async def test_of_commits_count_from_zero_without_headers_and_limit(self, api: Api, legacy_api: Api, make: DataFactory) -> None:
        owner = await make.user()
        project = await make.project(owner=owner, history={"commits": 130})
        await make.indexed(project)
        path = f"/projects/{project.id}/repository/commits"
        ids = [commit["id"] for commit in (await legacy_api.get(path, owner, per_page=130)).json()]
        assert len(ids) == len(set(ids)) > 110
        for parameters, expected in (
            ({}, ids[:20]),
            ({"page": 0}, ids[:20]),
            ({"page": 1}, ids[20:40]),
            ({"page": "x", "per_page": 3}, ids[:3]),
            ({"page": 1, "per_page": 110}, ids[110:]),
            ({"page": 7}, []),
        ):
            response = await legacy_api.get(path, owner, **parameters)
            assert [commit["id"] for commit in response.json()] == expected, parameters
            assert not {"x-page", "x-per-page", "x-next-page", "x-prev-page", "x-total", "link"} & response.headers.keys()
        paged = await api.get(path, owner, page=2)
        assert ([commit["id"] for commit in paged.json()], paged.headers["X-Page"]) == (ids[20:40], "2")
        unknown = await legacy_api.get(path, owner, ref_name="nope")
        assert (unknown.status_code, unknown.json()) == (200, [])
        outsider = await make.user()
        assert (await legacy_api.get(path, outsider)).status_code == 404


class TestUsers:
    async def test_show_identities_instead_of_two_keys(self, legacy_api: Api, make: DataFactory, admin: tables.User) -> None:
        known = await make.user(provider="ldap", extern_uid="uid=ada")
        shown = (await legacy_api.get(f"/users/{known.id}", admin)).json()
        assert shown["identities"] == [{"provider": "ldap", "extern_uid": "uid=ada"}]
        assert (await legacy_api.get("/user", admin)).json()["identities"] == []
        # Other users see the public part alone.
        assert list((await legacy_api.get(f"/users/{admin.id}", known)).json()) == list(LEGACY_SHAPES["User"])
        assert list((await legacy_api.get("/users", known)).json()[0]) == list(LEGACY_SHAPES["UserInList"])

    async def test_have_the_statuses_of_their_failures(self, api: Api, legacy_api: Api, make: DataFactory, admin: tables.User) -> None:
        user, other = await make.user("ada"), await make.user("bob")
        await api.put(f"/users/{other.id}", admin, provider="ldap", extern_uid="7")
        for path, parameters, documented, legacy in (
            (f"PUT /users/{user.id}", {"username": "bob"}, 404, (409, "Username has already been taken")),
            (
                f"PUT /users/{user.id}",
                {"provider": "ldap", "extern_uid": "7"},
                404,
                (400, {"extern_uid": ["has already been taken"]}),
            ),
            (f"PUT /users/{user.id}", {"bio": "b" * 256}, 404, (400, {"bio": ["is too long (maximum is 255 characters)"]})),
            ("PUT /users/999999", {"bio": "b"}, 404, (404, "404 Not found")),
            ("PUT /users/999999", {"bio": "b" * 256, "projects_limit": "x"}, 404, (404, "404 Not found")),
            ("PUT /users/999999", {"bio": "b" * 256}, 404, (404, "404 Not found")),
            (f"POST /users/{user.id}/emails", {"email": "x"}, 404, (400, {"email": ["is invalid"]})),
            (f"POST /users/{user.id}/emails", {"email": other.email}, 404, (400, {"email": ["has already been taken"]})),
            ("POST /users/999999/emails", {"email": "x@example.org"}, 404, (404, "404 Not found")),
            (
                f"POST /users/{user.id}/keys",
                {"title": "k", "key": "x"},
                404,
                (400, {"key": ["is invalid"], "fingerprint": ["cannot be generated"]}),
            ),
            ("DELETE /users/999999", {}, 200, (404, "404 User Not Found")),
        ):
            method, _, address = path.partition(" ")
            settings: dict[str, Any] = {} if method == "DELETE" else {"json": parameters}
            assert (await api.request(method, address, admin, **settings)).status_code == documented, path
            response = await legacy_api.request(method, address, admin, **settings)
            assert (response.status_code, response.json()) == (legacy[0], {"message": legacy[1]}), path

    async def test_deleting_a_key_returns_its_row(self, legacy_api: Api, admin: tables.User) -> None:
        added = (await legacy_api.post("/user/keys", admin, title="k", key=ssh_key(1))).json()
        deleted = (await legacy_api.delete(f"/user/keys/{added['id']}", admin)).json()
        assert (deleted["user_id"], deleted["title"], deleted["public"]) == (admin.id, "k", False)
        assert (await legacy_api.delete(f"/user/keys/{added['id']}", admin)).json() is None


class TestProjectsAndGroups:
    async def test_have_visibility_levels_in_tens(self, legacy_api: Api, make: DataFactory, admin: tables.User) -> None:
        group = await make.group(owner=admin)
        for level, shown in ((Visibility.PRIVATE, 0), (Visibility.INTERNAL, 10), (Visibility.PUBLIC, 20)):
            project = await make.project(group=group, visibility=level)
            assert (await legacy_api.get(f"/projects/{project.id}", admin)).json()["visibility_level"] == shown
        changed = (await legacy_api.put(f"/projects/{project.id}", admin, visibility_level=10)).json()
        assert changed["visibility_level"] == 10
        settings = {"restricted_visibility_levels": [10, 20], "default_project_visibility": 10, "default_snippet_visibility": 20}
        shown_settings = (await legacy_api.put("/application/settings", admin, **settings)).json()
        assert {key: shown_settings[key] for key in settings} == settings
        cleared = (await legacy_api.put("/application/settings", admin, restricted_visibility_levels=None)).json()
        assert cleared["restricted_visibility_levels"] == cleared["restricted_signup_domains"] == []

    async def test_leave_out_keys_without_a_value(self, legacy_api: Api, make: DataFactory, admin: tables.User) -> None:
        own, shared = await make.project(owner=admin), await make.project(group=(group := await make.group(owner=admin)))
        shown, of_group = [(await legacy_api.get(f"/projects/{each.id}", admin)).json() for each in (own, shared)]
        assert shown["owner"]["id"] == admin.id and "owner" not in of_group
        assert "forked_from_project" not in shown
        assert of_group["namespace"]["avatar"] == {"url": None}
        details = (await legacy_api.get(f"/groups/{group.id}", admin)).json()
        assert details["web_url"].endswith(f"/groups/{group.path}") and details["avatar_url"] is None
        assert [project["id"] for project in details["projects"]] == [shared.id]

    async def test_members_have_wrong_levels_and_rows(self, legacy_api: Api, make: DataFactory, admin: tables.User) -> None:
        group, user = await make.group(owner=admin), await make.user()
        path = f"/groups/{group.id}/members"
        for method, address in (("POST", path), ("PUT", f"{path}/{admin.id}")):
            response = await legacy_api.request(method, address, admin, json={"user_id": user.id, "access_level": 11})
            assert (response.status_code, response.json()) == (422, {"message": "Wrong access level"})
        added = (await legacy_api.post(path, admin, user_id=user.id, access_level=30)).json()
        assert list(added) == list(LEGACY_SHAPES["GroupMember"])
        row = (await legacy_api.delete(f"{path}/{user.id}", admin)).json()
        assert (row["source_id"], row["source_type"], row["user_id"], row["access_level"]) == (group.id, "Namespace", user.id, 30)


class TestMergeRequests:
    async def test_a_conflict_is_406(self, api: Api, legacy_api: Api, make: DataFactory) -> None:
        owner = await make.user()
        project = await make.project(owner=owner, history={"commits": 3})
        request = await make.merge_request(project, source_branch="nope", target_branch="master")
        path = f"/projects/{project.id}/merge_requests/{request.id}/merge"
        answers = [await each.put(path, owner) for each in (api, legacy_api)]
        assert [(each.status_code, each.json()) for each in answers] == [
            (405, {"message": "Branch cannot be merged"}),
            (406, {"message": "Branch cannot be merged"}),
        ]


class TestChangedFiles:
    async def test_of_merge_requests_and_comparisons_have_another_order_than_those_of_commits(
        self, legacy_api: Api, make: DataFactory
    ) -> None:
        owner = await make.user()
        project = await make.project(owner=owner, history={"commits": 3})
        commit_to_branch(make.services.repositories.path_of(project.id), "feature", {"door.txt": b"a door\n"}, start="master")
        branches = {"source_branch": "feature", "target_branch": "master"}
        made = (await legacy_api.post(f"/projects/{project.id}/merge_requests", owner, **branches, title="T")).json()

        changed = (await legacy_api.get(f"/projects/{project.id}/merge_requests/{made['id']}/changes", owner)).json()["changes"]
        path = f"/projects/{project.id}/repository"
        compared = (await legacy_api.get(f"{path}/compare", owner, **{"from": "master", "to": "feature"})).json()["diffs"]
        (of_commit,) = (await legacy_api.get(f"{path}/commits/feature/diff", owner)).json()

        further = ["new_file", "renamed_file", "deleted_file"]
        assert list(changed[0]) == list(compared[0]) == ["old_path", "new_path", "a_mode", "b_mode", "diff", *further]
        assert list(of_commit) == ["diff", "new_path", "old_path", "a_mode", "b_mode", *further]
        assert changed == compared == [of_commit]


class TestBuilds:
    async def test_without_an_artifact_have_no_key_for_it(self, legacy_api: Api, make: DataFactory) -> None:
        owner = await make.user()
        project = await make.project(owner=owner, history={"commits": 1}, builds_enabled=True)
        sha = str(await make.services.repositories.read(project.id, lambda repository: repository.resolve("master")))
        build = await make.build(project, sha)
        path = f"/projects/{project.id}/builds"
        assert "artifacts_file" not in (await legacy_api.get(f"{path}/{build.id}", owner)).json()
        await make.artifact(build)
        assert (await legacy_api.get(path, owner)).json()[0]["artifacts_file"].keys() == {"filename", "size"}


class TestCommits:
    async def test_comments_say_where_they_are(self, legacy_api: Api, make: DataFactory) -> None:
        owner = await make.user()
        project = await make.project(owner=owner, members=[(reporter := await make.user(), AccessLevel.REPORTER)], history={"commits": 2})
        path = f"/projects/{project.id}/repository/commits/master"
        posted = (await legacy_api.post(f"{path}/comments", reporter, note="N")).json()
        assert (await legacy_api.get(f"{path}/comments", owner)).json() == [posted]
        assert posted["line"] is None and posted["author"]["username"] == reporter.username
        assert all(isinstance(entry["a_mode"], str) for entry in (await legacy_api.get(f"{path}/diff", owner)).json())


class TestHooks:
    async def test_a_deleted_hook_has_the_switch_of_builds(self, legacy_api: Api, admin: tables.User) -> None:
        hook = (await legacy_api.post("/hooks", admin, url=HOOK_URL)).json()
        assert (await legacy_api.delete(f"/hooks/{hook['id']}", admin)).json()["build_events"] is False
        assert (await legacy_api.delete(f"/hooks/{hook['id']}", admin)).json() is None
