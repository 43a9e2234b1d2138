"""An instance that is imported, served on a port, and the import of it in this process."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import httpx
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from forgefront.app import create_app
from forgefront.backend import Backend
from forgefront.commands.instance_import import run_import
from forgefront.config import Config
from forgefront.importing.import_rehearsal import ImportRehearsal
from forgefront.importing.import_report import ImportReport
from forgefront.importing.import_run import ImportOptions, ImportProgress
from forgefront.importing.source_client import SourceClient
from forgefront.importing.source_instance import open_source
from storage import tables
from storage.git.repository import Repository
from tests.make import DataFactory

Answer = tuple[int, bytes, list[tuple[bytes, bytes]]]
REQUESTS_PER_WRITE = 2
Sabotage = Callable[[str, dict[str, list[str]]], Answer | None]
"""What a hostile source answers to a path with these parameters; None lets the real one answer."""


class SourceApp:
    """The application of the source: `sudo` as servers of that time know it, and answers that are replaced."""

    def __init__(self, app: ASGIApp, tokens: dict[int, str] | None = None, sabotage: Sabotage | None = None) -> None:
        self.app = app
        self.tokens = tokens or {}
        self.sabotage = sabotage
        self.paths: list[str] = []
        self.writes: AsyncIterator[None] | None = None
        """Makes a write at each step, after every few requests."""
        self._is_writing = False

    async def write(self) -> None:
        if self.writes is not None and not self._is_writing and len(self.paths) % REQUESTS_PER_WRITE == 0:
            self._is_writing = True
            try:
                await anext(self.writes, None)
            finally:
                self._is_writing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["raw_path"].decode()
        self.paths.append(path)
        query = parse_qs(scope["query_string"].decode())
        if self.sabotage is not None and (answer := self.sabotage(path, query)) is not None:
            status, body, headers = answer
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json"), *headers]})
            await send({"type": "http.response.body", "body": body})
            return
        if path == "/api/v3/user" and (token := self.tokens.get(int(query.get("sudo", ["0"])[0]))):
            headers = [(name, value) for name, value in scope["headers"] if name != b"private-token"]
            scope = {**scope, "headers": [*headers, (b"private-token", token.encode())], "query_string": b""}
        await self.app(scope, receive, send)
        await self.write()


@asynccontextmanager
async def serve_app(app: ASGIApp, listening: socket.socket | None = None) -> AsyncIterator[str]:
    """Serves an application in this process; gives its address."""
    listening = listening or socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listening.close()


@asynccontextmanager
async def serve_source(
    config: Config,
    *,
    tokens: dict[int, str] | None = None,
    sabotage: Sabotage | None = None,
    ssh_listener: socket.socket | None = None,
) -> AsyncIterator[tuple[str, SourceApp]]:
    """Serves the instance of a configuration."""
    app = create_app(config, ssh_listener=ssh_listener)
    await app.start()
    source = SourceApp(app, tokens, sabotage)
    try:
        async with serve_app(source) as address:
            yield address, source
    finally:
        await app.stop()


def head_of(make: DataFactory, project: tables.Project) -> str:
    """The newest commit of the project's default branch."""
    branches = Repository.open(make.services.repositories.path_of(project.id)).branches()
    return next(branch.oid for branch in branches if branch.name == project.default_branch)


