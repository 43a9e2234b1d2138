"""Archives of repositories in v3."""

import asyncio
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from graph.context import Services
from graph.rules.git import archives
from rest_v3.app import RestApp
from storage import tables
from storage.git import output_streams
from storage.git.protocol.process_slots import ClientTooSlow
from tests.make import DataFactory, token_of
from tests.support.api_clients import Api, app_of_profile
from tests.support.git.git_history import commit_files, git

FILES = {"docs/ü.md": b"text\n", "run.sh": b"#!/bin/sh\n"}


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    path = tmp_path / "source.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "master", str(path))
    first = commit_files(path, FILES)
    git(path, "update-ref", "refs/heads/master", first)
    git(path, "update-ref", "refs/heads/fix/new", commit_files(path, {"other": b"1"}, first))
    return path


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(make: DataFactory, owner: tables.User, bare: Path) -> tables.Project:
    return await make.project(owner=owner, source=bare, path="tool")


def path_of(project: tables.Project, ending: str = "") -> str:
    return f"/projects/{project.id}/repository/archive{ending}"


def unpack(content: bytes, kind: str) -> dict[str, bytes]:
    if kind == "zip":
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            return {name: packed.read(name) for name in packed.namelist() if not name.endswith("/")}
    with tarfile.open(fileobj=io.BytesIO(content), mode={"tar": "r:", "tar.gz": "r:gz", "tar.bz2": "r:bz2"}[kind]) as tar:  # type: ignore[call-overload]
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers() if member.isfile()}


class TestArchive:
    """GET /projects/:id/repository/archive"""

    async def test_in_each_format(self, any_api: Api, make: DataFactory, owner: tables.User, project: tables.Project, bare: Path) -> None:
        head = git(bare, "rev-parse", "master")
        for kind, endings in (
            ("tar.gz", ("", ".tar.gz", ".tgz", ".gz", "?format=tar.gz", "?format=unknown")),
            ("tar.bz2", (".tar.bz2", ".tbz", ".bz2", "?format=tbz2")),
            ("tar", (".tar", "?format=tar")),
            ("zip", (".zip", "?format=zip")),
        ):
            for ending in endings:
                response = await any_api.request("GET", path_of(project, ending), owner)
                assert (ending, response.status_code) == (ending, 200)
                prefix = f"tool-master-{head}"
                assert response.headers["content-disposition"] == f'attachment; filename="{prefix}.{kind}"'
                assert unpack(response.content, kind) == {f"{prefix}/{name}": content for name, content in FILES.items()}
                assert "content-length" not in response.headers
        head_only = await any_api.request("HEAD", path_of(project), owner)
        assert (head_only.status_code, head_only.content) == (200, b"")

    async def test_of_a_revision(self, any_api: Api, make: DataFactory, owner: tables.User, project: tables.Project, bare: Path) -> None:
        oid = git(bare, "rev-parse", "fix/new")
        for sha, name in (("fix/new", f"tool-fix-new-{oid}"), (oid, f"tool-{oid}"), (oid[:9], f"tool-{oid[:9]}-{oid}")):
            response = await any_api.get(path_of(project, ".zip"), owner, sha=sha)
            assert unpack(response.content, "zip") == {f"{name}/other": b"1"}
        empty = await make.project(owner=owner)
        for path, sha in ((path_of(project), "unknown"), (path_of(project), "--output=x"), (path_of(empty), "")):
            response = await any_api.get(path, owner, sha=sha)
            assert (response.status_code, response.json()) == (404, {"message": "404 File Not Found"})
        response = await any_api.client.get(f"/api/v3{path_of(project, '.7z')}", headers={"PRIVATE-TOKEN": token_of(owner)})
        assert (response.status_code, response.json()) == (404, {"message": "404 Not Found"})

    @pytest.mark.parametrize("others_wait", [False, True])
    async def test_the_process_ends_with_its_client(
        self,
        api: Api,
        make: DataFactory,
        services: Services,
        owner: tables.User,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        others_wait: bool,
    ) -> None:
        """A slow client makes git wait, with a bounded buffer; when the client disconnects, or others wait for its slot, git ends."""
        monkeypatch.setattr("storage.git.protocol.process_slots.SLOW_CLIENT_SECONDS", 0.05)
        monkeypatch.setattr("storage.git.protocol.process_slots.SLOW_CLIENT_CHECK_SECONDS", 0.02)
        path = tmp_path / "large.git"
        git(tmp_path, "init", "-q", "--bare", "-b", "master", str(path))
        git(path, "update-ref", "refs/heads/master", commit_files(path, {f"{number}": bytes(2**20) for number in range(40)}))
        project = await make.project(owner=owner, source=path)
        started: list[Any] = []
        start = output_streams.async_process.start

        async def start_and_record(*arguments: Any, **settings: Any) -> Any:
            started.append(process := await start(*arguments, **settings))
            return process

        monkeypatch.setattr(output_streams.async_process, "start", start_and_record)
        received, gone = asyncio.Event(), asyncio.Event()
        sent = 0

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            nonlocal sent
            sent += len(message.get("body", b""))
            if sent > 2**20:
                received.set()
                await gone.wait()

        app: RestApp = app_of_profile("document")
        scope = {
            "type": "http",
            "method": "GET",
            "path": f"/api/v3{path_of(project, '.tar')}",
            "raw_path": f"/api/v3{path_of(project, '.tar')}".encode(),
            "query_string": b"",
            "headers": [(b"private-token", token_of(owner).encode())],
        }
        request = asyncio.create_task(app(scope, receive, send))
        await asyncio.wait_for(received.wait(), 30)
        (process,) = started
        await asyncio.sleep(0.1)
        assert process.returncode is None and services.archive_limiter.running == 1
        if others_wait:
            services.archive_limiter.waiting += 1
            with pytest.raises(ClientTooSlow):
                await asyncio.wait_for(request, 30)
            services.archive_limiter.waiting -= 1
        else:
            gone.set()
            await asyncio.wait_for(request, 30)
        assert process.returncode is not None and services.archive_limiter.running == 0
        assert sent < 4 * 2**20

    async def test_a_busy_service_and_an_unreadable_repository_are_unavailable(
        self, api: Api, services: Services, owner: tables.User, project: tables.Project, bare: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limiter = services.archive_limiter
        monkeypatch.setattr(limiter, "_max_waiting", 0)
        response = await api.get(path_of(project), owner)
        assert (response.status_code, response.headers["retry-after"]) == (503, "2")
        monkeypatch.undo()
        blob = git(bare, "rev-parse", "master:run.sh")
        monkeypatch.setattr(archives, "stream_archive", lambda *_: output_streams.stream_blob(bare, blob[::-1], 0, 9))
        response = await api.get(path_of(project), owner)
        assert response.status_code == 503
        assert limiter.running == 0
