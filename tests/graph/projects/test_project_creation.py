"""Creation of projects: empty or from a repository on the server's disk, completely or not at all."""

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graph.context import Context, Services
from graph.operations.execution import Graph, OperationResult
from graph.operations.transaction import commit
from storage import tables
from storage.git.repository import NotARepository, Repository
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory, token_of
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Ask
from tests.support.git.git_history import git, make_history

CREATE = """mutation ($input: CreateProjectInput!) { createProject(input: $input) {
    project { databaseId fullPath name path description visibility defaultBranch issuesEnabled buildsEnabled tagList creator { username } }
    userErrors { field message code } } }"""
CREATE_ISSUE = (
    """mutation ($path: String!) { createIssue(input: {projectPath: $path, title: "t"}) { issue { iid } userErrors { code } } }"""
)


async def create_project(ask: Ask, viewer: tables.User, **input: Any) -> dict[str, Any]:
    payload = (await ask.data(CREATE, viewer, input={"name": "App", **input}))["createProject"]
    assert payload["userErrors"] == []
    return dict(payload["project"])


async def user_error_codes(ask: Ask, viewer: tables.User, **input: Any) -> list[tuple[str | None, str]]:
    payload = (await ask.data(CREATE, viewer, input={"name": "App", **input}))["createProject"]
    assert payload["project"] is None
    return [(error["field"], error["code"]) for error in payload["userErrors"]]


def repository_folders(services: Services) -> list[str]:
    """What lies in the folder of the repositories."""
    root = services.repositories.root
    return sorted(path.name for path in root.iterdir()) if root.exists() else []


