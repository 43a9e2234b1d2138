"""Files of a repository in v3."""

import asyncio
import base64
import subprocess
from typing import Any

import pytest

from graph.context import Services
from graph.rules.git import file_commits
from storage import tables
from storage.git.repository import Repository
from storage.tables import AccessLevel
from tests.make import DataFactory, token_of
from tests.support.api_clients import Api
from tests.support.git.git_history import git

EMPTY_BRANCH = {"message": "The branch does not exist: files are committed to a branch"}
INVALID_PATH = {"message": "The path is invalid: it has to stay in the repository, without names that are empty or .git"}
EXISTS = {"message": "A file with the same name already exists"}


@pytest.fixture
async def people(make: DataFactory) -> dict[str, tables.User]:
    return {"reporter": await make.user(), "developer": await make.user(name="Dev", email="dev@example.org")}


@pytest.fixture
async def project(make: DataFactory, people: dict[str, tables.User]) -> tables.Project:
    members = zip(people.values(), (AccessLevel.REPORTER, AccessLevel.DEVELOPER), strict=True)
    return await make.project(history={"commits": 4}, members=members)


def path_of(project: tables.Project) -> str:
    return f"/projects/{project.id}/repository/files"


def change(path: str, content: str = "new", **more: Any) -> dict[str, Any]:
    return {"file_path": path, "branch_name": "topic", "content": content, "commit_message": "Change it", **more}


async def read(services: Services, project: tables.Project, *arguments: str) -> str:
    return git(services.repositories.path_of(project.id), *arguments)


