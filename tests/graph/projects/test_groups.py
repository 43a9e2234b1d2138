"""Groups through the graph: who can see and change them, valid paths, and what is deleted with them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from graph.context import Services
from graph.operations.execution import OperationResult
from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import EXTERNAL_URL, DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

ERRORS = "userErrors { field message code }"
CREATE = f"mutation ($input: CreateGroupInput!) {{ createGroup(input: $input) {{ group {{ path databaseId }} {ERRORS} }} }}"
UPDATE = f"mutation ($input: UpdateGroupInput!) {{ updateGroup(input: $input) {{ group {{ name path description }} {ERRORS} }} }}"
DELETE = f"mutation ($input: DeleteGroupInput!) {{ deleteGroup(input: $input) {{ group {{ path databaseId }} {ERRORS} }} }}"
GROUP = """query ($path: String!) { group(path: $path) { databaseId name path description webUrl restPath viewerAccessLevel
    viewerCan { update delete adminMembers createProject } members { totalCount
    nodes { accessLevel accessLevelValue user { username } } } } }"""
GROUPS = "query ($filter: GroupFilter) { groups(filter: $filter) { totalCount nodes { path } } }"
PROJECTS = """query ($path: String!, $filter: ProjectFilter, $orderBy: ProjectOrder, $first: Int, $after: String) { group(path: $path) {
    projects(filter: $filter, orderBy: $orderBy, first: $first, after: $after) { totalCount nodes { path } pageInfo { endCursor } } } }"""
LEVELS = list(AccessLevel)


def errors(outcome: OperationResult, name: str) -> list[tuple[str | None, str]]:
    """(field, code) of a mutation's user errors."""
    assert outcome.errors == []
    assert outcome.data is not None
    return [(error["field"], error["code"]) for error in outcome.data[name]["userErrors"]]


async def run_concurrently(number: int, work: Callable[[], Awaitable[OperationResult]]) -> list[OperationResult]:
    return await asyncio.gather(*(work() for _ in range(number)))


