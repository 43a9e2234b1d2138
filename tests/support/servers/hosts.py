"""Hosts of one instance: server processes with data folders of their own on 127.0.0.2, 127.0.0.3, …, one PostgreSQL, one bucket."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage import tables
from storage.database.engine import Database
from storage.secrets import KEY_FILE
from tests.make import DataFactory, token_of
from tests.support.git.git_history import GIT_ENVIRONMENT
from tests.support.servers.bucket import Bucket
from tests.support.servers.server_process import ServerProcess, run_server

CREATE_PROJECT = """mutation ($input: CreateProjectInput!) {
    createProject(input: $input) { project { databaseId fullPath } userErrors { message } } }"""


@dataclass
class GitOutput:
    code: int
    out: str
    err: str


async def git(*arguments: str, folder: Path | None = None, succeeds: bool | None = True) -> GitOutput:
    """Runs git as a developer does; `succeeds` None accepts any exit code."""
    process = await asyncio.create_subprocess_exec(
        "git", *arguments, cwd=folder, env=GIT_ENVIRONMENT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    output = GitOutput(process.returncode or 0, out.decode().strip(), err.decode())
    if succeeds is not None:
        assert (output.code == 0) is succeeds, (arguments, output)
    return output


@dataclass
class Hosts:
    """The instance. Hosts are numbered from 2; `folder_of` is the data folder of one."""

    folder: Path
    database: Database
    bucket: Bucket
    make: DataFactory
    settings: dict[str, str] = field(default_factory=dict)
    servers: dict[int, ServerProcess] = field(default_factory=dict)
    _stacks: dict[int, ExitStack] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def folder_of(self, number: int) -> Path:
        return self.folder / f"host{number}"

    def repository_of(self, number: int, project_id: int) -> Path:
        return self.folder_of(number) / "repositories" / f"{project_id}.git"

    def variables(self, number: int) -> dict[str, str]:
        return {
            "host": f"127.0.0.{number}",
            "secret_key": (self.folder / KEY_FILE).read_text().strip(),
            "repositories_url": "s3://forge/repositories",
            "artifacts_url": "s3://forge/artifacts",
            "uploads_url": "s3://forge/uploads",
            **self.bucket.variables,
            **self.settings,
        }

    def start(self, number: int, revisions: Path | None = None, port: int = 0) -> ServerProcess:
        """Starts a host, or starts it again with the folder that it had. Call it in a thread while the test does other work.

        `revisions` is the folder of those of another version of the program.
        """
        self.folder_of(number).mkdir(exist_ok=True)
        stack = ExitStack()
        url = self.database.url.render_as_string(hide_password=False)
        log = self.folder / f"host{number}-{next(self._numbers)}.log"
        server = run_server(self.folder_of(number), url, log, port=port, revisions=revisions, **self.variables(number))
        self.servers[number] = stack.enter_context(server)
        self._stacks[number] = stack
        return self.servers[number]

    def kill(self, number: int) -> None:
        del self.servers[number]
        self._stacks.pop(number).close()

    def read_warnings(self) -> list[str]:
        """The lines of all logs that are no information."""
        lines = [f"{path.name}: {line}" for path in sorted(self.folder.glob("host*.log")) for line in path.read_text().splitlines()]
        return [line for line in lines if '"level":"info"' not in line]

    def close(self) -> None:
        for number in list(self.servers):
            self.kill(number)

    def url(self, number: int, project: dict[str, Any], user: tables.User) -> str:
        """The address for git."""
        address = self.servers[number].url.removeprefix("http://")
        return f"http://me:{token_of(user)}@{address}/{project['path_with_namespace']}.git"

    async def api(self, number: int, method: str, path: str, user: tables.User, status: int | None = None, **body: Any) -> Any:
        """The body of a v3 response with this status; any status if it is None."""
        async with httpx.AsyncClient(base_url=f"{self.servers[number].url}/api/v3", timeout=60) as client:
            response = await client.request(method, path, json=body or None, headers={"PRIVATE-TOKEN": token_of(user)})
        assert status is None or response.status_code == status, response.text
        return response.json()

    async def graph(self, number: int, query: str, user: tables.User, **variables: Any) -> Any:
        """The response of GraphQL."""
        async with httpx.AsyncClient(base_url=self.servers[number].url, timeout=60) as client:
            body = {"query": query, "variables": variables}
            response = await client.post("/graphql", json=body, headers={"PRIVATE-TOKEN": token_of(user)})
        return response.json()

    async def create_project(self, number: int, user: tables.User, name: str, source: Path | None = None) -> Any:
        """The `id` and `path_with_namespace` of a new project, imported from `source` by an administrator."""
        values = {"name": name, **({"repositoryPath": str(source)} if source else {})}
        answer = await self.graph(number, CREATE_PROJECT, user, input=values)
        project = answer["data"]["createProject"]["project"]
        return {"id": project["databaseId"], "path_with_namespace": project["fullPath"]}


async def write_text_commit(folder: Path, name: str, content: str) -> str:
    """Commits a file in a clone; returns the commit."""
    (folder / name).write_text(content)
    await git("add", name, folder=folder)
    await git("commit", "--quiet", "-m", f"Change {name}", folder=folder)
    return (await git("rev-parse", "HEAD", folder=folder)).out


@pytest.fixture
def hosts(database: Database, make: DataFactory, tmp_path: Path, bucket: Bucket) -> Iterator[Hosts]:
    """An instance without hosts that run. Use it on PostgreSQL."""
    found = Hosts(tmp_path, database, bucket, make)
    yield found
    found.close()
