"""Projects through the graph: fields, visibility and changes."""

import asyncio
from typing import Any

import pytest

from graph.context import Services
from graph.fields.entities import global_id
from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import EXTERNAL_URL, DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

LEVELS = list(AccessLevel)
ENTRY = """databaseId description defaultBranch public visibility visibilityLevel sshUrlToRepo httpUrlToRepo webUrl name nameWithNamespace
    path fullPath creatorId creator { username } archived avatarUrl createdAt updatedAt lastActivityAt issuesEnabled mergeRequestsEnabled
    buildsEnabled wikiEnabled snippetsEnabled publicBuilds tagList owner { username }
    namespace { databaseId name path kind description ownerId createdAt updatedAt group { path } }
    restPath viewerAccessLevel openIssuesCount
    viewerCan { update rename changeVisibility archive delete transfer adminMembers readCode createIssue triageIssues }"""
PROJECT = f"query ($path: String!) {{ project(path: $path) {{ {ENTRY} }} }}"
PROJECTS = f"""query ($filter: ProjectFilter, $orderBy: ProjectOrder, $first: Int) {{
    projects(filter: $filter, orderBy: $orderBy, first: $first) {{ totalCount nodes {{ {ENTRY} }} }} }}"""
UPDATE = """mutation ($input: UpdateProjectInput!) { updateProject(input: $input) {
    project { name path fullPath description visibility archived issuesEnabled publicBuilds tagList defaultBranch }
    userErrors { field message code } } }"""
DELETE = "mutation ($input: DeleteProjectInput!) { deleteProject(input: $input) { project { path } userErrors { code } } }"
TRANSFER = """mutation ($input: TransferProjectInput!) { transferProject(input: $input) {
    project { fullPath owner { id } namespace { kind } } userErrors { field message code } } }"""


async def update_project(ask: Ask, viewer: tables.User, project: tables.Project, **change: Any) -> dict[str, Any]:
    payload = (await ask.data(UPDATE, viewer, input={"projectPath": str(project.id), **change}))["updateProject"]
    assert payload["userErrors"] == []
    return dict(payload["project"])


async def user_error_codes(ask: Ask, viewer: tables.User, project: tables.Project, **change: Any) -> list[tuple[str | None, str]]:
    payload = (await ask.data(UPDATE, viewer, input={"projectPath": str(project.id), **change}))["updateProject"]
    assert payload["project"] is None
    return [(error["field"], error["code"]) for error in payload["userErrors"]]


