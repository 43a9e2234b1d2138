"""A runner of 2016 against the whole service over HTTP: push, two stages, code, trace, artifact."""

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
import uvicorn

from forgefront.app import create_app
from forgefront.config import Config
from storage import tables
from storage.tables import Visibility
from tests.ci_v1.conftest import INFO, LegacyRunner
from tests.ci_v1.shapes import check_shape
from tests.make import DataFactory, token_of
from tests.support.git.git_history import GIT_ENVIRONMENT
from tests.support.scenario import registration_token

FILE = """
compile:
  stage: build
  script: [make, make check]
  artifacts: {paths: [bin/]}
check:
  stage: test
  script: ./check
"""


async def git(*words: str) -> None:
    done = await asyncio.to_thread(subprocess.run, ["git", *words], env=GIT_ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
async def address(database_url: str, tmp_path: Path) -> AsyncIterator[str]:
    """Of the service, over the data that `make` builds."""
    async with AsyncExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        app = create_app(Config.load(data=tmp_path, database_url=database_url, external_url=url))
        stack.push_async_callback(app.stop)
        await app.start()
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))

        async def stop() -> None:
            server.should_exit = True
            await serving

        stack.push_async_callback(stop)
        yield url


async def push(address: str, folder: Path, owner: tables.User) -> None:
    await git("init", "--quiet", "--initial-branch=master", str(folder))
    (folder / ".gitlab-ci.yml").write_text(FILE)
    (folder / "Makefile").write_text("check:\n")
    await git("-C", str(folder), "add", ".")
    await git("-C", str(folder), "commit", "--quiet", "--message", "Build it")
    remote = f"http://ada:{token_of(owner)}@{address.removeprefix('http://')}/ada/engine.git"
    await git("-C", str(folder), "push", "--quiet", remote, "master")


async def test_a_push_is_built_by_an_old_runner(address: str, make: DataFactory, tmp_path: Path) -> None:
    owner = await make.user("ada")
    project = await make.project(owner=owner, path="engine")
    await push(address, tmp_path / "work", owner)
    async with httpx.AsyncClient(base_url=f"{address}/ci/api/v1/", timeout=30) as client:
        token = await registration_token(make, project.id)
        registered = await client.post("runners/register.json", json={"token": token, "description": "box", "info": INFO})
        runner = LegacyRunner(client, check_shape("Registered", registered.json())["token"])
        assert (await runner.update(-1)).status_code == 404

        assert (await runner.claim()).status_code == 201
        assert (runner.build["name"], runner.build["commands"]) == ("compile", "make\nmake check")
        await git("clone", "--quiet", runner.build["repo_url"], str(tmp_path / "clone"))
        assert (tmp_path / "clone" / "Makefile").exists()
        # Submodules: a build reads public projects, and no private ones of its owner.
        await make.project(owner=owner, path="library", visibility=Visibility.PUBLIC)
        await make.project(owner=owner, path="secret")
        services = {"library": "upload-pack", "secret": "upload-pack", "library.git": "receive-pack"}
        statuses = {}
        for name, service in services.items():
            url = runner.build["repo_url"].replace("engine.git", f"{name.removesuffix('.git')}.git/info/refs?service=git-{service}")
            statuses[name] = (await client.get(url)).status_code
        assert statuses == {"library": 200, "secret": 404, "library.git": 404}
        assert (await runner.update(trace="$ make\n")).json() is True
        assert (await runner.upload_artifact(b"PK\x03\x04")).status_code == 201
        assert (await runner.update(trace="$ make\nok\n", state="success")).json() is True

        assert (await runner.claim()).status_code == 201
        assert runner.build["name"] == "check"
        (earlier,) = runner.build["depends_on_builds"]
        fetched = await client.get(f"builds/{earlier['id']}/artifacts.json", headers={"BUILD-TOKEN": earlier["token"]})
        assert (fetched.status_code, fetched.content) == (200, b"PK\x03\x04")
        assert (await runner.update(trace="./check: not found\n", state="failed")).json() is True
        assert (await runner.claim()).status_code == 404

        headers = {"PRIVATE-TOKEN": token_of(owner)}
        builds = (await client.get(f"{address}/api/v3/projects/{project.id}/builds", headers=headers)).json()
        query = 'query ($id: Int!) { project(path: "ada/engine") { build(databaseId: $id) { trace { lines } runner { description } } } }'
        requested = await client.post(f"{address}/graphql", headers=headers, json={"query": query, "variables": {"id": runner.build["id"]}})

    assert [(each["name"], each["status"]) for each in builds] == [("check", "failed"), ("compile", "success")]
    found = requested.json()["data"]["project"]["build"]
    assert found == {"trace": {"lines": ["./check: not found"]}, "runner": {"description": "box"}}
