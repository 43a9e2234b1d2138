"""Projects: the routes of the server of that time that the interface document leaves out."""

from typing import Any

from storage import tables
from storage.tables import AccessLevel, IssueState, Visibility
from tests.make import EXTERNAL_URL, DataFactory
from tests.support.api_clients import Api, Ask
from tests.support.database.statements import StatementRecorder

NOT_FOUND = {"message": "404 Project Not Found"}
FORBIDDEN = {"message": "403 Forbidden"}
STAR = "mutation ($path: String!) { starProject(input: {projectPath: $path}) { project { starCount } userErrors { code } } }"


def paths(response: Any) -> list[str]:
    assert response.status_code == 200, response.text
    return [entry["path"] for entry in response.json()]


async def star(ask: Ask, user: tables.User, *projects: tables.Project) -> None:
    for project in projects:
        assert (await ask.data(STAR, user, path=str(project.id)))["starProject"]["userErrors"] == []


class TestGetProject:
    """GET /projects/:id"""

    async def test_returns_the_project_with_permissions_and_counts(self, api: Api, ask: Ask, make: DataFactory) -> None:
        owner, guest = await make.user("ada", name="Ada L"), await make.user("guest")
        source = await make.project(owner=owner, path="Source", visibility=Visibility.PUBLIC)
        columns = {"path": "App", "name": "The App", "description": "d", "tag_list": ["x"], "forked_from_id": source.id}
        project = await make.project(owner=owner, members=[(guest, AccessLevel.GUEST)], history={"commits": 2}, **columns)
        await make.issue(project)
        await make.issue(project, state=IssueState.CLOSED)
        await star(ask, owner, project)
        await star(ask, guest, project)

        response = await api.get("/projects/ada%2Fapp", owner)
        body = response.json()

        assert response.headers["Cache-Control"] == "no-store"
        assert [body.pop(key)[-1] for key in ("created_at", "last_activity_at")] == ["Z", "Z"]
        assert len(body.pop("runners_token")) >= 20
        assert body.pop("namespace")["path"] == "ada"
        assert body.pop("owner")["username"] == "ada"
        forked_from = {
            "id": source.id,
            "name": "Source",
            "name_with_namespace": "Ada L / Source",
            "path": "Source",
            "path_with_namespace": "ada/Source",
        }
        assert body == {
            "id": project.id,
            "description": "d",
            "default_branch": "master",
            "tag_list": ["x"],
            "public": False,
            "archived": False,
            "visibility_level": 0,
            "ssh_url_to_repo": "git@forge.example:ada/App.git",
            "http_url_to_repo": f"{EXTERNAL_URL}/ada/App.git",
            "web_url": f"{EXTERNAL_URL}/ada/App",
            "name": "The App",
            "name_with_namespace": "Ada L / The App",
            "path": "App",
            "path_with_namespace": "ada/App",
            "issues_enabled": True,
            "merge_requests_enabled": True,
            "wiki_enabled": True,
            "builds_enabled": True,
            "snippets_enabled": True,
            "shared_runners_enabled": True,
            "creator_id": owner.id,
            "forked_from_project": forked_from,
            "avatar_url": None,
            "star_count": 2,
            "forks_count": 0,
            "open_issues_count": 1,
            "public_builds": True,
            "permissions": {"project_access": {"access_level": 50, "notification_level": 3}, "group_access": None},
        }
        as_guest = (await api.get(f"/projects/{project.id}", guest)).json()
        assert as_guest["runners_token"] is None
        assert as_guest["permissions"] == {"project_access": {"access_level": 10, "notification_level": 3}, "group_access": None}
        assert (await api.get(f"/projects/{source.id}", guest)).json()["forks_count"] == 1

    async def test_shows_levels_of_a_group_and_no_owner(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        group = await make.group(members=[(user, AccessLevel.DEVELOPER)])
        project = await make.project(group=group, issues_enabled=False, members=[(user, AccessLevel.MASTER)])

        body = (await api.get(f"/projects/{project.id}", user)).json()

        assert body["permissions"] == {
            "project_access": {"access_level": 40, "notification_level": 3},
            "group_access": {"access_level": 30, "notification_level": 3},
        }
        assert (body["owner"], body["open_issues_count"]) == (None, None)

    async def test_a_hidden_project_looks_like_a_missing_one(self, api: Api, make: DataFactory) -> None:
        project, user = await make.project(owner=await make.user("eve"), path="secret"), await make.user()

        for key in (str(project.id), "eve%2Fsecret", "0", "99999999999", "1x", "a%2Fb%2Fc", "%00", "%FF"):
            response = await api.get(f"/projects/{key}", user)
            assert (response.status_code, response.json()) == (404, NOT_FOUND), key


class TestListProjects:
    """GET /projects, /projects/owned, /projects/starred, /projects/all, /projects/search/:query"""

    async def test_each_list_has_its_projects(self, api: Api, ask: Ask, make: DataFactory) -> None:
        user, other = await make.user("ada"), await make.user("other")
        await make.project(owner=user, path="own")
        await make.project(group=await make.group(owner=user), path="grouped")
        await make.project(group=await make.group(members=[(user, AccessLevel.MASTER)]), path="mastered")
        await make.project(owner=other, members=[(user, AccessLevel.GUEST)], path="joined", archived=True)
        public = await make.project(owner=other, path="public", name="A Public One", visibility=Visibility.PUBLIC)
        hidden = await make.project(owner=other, path="hidden", name="A Private One")
        await star(ask, user, public)
        await star(ask, other, hidden)
        admin = await make.admin()

        assert paths(await api.get("/projects", user)) == ["joined", "mastered", "grouped", "own"]
        assert paths(await api.get("/projects", admin)) == []
        assert paths(await api.get("/projects/owned", user)) == ["grouped", "own"]
        assert paths(await api.get("/projects/starred", user)) == ["public"]
        assert paths(await api.get("/projects/all", admin)) == ["hidden", "public", "joined", "mastered", "grouped", "own"]
        assert (await api.get("/projects/all", user)).status_code == 403
        assert paths(await api.get("/projects/search/one", user)) == ["public"]
        assert paths(await api.get("/projects/search/O", user, order_by="name", sort="desc")) == ["own", "joined", "grouped", "public"]
        assert paths(await api.get("/projects/search/%25", user)) == []
        assert (await api.get("/projects/starred", user)).json()[0]["star_count"] == 1

    async def test_filters_sorts_and_pages(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        await make.project(owner=user, path="c", name="One", archived=True)
        await make.project(owner=user, path="a", name="Two", visibility=Visibility.PUBLIC)
        await make.project(owner=user, path="b", name="Three", description="One of three", visibility=Visibility.INTERNAL)

        async def listed(**parameters: Any) -> str:
            return "".join(paths(await api.get("/projects", user, **parameters)))

        assert await listed() == "bac"
        assert [await listed(archived=value) for value in ("true", "false", "")] == ["c", "ba", "bac"]
        assert [await listed(visibility=value) for value in ("public", "internal", "private", "none")] == ["a", "b", "c", "bac"]
        assert [await listed(search=value) for value in ("one", "TWO", "x")] == ["bc", "a", ""]
        for order, found in (
            ("id", "bac"),
            ("name", "abc"),
            ("path", "cba"),
            ("created_at", "bac"),
            ("last_activity_at", "bac"),
            ("x", "bac"),
        ):
            assert await listed(order_by=order) == found, order
        assert await listed(order_by="path", sort="asc") == "abc"
        page = await api.get("/projects", user, per_page=2, page=2, archived="")
        assert (paths(page), page.headers["X-Total"], page.headers["X-Next-Page"]) == (["c"], "3", "")

    async def test_statement_count_does_not_grow_with_rows(self, api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        user, other = await make.user(), await make.user()
        for number in range(12):
            owner = user if number % 3 else other
            source = await make.project(owner=owner, members=[(user, AccessLevel.GUEST)])
            project = await make.project(group=await make.group(owner=user), forked_from_id=source.id)
            await make.issue(project, author=user)

        with statements.record() as few:
            await api.get("/projects", user, per_page=2)
        assert len(few) <= 12
        with statements.assert_at_most(len(few)):
            assert len((await api.get("/projects", user, per_page=24)).json()) == 24


class TestListNamespaces:
    """GET /namespaces"""

    async def test_returns_those_in_which_the_caller_may_create_projects(self, api: Api, make: DataFactory) -> None:
        user = await make.user("ada")
        await make.group(path="owned", name="Tools", owner=user)
        await make.group(path="mastered", members=[(user, AccessLevel.MASTER)])
        await make.group(path="joined", members=[(user, AccessLevel.DEVELOPER)])

        response = await api.get("/namespaces", user)

        assert [(each["path"], each["kind"]) for each in response.json()] == [("ada", "user"), ("owned", "group"), ("mastered", "group")]
        assert paths(await api.get("/namespaces", user, search="TOOL")) == ["owned"]
        assert paths(await api.get("/namespaces", await make.user("admin", admin=True), search="d")) == [
            "ada",
            "owned",
            "mastered",
            "joined",
            "admin",
        ]
        assert (await api.get("/namespaces", user, per_page=1)).headers["X-Total"] == "3"


class TestCreateProject:
    """POST /projects, POST /projects/user/:user_id"""

    async def test_creates_with_all_settings(self, api: Api, make: DataFactory) -> None:
        user = await make.user("ada")
        switches = ("issues", "merge_requests", "builds", "wiki", "snippets", "shared_runners")
        settings = {f"{name}_enabled": False for name in switches}

        response = await api.post("/projects", user, name="The App", description="d", visibility_level=10, public_builds=False, **settings)

        body = response.json()
        assert response.status_code == 201
        assert (body["path"], body["visibility_level"], body["public_builds"], body["creator_id"]) == ("the-app", 1, False, user.id)
        assert not any(body[name] for name in settings)
        assert len(body["runners_token"]) >= 20
        assert (await api.get("/projects/ada%2Fthe-app", user)).json()["description"] == "d"
        for parameters, level in (({"public": "true"}, 2), ({"public": "true", "visibility_level": 0}, 0), ({"public": "false"}, 0)):
            created = await api.post("/projects", user, name=f"P{level}{len(parameters)}{parameters['public']}", **parameters)
            assert created.json()["visibility_level"] == level

    async def test_creates_in_a_namespace(self, api: Api, make: DataFactory) -> None:
        user = await make.user("ada")
        own = (await api.get("/namespaces", user)).json()[0]["id"]
        mine = await make.group(members=[(user, AccessLevel.MASTER)])
        joined, hidden = await make.group(members=[(user, AccessLevel.DEVELOPER)]), await make.group()

        for namespace, path in ((own, "ada/a"), (mine.id, f"{mine.path}/a")):
            created = await api.post("/projects", user, name="A", path="a", namespace_id=namespace)
            assert created.json()["path_with_namespace"] == path
        for namespace_id in (joined.id, hidden.id, 999_999, "x"):
            refused = await api.post("/projects", user, name="B", namespace_id=namespace_id)
            assert (refused.status_code, refused.json()) == (400, {"message": {"namespace": ["is not valid"]}})

    async def test_refuses_invalid_values_and_more_than_the_limit(self, api: Api, make: DataFactory) -> None:
        user = await make.user(projects_limit=1)

        async def refused(**parameters: Any) -> tuple[int, Any]:
            response = await api.post("/projects", user, **parameters)
            return response.status_code, response.json()["message"]

        assert await refused() == (400, '400 (Bad request) "name" not given')
        assert (await refused(name="a/b"))[0] == 400
        status, message = await refused(name="a", path="a/b")
        assert (status, [*message]) == (400, ["path"])
        assert await refused(name="a", visibility_level=7) == (400, {"visibility_level": ["is not included in the list"]})
        assert (await api.post("/projects", user, name="A")).status_code == 201
        assert await refused(name="B") == (403, "Your project limit is 1 projects! Please contact your administrator to increase it")
        await make.settings(restricted_visibility_levels=[2])
        assert (await refused(name="C", public="1"))[0] in (400, 403)

    async def test_administrators_create_for_others(self, api: Api, make: DataFactory) -> None:
        admin, user = await make.admin(), await make.user("ada", projects_limit=1)

        created = await api.post(f"/projects/user/{user.id}", admin, name="App", default_branch="develop")

        body = created.json()
        assert (created.status_code, body["path_with_namespace"], body["creator_id"]) == (201, "ada/app", user.id)
        assert body["owner"]["username"] == "ada"
        again = await api.post(f"/projects/user/{user.id}", admin, name="More")
        assert (again.status_code, again.json()["message"][:23]) == (403, "Your project limit is 1")
        missing = await api.post(f"/projects/user/{user.id}", admin)
        assert (missing.status_code, missing.json()) == (400, {"message": {"name": ["can't be blank"]}})
        for params in ({"name": "A"}, {}, {"name": "A", "visibility_level": 7}):
            assert (await api.post("/projects/user/999999", admin, **params)).json() == {"message": "404 User Not Found"}
        assert (await api.post(f"/projects/user/{user.id}", user)).json() == FORBIDDEN
        assert (await api.post("/projects/user/999999", user)).json() == FORBIDDEN


class TestChangeProject:
    """PUT and DELETE /projects/:id"""

    async def test_masters_change_all_but_name_and_visibility(self, api: Api, make: DataFactory) -> None:
        owner, master, developer = await make.user("ada"), await make.user(), await make.user()
        members = [(master, AccessLevel.MASTER), (developer, AccessLevel.DEVELOPER)]
        project = await make.project(owner=owner, path="old", name="Old", members=members, history={"commits": 1})
        path = f"/projects/{project.id}"

        changed = await api.put(path, master, name="Old", path="new", description="d", issues_enabled="0", shared_runners_enabled=False)

        body = changed.json()
        assert (changed.status_code, body["path_with_namespace"], body["description"]) == (200, "ada/new", "d")
        assert not body["issues_enabled"] and not body["shared_runners_enabled"]
        assert (await api.put(path, master, description="")).json()["description"] is None
        for parameters in ({"name": "New"}, {"visibility_level": 20}, {"public": True}):
            assert (await api.put(path, master, **parameters)).status_code == 403
            assert (await api.put(path, developer, **parameters)).json() == FORBIDDEN
        assert (await api.put(path, developer, visibility_level="x")).json() == FORBIDDEN
        renamed = (await api.put(path, owner, name="New", visibility_level=20)).json()
        assert (renamed["name"], renamed["visibility_level"], renamed["public"]) == ("New", 2, True)
        await make.project(owner=owner, path="taken")
        taken = await api.put(path, owner, path="TAKEN")
        assert (taken.status_code, taken.json()) == (400, {"message": {"path": ["has already been taken"]}})
        unknown = await api.put(path, owner, default_branch="none")
        assert (unknown.status_code, unknown.json()) == (400, {"message": {"default_branch": ["is not a branch of the repository"]}})

    async def test_owners_delete(self, api: Api, make: DataFactory) -> None:
        owner, master = await make.user(), await make.user()
        project = await make.project(owner=owner, members=[(master, AccessLevel.MASTER)])

        assert (await api.delete(f"/projects/{project.id}", master)).json() == FORBIDDEN
        deleted = await api.delete(f"/projects/{project.id}", owner)

        assert deleted.status_code == 200
        assert isinstance(deleted.json(), str)
        assert (await api.delete(f"/projects/{project.id}", owner)).json() == NOT_FOUND


class TestForks:
    """POST /projects/fork/:id, POST and DELETE /projects/:id/fork"""

    async def test_forks_into_the_namespace_of_the_caller(self, api: Api, make: DataFactory) -> None:
        user = await make.user("ada")
        source = await make.project(path="App", visibility=Visibility.INTERNAL, history={"commits": 2})
        hidden, empty = await make.project(), await make.project(path="one", visibility=Visibility.PUBLIC)

        forked = await api.post(f"/projects/fork/{source.id}", user)

        body = forked.json()
        assert (forked.status_code, body["path_with_namespace"], body["default_branch"]) == (201, "ada/App", "master")
        assert body["forked_from_project"]["id"] == source.id
        again = await api.post(f"/projects/fork/{source.id}", user)
        name_taken = {"name": ["has already been taken"], "path": ["has already been taken"]}
        assert (again.status_code, again.json()) == (409, {"message": name_taken})
        assert (await api.post(f"/projects/fork/{hidden.id}", user)).json() == NOT_FOUND
        poor = await make.user(projects_limit=0)
        assert (await api.post(f"/projects/fork/{empty.id}", poor)).status_code == 409
        await make.settings(restricted_visibility_levels=[int(Visibility.PUBLIC)])
        restricted = await api.post(f"/projects/fork/{empty.id}", user)
        assert (restricted.status_code, list(restricted.json()["message"])) == (400, ["visibility_level"])

    async def test_relations_are_set_and_removed(self, api: Api, make: DataFactory) -> None:
        admin, owner = await make.admin(), await make.user()
        source, fork = await make.project(visibility=Visibility.PUBLIC), await make.project(owner=owner)
        path = f"/projects/{fork.id}/fork"

        linked = await api.post(f"{path}/{source.id}", admin)

        ids = {"id": fork.id, "forked_to_project_id": fork.id, "forked_from_project_id": source.id}
        assert (linked.status_code, {key: linked.json()[key] for key in ids}) == (201, ids)
        assert (await api.get(f"/projects/{fork.id}", owner)).json()["forked_from_project"]["id"] == source.id
        again = await api.post(f"{path}/{source.id}", admin)
        assert (again.status_code, again.json()) == (409, {"message": "Project already forked"})
        assert (await api.post(f"{path}/999999", admin)).json() == NOT_FOUND
        assert (await api.post(f"{path}/{source.id}", owner)).json() == FORBIDDEN
        assert (await api.post(f"/projects/{source.id}/fork/{source.id}", admin)).status_code == 400
        assert (await api.post(f"/projects/{source.id}/fork/{fork.id}", admin)).status_code == 400
        removed = await api.delete(path, owner)
        assert (removed.status_code, removed.json()["forked_from_project_id"]) == (200, source.id)
        assert [(each.status_code, each.json()) for each in [await api.delete(path, owner)]] == [(200, None)]
        assert (await api.get(f"/projects/{fork.id}", owner)).json()["forked_from_project"] is None


class TestListTeam:
    """GET /projects/:id/users"""

    async def test_returns_members_of_project_and_group_once(self, api: Api, make: DataFactory) -> None:
        one, two, three = await make.user("one"), await make.user("two"), await make.user("three")
        group = await make.group(members=[(two, AccessLevel.OWNER), (one, AccessLevel.GUEST)])
        project = await make.project(group=group, members=[(three, AccessLevel.GUEST), (two, AccessLevel.MASTER)])
        personal = await make.project(owner=three, members=[(one, AccessLevel.GUEST)])

        async def names(project: tables.Project, **parameters: Any) -> list[str]:
            return [each["username"] for each in (await api.get(f"/projects/{project.id}/users", one, **parameters)).json()]

        assert await names(project) == ["one", "two", "three"]
        assert await names(personal) == ["one", "three"]
        assert await names(project, search="T") == ["two", "three"]
        page = await api.get(f"/projects/{project.id}/users", one, per_page=2, page=2)
        assert ([each["username"] for each in page.json()], page.headers["X-Total"]) == (["three"], "3")


class TestListEvents:
    """GET /projects/:id/events"""

    async def test_tells_who_did_what(self, api: Api, make: DataFactory) -> None:
        owner, other, guest = await make.user("ada"), await make.user("other"), await make.user("guest")
        created = (await api.post("/projects", owner, name="App", visibility_level=2)).json()
        path = f"/projects/{created['id']}"
        project = await make.fetch(tables.Project, created["id"])
        assert project is not None
        await make.member(project, guest, AccessLevel.GUEST)
        issue = (await api.post(f"{path}/issues", other, title="First")).json()
        await api.put(f"{path}/issues/{issue['id']}", owner, title="Renamed")
        note = (await api.post(f"{path}/issues/{issue['id']}/notes", other, body="Hello")).json()
        for event in ("close", "reopen"):
            await api.put(f"{path}/issues/{issue['id']}", owner, state_event=event)
        milestone = (await api.post(f"{path}/milestones", owner, title="M")).json()
        await api.put(f"{path}/milestones/{milestone['id']}", owner, state_event="close")

        response = await api.get(f"{path}/events", guest)

        events = response.json()
        shown = [(each["action_name"], each["target_type"], each["target_title"], each["author_username"]) for each in events]
        assert shown == [
            ("closed", "Milestone", "M", "ada"),
            ("opened", "Milestone", "M", "ada"),
            ("opened", "Issue", "Renamed", "ada"),
            ("closed", "Issue", "Renamed", "ada"),
            ("commented on", "Note", None, "other"),
            ("opened", "Issue", "Renamed", "other"),
            ("created", None, None, "ada"),
        ]
        assert events[4]["target_id"] == note["id"] == events[4]["note"]["id"]
        assert (events[4]["note"]["body"], events[5]["target_id"], events[6]["author_id"]) == ("Hello", issue["id"], owner.id)
        assert response.headers["X-Total"] == "7"
        page = await api.get(f"{path}/events", guest, per_page=3, page=3)
        assert [each["action_name"] for each in page.json()] == ["created"]
        await api.put(path, owner, issues_enabled=False)
        assert [each["target_type"] for each in (await api.get(f"{path}/events", guest)).json()] == ["Milestone", "Milestone", None]


class TestImportUrl:
    """`import_url` of POST and PUT"""

    async def test_is_validated(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()
        refused = await api.post("/projects", user, name="A", import_url="http://10.1.2.3/a.git")
        message = "10.1.2.3 is at 10.1.2.3, which is not a public address"
        assert (refused.status_code, refused.json()) == (400, {"message": {"import_url": [message]}})
        assert (await api.post(f"/projects/user/{user.id}", admin, name="A", import_url="git@x:a.git")).status_code == 400
        created = await api.post("/projects", user, name="A", import_url="http://203.0.114.7/a.git")
        assert created.status_code == 201
        again = await api.put(f"/projects/{created.json()['id']}", user, import_url="http://203.0.114.7/b.git")
        assert (again.status_code, again.json()) == (400, {"message": {"import_url": ["cannot be set while an import runs"]}})
