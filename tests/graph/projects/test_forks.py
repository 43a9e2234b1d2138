"""Forks through the graph: creation, visibility and refusals."""

import asyncio
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from graph.context import Context, Services
from storage import tables
from storage.git.repository import Repository
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

LINK = "mutation ($input: LinkForkInput!) { linkFork(input: $input) { userErrors { field code } } }"
FORK = """mutation ($input: ForkProjectInput!) { forkProject(input: $input) {
    project { databaseId fullPath name path description visibility defaultBranch issuesEnabled buildsEnabled tagList archived
      creator { username } forkedFrom { databaseId } }
    userErrors { field message code } } }"""
FORKS = """query ($path: String!) { project(path: $path) { viewerCan { fork } forkCount forkedFrom { databaseId }
    forks { totalCount nodes { databaseId forkedFrom { databaseId } } } } }"""
UPDATE = "mutation ($input: UpdateProjectInput!) { updateProject(input: $input) { project { visibility } userErrors { field code } } }"
DELETE = "mutation ($input: DeleteProjectInput!) { deleteProject(input: $input) { project { id } userErrors { code } } }"
CREATE_ISSUE = (
    """mutation ($path: String!) { createIssue(input: {projectPath: $path, title: "t"}) { issue { iid } userErrors { code } } }"""
)


async def fork_project(ask: Ask, viewer: tables.User, source: tables.Project, **input: Any) -> dict[str, Any]:
    payload = (await ask.data(FORK, viewer, input={"projectPath": str(source.id), **input}))["forkProject"]
    assert payload["userErrors"] == []
    return dict(payload["project"])


async def user_error_codes(ask: Ask, viewer: tables.User, source: tables.Project, **input: Any) -> list[tuple[str | None, str]]:
    payload = (await ask.data(FORK, viewer, input={"projectPath": str(source.id), **input}))["forkProject"]
    assert payload["project"] is None
    return [(error["field"], error["code"]) for error in payload["userErrors"]]


async def visible_fork(ask: Ask, viewer: tables.User, project: tables.Project) -> dict[str, Any]:
    return dict((await ask.data(FORKS, viewer, path=str(project.id)))["project"])


def repository_folders(services: Services) -> list[str]:
    return sorted(path.name for path in services.repositories.root.iterdir())


@pytest.fixture
async def source(make: DataFactory) -> tables.Project:
    columns: dict[str, Any] = {"path": "app", "name": "App", "description": "d", "builds_enabled": False, "tag_list": ["x"]}
    return await make.project(history={"commits": 6}, visibility=Visibility.PUBLIC, **columns)


class TestForkProject:
    async def test_copies_branches_tags_and_settings(self, ask: Ask, make: DataFactory, services: Services, source: tables.Project) -> None:
        viewer = await make.user("ada")
        await services.repositories.read(source.id, lambda repository: repository.set_default_branch("topic"))

        fork = await fork_project(ask, viewer, source)

        number = fork.pop("databaseId")
        assert fork == {
            "fullPath": "ada/app",
            "name": "App",
            "path": "app",
            "description": "d",
            "visibility": "PUBLIC",
            "defaultBranch": "topic",
            "issuesEnabled": True,
            "buildsEnabled": False,
            "tagList": ["x"],
            "archived": False,
            "creator": {"username": "ada"},
            "forkedFrom": {"databaseId": source.id},
        }
        copy, origin = (Repository.open(services.repositories.path_of(key)) for key in (number, source.id))
        assert (copy.branches(), copy.tags()) == (origin.branches(), origin.tags())
        assert copy.default_branch() == "topic"
        assert repository_folders(services) == [f"{source.id}.git", f"{number}.git"]

    async def test_uses_the_given_name_and_namespace(self, ask: Ask, make: DataFactory, source: tables.Project) -> None:
        group = await make.group(owner=(viewer := await make.user(projects_limit=0)), path="tools")
        fork = await fork_project(ask, viewer, source, groupPath="tools", name="Mine", path="mine", visibility="PRIVATE")
        assert (fork["fullPath"], fork["name"], fork["visibility"]) == ("tools/mine", "Mine", "PRIVATE")
        row = await make.fetch(tables.Project, fork["databaseId"])
        assert row is not None and (row.namespace_id, row.forked_from_id) == (group.id, source.id)

    async def test_of_an_empty_project_is_empty(self, ask: Ask, make: DataFactory, services: Services) -> None:
        source, viewer = await make.project(visibility=Visibility.INTERNAL), await make.user()
        fork = await fork_project(ask, viewer, source)
        assert (fork["defaultBranch"], fork["visibility"]) == (None, "INTERNAL")
        assert Repository.open(services.repositories.path_of(fork["databaseId"])).is_empty()

    async def test_of_a_fork_of_an_archived_project(self, ask: Ask, make: DataFactory, services: Services) -> None:
        source = await make.project(history={"commits": 4}, visibility=Visibility.PUBLIC, archived=True)
        first = await fork_project(ask, await make.user(), source)
        row = await make.fetch(tables.Project, first["databaseId"])
        assert row is not None and not row.archived
        second = await fork_project(ask, await make.user(), row)
        assert second["forkedFrom"] == {"databaseId": row.id}

    async def test_notifies_hooks_of_a_new_project(self, ask: Ask, make: DataFactory, source: tables.Project) -> None:
        await make.save(tables.Hook(url="http://127.0.0.1:9/"))
        fork = await fork_project(ask, await make.user(), source)
        assert await make.count(tables.Event) == 1
        event = await make.fetch(tables.Event, 1)
        assert event is not None and (event.name, event.payload["project_id"]) == ("project_create", fork["databaseId"])

    async def test_protects_its_default_branch(self, ask: Ask, make: DataFactory, source: tables.Project) -> None:
        await make.settings(default_branch_protection=2)
        fork = await fork_project(ask, (viewer := await make.user()), source)
        found = await ask.data(
            "query ($path: String!) { project(path: $path) { branch { protected } } }", viewer, path=str(fork["databaseId"])
        )
        assert found["project"]["branch"] == {"protected": True}