class TestGroup:
    async def test_shows_itself_and_its_members(self, ask: Ask, make: DataFactory) -> None:
        owner, guest = await make.user("ada"), await make.user("bob")
        group = await make.group(owner=owner, members=[(guest, AccessLevel.GUEST)], path="Tools", description="What we use")

        shown = (await ask.data(GROUP, guest, path="tOOLS"))["group"]

        nodes = shown["members"].pop("nodes")
        assert shown == {
            "databaseId": group.id,
            "name": "Tools",
            "path": "Tools",
            "description": "What we use",
            "webUrl": f"{EXTERNAL_URL}/groups/Tools",
            "restPath": f"/api/v3/groups/{group.id}",
            "viewerAccessLevel": "GUEST",
            "viewerCan": {"update": False, "delete": False, "adminMembers": False, "createProject": False},
            "members": {"totalCount": 2},
        }
        assert sorted((node["user"]["username"], node["accessLevel"], node["accessLevelValue"]) for node in nodes) == [
            ("ada", "OWNER", 50),
            ("bob", "GUEST", 10),
        ]

    async def test_is_found_by_its_v3_id_and_not_by_the_id_of_a_user_s_namespace(self, ask: Ask, make: DataFactory) -> None:
        owner = await make.user()
        group = await make.group(owner=owner)
        other = await make.project(owner=owner)

        assert (await ask.data(GROUP, owner, path=str(group.id)))["group"]["path"] == group.path
        assert await ask.codes(GROUP, owner, path=str(other.namespace_id)) == ["NOT_FOUND"]
        assert await ask.codes(GROUP, owner, path=owner.username) == ["NOT_FOUND"]

    async def test_is_hidden_until_it_has_a_visible_project(self, ask: Ask, make: DataFactory) -> None:
        group, other = await make.group(owner=await make.user()), await make.user()
        await make.project(group=group)

        assert await ask.codes(GROUP, other, path=group.path) == ["NOT_FOUND"]
        assert await ask.codes(GROUP, None, path=group.path) == ["UNAUTHENTICATED"]

        await make.project(group=group, visibility=Visibility.INTERNAL)

        shown = (await ask.data(GROUP, other, path=group.path))["group"]
        assert (shown["viewerAccessLevel"], shown["viewerCan"]["update"]) == (None, False)

    async def test_is_a_node_with_the_same_visibility(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        owner = await make.user()
        groups = [await make.group(owner=owner) for _ in range(10)]
        ids = [
            (await ask.data("query ($path: String!) { group(path: $path) { id } }", owner, path=group.path))["group"]["id"]
            for group in groups
        ]
        nodes = "query ($ids: [ID!]!) { nodes(ids: $ids) { ... on Group { path } } }"

        with statements.assert_at_most(3):
            data = await ask.data(nodes, owner, ids=ids)

        assert data["nodes"] == [{"path": group.path} for group in groups]
        assert (await ask.data(nodes, await make.user(), ids=ids))["nodes"] == [None] * 10

    @pytest.mark.parametrize(
        ("level", "can"),
        [
            (AccessLevel.DEVELOPER, set()),
            (AccessLevel.MASTER, {"createProject"}),
            (AccessLevel.OWNER, {"update", "delete", "adminMembers", "createProject"}),
        ],
    )
    async def test_returns_the_viewers_abilities(self, ask: Ask, make: DataFactory, level: AccessLevel, can: set[str]) -> None:
        group = await make.group(members=[(member := await make.user(), level)])

        shown = (await ask.data(GROUP, member, path=group.path))["group"]["viewerCan"]

        assert {name for name, allowed in shown.items() if allowed} == can


class TestListGroups:
    async def test_shows_those_of_the_viewer_and_those_with_a_visible_project(self, ask: Ask, make: DataFactory) -> None:
        viewer, admin = await make.user(), await make.admin()
        await make.group(path="own", members=[(viewer, AccessLevel.GUEST)])
        await make.project(group=await make.group(path="open"), visibility=Visibility.PUBLIC)
        await make.project(group=await make.group(path="closed"))

        async def paths(user: tables.User, **filter: object) -> list[str]:
            groups = (await ask.data(GROUPS, user, filter=filter))["groups"]
            assert groups["totalCount"] == len(groups["nodes"])
            return [group["path"] for group in groups["nodes"]]

        assert await paths(viewer) == ["open", "own"]
        assert await paths(viewer, own=True) == ["own"]
        assert await paths(viewer, ownUnlessAdministrator=True) == ["own"]
        assert await paths(viewer, search="PE") == ["open"]
        assert await paths(admin) == ["closed", "open", "own"]
        assert await paths(admin, own=True) == []
        assert await paths(admin, ownUnlessAdministrator=True) == ["closed", "open", "own"]
        assert await paths(admin, search="%") == []

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        viewer = await make.user()
        for _ in range(30):
            group = await make.group(owner=await make.user(), members=[(viewer, AccessLevel.DEVELOPER)])
            await make.project(group=group)
        query = """query ($first: Int) { groups(first: $first) { totalCount nodes { path viewerAccessLevel viewerCan { update delete }
            members(first: 5) { totalCount nodes { accessLevel user { name } } }
            projects(first: 5) { totalCount nodes { fullPath viewerAccessLevel namespace { path } } } } } }"""

        with statements.record() as two:
            await ask.data(query, viewer, first=2)
        with statements.record() as thirty:
            data = await ask.data(query, viewer, first=30)

        assert len(data["groups"]["nodes"]) == 30
        assert all(group["projects"]["totalCount"] == 1 and group["members"]["totalCount"] == 2 for group in data["groups"]["nodes"])
        assert len(thirty) <= len(two) <= 12


class TestProjectsOfGroup:
    async def test_are_those_that_the_viewer_may_see(self, ask: Ask, make: DataFactory) -> None:
        member, other = await make.user(), await make.user()
        group = await make.group(members=[(member, AccessLevel.GUEST)])
        await make.project(group=group, path="private")
        await make.project(group=group, path="shared", visibility=Visibility.INTERNAL)
        await make.project(group=group, path="old", visibility=Visibility.PUBLIC, archived=True)

        async def paths(user: tables.User, **filter: object) -> list[str]:
            found = (await ask.data(PROJECTS, user, path=group.path, filter=filter or None))["group"]["projects"]
            assert found["totalCount"] == len(found["nodes"])
            return [project["path"] for project in found["nodes"]]

        assert await paths(member) == ["shared", "private"]
        assert await paths(other) == ["shared"]
        assert await paths(member, archived=None) == ["old", "shared", "private"]
        assert await paths(other, archived=True) == ["old"]
        assert await paths(member, visibility=["PRIVATE"]) == ["private"]
        assert await paths(member, search="HARE") == ["shared"]

    async def test_are_sorted_and_paged(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()))
        for path in ("b", "a", "c"):
            await make.project(group=group, path=path)
        order = {"field": "PATH", "direction": "ASC"}

        first = (await ask.data(PROJECTS, owner, path=group.path, orderBy=order, first=2))["group"]["projects"]
        after = first["pageInfo"]["endCursor"]
        second = (await ask.data(PROJECTS, owner, path=group.path, orderBy=order, first=2, after=after))["group"]["projects"]

        assert [project["path"] for project in first["nodes"] + second["nodes"]] == ["a", "b", "c"]

    @pytest.mark.parametrize(("direction", "in_order"), [("ASC", "acebd"), ("DESC", "ecadb")])
    async def test_come_with_builds_first_in_either_direction_and_on_every_page(
        self, ask: Ask, make: DataFactory, direction: str, in_order: str
    ) -> None:
        group = await make.group(owner=(owner := await make.user()))
        for path in "abcde":
            await make.project(group=group, path=path, builds_enabled=path in "ace")
        query = """query ($path: String!, $orderBy: ProjectOrder, $first: Int, $after: String, $last: Int, $before: String) {
            group(path: $path) { projects(orderBy: $orderBy, first: $first, after: $after, last: $last, before: $before) {
                nodes { path } pageInfo { startCursor endCursor hasNextPage hasPreviousPage } } } }"""
        order = {"field": "PATH", "direction": direction, "ciEnabledFirst": True}

        async def page(**window: object) -> tuple[str, dict[str, str]]:
            found = (await ask.data(query, owner, path=group.path, orderBy=order, **window))["group"]["projects"]
            return "".join(node["path"] for node in found["nodes"]), found["pageInfo"]

        for size in (1, 2, 3):
            walked, place = await page(first=size)
            while place["hasNextPage"]:
                more, place = await page(first=size, after=place["endCursor"])
                walked += more
            assert walked == in_order
            walked, place = await page(last=size)
            while place["hasPreviousPage"]:
                more, place = await page(last=size, before=place["startCursor"])
                walked = more + walked
            assert walked == in_order