class TestWriteFile:
    """POST, PUT and DELETE /projects/:id/repository/files"""

    async def test_each_change_is_a_commit_with_the_effects_of_a_push(
        self, any_api: Api, make: DataFactory, services: Services, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        await make.save(tables.Hook(url="http://hooks.invalid/", push_events=True))
        await make.indexed(project)
        developer, head = people["developer"], await read(services, project, "rev-parse", "topic")

        created = await any_api.post(path_of(project), developer, **change("docs/ä b.txt", "Größe\n"))
        updated = await any_api.put(path_of(project), developer, **change("docs/ä b.txt", "AAH/\n", encoding="base64"))
        body = {"file_path": "docs/ä b.txt", "branch_name": "topic"}
        assert (created.status_code, created.json()) == (201, body)
        assert (updated.status_code, updated.json()) == (200, body)
        path = services.repositories.path_of(project.id)
        assert await read(services, project, "rev-parse", "topic~2") == head
        assert await read(services, project, "show", "topic~1:docs/ä b.txt") == "Größe"
        shown = await any_api.get(path_of(project), people["reporter"], file_path="docs/ä b.txt", ref="topic")
        assert base64.b64decode(shown.json()["content"]) == b"\0\x01\xff"
        assert git(path, "log", "-1", "--format=%an <%ae> %cn %B", "topic").strip() == "Dev <dev@example.org> Dev Change it"

        removed = await any_api.delete(path_of(project), developer, **{**body, "commit_message": "Drop it"})

        assert (removed.status_code, removed.json()) == (200, body)
        assert await read(services, project, "rev-parse", "topic^{tree}") == await read(services, project, "rev-parse", f"{head}^{{tree}}")
        assert git(path, "fsck", "--strict") == ""
        assert await make.count(tables.Event) == 3
        stored = await make.fetch(tables.Project, project.id)
        assert stored is not None and stored.last_activity_at > project.last_activity_at

    async def test_the_first_file_creates_the_branch(
        self, any_api: Api, make: DataFactory, services: Services, people: dict[str, tables.User]
    ) -> None:
        empty = await make.project(members=[(people["developer"], AccessLevel.DEVELOPER)])
        response = await any_api.put(path_of(empty), people["developer"], **change("README", branch_name="main"))
        assert (response.status_code, response.json()) == (400, {"message": "The file does not exist"})
        response = await any_api.post(path_of(empty), people["developer"], **change("README", branch_name="main"))
        assert response.status_code == 201
        assert await read(services, empty, "log", "--format=%s", "main") == "Change it"
        stored = await make.fetch(tables.Project, empty.id)
        assert stored is not None and stored.default_branch == "main"

    async def test_reports_why_nothing_was_committed(
        self, any_api: Api, make: DataFactory, services: Services, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        developer, head = people["developer"], await read(services, project, "rev-parse", "topic")
        known = (await read(services, project, "ls-tree", "-r", "--name-only", "topic")).splitlines()[0]
        await make.save(tables.ProtectedBranch(project_id=project.id, name="master"))
        for method, call, message in (
            *(("POST", change(name), INVALID_PATH) for name in ("../x", "/x", "a/../../x", "a//b", ".git/config", "a/.GIT/x", "a/")),
            ("POST", change(known), EXISTS),
            ("POST", change(f"{known}/below"), {"message": "The path is a directory, or a part of it is a file"}),
            ("PUT", change("unknown"), {"message": "The file does not exist"}),
            ("DELETE", change("unknown"), {"message": "The file does not exist"}),
            ("POST", change("x", "%%%", encoding="base64"), {"message": "The content is not valid base64"}),
            ("POST", change("x", "abc", encoding="base64"), {"message": "The content is not valid base64"}),
            ("POST", change("x", branch_name="unknown"), EMPTY_BRANCH),
            ("POST", change("x", branch_name="v1"), EMPTY_BRANCH),
            ("POST", change("x", branch_name="master"), {"message": "You are not allowed to push into this branch"}),
            ("POST", change("x", commit_message=" "), {"message": '400 (Bad request) "commit_message" not given'}),
            ("POST", change("x", encoding="rot13"), {"message": {"encoding": ["is not included in the list"]}}),
        ):
            settings: Any = {"params": {key: call[key] for key in ("file_path", "branch_name", "commit_message")}}
            if method != "DELETE":
                settings = {"json": call}
            response = await any_api.request(method, path_of(project), developer, **settings)
            assert (method, call, response.status_code, response.json()) == (method, call, 400, message)
        assert await read(services, project, "rev-parse", "topic") == head

    async def test_two_writers_of_one_file(
        self,
        api: Api,
        services: Services,
        project: tables.Project,
        people: dict[str, tables.User],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """One wins and the other is rejected; writers of different files both win."""
        known, other = (await read(services, project, "ls-tree", "-r", "--name-only", "topic")).splitlines()[:2]
        prepare, both = file_commits._prepare, asyncio.Barrier(2)
        arrived: list[object] = []

        async def prepare_together(*arguments: Any) -> Any:
            prepared = await prepare(*arguments)
            arrived.append(prepared)
            if len(arrived) <= 2:
                await both.wait()
            return prepared

        monkeypatch.setattr(file_commits, "_prepare", prepare_together)
        calls = [change(known, "one"), change(known, "two")]
        responses = await asyncio.gather(*(api.put(path_of(project), people["developer"], **call) for call in calls))

        assert sorted(response.status_code for response in responses) == [200, 400]
        (lost,) = [response for response in responses if response.status_code == 400]
        assert lost.json() == {"message": "Another commit has changed the file in the meantime. Reload it and retry."}
        winner = calls[0 if responses[0].status_code == 200 else 1]
        assert await read(services, project, "show", f"topic:{known}") == winner["content"]

        arrived.clear()
        calls = [change(known, "three"), change(other, "four")]
        responses = await asyncio.gather(*(api.put(path_of(project), people["developer"], **call) for call in calls))
        assert [response.status_code for response in responses] == [200, 200]
        assert [await read(services, project, "show", f"topic:{name}") for name in (known, other)] == ["three", "four"]

    async def test_a_name_that_is_not_utf8_is_that_of_the_file(
        self, any_api: Api, services: Services, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        def add_file(repository: Repository) -> None:
            blob = str(repository.handle.create_blob(b"old")).encode()
            rows = b"100644 blob %s\tcaf\xe9\x00100644 blob %s\tx\x00" % (blob, blob)
            tree = subprocess.run(["git", "-C", str(repository.path), "mktree", "-z"], input=rows, capture_output=True, check=True).stdout
            who = ("-c", "user.name=A", "-c", "user.email=a@b.example")
            repository.move_ref("refs/heads/odd", git(repository.path, *who, "commit-tree", "-m", "Odd", tree.decode().strip()), None)

        await services.repositories.read(project.id, add_file)
        developer, call = people["developer"], change("caf\ufffd", branch_name="odd")

        assert (await any_api.put(path_of(project), developer, **call)).status_code == 200
        shown = await any_api.get(path_of(project), developer, file_path="caf\ufffd", ref="odd")
        assert base64.b64decode(shown.json()["content"]) == b"new"
        assert await read(services, project, "ls-tree", "--name-only", "odd") == '"caf\\351"\nx'
        assert (await any_api.delete(path_of(project), developer, **call)).status_code == 200
        assert await read(services, project, "ls-tree", "--name-only", "odd") == "x"

    async def test_size_is_limited(self, any_api: Api, services: Services, project: tables.Project, people: dict[str, tables.User]) -> None:
        limit = 2**20
        object.__setattr__(services, "max_file_bytes", limit)
        largest = base64.b64encode(b"\xff" * limit).decode()
        response = await any_api.post(path_of(project), people["developer"], **change("large", largest, encoding="base64"))
        assert response.status_code == 201
        shown = await any_api.get(path_of(project), people["reporter"], file_path="large", ref="topic")
        assert (shown.json()["size"], shown.json()["content"]) == (limit, largest)

        too_large = base64.b64encode(b"\xff" * (limit + 1)).decode()
        for call, viewer, status in (
            (change("larger", too_large, encoding="base64"), people["developer"], 413),
            (change("larger", "x" * (3 * limit)), people["developer"], 413),
            # The body of a caller who may not commit is not read.
            (change("larger", largest), people["reporter"], 403),
        ):
            response = await any_api.post(path_of(project), viewer, **call)
            assert response.status_code == status
        response = await any_api.client.post(
            f"/api/v3{path_of(project)}", json=change("larger", largest, private_token=token_of(people["developer"]))
        )
        assert response.status_code == 401


class TestGetFile:
    """GET /projects/:id/repository/files"""

    async def test_shows_the_file_with_its_commits(
        self, any_api: Api, services: Services, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        for ref in ("master", "v1", await read(services, project, "rev-parse", "master")):
            for name in (await read(services, project, "ls-tree", "-r", "--name-only", ref)).splitlines()[:3]:
                response = await any_api.get(path_of(project), people["reporter"], file_path=name, ref=ref)
                assert response.status_code == 200
                content = base64.b64decode(response.json().pop("content"))
                assert content.decode().rstrip("\n") == await read(services, project, "show", f"{ref}:{name}")
                assert {key: value for key, value in response.json().items() if key != "content"} == {
                    "file_name": name.rpartition("/")[2],
                    "file_path": name,
                    "size": len(content),
                    "encoding": "base64",
                    "ref": ref,
                    "blob_id": await read(services, project, "rev-parse", f"{ref}:{name}"),
                    "commit_id": await read(services, project, "rev-parse", f"{ref}^{{commit}}"),
                    "last_commit_id": await read(services, project, "rev-list", "-1", ref, "--", name),
                }

    async def test_reports_what_is_missing(self, any_api: Api, project: tables.Project, people: dict[str, tables.User]) -> None:
        for path, ref, status, message in (
            ("unknown", "master", 404, "404 File Not Found"),
            ("../master", "master", 404, "404 File Not Found"),
            ("", "master", 400, '400 (Bad request) "file_path" not given'),
            ("a", "", 400, '400 (Bad request) "ref" not given'),
            ("a", "unknown", 404, "404 Commit Not Found"),
            ("a", "master~1", 404, "404 Commit Not Found"),
        ):
            response = await any_api.get(path_of(project), people["reporter"], file_path=path, ref=ref)
            assert (path, ref, response.status_code, response.json()) == (path, ref, status, {"message": message})