class TestRejections:
    async def test_where_the_path_is_taken(self, ask: Ask, make: DataFactory, source: tables.Project) -> None:
        viewer = await make.user()
        await fork_project(ask, viewer, source)
        assert await user_error_codes(ask, viewer, source) == [("path", "TAKEN")]
        assert await user_error_codes(ask, viewer, source, path="APP") == [("path", "TAKEN")]
        assert (await fork_project(ask, viewer, source, path="again"))["path"] == "again"

    async def test_beyond_the_viewer_s_limit(self, ask: Ask, make: DataFactory, source: tables.Project) -> None:
        assert await user_error_codes(ask, await make.user(projects_limit=0), source) == [(None, "NOT_ALLOWED")]

    @pytest.mark.parametrize(
        ("input", "error"),
        [
            ({"name": ""}, ("name", "REQUIRED")),
            ({"name": "!"}, ("name", "INVALID")),
            ({"path": ""}, ("path", "REQUIRED")),
            ({"path": "a.git"}, ("path", "INVALID")),
            ({"path": "../x"}, ("path", "INVALID")),
        ],
    )
    async def test_names_that_cannot_be(
        self, ask: Ask, make: DataFactory, services: Services, source: tables.Project, input: dict[str, Any], error: tuple[str, str]
    ) -> None:
        assert await user_error_codes(ask, await make.user(), source, **input) == [error]
        assert repository_folders(services) == [f"{source.id}.git"]

    @pytest.mark.parametrize("level", list(Visibility))
    async def test_wider_visibility_than_the_source(self, ask: Ask, make: DataFactory, level: Visibility) -> None:
        reporter = await make.user()
        source = await make.project(history={"commits": 2}, visibility=level, members=[(reporter, AccessLevel.REPORTER)])
        for expected in Visibility:
            answer = await ask.codes(
                FORK, reporter, input={"projectPath": str(source.id), "path": expected.name, "visibility": expected.name}
            )
            assert answer == ([] if expected <= level else ["INVALID"])
        assert (await fork_project(ask, reporter, source))["visibility"] == level.name

    async def test_widening_the_visibility_later(self, ask: Ask, make: DataFactory) -> None:
        viewer = await make.user()
        source = await make.project(owner=(owner := await make.user()), visibility=Visibility.INTERNAL, history={"commits": 2})
        fork = await fork_project(ask, viewer, source, visibility="PRIVATE")
        wider = {"projectPath": str(fork["databaseId"]), "visibility": "PUBLIC"}
        assert await ask.codes(UPDATE, viewer, input=wider) == ["INVALID"]
        assert await ask.codes(UPDATE, viewer, input={**wider, "visibility": "INTERNAL"}) == []
        await ask.data(DELETE, owner, input={"projectPath": str(source.id)})
        assert await ask.codes(UPDATE, viewer, input=wider) == []

    async def test_a_visibility_restricted_to_administrators(self, ask: Ask, make: DataFactory, source: tables.Project) -> None:
        await make.settings(restricted_visibility_levels=[int(Visibility.PUBLIC)])
        assert await user_error_codes(ask, (viewer := await make.user()), source) == [("visibility", "INVALID")]
        assert (await fork_project(ask, viewer, source, visibility="INTERNAL"))["visibility"] == "INTERNAL"

    async def test_users_without_access_to_the_code(self, ask: Ask, make: DataFactory) -> None:
        guest = await make.user()
        private = await make.project(history={"commits": 2}, members=[(guest, AccessLevel.GUEST)])
        input = {"projectPath": str(private.id)}
        assert await ask.codes(FORK, guest, input=input) == ["FORBIDDEN"]
        assert await ask.codes(FORK, await make.user(), input=input) == ["NOT_FOUND"]

    @pytest.mark.parametrize("level", list(AccessLevel))
    async def test_groups_of_which_the_viewer_is_no_master(
        self, ask: Ask, make: DataFactory, source: tables.Project, level: AccessLevel
    ) -> None:  # fmt: skip
        await make.group(members=[(viewer := await make.user(), level)], path="tools")
        codes = await ask.codes(FORK, viewer, input={"projectPath": str(source.id), "groupPath": "tools"})
        assert codes == ([] if level >= AccessLevel.MASTER else ["FORBIDDEN"])
        outsider = await make.user()
        assert await ask.codes(FORK, outsider, input={"projectPath": str(source.id), "groupPath": "nope"}) == ["NOT_FOUND"]

    async def test_a_source_whose_repository_cannot_be_read(
        self, ask: Ask, make: DataFactory, services: Services, source: tables.Project
    ) -> None:
        services.repositories.remove(source.id)
        assert await ask.codes(FORK, await make.user(), input={"projectPath": str(source.id)}) == ["UNAVAILABLE"]
        assert (await make.count(tables.Project), repository_folders(services)) == (1, [])

    async def test_two_projects_that_become_forks_of_each_other(self, ask: Ask, make: DataFactory, dialect: str) -> None:
        admin = await make.admin()
        for _ in range(3):
            pair = [str((await make.project()).id) for _ in range(2)]
            inputs = [{"projectPath": path, "sourcePath": source} for path, source in (pair, reversed(pair))]
            payloads = await asyncio.gather(*(ask.data(LINK, admin, input=input) for input in inputs))
            errors = [payload["linkFork"]["userErrors"] for payload in payloads]
            assert sorted(errors, key=len) == [[], [{"field": "sourcePath", "code": "INVALID"}]]

    @pytest.mark.parametrize("count", [1, 2, 3, 5])
    async def test_projects_that_would_be_forks_of_their_own_forks(self, ask: Ask, make: DataFactory, count: int) -> None:
        admin = await make.admin()
        paths = [str((await make.project()).id) for _ in range(count)]
        for path, source in pairwise(paths):
            assert await ask.codes(LINK, admin, input={"projectPath": path, "sourcePath": source}) == []
        closing = await ask.data(LINK, admin, input={"projectPath": paths[-1], "sourcePath": paths[0]})
        assert closing["linkFork"]["userErrors"] == [{"field": "sourcePath", "code": "INVALID"}]

    async def test_projects_whose_links_form_a_cycle_at_the_same_moment(self, ask: Ask, make: DataFactory, dialect: str) -> None:
        admin = await make.admin()
        for _ in range(3):
            first, second, third, fourth = [str((await make.project()).id) for _ in range(4)]
            for path, source in ((first, second), (third, fourth)):
                assert await ask.codes(LINK, admin, input={"projectPath": path, "sourcePath": source}) == []
            # No project is in both links.
            inputs = [{"projectPath": path, "sourcePath": source} for path, source in ((second, third), (fourth, first))]
            payloads = await asyncio.gather(*(ask.data(LINK, admin, input=input) for input in inputs))
            errors = [payload["linkFork"]["userErrors"] for payload in payloads]
            assert sorted(errors, key=len) == [[], [{"field": "sourcePath", "code": "INVALID"}]]