class TestMemberOfGroup:
    MEMBER = "query ($path: String!, $id: Int!) { group(path: $path) { member(userId: $id) { accessLevel user { username } } } }"

    async def test_is_found_by_the_id_of_the_user(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(owner=await make.user(), members=[(guest := await make.user("bob"), AccessLevel.GUEST)])

        shown = await ask.data(self.MEMBER, guest, path=group.path, id=guest.id)

        assert shown["group"]["member"] == {"accessLevel": "GUEST", "user": {"username": "bob"}}

    async def test_is_not_found_where_there_is_none(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()))

        assert await ask.codes(self.MEMBER, owner, path=group.path, id=(await make.user()).id) == ["NOT_FOUND"]
        assert await ask.codes(self.MEMBER, owner, path=group.path, id=999) == ["NOT_FOUND"]


class TestCreateGroup:
    async def test_makes_the_viewer_its_owner(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()

        await ask.data(CREATE, user, input={"name": "Our Tools", "path": "Tools", "description": "d"})

        shown = (await ask.data(GROUP, user, path="tools"))["group"]
        assert (shown["name"], shown["path"], shown["description"], shown["viewerAccessLevel"]) == ("Our Tools", "Tools", "d", "OWNER")

    async def test_requires_permission_to_create_groups(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user(can_create_group=False)
        admin = await make.user(can_create_group=False, admin=True)

        for viewer in (user, admin):
            assert await ask.codes(CREATE, viewer, input={"name": "n", "path": "p"}) == ["FORBIDDEN"]
        assert await make.count(tables.GroupMember) == 0

    @pytest.mark.parametrize(
        ("path", "code"),
        [
            ("", "REQUIRED"),
            *((path, "INVALID") for path in ("-a", "a.", "a/b", "a b", "ä", "123", "..", "groups", "api", "a" * 256)),
        ],
    )
    async def test_rejects_an_invalid_path(self, ask: Ask, make: DataFactory, path: str, code: str) -> None:
        outcome = await ask(CREATE, await make.user(), input={"name": "n", "path": path})

        assert errors(outcome, "createGroup") == [("path", code)]

    @pytest.mark.parametrize(("name", "code"), [(" ", "REQUIRED"), ("a/b", "INVALID"), ("a" * 256, "INVALID")])
    async def test_rejects_an_invalid_name(self, ask: Ask, make: DataFactory, name: str, code: str) -> None:
        outcome = await ask(CREATE, await make.user(), input={"name": name, "path": "p"})

        assert errors(outcome, "createGroup") == [("name", code)]

    async def test_rejects_a_long_description(self, ask: Ask, make: DataFactory) -> None:
        outcome = await ask(CREATE, await make.user(), input={"name": "n", "path": "p", "description": "d" * 256})

        assert errors(outcome, "createGroup") == [("description", "INVALID")]

    async def test_rejects_the_path_of_a_group_or_a_user_without_case(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user("ada")
        await make.group(path="Tools")

        for path in ("tOOLS", "ADA"):
            assert errors(await ask(CREATE, user, input={"name": "n", "path": path}), "createGroup") == [("path", "TAKEN")]

    async def test_projects_for_an_unknown_user_name_the_user(self, ask: Ask, make: DataFactory) -> None:
        admin = await make.admin()
        group = await make.group(owner=admin)
        text = "mutation ($input: CreateProjectInput!) { createProject(input: $input) { project { id } userErrors { message } } }"
        for where in ({"groupPath": group.path}, {}):
            result = await ask(text, admin, input={"name": "tools", "ownerId": 999_999, **where})
            assert [error.message for error in result.errors] == ["User not found."]

    async def test_rejects_the_name_of_another_group(self, ask: Ask, make: DataFactory) -> None:
        await make.group(path="one", name="Tools")

        assert errors(await ask(CREATE, await make.user(), input={"name": "tools", "path": "two"}), "createGroup") == [("name", "TAKEN")]

    @pytest.mark.parametrize("name", ["Équipe", "équipe", "ÉQUIPE", "İzmir"])
    async def test_names_are_unique_whatever_the_case_of_their_letters(self, ask: Ask, make: DataFactory, name: str) -> None:
        for each in ("Équipe", "İzmir"):
            await make.group(name=each)
        assert errors(await ask(CREATE, await make.user(), input={"name": name, "path": "two"}), "createGroup") == [("name", "TAKEN")]

    async def test_concurrent_creates_of_one_path_succeed_once(self, ask: Ask, make: DataFactory) -> None:
        user, numbers = await make.user(), iter(range(32))

        outcomes = await run_concurrently(32, lambda: ask(CREATE, user, input={"name": f"n{next(numbers)}", "path": "wanted"}))

        refused = [errors(outcome, "createGroup") for outcome in outcomes]
        assert sorted(refused) == [[]] + [[("path", "TAKEN")]] * 31
        assert await make.count(tables.GroupMember) == 1

    async def test_concurrent_creates_of_one_name_succeed_once(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()

        codes = await asyncio.gather(*(ask.codes(CREATE, user, input={"name": "Mill", "path": f"mill-{number}"}) for number in range(12)))

        assert sorted(codes) == [[]] + [["TAKEN"]] * 11


class TestUpdateGroup:
    async def test_changes_given_fields(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()), path="old", description="d")

        data = await ask.data(UPDATE, owner, input={"groupPath": "old", "name": "Young", "path": "Young"})

        assert data["updateGroup"] == {"group": {"name": "Young", "path": "Young", "description": "d"}, "userErrors": []}
        assert (await ask.data(GROUP, owner, path="young"))["group"]["databaseId"] == group.id
        assert await ask.codes(GROUP, owner, path="old") == ["NOT_FOUND"]

    async def test_accepts_a_change_of_case_and_a_null_description(self, ask: Ask, make: DataFactory) -> None:
        await make.group(owner=(owner := await make.user()), path="old", name="Old", description="d")

        data = await ask.data(UPDATE, owner, input={"groupPath": "old", "name": "OLD", "path": "OLD", "description": None})

        assert data["updateGroup"] == {"group": {"name": "OLD", "path": "OLD", "description": ""}, "userErrors": []}

    @pytest.mark.parametrize(
        ("change", "error"),
        [
            ({"path": "taken"}, ("path", "TAKEN")),
            ({"name": "Taken"}, ("name", "TAKEN")),
            ({"path": "12"}, ("path", "INVALID")),
            ({"path": None}, ("path", "REQUIRED")),
            ({"name": ""}, ("name", "REQUIRED")),
        ],
    )
    async def test_rejects_what_creation_would_reject(
        self, ask: Ask, make: DataFactory, change: dict[str, str | None], error: tuple[str, str]
    ) -> None:
        await make.group(path="taken")
        group = await make.group(owner=(owner := await make.user()))

        assert errors(await ask(UPDATE, owner, input={"groupPath": group.path, **change}), "updateGroup") == [error]

    @pytest.mark.parametrize("level", LEVELS)
    async def test_requires_an_owner(self, ask: Ask, make: DataFactory, level: AccessLevel) -> None:
        group = await make.group(members=[(member := await make.user(), level)])

        codes = await ask.codes(UPDATE, member, input={"groupPath": group.path, "description": "x"})

        assert codes == ([] if level is AccessLevel.OWNER else ["FORBIDDEN"])


class TestDeleteGroup:
    async def test_deletes_its_projects_and_their_repositories(self, ask: Ask, make: DataFactory, services: Services) -> None:
        group = await make.group(owner=(owner := await make.user()))
        inside, outside = [await make.project(group=group) for _ in range(2)], await make.project(owner=owner)
        await make.issue(inside[0], author=owner)

        data = await ask.data(DELETE, owner, input={"groupPath": group.path})

        assert data["deleteGroup"] == {"group": {"path": group.path, "databaseId": group.id}, "userErrors": []}
        assert await ask.codes(GROUP, owner, path=group.path) == ["NOT_FOUND"]
        assert [await make.count(table) for table in (tables.Project, tables.Issue, tables.GroupMember)] == [1, 0, 0]
        assert not any(services.repositories.path_of(project.id).exists() for project in inside)
        assert services.repositories.path_of(outside.id).is_dir()

    @pytest.mark.parametrize("level", LEVELS)
    async def test_requires_an_owner(self, ask: Ask, make: DataFactory, level: AccessLevel) -> None:
        group = await make.group(members=[(member := await make.user(), level)])

        codes = await ask.codes(DELETE, member, input={"groupPath": group.path})

        assert codes == ([] if level is AccessLevel.OWNER else ["FORBIDDEN"])

    async def test_requires_an_owner_or_an_administrator(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group()

        assert await ask.codes(DELETE, await make.user(), input={"groupPath": group.path}) == ["NOT_FOUND"]
        assert await ask.codes(DELETE, await make.admin(), input={"groupPath": group.path}) == []

    async def test_concurrent_deletions_succeed_once(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()))

        outcomes = await run_concurrently(8, lambda: ask(DELETE, owner, input={"groupPath": group.path}))

        codes = sorted([str(problem.code) for problem in outcome.errors] for outcome in outcomes)
        # On PostgreSQL the membership may go between two statements of somebody who saw the group.
        assert codes[0] == []
        assert all(code in (["NOT_FOUND"], ["FORBIDDEN"]) for code in codes[1:])