class TestProject:
    async def test_shows_a_personal_project(self, ask: Ask, make: DataFactory) -> None:
        owner = await make.user("ada", name="Ada L")
        project = await make.project(owner=owner, path="App", name="The App", description="d", tag_list=["x"], history={"commits": 3})
        await make.issue(project)
        await make.issue(project, state=tables.IssueState.CLOSED)

        shown = (await ask.data(PROJECT, owner, path="ADA/app"))["project"]

        namespace = shown.pop("namespace")
        times = [shown.pop(key) for key in ("createdAt", "updatedAt", "lastActivityAt")]
        assert all(time.endswith("Z") for time in [*times, namespace.pop("createdAt"), namespace.pop("updatedAt")])
        assert {name for name, allowed in shown.pop("viewerCan").items() if not allowed} == {"transfer"}
        assert namespace == {
            "databaseId": project.namespace_id,
            "name": "Ada L",
            "path": "ada",
            "kind": "USER",
            "description": "",
            "ownerId": owner.id,
            "group": None,
        }
        assert shown == {
            "databaseId": project.id,
            "description": "d",
            "defaultBranch": "master",
            "public": False,
            "visibility": "PRIVATE",
            "visibilityLevel": 0,
            "sshUrlToRepo": "git@forge.example:ada/App.git",
            "httpUrlToRepo": f"{EXTERNAL_URL}/ada/App.git",
            "webUrl": f"{EXTERNAL_URL}/ada/App",
            "name": "The App",
            "nameWithNamespace": "Ada L / The App",
            "path": "App",
            "fullPath": "ada/App",
            "creatorId": owner.id,
            "creator": {"username": "ada"},
            "archived": False,
            "avatarUrl": None,
            "issuesEnabled": True,
            "mergeRequestsEnabled": True,
            "buildsEnabled": True,
            "wikiEnabled": True,
            "snippetsEnabled": True,
            "publicBuilds": True,
            "tagList": ["x"],
            "owner": {"username": "ada"},
            "restPath": f"/api/v3/projects/{project.id}",
            "viewerAccessLevel": "OWNER",
            "openIssuesCount": 1,
        }

    async def test_of_a_group_has_no_owner(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(path="tools", members=[(user := await make.user(), AccessLevel.REPORTER)])
        project = await make.project(group=group, visibility=Visibility.PUBLIC)

        shown = (await ask.data(PROJECT, user, path=str(project.id)))["project"]

        assert (shown["owner"], shown["creator"], shown["namespace"]["ownerId"]) == (None, None, None)
        assert (shown["namespace"]["kind"], shown["namespace"]["databaseId"]) == ("GROUP", group.id)
        assert shown["namespace"]["group"] == {"path": "tools"}
        assert (shown["public"], shown["visibility"], shown["visibilityLevel"]) == (True, "PUBLIC", 2)

    async def test_counts_no_open_issues_where_issues_are_off(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), issues_enabled=False)
        await make.issue(project)

        assert (await ask.data(PROJECT, owner, path=str(project.id)))["project"]["openIssuesCount"] is None

    @pytest.mark.parametrize("level", LEVELS)
    async def test_returns_the_viewers_abilities(self, ask: Ask, make: DataFactory, level: AccessLevel) -> None:
        group = await make.group(members=[(user := await make.user(), level)])
        project = await make.project(group=group)

        shown = (await ask.data(PROJECT, user, path=str(project.id)))["project"]

        assert shown["viewerAccessLevel"] == level.name
        least = {
            "createIssue": 10,
            "readCode": 20,
            "triageIssues": 20,
            "update": 40,
            "adminMembers": 40,
            **dict.fromkeys(("rename", "changeVisibility", "archive", "delete"), 50),
            "transfer": 60,
        }
        assert shown["viewerCan"] == {name: level >= needed for name, needed in least.items()}

    async def test_has_the_higher_of_two_access_levels(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(members=[(user := await make.user(), AccessLevel.REPORTER)])
        project = await make.project(group=group, members=[(user, AccessLevel.DEVELOPER)])

        assert (await ask.data(PROJECT, user, path=str(project.id)))["project"]["viewerAccessLevel"] == "DEVELOPER"

    async def test_a_private_project_of_others_is_not_found(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(members=[(member := await make.user(), AccessLevel.GUEST)], path="tools")
        project = await make.project(group=group, path="hidden")
        await make.project(group=group, path="shown", visibility=Visibility.PUBLIC)
        outsider, admin = await make.user(), await make.admin()
        node = (await ask.data("query ($path: String!) { project(path: $path) { id } }", member, path="tools/hidden"))["project"]["id"]
        named = str(project.id)

        for path in (named, "tools/hidden", "TOOLS/Hidden"):
            assert await ask.codes(PROJECT, outsider, path=path) == ["NOT_FOUND"]
            assert await ask.codes(PROJECT, None, path=path) == ["UNAUTHENTICATED"]
        assert await ask.data("query ($id: ID!) { node(id: $id) { id } }", outsider, id=node) == {"node": None}
        assert await ask.data("query ($id: ID!) { node(id: $id) { id } }", member, id=node) == {"node": {"id": node}}
        for query, root in (
            ("query { projects { nodes { path } } }", ()),
            ('{ group(path: "tools") { projects { nodes { path } } } }', ("group",)),
        ):
            for viewer, seen in ((outsider, ["shown"]), (member, ["shown", "hidden"]), (admin, ["shown", "hidden"])):
                data = await ask.data(query, viewer)
                for key in root:
                    data = data[key]
                assert [each["path"] for each in data["projects"]["nodes"]] == seen
        for query in (UPDATE, DELETE):
            assert await ask.codes(query, outsider, input={"projectPath": named}) == ["NOT_FOUND"]
            assert await ask.codes(query, member, input={"projectPath": named}) == ["FORBIDDEN"]

    @pytest.mark.parametrize(
        "path", ["", "/", "a", "0", "-1", "1e0", "99999999999", "\u0661", "tools/", "/app", "tools/app/x", "tools//app"]
    )
    async def test_is_not_found_by_an_invalid_path(self, ask: Ask, make: DataFactory, path: str) -> None:
        project = await make.project(group=await make.group(path="tools"), path="app", visibility=Visibility.PUBLIC)
        assert project.id == 1

        assert await ask.codes(PROJECT, await make.user(), path=path) == ["NOT_FOUND"]


class TestListProjects:
    async def test_filters(self, ask: Ask, make: DataFactory) -> None:
        viewer = await make.user()
        await make.project(owner=viewer, path="mine")
        await make.project(members=[(viewer, AccessLevel.GUEST)], path="member", visibility=Visibility.INTERNAL, builds_enabled=False)
        await make.project(path="public", visibility=Visibility.PUBLIC, description="Some 100% words")
        await make.project(path="old", visibility=Visibility.PUBLIC, archived=True)
        await make.project(path="hidden")

        async def paths(**filter: Any) -> list[str]:
            found = (await ask.data(PROJECTS, viewer, filter=filter or None))["projects"]
            assert found["totalCount"] == len(found["nodes"])
            return [project["path"] for project in found["nodes"]]

        assert await paths() == ["public", "member", "mine"]
        assert await paths(archived=None) == ["old", "public", "member", "mine"]
        assert await paths(archived=True) == ["old"]
        assert await paths(membership=True) == ["member", "mine"]
        assert await paths(owned=True) == ["mine"]
        assert await paths(visibility=["PUBLIC", "INTERNAL"]) == ["public", "member"]
        assert await paths(ciEnabled=False) == ["member"]
        assert await paths(search="MEM") == ["member"]
        assert await paths(search="100%") == ["public"]
        assert await paths(search="hid") == []

    @pytest.mark.parametrize("field", ["ID", "NAME", "PATH", "CREATED_AT", "UPDATED_AT", "LAST_ACTIVITY_AT"])
    async def test_sorts_and_pages(self, ask: Ask, make: DataFactory, field: str) -> None:
        owner = await make.user()
        for path in ("a", "b", "c"):
            await make.project(owner=owner, path=path, name="Same" if field == "NAME" else path)
        query = """query ($orderBy: ProjectOrder, $after: String) { projects(orderBy: $orderBy, first: 2, after: $after) {
            nodes { path } pageInfo { endCursor hasNextPage } } }"""

        for direction, expected in (("ASC", ["a", "b", "c"]), ("DESC", ["c", "b", "a"])):
            order = {"field": field, "direction": direction}
            first = (await ask.data(query, owner, orderBy=order))["projects"]
            second = (await ask.data(query, owner, orderBy=order, after=first["pageInfo"]["endCursor"]))["projects"]
            assert [project["path"] for project in first["nodes"] + second["nodes"]] == expected
            assert (first["pageInfo"]["hasNextPage"], second["pageInfo"]["hasNextPage"]) == (True, False)

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        viewer = await make.user()
        for number in range(15):
            await make.project(owner=await make.user(), members=[(viewer, AccessLevel.GUEST)])
            project = await make.project(group=await make.group(), visibility=Visibility.PUBLIC)
            await make.issue(project, author=viewer, title=str(number))

        with statements.record() as one:
            await ask.data(PROJECTS, viewer, first=2)
        with statements.record() as thirty:
            data = await ask.data(PROJECTS, viewer, first=30)

        assert len(data["projects"]["nodes"]) == 30
        assert len(thirty) <= len(one) <= 8


class TestUpdateProject:
    async def test_changes_given_fields(self, ask: Ask, make: DataFactory) -> None:
        owner = await make.user("ada")
        project = await make.project(owner=owner, path="old", name="Old", description="d", tag_list=["a"])

        changed = await update_project(
            ask, owner, project, name="New", path="new", visibility="INTERNAL", issuesEnabled=False, publicBuilds=None
        )

        assert changed == {
            "name": "New",
            "path": "new",
            "fullPath": "ada/new",
            "description": "d",
            "visibility": "INTERNAL",
            "archived": False,
            "issuesEnabled": False,
            "publicBuilds": True,
            "tagList": ["a"],
            "defaultBranch": None,
        }
        assert (await ask.data(PROJECT, owner, path="ada/new"))["project"]["databaseId"] == project.id
        assert await ask.codes(PROJECT, owner, path="ada/old") == ["NOT_FOUND"]
        changed = await update_project(ask, owner, project, description=None, tagList=[" b ", "b", "", "c"])
        assert (changed["description"], changed["tagList"], changed["name"]) == (None, ["b", "c"], "New")

    async def test_archives_and_unarchives(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        for archived in (True, True, False):
            assert (await update_project(ask, owner, project, archived=archived))["archived"] is archived

    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize(
        ("change", "least"),
        [
            ({"description": "x"}, AccessLevel.MASTER),
            ({"buildsEnabled": False}, AccessLevel.MASTER),
            ({"name": "Other"}, AccessLevel.OWNER),
            ({"path": "other"}, AccessLevel.MASTER),
            ({"visibility": "PUBLIC"}, AccessLevel.OWNER),
            ({"archived": True}, AccessLevel.OWNER),
            ({"name": "Same", "path": "same", "visibility": "PRIVATE", "archived": False}, AccessLevel.MASTER),
        ],
    )
    async def test_requires_a_level(
        self, ask: Ask, make: DataFactory, change: dict[str, Any], least: AccessLevel, level: AccessLevel
    ) -> None:
        group = await make.group(members=[(user := await make.user(), level)])
        project = await make.project(group=group, path="same", name="Same")

        codes = await ask.codes(UPDATE, user, input={"projectPath": str(project.id), **change})

        assert codes == ([] if level >= least else ["FORBIDDEN"])

    @pytest.mark.parametrize(
        ("change", "error"),
        [
            ({"path": "TAKEN"}, ("path", "TAKEN")),
            ({"path": "a/b"}, ("path", "INVALID")),
            ({"path": "a.git"}, ("path", "INVALID")),
            ({"path": ".."}, ("path", "INVALID")),
            ({"path": ""}, ("path", "REQUIRED")),
            ({"path": None}, ("path", "REQUIRED")),
            ({"name": " "}, ("name", "REQUIRED")),
            ({"name": "-x"}, ("name", "INVALID")),
            ({"name": "a" * 256}, ("name", "INVALID")),
            ({"tagList": ["t" * 256]}, ("tagList", "INVALID")),
            ({"tagList": [str(number) for number in range(101)]}, ("tagList", "INVALID")),
            ({"defaultBranch": "topic"}, ("defaultBranch", "INVALID")),
            ({"defaultBranch": "a..b"}, ("defaultBranch", "INVALID")),
        ],
    )
    async def test_rejects_invalid_values(self, ask: Ask, make: DataFactory, change: dict[str, Any], error: tuple[str, str]) -> None:
        owner = await make.user()
        await make.project(owner=owner, path="taken")
        project = await make.project(owner=owner, path="mine")

        assert await user_error_codes(ask, owner, project, **change) == [error]

        stored = await make.fetch(tables.Project, project.id)
        assert stored is not None
        assert (stored.path, stored.name, stored.updated_at) == ("mine", "Mine", project.updated_at)

    async def test_may_change_the_case_of_its_path(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), path="mine")

        assert (await update_project(ask, owner, project, path="MINE"))["path"] == "MINE"

    async def test_concurrent_renames_to_one_path_succeed_once(self, ask: Ask, make: DataFactory) -> None:
        owner = await make.user()
        projects = [await make.project(owner=owner) for _ in range(12)]

        codes = await asyncio.gather(
            *(ask.codes(UPDATE, owner, input={"projectPath": str(project.id), "path": "wanted"}) for project in projects)
        )

        assert sorted(codes) == [[]] + [["TAKEN"]] * 11

    async def test_restricted_visibilities_require_an_administrator(self, ask: Ask, make: DataFactory) -> None:
        await make.settings(restricted_visibility_levels=[int(Visibility.PUBLIC)])
        project = await make.project(owner=(owner := await make.user()))

        assert await user_error_codes(ask, owner, project, visibility="PUBLIC") == [("visibility", "INVALID")]
        assert (await update_project(ask, owner, project, visibility="INTERNAL"))["visibility"] == "INTERNAL"
        assert (await update_project(ask, await make.admin(), project, visibility="PUBLIC"))["visibility"] == "PUBLIC"
        assert (await update_project(ask, owner, project, visibility="PUBLIC", description="x"))["visibility"] == "PUBLIC"

    async def test_makes_another_branch_the_default(self, ask: Ask, make: DataFactory, services: Services) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 6})

        changed = await update_project(ask, owner, project, defaultBranch="topic")

        assert changed["defaultBranch"] == "topic"
        assert await services.repositories.read(project.id, lambda repository: repository.default_branch()) == "topic"


