"""Projects: the routes of the server of that time that the interface document leaves out."""

from typing import Any

from storage import tables
from storage.tables import AccessLevel, IssueState, Visibility
from tests.make import EXTERNAL_URL, DataFactory
from tests.support.api_clients import Api, Ask
from tests.support.statements import StatementRecorder

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