class TestEmptyProject:
    async def test_begins_in_the_viewer_s_namespace_with_an_empty_repository(self, ask: Ask, make: DataFactory, services: Services) -> None:
        user = await make.user("ada")

        project = await create_project(ask, user, name="My First App", description="d", buildsEnabled=False, tagList=["x"])

        number = project.pop("databaseId")
        assert project == {
            "fullPath": "ada/my-first-app",
            "name": "My First App",
            "path": "my-first-app",
            "description": "d",
            "visibility": "PRIVATE",
            "defaultBranch": None,
            "issuesEnabled": True,
            "buildsEnabled": False,
            "tagList": ["x"],
            "creator": {"username": "ada"},
        }
        repository = Repository.open(services.repositories.path_of(number))
        assert repository.is_empty()
        assert (repository.path / "HEAD").read_text() == "ref: refs/heads/master\n"
        assert repository_folders(services) == [f"{number}.git"]

    async def test_uses_the_given_default_branch_name(self, ask: Ask, make: DataFactory, services: Services) -> None:
        project = await create_project(ask, await make.user(), defaultBranch="release/1.x")

        head = services.repositories.path_of(project["databaseId"]) / "HEAD"
        assert head.read_text() == "ref: refs/heads/release/1.x\n"

    @pytest.mark.parametrize("branch", ["a..b", "-x", "HEAD", "a b", "", "a" * 256, "x.lock"])
    async def test_rejects_an_invalid_branch_name(self, ask: Ask, make: DataFactory, services: Services, branch: str) -> None:
        assert await user_error_codes(ask, await make.user(), defaultBranch=branch) == [("defaultBranch", "INVALID")]
        assert repository_folders(services) == []

    @pytest.mark.parametrize("level", list(AccessLevel))
    async def test_begins_in_a_group_for_its_masters(self, ask: Ask, make: DataFactory, services: Services, level: AccessLevel) -> None:
        await make.group(members=[(user := await make.user(projects_limit=0), level)], path="tools")

        codes = await ask.codes(CREATE, user, input={"name": "App", "groupPath": "tools"})

        assert codes == ([] if level >= AccessLevel.MASTER else ["FORBIDDEN"])
        assert len(repository_folders(services)) == await make.count(tables.Project) == (0 if codes else 1)

    async def test_finds_no_group_of_others(self, ask: Ask, make: DataFactory) -> None:
        group, user = await make.group(), await make.user("ada")

        for path in (group.path, "nothing", "ada"):
            assert await ask.codes(CREATE, user, input={"name": "App", "groupPath": path}) == ["NOT_FOUND"]

    @pytest.mark.parametrize(
        ("input", "error"),
        [
            ({"name": ""}, ("name", "REQUIRED")),
            ({"name": "a/b"}, ("name", "INVALID")),
            ({"name": "\u65e5\u672c"}, ("path", "REQUIRED")),
            ({"path": "a.git"}, ("path", "INVALID")),
            ({"path": "../x"}, ("path", "INVALID")),
            ({"path": "APP"}, ("path", "TAKEN")),
            ({"path": "x", "tagList": ["t" * 256]}, ("tagList", "INVALID")),
        ],
    )
    async def test_rejects_invalid_values(self, ask: Ask, make: DataFactory, input: dict[str, Any], error: tuple[str, str]) -> None:
        user = await make.user()
        await make.project(owner=user, path="app")

        assert await user_error_codes(ask, user, **input) == [error]

    async def test_accepts_a_path_that_another_namespace_has(self, ask: Ask, make: DataFactory) -> None:
        await make.project(path="app")

        assert (await create_project(ask, await make.user("bob"), path="app"))["fullPath"] == "bob/app"

    @cites("Limits: a user makes no more projects than their limit")
    async def test_ends_at_the_viewer_s_limit(self, ask: Ask, make: DataFactory, services: Services) -> None:
        user = await make.user(projects_limit=1)
        await create_project(ask, user)

        outcome = await ask(CREATE, user, input={"name": "Next"})

        assert outcome.data is not None
        assert outcome.data["createProject"]["userErrors"] == [
            {
                "field": None,
                "message": "Your project limit is 1 projects! Please contact your administrator to increase it",
                "code": "NOT_ALLOWED",
            }
        ]
        assert len(repository_folders(services)) == 1

    async def test_uses_the_default_visibility_unless_given(self, ask: Ask, make: DataFactory) -> None:
        await make.settings(default_project_visibility=int(Visibility.INTERNAL), restricted_visibility_levels=[2])
        user = await make.user()

        assert (await create_project(ask, user, path="a"))["visibility"] == "INTERNAL"
        assert (await create_project(ask, user, path="b", visibility="PRIVATE"))["visibility"] == "PRIVATE"
        assert await user_error_codes(ask, user, path="c", visibility="PUBLIC") == [("visibility", "INVALID")]
        assert (await create_project(ask, await make.admin(), path="c", visibility="PUBLIC"))["visibility"] == "PUBLIC"

    async def test_concurrent_creates_of_one_path_succeed_once(self, ask: Ask, make: DataFactory, services: Services) -> None:
        group = await make.group(owner=(owner := await make.user()))
        input = {"name": "App", "groupPath": group.path}

        codes = await asyncio.gather(*(ask.codes(CREATE, owner, input=input) for _ in range(32)))

        assert sorted(codes) == [[]] + [["TAKEN"]] * 31
        assert len(repository_folders(services)) == await make.count(tables.Project) == 1

    async def test_concurrent_creates_never_exceed_the_limit(self, ask: Ask, make: DataFactory, services: Services) -> None:
        user = await make.user(projects_limit=3)

        codes = await asyncio.gather(*(ask.codes(CREATE, user, input={"name": f"App {number}"}) for number in range(12)))

        assert sorted(codes) == [[]] * 3 + [["NOT_ALLOWED"]] * 9
        assert len(repository_folders(services)) == await make.count(tables.Project) == 3