class TestDeleteProject:
    async def test_the_payload_renders_texts_in_it(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        fields = 'webUrl markdownHtml(text: "*x*")'
        statement = f"mutation ($path: String!) {{ deleteProject(input: {{projectPath: $path}}) {{ project {{ {fields} }} }} }}"

        deleted = (await ask.data(statement, owner, path=str(project.id)))["deleteProject"]["project"]

        assert deleted == {"webUrl": f"{EXTERNAL_URL}/{owner.username}/{project.path}", "markdownHtml": "<p><em>x</em></p>\n"}

    async def test_deletes_its_rows_and_its_repository(self, ask: Ask, make: DataFactory, services: Services) -> None:
        project = await make.project(owner=(owner := await make.user()), members=[(await make.user(), AccessLevel.GUEST)])
        other = await make.project(owner=owner)
        await make.note(await make.issue(project, labels=[await make.label(project)]))

        data = await ask.data(DELETE, owner, input={"projectPath": str(project.id)})

        assert data["deleteProject"] == {"project": {"path": project.path}, "userErrors": []}
        stored = (tables.Project, tables.Issue, tables.Note, tables.Label, tables.ProjectMember)
        assert [await make.count(table) for table in stored] == [1, 0, 0, 0, 0]
        assert not services.repositories.path_of(project.id).exists()
        assert services.repositories.path_of(other.id).is_dir()
        assert await ask.codes(DELETE, owner, input={"projectPath": str(project.id)}) == ["NOT_FOUND"]

    async def test_succeeds_when_the_repository_cannot_be_removed(
        self, ask: Ask, make: DataFactory, services: Services, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project = await make.project(owner=(owner := await make.user()))

        def fails(project_id: int) -> None:
            raise PermissionError(project_id)

        monkeypatch.setattr(services.repositories, "remove", fails)

        assert await ask.codes(DELETE, owner, input={"projectPath": str(project.id)}) == []
        assert await make.count(tables.Project) == 0

    @pytest.mark.parametrize("level", LEVELS)
    async def test_requires_an_owner(self, ask: Ask, make: DataFactory, services: Services, level: AccessLevel) -> None:
        group = await make.group(members=[(user := await make.user(), level)])
        project = await make.project(group=group)

        codes = await ask.codes(DELETE, user, input={"projectPath": str(project.id)})

        assert codes == ([] if level is AccessLevel.OWNER else ["FORBIDDEN"])
        assert services.repositories.path_of(project.id).exists() is bool(codes)


class TestTransferProject:
    async def test_moves_it_to_the_group(self, ask: Ask, make: DataFactory) -> None:
        owner, admin = await make.user("ada"), await make.admin()
        project = await make.project(owner=owner, path="app")
        await make.group(path="tools")

        data = await ask.data(TRANSFER, admin, input={"projectPath": "ada/app", "groupPath": "tools"})

        moved = {"fullPath": "tools/app", "owner": None, "namespace": {"kind": "GROUP"}}
        assert data["transferProject"] == {"project": moved, "userErrors": []}
        assert await ask.codes(PROJECT, owner, path=str(project.id)) == ["NOT_FOUND"]

    @pytest.mark.parametrize("path", ["app", "99", "nobody/nothing"])
    async def test_requires_an_administrator_before_any_lookup(self, ask: Ask, make: DataFactory, path: str) -> None:
        group = await make.group(owner=(owner := await make.user("ada")))
        await make.project(owner=owner, path="app")

        assert await ask.codes(TRANSFER, owner, input={"projectPath": path, "groupPath": group.path}) == ["FORBIDDEN"]

    async def test_rejects_the_same_group_and_a_taken_path(self, ask: Ask, make: DataFactory) -> None:
        admin, group = await make.admin(), await make.group()
        here, there = await make.project(group=group, path="app"), await make.project(path="APP")

        for project, error in (
            (here, ("groupPath", "is invalid")),
            (there, ("path", "Project with same path in target namespace already exists")),
        ):
            data = await ask.data(TRANSFER, admin, input={"projectPath": str(project.id), "groupPath": group.path})
            assert [(each["field"], each["message"]) for each in data["transferProject"]["userErrors"]] == [error]

    async def test_missing_projects_and_groups_are_not_found(self, ask: Ask, make: DataFactory) -> None:
        admin, project = await make.admin(), await make.project()

        assert await ask.codes(TRANSFER, admin, input={"projectPath": "99", "groupPath": "nothing"}) == ["NOT_FOUND"]
        assert await ask.codes(TRANSFER, admin, input={"projectPath": str(project.id), "groupPath": admin.username}) == ["NOT_FOUND"]


class TestStars:
    async def test_are_counted_once_for_each_user(self, ask: Ask, make: DataFactory) -> None:
        user, other = await make.user(), await make.user()
        project, hidden = await make.project(visibility=Visibility.INTERNAL), await make.project()

        async def change(name: str, viewer: tables.User, path: str) -> tuple[int, bool]:
            text = f"mutation ($path: String!) {{ {name}(input: {{projectPath: $path}}) {{ project {{ starCount viewerHasStarred }} }} }}"
            payload = (await ask.data(text, viewer, path=path))[name]["project"]
            return payload["starCount"], payload["viewerHasStarred"]

        path = str(project.id)
        assert [await change("starProject", user, path), await change("starProject", user, path)] == [(1, True), (1, True)]
        assert await change("starProject", other, path) == (2, True)
        assert [await change("unstarProject", user, path), await change("unstarProject", user, path)] == [(1, False), (1, False)]
        starred = "{ projects(filter: {starred: true}) { nodes { databaseId } } }"
        assert (await ask.data(starred, other))["projects"]["nodes"] == [{"databaseId": project.id}]
        assert (await ask.data(starred, user))["projects"]["nodes"] == []
        outcome = await ask("mutation ($p: String!) { starProject(input: {projectPath: $p}) { project { id } } }", user, p=str(hidden.id))
        assert [str(error.code) for error in outcome.errors] == ["NOT_FOUND"]

    async def test_are_listed_newest_first(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        users = [await make.user(f"fan{number}") for number in range(3)]
        project = await make.project(visibility=Visibility.INTERNAL)
        for user in users:
            await make.save(tables.ProjectStar(project_id=project.id, user_id=user.id))
        text = """query ($path: String!, $first: Int, $after: String) { project(path: $path) { stars(first: $first, after: $after) {
            totalCount pageInfo { endCursor } nodes { id user { username } createdAt projectId restPath } } } }"""

        first = (await ask.data(text, users[0], path=str(project.id), first=2))["project"]["stars"]
        assert [each["user"]["username"] for each in first["nodes"]] == ["fan2", "fan1"]
        assert (first["totalCount"], first["nodes"][0]["restPath"], first["nodes"][0]["projectId"]) == (3, None, project.id)
        with statements.assert_at_most(4):
            rest = await ask.data(text, users[0], path=str(project.id), first=2, after=first["pageInfo"]["endCursor"])
        assert [each["user"]["username"] for each in rest["project"]["stars"]["nodes"]] == ["fan0"]

        by_id = "query ($id: ID!) { node(id: $id) { ... on Star { user { username } } } }"
        assert (await ask.data(by_id, users[0], id=first["nodes"][0]["id"]))["node"] == {"user": {"username": "fan2"}}
        hidden = tables.ProjectStar(project_id=(await make.project()).id, user_id=users[0].id)
        await make.save(hidden)
        assert (await ask.data(by_id, users[1], id=global_id("Star", hidden.id)))["node"] is None


class TestPlan:
    FIELDS = """id databaseId path fullPath nameWithNamespace webUrl httpUrlToRepo sshUrlToRepo tagList public visibility
        owner { username } namespace { path kind } forkedFrom { fullPath owner { username } } starCount forkCount openIssuesCount
        viewerHasStarred viewerAccessLevel viewerMembership { __typename projectLevelValue groupLevel level: projectLevel }"""

    @pytest.fixture
    def ask(self, planned_ask: Ask) -> Ask:
        return planned_ask

    async def test_one_statement_reads_a_page_for_every_viewer(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        viewer, other, admin = await make.user("one"), await make.user("two"), await make.admin()
        group = await make.group(path="acme", members=[(viewer, AccessLevel.REPORTER)])
        await make.project(owner=viewer, path="mine", tag_list=["a", "b"])
        source = await make.project(group=group, path="of-group", members=[(viewer, AccessLevel.MASTER)])
        await make.project(owner=other, path="shown", visibility=Visibility.PUBLIC, issues_enabled=False)
        await make.project(owner=other, path="visible-fork", visibility=Visibility.PUBLIC, forked_from_id=source.id)
        await make.project(owner=other, path="hidden-fork", forked_from_id=source.id)
        for project in (source, source):
            await make.issue(project)
        star = "mutation ($p: String!) { starProject(input: {projectPath: $p}) { project { id } } }"
        await ask.data(star, viewer, p="one/mine")
        text = f"""query ($filter: ProjectFilter) {{ projects(filter: $filter) {{
            totalCount nodes {{ ...shown }} edges {{ node {{ ... on Project {{ webUrl }} }} }} }} }}
            fragment shown on Project {{ {self.FIELDS} }}"""
        alone = f"query ($path: String!) {{ project(path: $path) {{ {self.FIELDS} }} }}"
        # graphql-core executes a text once, then it is planned.
        await ask.data(text, viewer)
        await ask.data(alone, viewer, path="one/mine")
        shown: dict[str, dict[str, Any]] = {}
        for name, caller, filter in (
            ("viewer", viewer, None),
            ("other", other, None),
            ("admin", admin, None),
            ("member", viewer, {"membership": True}),
            ("starred", viewer, {"starred": True, "archived": None}),
            ("owned", viewer, {"inOwnedNamespaces": True, "search": "MIN"}),
        ):
            with statements.record() as page:
                found = (await ask.data(text, caller, filter=filter))["projects"]
            assert len(page) == 1, name
            for each in found["nodes"]:
                with statements.assert_at_most(1):
                    assert each == (await ask.data(alone, caller, path=each["fullPath"]))["project"]
            assert found["totalCount"] == len(found["nodes"])
            shown[name] = {each["path"]: each for each in found["nodes"]}

        assert {name: {*paths} for name, paths in shown.items()} == {
            "viewer": {"mine", "of-group", "shown", "visible-fork"},
            "other": {"shown", "visible-fork", "hidden-fork"},
            "admin": {"mine", "of-group", "shown", "visible-fork", "hidden-fork"},
            "member": {"mine", "of-group"},
            "starred": {"mine"},
            "owned": {"mine"},
        }

        def counts(name: str) -> dict[str, tuple[int, int, int | None]]:
            return {path: (each["starCount"], each["forkCount"], each["openIssuesCount"]) for path, each in shown[name].items()}

        shared = {"mine": (1, 0, 0), "shown": (0, 0, None), "visible-fork": (0, 0, 0)}
        assert counts("viewer") == {**shared, "of-group": (0, 1, 2)}
        assert counts("admin") == {**shared, "of-group": (0, 2, 2), "hidden-fork": (0, 0, 0)}
        assert [path for path, each in shown["viewer"].items() if each["viewerHasStarred"] is not False] == ["mine"]
        assert [shown["viewer"]["mine"]["viewerHasStarred"], shown["admin"]["mine"]["viewerHasStarred"]] == [True, False]
        of_group = shown["viewer"]["of-group"]
        assert of_group["viewerMembership"] == {
            "__typename": "ViewerMembership", "projectLevelValue": 40, "groupLevel": "REPORTER", "level": "MASTER"
        }  # fmt: skip
        assert [of_group["viewerAccessLevel"], shown["admin"]["of-group"]["viewerAccessLevel"]] == ["MASTER", "OWNER"]
        assert [shown["viewer"][path]["owner"] for path in ("mine", "of-group")] == [{"username": "one"}, None]
        source_shown = {"fullPath": "acme/of-group", "owner": None}
        assert [shown[name]["visible-fork"]["forkedFrom"] for name in ("viewer", "admin", "other")] == [source_shown, source_shown, None]
        assert shown["viewer"]["mine"]["tagList"] == ["a", "b"]

    async def test_is_used_for_any_number_of_combinations_of_arguments(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder
    ) -> None:
        viewer = await make.user()
        project = await make.project(owner=viewer)
        text = "query ($first: Int, $search: String) { projects(first: $first, filter: {search: $search}) { nodes { path starCount } } }"
        await ask.data(text, viewer, first=1)
        for first in range(1, 101):
            for search in (None, project.path):
                with statements.assert_at_most(1):
                    found = await ask.data(text, viewer, first=first, search=search)
                assert found == {"projects": {"nodes": [{"path": project.path, "starCount": 0}]}}

    async def test_lists_of_and_below_several_projects_take_a_fixed_number_of_statements(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder
    ) -> None:
        viewer, other = await make.user(), await make.user()
        for name in ("a", "b", "c"):
            group = await make.group(path=name, members=[(viewer, AccessLevel.OWNER)])
            source = await make.project(group=group, path="source")
            await make.issue(source)
            for visibility in (Visibility.PUBLIC, Visibility.PRIVATE):
                await make.project(owner=other, path=f"{name}-{visibility}", visibility=visibility, forked_from_id=source.id)
        joined = "projects(first: $n, filter: {membership: true})"
        for text, limit in (
            (f"groups(first: $n) {{ nodes {{ projects(first: 5) {{ totalCount nodes {{ {self.FIELDS} }} }} }} }}", 3),
            (f"{joined} {{ nodes {{ forks {{ totalCount nodes {{ fullPath starCount }} }} }} }}", 3),
            (f"{joined} {{ nodes {{ issues(first: 1) {{ nodes {{ project {{ fullPath starCount }} }} }} }} }}", 4),
        ):
            by_core = await ask.data(f"query ($n: Int) {{ {text} }}", viewer, n=3)
            for n in (2, 3):
                with statements.assert_at_most(limit):
                    found = await ask.data(f"query ($n: Int) {{ {text} }}", viewer, n=n)
            assert found == by_core
            assert len(next(iter(found.values()))["nodes"]) == 3

    async def test_reports_wrong_arguments_as_graphql_core_does(self, ask: Ask, make: DataFactory) -> None:
        viewer = await make.user()
        text = """query ($first: Int, $after: String, $all: Boolean) {
            projects(first: $first, after: $after, filter: {all: $all}) { totalCount } }"""
        for values, code in (({"first": -1}, "BAD_REQUEST"), ({"after": "?"}, "BAD_REQUEST"), ({"all": True, "first": -1}, "FORBIDDEN")):
            first, second = [await ask.codes(text, viewer, **values) for _ in range(2)]
            assert first == second == [code]


class TestTeam:
    async def test_takes_a_fixed_number_of_statements(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        user = await make.user("one")
        group = await make.group(members=[(user, AccessLevel.OWNER), (await make.user("two"), AccessLevel.GUEST)])
        projects = [await make.project(group=group, members=[(await make.user(), AccessLevel.GUEST)]) for _ in range(3)]
        query = """query ($first: Int) { projects(first: $first) { nodes {
            team(first: 2) { totalCount nodes { username } pageInfo { hasNextPage endCursor } } } } }"""
        page = """query ($path: String!, $after: String, $before: String) { project(path: $path) {
            later: team(first: 5, after: $after) { nodes { username } }
            earlier: team(last: 1, before: $before) { nodes { username } } } }"""

        with statements.record() as few:
            await ask.data(query, user, first=1)
        with statements.assert_at_most(len(few)):
            shown = (await ask.data(query, user, first=3))["projects"]["nodes"]

        assert [(each["team"]["totalCount"], each["team"]["pageInfo"]["hasNextPage"]) for each in shown] == [(3, True)] * 3
        assert [node["username"] for node in shown[0]["team"]["nodes"]] == ["one", "two"]
        cursor = shown[0]["team"]["pageInfo"]["endCursor"]
        rest = (await ask.data(page, user, path=str(projects[-1].id), after=cursor, before=cursor))["project"]
        assert [len(rest["later"]["nodes"]), rest["earlier"]["nodes"]] == [1, [{"username": "one"}]]


class TestArchiving:
    async def test_archives_and_unarchives(self, ask: Ask, make: DataFactory) -> None:
        owner = await make.user()
        project = await make.project(owner=owner)
        for name, archived in (("archiveProject", True), ("archiveProject", True), ("unarchiveProject", False)):
            text = (
                f"mutation ($path: String!) {{ {name}(input: {{projectPath: $path}}) {{ project {{ archived }} userErrors {{ code }} }} }}"
            )
            assert (await ask.data(text, owner, path=str(project.id)))[name] == {"project": {"archived": archived}, "userErrors": []}
