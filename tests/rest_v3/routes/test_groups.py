"""The section Groups of the interface document."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import EXTERNAL_URL, DataFactory
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2013, 9, 30, 13, 46, 2, 123000, tzinfo=UTC)
NESTED_PATH = "2013-09-30T13:46:02.123Z"
NOT_FOUND = {"message": "404 Not found"}
FORBIDDEN = {"message": "403 Forbidden"}


def paths(response: Any) -> list[str]:
    return [entry["path"] for entry in response.json()]


class TestListGroups:
    """GET /groups"""

    async def test_returns_groups_of_the_caller_newest_first(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        first = await make.group(path="first", name="First", description="What came first", owner=user)
        await make.group(path="second", members=[(user, AccessLevel.GUEST)])
        # Visible, but not the caller's own.
        await make.project(group=await make.group(path="open"), visibility=Visibility.PUBLIC)

        response = await api.get("/groups", user)

        assert response.status_code == 200
        assert paths(response) == ["second", "first"]
        assert response.json()[1] == {"id": first.id, "name": "First", "path": "first", "description": "What came first"}

    async def test_returns_all_to_administrators(self, api: Api, make: DataFactory) -> None:
        await make.group(path="one", owner=await make.user())

        assert paths(await api.get("/groups", await make.admin())) == ["one"]

    @pytest.mark.parametrize(("search", "found"), [("TOOL", ["x-tools", "a"]), ("x-", ["x-tools"]), ("%", []), ("", ["b", "x-tools", "a"])])
    async def test_searches_names_and_paths(self, api: Api, make: DataFactory, search: str, found: list[str]) -> None:
        user = await make.user()
        await make.group(path="a", name="Toolbox", owner=user)
        await make.group(path="x-tools", name="X", owner=user)
        await make.group(path="b", name="B", description="tools", owner=user)

        assert paths(await api.get("/groups", user, search=search)) == found

    async def test_is_paged(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        for number in range(22):
            await make.group(path=f"group{number:02}", owner=user)

        first, second = await api.get("/groups", user), await api.get("/groups", user, page=2)

        assert (len(first.json()), paths(second)) == (20, ["group01", "group00"])
        assert (first.headers["X-Total"], first.headers["X-Next-Page"]) == ("22", "2")

    async def test_statement_count_does_not_grow_with_rows(self, api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        user = await make.user()
        for _ in range(30):
            await make.group(owner=user)

        with statements.record() as few:
            await api.get("/groups", user, per_page=1)
        with statements.assert_at_most(len(few)):
            await api.get("/groups", user, per_page=30)

    async def test_requires_a_caller(self, api: Api) -> None:
        assert (await api.get("/groups")).status_code == 401


class TestGetGroup:
    """GET /groups/:id"""

    async def test_returns_the_group_with_all_its_projects(self, api: Api, make: DataFactory) -> None:
        group = await make.group(path="Tools", name="Tools", description="d", owner=(owner := await make.user()))
        await make.project(group=group, path="one")
        await make.project(group=group, path="two", archived=True)

        response = await api.get(f"/groups/{group.id}", owner)

        body = response.json()
        assert sorted(project["path"] for project in body.pop("projects")) == ["one", "two"]
        assert body == {"id": group.id, "name": "Tools", "path": "Tools", "description": "d"}

    @pytest.mark.parametrize("path", ["tools", "TOOLS", "my.tools"])
    async def test_accepts_a_path(self, api: Api, make: DataFactory, path: str) -> None:
        group = await make.group(path=path.lower(), owner=(owner := await make.user()))

        assert (await api.get(f"/groups/{path}", owner)).json()["id"] == group.id

    async def test_shows_only_projects_that_the_caller_may_see(self, api: Api, make: DataFactory) -> None:
        group = await make.group()
        await make.project(group=group, path="hidden")
        await make.project(group=group, path="open", visibility=Visibility.INTERNAL)

        response = await api.get(f"/groups/{group.id}", await make.user())

        assert [project["path"] for project in response.json()["projects"]] == ["open"]

    @pytest.mark.parametrize("id", ["1", "hidden", "0", "99999999999", "1x", "nobody%2Fhere", "%00", "%FF"])
    async def test_a_hidden_group_looks_like_a_missing_one(self, api: Api, make: DataFactory, id: str) -> None:
        await make.group(path="hidden", owner=await make.user())

        response = await api.get(f"/groups/{id}", await make.user())

        assert (response.status_code, response.json()) == (404, NOT_FOUND)

    async def test_is_no_user_s_namespace(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        assert (await api.get(f"/groups/{user.username}", user)).json() == NOT_FOUND

    async def test_statement_count_does_not_grow_with_rows(self, api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        owner = await make.user()
        small, large = await make.group(owner=owner), await make.group(owner=owner)
        await make.project(group=small)
        for _ in range(30):
            await make.project(group=large)

        with statements.record() as few:
            await api.get(f"/groups/{small.id}", owner)
        with statements.assert_at_most(len(few)):
            assert len((await api.get(f"/groups/{large.id}", owner)).json()["projects"]) == 30


class TestCreateGroup:
    """POST /groups"""

    async def test_creates_a_group_that_the_caller_owns(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        response = await api.post("/groups", user, name=" Tools ", path="tools", description="What we use")

        assert response.status_code == 201
        group = response.json()
        assert group == {"id": group["id"], "name": "Tools", "path": "tools", "description": "What we use"}
        (member,) = (await api.get(f"/groups/{group['id']}/members", user)).json()
        assert (member["id"], member["access_level"]) == (user.id, 50)

    @pytest.mark.parametrize("kind", ["params", "data", "json"])
    async def test_accepts_query_form_and_json(self, api: Api, make: DataFactory, kind: str) -> None:
        settings: dict[str, Any] = {kind: {"name": "Tools", "path": "tools"}}

        assert (await api.request("POST", "/groups", await make.user(), **settings)).json()["description"] == ""

    @pytest.mark.parametrize(
        ("missing", "params"), [("name", {"path": "p"}), ("path", {"name": "n"}), ("name", {}), ("name", {"name": " ", "path": "p"})]
    )
    async def test_requires_a_name_and_a_path(self, api: Api, make: DataFactory, missing: str, params: dict[str, str]) -> None:
        response = await api.post("/groups", await make.user(), **params)

        assert (response.status_code, response.json()) == (400, {"message": f'400 (Bad request) "{missing}" not given'})

    @pytest.mark.parametrize(
        ("params", "field", "text"),
        [
            ({"path": "12345"}, "path", "cannot be digits only"),
            ({"path": "groups"}, "path", "groups is a reserved name"),
            ({"path": "-x"}, "path", "can contain only letters, digits, '_', '-' and '.'. Cannot start with '-' or end in '.'."),
            ({"path": "TAKEN"}, "path", "has already been taken"),
            ({"path": "ADA"}, "path", "has already been taken"),
            ({"name": "taken"}, "name", "has already been taken"),
            ({"name": "a/b"}, "name", "can contain only letters, digits, '_', '.', dash and space."),
            ({"description": "x" * 256}, "description", "is too long (maximum is 255 characters)"),
            ({"name": {"a": 1}}, "name", "is invalid"),
        ],
    )
    async def test_rejects_invalid_values(self, api: Api, make: DataFactory, params: dict[str, Any], field: str, text: str) -> None:
        user = await make.user("ada")
        await make.group(path="taken", name="Taken", owner=user)

        response = await api.post("/groups", user, **{"name": "Tools", "path": "tools", **params})

        assert (response.status_code, response.json()) == (400, {"message": {field: [text]}})
        assert len((await api.get("/groups", user)).json()) == 1

    @cites("Authentication: creating groups is for users who may")
    async def test_requires_permission(self, api: Api, make: DataFactory) -> None:
        user = await make.user(can_create_group=False)

        assert (await api.post("/groups", user, name="Tools", path="tools")).json() == FORBIDDEN
        # Before a parameter is called missing.
        assert (await api.post("/groups", user)).status_code == 403
        assert (await api.post("/groups")).status_code == 401

    async def test_concurrent_duplicates_succeed_once(self, api: Api, make: DataFactory) -> None:
        users = [await make.user() for _ in range(32)]

        responses = await asyncio.gather(
            *(api.post("/groups", user, name=f"Name {number}", path=("same", "SAME")[number % 2]) for number, user in enumerate(users))
        )

        assert Counter(response.status_code for response in responses) == {201: 1, 400: 31}
        refused = [response.json() for response in responses if response.status_code == 400]
        assert refused == [{"message": {"path": ["has already been taken"]}}] * 31
        assert len((await api.get("/groups", await make.admin())).json()) == 1


class TestDeleteGroup:
    """DELETE /groups/:id"""

    async def test_removes_the_group_with_its_projects_and_answers_the_record(self, api: Api, make: DataFactory) -> None:
        group = await make.group(
            path="tools", name="Tools", description="d", owner=(owner := await make.user()), created_at=MOMENT, updated_at=MOMENT
        )
        project = await make.project(group=group)

        response = await api.delete("/groups/tools", owner)

        assert response.status_code == 200
        assert response.json() == {
            "id": group.id,
            "name": "Tools",
            "path": "tools",
            "description": "d",
            "owner_id": None,
            "created_at": NESTED_PATH,
            "updated_at": NESTED_PATH,
        }
        assert await make.fetch(tables.Project, project.id) is None
        assert (await api.delete(f"/groups/{group.id}", owner)).json() == NOT_FOUND

    async def test_requires_an_owner(self, api: Api, make: DataFactory) -> None:
        group = await make.group(members=[(master := await make.user(), AccessLevel.MASTER)])

        assert (await api.delete(f"/groups/{group.id}", master)).json() == FORBIDDEN
        assert (await api.delete(f"/groups/{group.id}", await make.user())).json() == NOT_FOUND
        assert (await api.delete(f"/groups/{group.id}")).status_code == 401
        assert await make.fetch(tables.Namespace, group.id) is not None


class TestListProjects:
    """GET /groups/:id/projects"""

    async def test_returns_the_entry_of_the_document(self, api: Api, make: DataFactory) -> None:
        owner = await make.user()
        group = await make.group(path="tools", name="Tools", description="d", owner=owner, created_at=MOMENT, updated_at=MOMENT)
        project = await make.project(
            group=group,
            path="forge",
            name="The Forge",
            description="Makes things",
            visibility=Visibility.PUBLIC,
            history={"commits": 1},
            owner=owner,
            tag_list=["a", "b"],
            wiki_enabled=False,
            created_at=MOMENT,
            last_activity_at=MOMENT,
        )

        (entry,) = (await api.get("/groups/tools/projects", owner)).json()

        assert entry == {
            "id": project.id,
            "description": "Makes things",
            "default_branch": "master",
            "public": True,
            "visibility_level": 2,
            "ssh_url_to_repo": "git@forge.example:tools/forge.git",
            "http_url_to_repo": f"{EXTERNAL_URL}/tools/forge.git",
            "web_url": f"{EXTERNAL_URL}/tools/forge",
            "owner": {"id": group.id, "name": "Tools", "created_at": NESTED_PATH},
            "name": "The Forge",
            "name_with_namespace": "Tools / The Forge",
            "path": "forge",
            "path_with_namespace": "tools/forge",
            "creator_id": owner.id,
            "archived": False,
            "avatar_url": None,
            "created_at": NESTED_PATH,
            "last_activity_at": NESTED_PATH,
            "issues_enabled": True,
            "merge_requests_enabled": True,
            "builds_enabled": True,
            "wiki_enabled": False,
            "snippets_enabled": True,
            "tag_list": ["a", "b"],
            "namespace": {
                "id": group.id,
                "name": "Tools",
                "path": "tools",
                "description": "d",
                "owner_id": None,
                "created_at": NESTED_PATH,
                "updated_at": NESTED_PATH,
            },
        }

    @pytest.fixture
    async def owner(self, make: DataFactory) -> tables.User:
        """The owner of the group `tools` with three projects, made in this order."""
        owner = await make.user()
        group = await make.group(path="tools", owner=owner)

        def times(created: int, updated: int, active: int) -> dict[str, datetime]:
            names = ("created_at", "updated_at", "last_activity_at")
            return {name: MOMENT + timedelta(days=day) for name, day in zip(names, (created, updated, active), strict=True)}

        await make.project(group=group, path="b", name="Z", archived=True, **times(1, 3, 2))
        await make.project(group=group, path="c", name="Y", visibility=Visibility.INTERNAL, builds_enabled=False, **times(3, 2, 1))
        await make.project(group=group, path="a", name="X", visibility=Visibility.PUBLIC, **times(2, 1, 3))
        return owner

    @pytest.mark.parametrize(
        ("params", "found"),
        [
            ({}, "cab"),
            ({"archived": "true"}, "b"),
            ({"archived": "false"}, "ca"),
            ({"archived": ""}, "cab"),
            ({"visibility": "private"}, "b"),
            ({"visibility": "internal"}, "c"),
            ({"visibility": "public"}, "a"),
            ({"visibility": "secret"}, "cab"),
            ({"order_by": "id"}, "acb"),
            ({"order_by": "id", "sort": "asc"}, "bca"),
            ({"order_by": "name"}, "bca"),
            ({"order_by": "path"}, "cba"),
            ({"order_by": "created_at", "sort": "asc"}, "bac"),
            ({"order_by": "updated_at"}, "bca"),
            ({"order_by": "last_activity_at"}, "abc"),
            ({"order_by": "colour", "sort": "sideways"}, "cab"),
            ({"search": "y"}, "c"),
            ({"search": "%"}, ""),
            ({"ci_enabled_first": "true"}, "abc"),
            ({"ci_enabled_first": "true", "order_by": "path", "sort": "asc"}, "abc"),
            ({"ci_enabled_first": "true", "order_by": "path", "sort": "desc"}, "bac"),
            ({"ci_enabled_first": "false"}, "cab"),
            ({"visibility": "public", "archived": "true"}, ""),
            ({"private": "1"}, "cab"),
        ],
    )
    async def test_narrows_and_sorts(self, api: Api, owner: tables.User, params: dict[str, str], found: str) -> None:
        assert "".join(paths(await api.get("/groups/tools/projects", owner, **params))) == found

    async def test_returns_only_visible_projects(self, api: Api, make: DataFactory, owner: tables.User) -> None:
        assert paths(await api.get("/groups/tools/projects", await make.user())) == ["c", "a"]

    async def test_is_paged_with_its_filters_in_the_links(self, api: Api, owner: tables.User) -> None:
        response = await api.get("/groups/tools/projects", owner, per_page=2, ci_enabled_first="true")

        assert (paths(response), response.headers["X-Total"]) == (["a", "b"], "3")
        assert f"<{EXTERNAL_URL}/api/v3/groups/tools/projects?ci_enabled_first=true&page=2&per_page=2>" in response.headers["Link"]

    async def test_statement_count_does_not_grow_with_rows(self, api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        group = await make.group(owner=(owner := await make.user()))
        for _ in range(30):
            await make.project(group=group)

        with statements.record() as few:
            await api.get(f"/groups/{group.id}/projects", owner, per_page=1)
        with statements.assert_at_most(len(few)):
            assert len((await api.get(f"/groups/{group.id}/projects", owner, per_page=30)).json()) == 30

    async def test_hides_the_group(self, api: Api, make: DataFactory) -> None:
        group = await make.group()

        assert (await api.get(f"/groups/{group.id}/projects", await make.user())).json() == NOT_FOUND


class TestTransferProjectToGroup:
    """POST /groups/:id/projects/:project_id"""

    async def test_moves_the_project_and_answers_the_record_of_the_group(self, api: Api, make: DataFactory) -> None:
        project = await make.project(path="forge")
        group = await make.group(path="tools", owner=(owner := await make.user()))

        response = await api.post(f"/groups/{group.id}/projects/{project.id}", await make.admin())

        assert response.status_code == 201
        assert (response.json()["id"], response.json()["path"], response.json()["owner_id"]) == (group.id, "tools", None)
        (entry,) = (await api.get("/groups/tools/projects", owner)).json()
        assert (entry["id"], entry["path_with_namespace"]) == (project.id, "tools/forge")

    async def test_accepts_the_path_of_the_group(self, api: Api, make: DataFactory) -> None:
        project, _ = await make.project(), await make.group(path="tools")

        assert (await api.post(f"/groups/tools/projects/{project.id}", await make.admin())).status_code == 201

    async def test_answers_400_for_the_same_group_and_for_a_taken_path(self, api: Api, make: DataFactory) -> None:
        admin, group = await make.admin(), await make.group()
        there, other = await make.project(group=group, path="forge"), await make.project(path="FORGE")

        same = await api.post(f"/groups/{group.id}/projects/{there.id}", admin)
        taken = await api.post(f"/groups/{group.id}/projects/{other.id}", admin)

        assert (same.status_code, same.json()) == (400, {"message": {"new_namespace": ["is invalid"]}})
        assert taken.status_code == 400
        assert taken.json() == {"message": {"new_namespace": ["Project with same path in target namespace already exists"]}}

    async def test_missing_objects_are_404(self, api: Api, make: DataFactory) -> None:
        admin, group, project = await make.admin(), await make.group(), await make.project()

        assert (await api.post(f"/groups/{group.id}/projects/999", admin)).json() == {"message": "404 Project Not Found"}
        assert (await api.post(f"/groups/999/projects/{project.id}", admin)).json() == NOT_FOUND

    @cites("Authentication: transfer of a project to a group is for administrators")
    async def test_requires_an_administrator_before_any_lookup(self, api: Api, make: DataFactory) -> None:
        owner = await make.user()
        group, project = await make.group(owner=owner), await make.project(owner=owner)

        assert (await api.post(f"/groups/{group.id}/projects/{project.id}", owner)).json() == FORBIDDEN
        assert (await api.post("/groups/999/projects/999", owner)).json() == FORBIDDEN
        assert (await api.post("/groups/999/projects/999")).status_code == 401


class TestListMembers:
    """GET /groups/:id/members"""

    async def test_returns_users_with_their_level(self, api: Api, make: DataFactory) -> None:
        owner = await make.user("ada", name="Ada", created_at=MOMENT)
        group = await make.group(owner=owner)

        response = await api.get(f"/groups/{group.id}/members", owner)

        assert response.json() == [
            {
                "id": owner.id,
                "username": "ada",
                "email": "ada@example.org",
                "name": "Ada",
                "state": "active",
                "created_at": NESTED_PATH,
                "access_level": 50,
            }
        ]

    async def test_is_paged_except_for_legacy_clients(self, api: Api, legacy_api: Api, make: DataFactory) -> None:
        users = [await make.user() for _ in range(22)]
        group = await make.group(members=[(user, AccessLevel.GUEST) for user in users])

        first = await api.get(f"/groups/{group.id}/members", users[0])
        whole = await legacy_api.get(f"/groups/{group.id}/members", users[0])

        assert (len(first.json()), first.headers["X-Total"]) == (20, "22")
        assert [entry["id"] for entry in whole.json()] == [user.id for user in users]
        assert "X-Total" not in whole.headers

    async def test_statement_count_does_not_grow_with_rows(self, api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        users = [await make.user() for _ in range(30)]
        group = await make.group(members=[(user, AccessLevel.GUEST) for user in users])

        with statements.record() as few:
            await api.get(f"/groups/{group.id}/members", users[0], per_page=1)
        with statements.assert_at_most(len(few)):
            await api.get(f"/groups/{group.id}/members", users[0], per_page=30)

    async def test_hides_a_private_group(self, api: Api, make: DataFactory) -> None:
        group = await make.group(owner=await make.user())

        assert (await api.get(f"/groups/{group.id}/members", await make.user())).json() == NOT_FOUND
        assert (await api.get(f"/groups/{group.id}/members")).status_code == 401


class TestAddMember:
    """POST /groups/:id/members"""

    @pytest.mark.parametrize("level", [10, "20", 30, 40, 50])
    async def test_adds_a_member(self, api: Api, make: DataFactory, level: int | str) -> None:
        group, user = await make.group(owner=(owner := await make.user())), await make.user("bob")

        response = await api.post(f"/groups/{group.path}/members", owner, user_id=user.id, access_level=level)

        assert response.status_code == 201
        assert (response.json()["username"], response.json()["email"], response.json()["access_level"]) == (
            "bob",
            "bob@example.org",
            int(level),
        )
        assert len((await api.get("/groups", user)).json()) == 1

    @pytest.mark.parametrize("level", [0, 5, 15, 60, -10, "master"])
    async def test_rejects_any_other_level(self, api: Api, make: DataFactory, level: int | str) -> None:
        group, user = await make.group(owner=(owner := await make.user())), await make.user()

        response = await api.post(f"/groups/{group.id}/members", owner, user_id=user.id, access_level=level)

        assert (response.status_code, response.json()) == (400, {"message": "Wrong access level"})
        assert len((await api.get(f"/groups/{group.id}/members", owner)).json()) == 1

    @pytest.mark.parametrize(("missing", "params"), [("user_id", {"access_level": 10}), ("access_level", {"user_id": 1})])
    async def test_requires_a_user_and_a_level(self, api: Api, make: DataFactory, missing: str, params: dict[str, int]) -> None:
        group = await make.group(owner=(owner := await make.user()))

        response = await api.post(f"/groups/{group.id}/members", owner, **params)

        assert (response.status_code, response.json()) == (400, {"message": f'400 (Bad request) "{missing}" not given'})

    async def test_rejects_an_existing_member(self, api: Api, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()))

        response = await api.post(f"/groups/{group.id}/members", owner, user_id=owner.id, access_level=10)

        assert (response.status_code, response.json()) == (409, {"message": "Already exists"})

    async def test_a_missing_user_is_404(self, api: Api, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()))

        response = await api.post(f"/groups/{group.id}/members", owner, user_id=999, access_level=10)

        assert (response.status_code, response.json()) == (404, {"message": "404 User Not Found"})

    async def test_requires_an_owner(self, api: Api, make: DataFactory) -> None:
        group = await make.group(members=[(master := await make.user(), AccessLevel.MASTER)])
        path = f"/groups/{group.id}/members"

        assert (await api.post(path, master, user_id=999, access_level=10)).json() == FORBIDDEN
        assert (await api.post(path, master)).json() == FORBIDDEN
        assert (await api.post(path, await make.user())).json() == NOT_FOUND
        assert (await api.post(path)).status_code == 401

    async def test_adds_one_of_many_at_once(self, api: Api, make: DataFactory) -> None:
        group, user = await make.group(owner=(owner := await make.user())), await make.user()

        responses = await asyncio.gather(
            *(api.post(f"/groups/{group.id}/members", owner, user_id=user.id, access_level=10) for _ in range(32))
        )

        assert Counter(response.status_code for response in responses) == {201: 1, 409: 31}
        assert {response.json()["message"] for response in responses if response.status_code == 409} == {"Already exists"}
        assert len((await api.get(f"/groups/{group.id}/members", owner)).json()) == 2


class TestUpdateMember:
    """PUT /groups/:id/members/:user_id"""

    async def test_changes_the_access_level(self, api: Api, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()), members=[(user := await make.user(), AccessLevel.GUEST)])

        response = await api.put(f"/groups/{group.id}/members/{user.id}", owner, access_level=40)

        assert (response.status_code, response.json()["id"], response.json()["access_level"]) == (200, user.id, 40)

    async def test_rejects_any_other_level(self, api: Api, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()), members=[(user := await make.user(), AccessLevel.GUEST)])

        response = await api.put(f"/groups/{group.id}/members/{user.id}", owner, access_level=60)

        assert (response.status_code, response.json()) == (400, {"message": "Wrong access level"})

    async def test_a_missing_member_is_404_before_the_level_is_read(self, api: Api, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()))
        stranger = await make.user()
        missing = {"message": "404 User can not be found Not Found"}

        assert (await api.put(f"/groups/{group.id}/members/{stranger.id}", owner, access_level=10)).json() == missing
        assert (await api.put(f"/groups/{group.id}/members/999", owner, access_level=10)).json() == missing
        assert (await api.put(f"/groups/{group.id}/members/{stranger.id}", owner)).json() == missing
        assert (await api.put(f"/groups/{group.id}/members/{owner.id}", owner)).status_code == 400

    async def test_the_last_owner_cannot_be_removed(self, api: Api, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()), members=[(await make.user(), AccessLevel.MASTER)])

        response = await api.put(f"/groups/{group.id}/members/{owner.id}", owner, access_level=40)

        assert (response.status_code, response.json()) == (400, {"message": {"user_id": ["is the last owner of the group"]}})
        assert (await api.put(f"/groups/{group.id}/members/{owner.id}", owner, access_level=50)).status_code == 200

    async def test_requires_an_owner(self, api: Api, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()), members=[(master := await make.user(), AccessLevel.MASTER)])

        assert (await api.put(f"/groups/{group.id}/members/{master.id}", master, access_level=50)).json() == FORBIDDEN
        assert (await api.put(f"/groups/{group.id}/members/{owner.id}", await make.user(), access_level=10)).json() == NOT_FOUND


class TestRemoveMember:
    """DELETE /groups/:id/members/:user_id"""

    async def test_ends_the_membership_and_answers_it(self, api: Api, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()), members=[(user := await make.user(), AccessLevel.REPORTER)])

        response = await api.delete(f"/groups/{group.id}/members/{user.id}", owner)

        assert (response.status_code, response.json()["id"], response.json()["access_level"]) == (200, user.id, 20)
        assert (await api.get("/groups", user)).json() == []

    async def test_a_missing_member_is_404(self, api: Api, make: DataFactory) -> None:
        group = await make.group(name="Tools", owner=(owner := await make.user()))
        stranger = await make.user()

        response = await api.delete(f"/groups/{group.id}/members/{stranger.id}", owner)

        assert response.status_code == 404
        assert response.json() == {"message": f"404 Not Found - user_id:{stranger.id} not a member of group Tools"}
        assert (await api.delete(f"/groups/{group.id}/members/999", owner)).json() == {"message": "404 User Not Found"}

    async def test_the_last_owner_cannot_be_removed(self, api: Api, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()))

        response = await api.delete(f"/groups/{group.id}/members/{owner.id}", owner)

        assert (response.status_code, response.json()) == (400, {"message": {"user_id": ["is the last owner of the group"]}})

    async def test_concurrent_leaves_preserve_one_owner(self, api: Api, make: DataFactory) -> None:
        owners = [await make.user(), await make.user()]
        group = await make.group(members=[(owner, AccessLevel.OWNER) for owner in owners])

        responses = await asyncio.gather(*(api.delete(f"/groups/{group.id}/members/{owner.id}", owner) for owner in owners))

        assert sorted(response.status_code for response in responses) == [200, 400]

    async def test_requires_an_owner_or_the_member_itself(self, api: Api, make: DataFactory) -> None:
        owner, master, guest = await make.user(), await make.user(), await make.user()
        group = await make.group(owner=owner, members=[(master, AccessLevel.MASTER), (guest, AccessLevel.GUEST)])

        assert (await api.delete(f"/groups/{group.id}/members/{guest.id}", master)).json() == FORBIDDEN
        assert (await api.delete(f"/groups/{group.id}/members/{guest.id}", guest)).status_code == 200
        assert (await api.delete(f"/groups/{group.id}/members/{guest.id}", await make.user())).json() == NOT_FOUND
