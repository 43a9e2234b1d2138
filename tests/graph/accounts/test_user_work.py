"""Projects, groups, activities and builds of a user: each list has what the viewer may see, and counts nothing else."""

from collections.abc import Iterable
from typing import Any

import pytest

from storage import tables
from storage.tables import AccessLevel, ActivityAction, ActivitySubject, CheckStatus, UserState, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

SHA = "a" * 40
WORK = """query ($name: String!, $first: Int) { user(username: $name) {
    projects(first: $first) { totalCount nodes { databaseId } }
    groups(first: $first) { totalCount nodes { databaseId } }
    activities(first: $first) { totalCount nodes { projectId subject project { fullPath } } }
    builds(first: $first) { totalCount nodes { projectId name project { fullPath } } }
} }"""
OF_PROJECTS = """query { projects(first: 20, filter: {archived: null}) { nodes { databaseId
    activities(first: 100) { nodes { projectId subject author { username } } } } } }"""
BUILDS_OF_PROJECT = """query ($path: String!) { project(path: $path) { builds { nodes { projectId name user { username } } } } }"""
OF_ALL = """query { users(first: 100) { nodes { username projects(first: 2) { totalCount nodes { databaseId } }
    groups { totalCount nodes { path } } activities(first: 2) { totalCount nodes { projectId } }
    builds(first: 2) { totalCount nodes { name } } } } }"""
MEMBER_ROLES = (AccessLevel.GUEST, AccessLevel.REPORTER, AccessLevel.DEVELOPER)


@pytest.fixture
async def ada(make: DataFactory) -> tables.User:
    return await make.user("ada")


class ProjectsOfEachKind:
    """Projects of all kinds in which ada is a member, has a build, and an activity for each subject; and viewers of all kinds."""

    def __init__(self, make: DataFactory, ada: tables.User) -> None:
        self._make, self._ada = make, ada
        self.viewers: dict[str, tables.User] = {}
        self.projects: list[tables.Project] = []

    async def build(self) -> None:
        make, ada = self._make, self._ada
        self.viewers = {"ada": ada, "admin": await make.admin(), "outsider": await make.user("outsider")}
        self.viewers |= {level.name: await make.user(level.name.lower()) for level in MEMBER_ROLES}
        members = [(ada, AccessLevel.MASTER), *((self.viewers[level.name], level) for level in MEMBER_ROLES)]
        rows: list[Any] = []
        for visibility in (Visibility.PRIVATE, Visibility.PUBLIC):
            for setting in ({}, {"public_builds": False}, {"builds_enabled": False}, {"issues_enabled": False}, {"archived": True}):
                project = await make.project(visibility=visibility, members=members, **setting)
                self.projects.append(project)
                build = {"sha": SHA, "ref": "master", "name": f"job{project.id}", "user_id": ada.id}
                rows += [tables.Build(project_id=project.id, **build)]
                activity = {"project_id": project.id, "author_id": ada.id, "action": ActivityAction.OPENED, "target_id": 1}
                rows += [tables.Activity(subject=subject, **activity) for subject in ActivitySubject]
        await make.save(*rows)