class TestImportedProject:
    async def test_has_the_whole_history(self, ask: Ask, make: DataFactory, services: Services, tmp_path: Path) -> None:
        made = make_history(tmp_path / "source", commits=20)
        reported: list[tuple[str, int, int]] = []
        graph = Graph(dataclasses.replace(services, progress=lambda *step: reported.append(step)))

        project = await create_project(Ask(graph), await make.admin(), repositoryPath=str(made.path))

        repository = Repository.open(services.repositories.path_of(project["databaseId"]))
        source = Repository.open(made.path)
        assert (repository.branches(), repository.tags()) == (source.branches(), source.tags())
        assert project["defaultBranch"] == "master"
        assert reported
        assert repository_folders(services) == [f"{project['databaseId']}.git"]

    async def test_has_a_default_branch_whose_name_can_be_stored(
        self, ask: Ask, make: DataFactory, services: Services, tmp_path: Path
    ) -> None:
        source, long_name = make_history(tmp_path / "source.git", commits=3), "/".join(["a" * 100] * 3)
        git(source.path, "update-ref", f"refs/heads/{long_name}", "refs/heads/master")
        git(source.path, "symbolic-ref", "HEAD", f"refs/heads/{long_name}")

        project = await create_project(ask, await make.user(admin=True), repositoryPath=str(source.path))

        assert project["defaultBranch"] == "master"
        repository = Repository.open(services.repositories.path_of(project["databaseId"]))
        assert (repository.head_branch(), repository.find_ref(f"refs/heads/{long_name}") is None) == ("master", False)

    async def test_uses_the_given_default_branch(self, ask: Ask, make: DataFactory, services: Services, tmp_path: Path) -> None:
        made, admin = make_history(tmp_path / "source", commits=6), await make.admin()

        project = await create_project(ask, admin, repositoryPath=str(made.path), defaultBranch="topic")
        assert project["defaultBranch"] == "topic"
        assert await user_error_codes(ask, admin, path="b", repositoryPath=str(made.path), defaultBranch="gone") == [
            ("defaultBranch", "INVALID")
        ]
        assert len(repository_folders(services)) == 1

    async def test_requires_an_administrator(self, ask: Ask, make: DataFactory, services: Services, tmp_path: Path) -> None:
        made = make_history(tmp_path / "source", commits=2)
        user = await make.user()

        for path in (str(made.path), "/nowhere", "relative"):
            assert await ask.codes(CREATE, user, input={"name": "App", "repositoryPath": path}) == ["FORBIDDEN"]
        assert repository_folders(services) == []

    async def test_a_missing_source_leaves_nothing_behind(self, ask: Ask, make: DataFactory, services: Services, tmp_path: Path) -> None:
        admin = await make.admin()
        (tmp_path / "file").write_text("x")

        for path in (tmp_path / "nowhere", tmp_path / "file", tmp_path):
            assert await user_error_codes(ask, admin, repositoryPath=str(path)) == [("repositoryPath", "INVALID")]
        assert await user_error_codes(ask, admin, repositoryPath="source") == [("repositoryPath", "INVALID")]
        assert (await make.count(tables.Project), repository_folders(services)) == (0, [])

    async def test_is_rejected_before_the_copy_when_its_path_is_taken(
        self, ask: Ask, make: DataFactory, services: Services, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await make.project(owner=(admin := await make.admin()), path="app")

        def stage(*_: object) -> Path:
            raise AssertionError("must not be reached")

        monkeypatch.setattr(services.repositories, "stage", stage)

        assert await user_error_codes(ask, admin, repositoryPath="/anything") == [("path", "TAKEN")]

    async def test_lets_others_write_while_it_is_copied(
        self, ask: Ask, make: DataFactory, services: Services, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        made, admin = make_history(tmp_path / "source", commits=2), await make.admin()
        project = await make.project(owner=(owner := await make.user()))
        began, go_on = threading.Event(), threading.Event()
        stage = services.repositories.stage

        def slow(*arguments: Any) -> Path:
            began.set()
            assert go_on.wait(30)
            return stage(*arguments)

        monkeypatch.setattr(services.repositories, "stage", slow)
        importing = asyncio.create_task(create_project(ask, admin, repositoryPath=str(made.path)))
        assert await asyncio.to_thread(began.wait, 30)

        assert (await ask.data(CREATE_ISSUE, owner, path=str(project.id)))["createIssue"]["userErrors"] == []

        go_on.set()
        assert (await importing)["defaultBranch"] == "master"

    async def test_a_timeout_leaves_nothing_behind(
        self, graph: Graph, make: DataFactory, services: Services, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(services.repositories, "stage", make_endless_copy(services))

        outcome = await _create(graph, await make.admin(), seconds=0.3)

        assert [str(problem.code) for problem in outcome.errors] == ["LIMIT_EXCEEDED"]
        assert (await make.count(tables.Project), repository_folders(services)) == (0, [])

    async def test_the_timeout_can_be_disabled(
        self, graph: Graph, make: DataFactory, services: Services, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        made = make_history(tmp_path / "source", commits=2)
        stage = services.repositories.stage

        def slow(source: Path, *rest: Any) -> Path:
            time.sleep(0.2)
            return stage(made.path, *rest)

        monkeypatch.setattr(services.repositories, "stage", slow)

        admin = await make.admin()
        late, outcome = await _create(graph, admin, seconds=0.1), await _create(graph, admin, seconds=None)

        assert [str(problem.code) for problem in late.errors] == ["LIMIT_EXCEEDED"]
        assert outcome.errors == []
        assert len(repository_folders(services)) == await make.count(tables.Project) == 1

    async def test_a_full_disk_is_reported(self, ask: Ask, make: DataFactory, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
        def stage(*_: object) -> Path:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(services.repositories, "stage", stage)

        assert await ask.codes(CREATE, await make.admin(), input={"name": "App"}) == ["UNAVAILABLE"]
        assert await make.count(tables.Project) == 0


class TestTransactionEnd:
    async def test_a_failed_commit_removes_the_repository(
        self, ask: Ask, make: DataFactory, services: Services, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user = await make.user()
        seen: list[list[str]] = []

        async def fails(context: Context) -> None:
            seen.append(repository_folders(services))
            raise ConnectionError("the database is gone")

        monkeypatch.setattr("graph.fields.mutations.commit", fails)

        assert await ask.codes(CREATE, user, input={"name": "App"}) == ["UNAVAILABLE"]
        assert seen == [["1.git"]]
        assert (await make.count(tables.Project), repository_folders(services)) == (0, [])

    async def test_a_commit_with_a_lost_answer_preserves_the_repository(
        self, ask: Ask, make: DataFactory, services: Services, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user = await make.user()

        async def lost(context: Context) -> None:
            undo = list(context.undo)
            await commit(context)
            context.undo.extend(undo)
            raise ConnectionError("the answer did not come")

        monkeypatch.setattr("graph.fields.mutations.commit", lost)

        assert await ask.codes(CREATE, user, input={"name": "App"}) == ["UNAVAILABLE"]
        assert (await make.count(tables.Project), repository_folders(services)) == (1, ["1.git"])

    async def test_removes_leftovers_of_a_killed_process(self, ask: Ask, make: DataFactory, services: Services) -> None:
        user = await make.user()
        Repository.create(services.repositories.path_of(1))
        (services.repositories.path_of(1) / "left").touch()

        project = await create_project(ask, user)

        assert project["databaseId"] == 1
        assert not (services.repositories.path_of(1) / "left").exists()
        assert repository_folders(services) == ["1.git"]


def make_endless_copy(services: Services) -> Callable[..., Path]:
    """An import that ends only when its progress callback raises, and then removes its files, like the real one."""

    def stage(source: Path, branch: str, progress: Callable[[str, int, int], None]) -> Path:
        folder = services.repositories.root / ".incoming-test"
        folder.mkdir(parents=True)
        try:
            while True:
                progress("receiving objects", 1, 2)
                time.sleep(0.01)
        finally:
            folder.rmdir()

    return stage


async def _create(graph: Graph, admin: tables.User, *, seconds: float | None) -> OperationResult:
    variables = {"input": {"name": "App", "repositoryPath": "/anything"}}
    return await graph.run_document(CREATE, variables, None, token_of(admin), request_id="test", seconds=seconds)


def test_a_repository_that_is_there_is_not_made_twice(services: Services) -> None:
    staged = services.repositories.stage(None)
    services.repositories.promote(7, staged)

    services.repositories.discard(staged)

    assert Repository.open(services.repositories.path_of(7)).is_empty()
    with pytest.raises(NotARepository):
        services.repositories.stage(services.repositories.root / "nowhere")
    assert repository_folders(services) == ["7.git"]