async def write_through_v3(app: ASGIApp, token: str, admin_token: str, project_id: int, oid: str, rounds: int) -> AsyncIterator[None]:
    """Writes of every kind to a project, one at each step. `oid` is a commit of it; nothing is deleted."""
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://old.example/api/v3") as client:

        async def call(method: str, path: str, **values: Any) -> Any:
            headers = {"PRIVATE-TOKEN": admin_token if path == "/users" else token}
            response = await client.request(method, path.replace(":id", f"/projects/{project_id}"), json=values, headers=headers)
            assert response.is_success, (method, path, response.text)
            return response.json()

        issues = await call("GET", ":id/issues")
        yield
        for number in range(rounds):
            issue = await call("POST", ":id/issues", title=f"Meanwhile {number}", labels=f"bug,new{number}", description="D")
            yield
            branch = {"branch_name": f"meanwhile{number}", "commit_message": "Meanwhile"}
            await call("POST", ":id/repository/branches", branch_name=branch["branch_name"], ref="master")
            yield
            for note, path in ((f"On a new one {number}", issue["id"]), (f"On an old one {number}", issues[number]["id"])):
                await call("POST", f":id/issues/{path}/notes", body=note)
                yield
            await call("POST", ":id/repository/files", file_path=f"new{number}.txt", content="x", **branch)
            yield
            request = await call("POST", ":id/merge_requests", source_branch=branch["branch_name"], target_branch="master", title="M")
            yield
            await call("POST", f":id/merge_requests/{request['id']}/notes", body="Noted")
            yield
            await call("PUT", f":id/issues/{issues[-1 - number]['id']}", state_event="close", title=f"Changed {number}", assignee_id=1)
            yield
            snippet = await call("POST", ":id/snippets", title="S", file_name="a.txt", code="one", visibility_level=0)
            yield
            await call("POST", f":id/statuses/{oid}", state="success", name=f"check{number}")
            yield
            await call("PUT", f":id/snippets/{snippet['id']}", code=f"two {number}")
            await call("POST", ":id/milestones", title=f"Milestone {number}")
            yield
            await call("POST", f":id/repository/commits/{oid}/comments", note=f"Comment {number}")
            await call("POST", ":id/labels", name=f"label {number}", color="#aabbcc")
            yield
            user = {"username": f"late{number}", "email": f"late{number}@example.org", "password": "long enough 1", "name": "Late"}
            person = await call("POST", "/users", **user)
            yield
            await call("POST", ":id/members", user_id=person["id"], access_level=20)
            yield
            await call("POST", "/projects", name=f"late{number}")
            yield


@asynccontextmanager
async def open_backend(config: Config) -> AsyncIterator[Backend]:
    backend = Backend(config)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.stop()


async def skip_waiting(_: float) -> None:
    await asyncio.sleep(0)


async def import_from(
    address: str,
    token: str,
    backend: Backend,
    *,
    parallel: int = 4,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    **options: Any,
) -> ImportReport:
    """A run of an import into a started backend."""
    client = SourceClient(address, token, 10_000, parallel, sleep=sleep)
    report = ImportReport(address, keeps_ids=options.get("keeps_ids", False))
    try:
        source = await open_source(client)
        report.api = str(source.api)
        progress = ImportProgress(lambda *_: None, is_terminal=False)
        await run_import(backend, source, ImportOptions(**options), report, progress, clones=2)
    finally:
        await client.aclose()
        report.requests = client.requests
    return report


NOT_REHEARSED = {
    "notes", "traces", "attached files", "commit statuses", "commit comments", "pipelines", "wikis", "LFS objects",
}  # fmt: skip


async def rehearse(address: str, token: str, **options: Any) -> ImportReport:
    """A run with --dry-run."""
    report = ImportReport(address, is_dry_run=True)
    client = SourceClient(address, token, 10_000, 4)
    try:
        source = await open_source(client)
        progress = ImportProgress(lambda *_: None, is_terminal=False)
        await ImportRehearsal(source, report, progress, ImportOptions(**options)).count_all()
    finally:
        await client.aclose()
    return report


def check_rehearsal(
    rehearsal: ImportReport, report: ImportReport, *, left_out: frozenset[str] = frozenset(), compares_left: bool = True
) -> None:
    """The rehearsal counted what the first run then read, and named what it left behind, except the kinds that it reports as not counted.

    `compares_left` is false for a target in use, where names may be taken.
    """
    without = NOT_REHEARSED | left_out
    expected, counted = [
        {kind: count.read for kind, count in each.counts.items() if count.read and kind not in without} for each in (report, rehearsal)
    ]
    assert counted == expected, counted.items() ^ expected.items()
    assert sum(count.created + count.updated + count.unchanged for count in rehearsal.counts.values()) == 0
    expected_left, left = [
        {(each.kind, each.where) for each in found.omissions if each.kind not in without} for found in (report, rehearsal)
    ]
    assert not compares_left or left == expected_left, left ^ expected_left
    assert rehearsal.is_complete