def pairs(nodes: Iterable[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(node[name] for name in names) for node in nodes)


class TestPermissions:
    async def test_lists_have_what_the_lists_of_the_projects_have(self, ask: Ask, make: DataFactory, ada: tables.User) -> None:
        made = ProjectsOfEachKind(make, ada)
        await made.build()
        sizes = {}
        for role, viewer in made.viewers.items():
            work = (await ask.data(WORK, viewer, name="ada", first=100))["user"]
            projects = (await ask.data(OF_PROJECTS, viewer))["projects"]["nodes"]
            assert pairs(work["projects"]["nodes"], "databaseId") == pairs(projects, "databaseId")
            activities = [each for project in projects for each in project["activities"]["nodes"]]
            assert pairs(work["activities"]["nodes"], "projectId", "subject") == pairs(activities, "projectId", "subject")
            builds: list[Any] = []
            for project in made.projects:
                outcome = await ask(BUILDS_OF_PROJECT, viewer, path=str(project.id))
                builds += [] if outcome.errors else (outcome.data or {})["project"]["builds"]["nodes"]
            assert pairs(work["builds"]["nodes"], "projectId", "name") == pairs(builds, "projectId", "name")
            sizes[role] = tuple(work[name]["totalCount"] for name in ("projects", "activities", "builds"))
            assert sizes[role] == tuple(len(work[name]["nodes"]) for name in ("projects", "activities", "builds"))
        assert sizes["outsider"] == (5, 43, 3)
        assert sizes["GUEST"][0] == sizes["REPORTER"][0] == 10
        assert sizes["outsider"] < sizes["GUEST"] < sizes["REPORTER"] == sizes["DEVELOPER"] == sizes["ada"] == sizes["admin"] == (10, 86, 8)

    async def test_groups_are_those_that_the_viewer_may_see(self, ask: Ask, make: DataFactory, ada: tables.User) -> None:
        friend, outsider = await make.user(), await make.user()
        hidden = await make.group(members=[(ada, AccessLevel.GUEST), (friend, AccessLevel.GUEST)], path="hidden")
        shown = await make.group(members=[(ada, AccessLevel.GUEST)], path="shown")
        await make.project(group=shown, visibility=Visibility.PUBLIC)
        await make.group(members=[(friend, AccessLevel.GUEST)], path="others")
        for viewer, expected in ((outsider, [shown]), (friend, [hidden, shown]), (await make.admin(), [hidden, shown])):
            groups = (await ask.data(WORK, viewer, name="ada", first=1))["user"]["groups"]
            assert groups == {"totalCount": len(expected), "nodes": [{"databaseId": expected[0].id}]}

    async def test_blocked_and_anonymous_viewers_get_nothing(self, ask: Ask, make: DataFactory, ada: tables.User) -> None:
        await make.project(owner=ada, visibility=Visibility.PUBLIC)
        assert await ask.codes(WORK, await make.user(state=UserState.BLOCKED), name="ada") == ["UNAUTHENTICATED"]
        assert await ask.codes(WORK, None, name="ada") == ["UNAUTHENTICATED"]


class TestProjects:
    async def test_a_project_is_listed_once_however_the_user_is_a_member(self, ask: Ask, make: DataFactory, ada: tables.User) -> None:
        group = await make.group(members=[(ada, AccessLevel.DEVELOPER)])
        in_both = await make.project(group=group, members=[(ada, AccessLevel.MASTER)])
        own, archived = await make.project(owner=ada), await make.project(owner=ada, archived=True)
        await make.project(visibility=Visibility.PUBLIC)
        listing = "query ($archived: Boolean) { viewer { projects(archived: $archived) { totalCount nodes { databaseId } } } }"
        for value, expected in ((None, [in_both, own, archived]), (False, [in_both, own]), (True, [archived])):
            projects = (await ask.data(listing, ada, archived=value))["viewer"]["projects"]
            assert projects["totalCount"] == len(expected)
            assert {node["databaseId"] for node in projects["nodes"]} == {project.id for project in expected}

    async def test_pages_continue_after_a_cursor(self, ask: Ask, make: DataFactory, ada: tables.User) -> None:
        made = [await make.project(owner=ada) for _ in range(3)]
        page = """query ($after: String) { viewer { projects(first: 2, after: $after) {
            totalCount nodes { databaseId } pageInfo { hasNextPage endCursor } } } }"""
        first = (await ask.data(page, ada))["viewer"]["projects"]
        second = (await ask.data(page, ada, after=first["pageInfo"]["endCursor"]))["viewer"]["projects"]
        assert (first["totalCount"], second["totalCount"]) == (3, 3)
        assert (first["pageInfo"]["hasNextPage"], second["pageInfo"]["hasNextPage"]) == (True, False)
        assert [node["databaseId"] for node in first["nodes"] + second["nodes"]] == [project.id for project in reversed(made)]


class TestBuilds:
    async def test_are_those_the_user_created_and_match_the_filter(self, ask: Ask, make: DataFactory, ada: tables.User) -> None:
        project = await make.project(owner=ada)
        other = await make.user()
        await make.build(project, SHA, user_id=ada.id, name="unit", status=CheckStatus.FAILED)
        await make.build(project, SHA, user_id=ada.id, name="lint", status=CheckStatus.SUCCESS)
        await make.build(project, SHA, user_id=other.id, name="unit", status=CheckStatus.FAILED)
        await make.build(project, SHA, name="unit", status=CheckStatus.FAILED)
        query = "query ($filter: BuildFilter) { viewer { builds(filter: $filter) { totalCount nodes { name user { username } } } } }"
        everything = (await ask.data(query, ada))["viewer"]["builds"]
        failed = (await ask.data(query, ada, filter={"status": ["FAILED"]}))["viewer"]["builds"]
        assert [node["name"] for node in everything["nodes"]] == ["lint", "unit"]
        assert failed == {"totalCount": 1, "nodes": [{"name": "unit", "user": {"username": "ada"}}]}


async def test_statements_do_not_depend_on_users_and_rows(
    ask: Ask, make: DataFactory, ada: tables.User, statements: StatementRecorder
) -> None:
    viewer = await make.user()
    await ask.data(OF_ALL, viewer)
    with statements.record() as few:
        await ask.data(OF_ALL, viewer)
    made = ProjectsOfEachKind(make, ada)
    await made.build()
    group = await make.group(members=[(user, AccessLevel.GUEST) for user in made.viewers.values()])
    await make.project(group=group, visibility=Visibility.PUBLIC)
    with statements.record() as many:
        found = (await ask.data(OF_ALL, viewer))["users"]["nodes"]
    by_name = {user["username"]: user for user in found}
    assert [by_name["ada"][name]["totalCount"] for name in ("projects", "groups", "activities", "builds")] == [6, 1, 43, 3]
    assert [len(by_name["ada"][name]["nodes"]) for name in ("projects", "groups", "activities", "builds")] == [2, 1, 2, 2]
    assert by_name["guest"]["projects"]["totalCount"] == 6
    assert len(many) <= len(few) + 4, "\n".join(many)


async def test_all_issues_and_merge_requests_are_a_scope(ask: Ask, make: DataFactory, ada: tables.User) -> None:
    public, private = await make.project(visibility=Visibility.PUBLIC), await make.project()
    for project in (public, private):
        await make.issue(project, author=ada, title=f"of {project.id}")
    query = """query ($scope: WorkScope!) {
        issues(scope: $scope, filter: {authorUsername: ["ada"]}) { totalCount nodes { title } }
        mergeRequests(scope: $scope, filter: {authorUsername: ["ada"]}) { totalCount } }"""
    viewer = await make.user()
    assert (await ask.data(query, viewer, scope="ALL")) == {
        "issues": {"totalCount": 1, "nodes": [{"title": f"of {public.id}"}]},
        "mergeRequests": {"totalCount": 0},
    }
    assert (await ask.data(query, viewer, scope="CREATED"))["issues"]["totalCount"] == 0
    assert (await ask.data(query, await make.admin(), scope="ALL"))["issues"]["totalCount"] == 2