class TestRepositoryCopy:
    async def test_does_not_block_writers_and_checks_again_afterwards(
        self, ask: Ask, make: DataFactory, services: Services, source: tables.Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owner, viewer, other = await make.user(), await make.user(), await make.project(owner=await make.user())
        group = await make.group(owner=owner)
        member = tables.GroupMember(group_id=group.id, user_id=viewer.id, access_level=AccessLevel.MASTER)
        await make.save(member)
        began, go_on = threading.Event(), threading.Event()
        stage = services.repositories.stage

        def slow(*arguments: Any) -> Path:
            began.set()
            assert go_on.wait(30)
            return stage(*arguments)

        monkeypatch.setattr(services.repositories, "stage", slow)
        forking = asyncio.create_task(ask.codes(FORK, viewer, input={"projectPath": str(source.id), "groupPath": str(group.id)}))
        assert await asyncio.to_thread(began.wait, 30)
        issue = await ask.data(CREATE_ISSUE, await make.admin(), path=str(other.id))
        assert issue["createIssue"]["userErrors"] == []
        remove = "mutation ($g: String!, $u: Int!) { removeGroupMember(input: {groupPath: $g, userId: $u}) { userErrors { code } } }"
        await ask.data(remove, owner, g=str(group.id), u=viewer.id)
        go_on.set()

        assert await forking == ["NOT_FOUND"]
        assert repository_folders(services) == [f"{source.id}.git", f"{other.id}.git"]

    async def test_is_removed_when_the_commit_fails(
        self, ask: Ask, make: DataFactory, services: Services, source: tables.Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fails(context: Context) -> None:
            raise ConnectionError("the database is gone")

        monkeypatch.setattr("graph.fields.mutations.commit", fails)

        assert await ask.codes(FORK, await make.user(), input={"projectPath": str(source.id)}) == ["UNAVAILABLE"]
        assert (await make.count(tables.Project), repository_folders(services)) == (1, [f"{source.id}.git"])

    async def test_concurrent_forks_to_one_path_succeed_once(
        self, ask: Ask, make: DataFactory, services: Services, source: tables.Project
    ) -> None:
        viewer = await make.user()
        codes = await asyncio.gather(*(ask.codes(FORK, viewer, input={"projectPath": str(source.id)}) for _ in range(4)))
        assert sorted(codes) == [[], ["TAKEN"], ["TAKEN"], ["TAKEN"]]
        assert (await make.count(tables.Project), len(repository_folders(services))) == (2, 2)


class TestVisibility:
    async def test_hides_forks_the_viewer_may_not_see(self, ask: Ask, make: DataFactory, source: tables.Project) -> None:
        forker, stranger = await make.user(), await make.user()
        private = await fork_project(ask, forker, source, path="a", visibility="PRIVATE")
        public = await fork_project(ask, forker, source, path="b")
        for viewer, keys in ((forker, [public["databaseId"], private["databaseId"]]), (stranger, [public["databaseId"]])):
            found = await visible_fork(ask, viewer, source)
            assert [node["databaseId"] for node in found["forks"]["nodes"]] == keys
            assert found["forkCount"] == found["forks"]["totalCount"] == len(keys)
            assert found["viewerCan"] == {"fork": True}

    async def test_hides_a_source_that_went_private(self, ask: Ask, make: DataFactory, source: tables.Project) -> None:
        fork = await fork_project(ask, (viewer := await make.user()), source)
        row = await make.fetch(tables.Project, fork["databaseId"])
        assert row is not None
        source.visibility_level = int(Visibility.PRIVATE)
        await make.save(source)
        assert (await visible_fork(ask, viewer, row))["forkedFrom"] is None
        assert (await visible_fork(ask, await make.admin(), row))["forkedFrom"] == {"databaseId": source.id}

    async def test_outlives_its_source(self, ask: Ask, make: DataFactory, services: Services, source: tables.Project) -> None:
        fork = await fork_project(ask, (viewer := await make.user()), source)
        await ask.data(DELETE, await make.admin(), input={"projectPath": str(source.id)})
        row = await make.fetch(tables.Project, fork["databaseId"])
        assert row is not None and row.forked_from_id is None
        assert (await visible_fork(ask, viewer, row))["forkedFrom"] is None
        assert repository_folders(services) == [f"{row.id}.git"]

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        owner, viewer = await make.user(), await make.user()

        async def add() -> None:
            top = await make.project(owner=owner, visibility=Visibility.INTERNAL)
            await make.project(owner=viewer, visibility=Visibility.INTERNAL, forked_from_id=top.id)

        query = "{ projects(first: 60) { nodes { forkCount forkedFrom { name } forks(first: 2) { totalCount nodes { name } } } } }"
        await add()
        with statements.record() as one:
            await ask.data(query, viewer)
        for _ in range(9):
            await add()
        # One project's page is cut from the list itself, many pages need their places numbered: never more statements.
        with statements.assert_at_most(len(one)):
            await ask.data(query, viewer)
