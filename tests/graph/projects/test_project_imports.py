"""Imports of repositories from other hosts."""

import asyncio
import base64
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from benchmarks.peers.git_http_backend import CgiHandler
from graph.context import Services
from graph.events.address_guard import AddressGuard
from graph.git_access import GitAccess
from graph.jobs.import_polls import UNEXPECTED_MESSAGE
from graph.jobs.lease_renewal import LeaseLost
from graph.operations.execution import Graph
from graph.rules.git import ref_updates
from graph.rules.projects import project_imports
from storage import tables
from storage.git.importing import remote_import
from storage.git.protocol.push import RefCommand
from storage.tables import AccessLevel
from tests.make import DataFactory, token_of
from tests.support.api_clients import Ask
from tests.support.git.git_history import commit_files, git, make_history
from tests.support.waiting import wait_until

CREATE = """mutation ($input: CreateProjectInput!) { createProject(input: $input) {
    project { databaseId repositoryImport { state } } userErrors { field message code } } }"""
UPDATE = "mutation ($input: UpdateProjectInput!) { updateProject(input: $input) { userErrors { field message } } }"
IMPORT = """query ($path: String!) { project(path: $path) {
    defaultBranch branches(first: 9) { nodes { name } } commits(first: 1) { nodes { oid } }
    repositoryImport { state url phase processed total error finishedAt } } }"""
AUTHORIZATION = f"Basic {base64.b64encode(b'ada:secret word').decode()}"


class ProtectedHandler(CgiHandler):
    """Serves git to callers with the credentials, below `/open` to all; `/away` redirects."""

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        if self.path.startswith("/away"):
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/open.git/info/refs?service=git-upload-pack")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path.startswith("/open") or self.headers.get("Authorization") == AUTHORIZATION:
            super().do_GET()
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """The port of a git server with the repositories open.git and closed.git, and the commit of their HEAD, which is not master."""
    root: Path = tmp_path_factory.mktemp("remote")
    for name in ("open", "closed"):
        path = make_history(root / f"{name}.git", commits=8).path
        git(path, "symbolic-ref", "HEAD", "refs/heads/topic")
    handler = type("Handler", (ProtectedHandler,), {"root": str(root)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1], git(root / "open.git", "rev-parse", "HEAD")
    server.shutdown()
    server.server_close()


async def resolve_locally(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture
def open_services(make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> Services:
    """Services that may connect to the local host, under every name."""
    guard = AddressGuard(allow_local=True, resolve=resolve_locally)
    monkeypatch.setattr(make.services.outbox.sender, "guard", guard)
    return make.services


async def create(ask: Ask, user: tables.User, url: str) -> int:
    payload = (await ask.data(CREATE, user, input={"name": "App", "importUrl": url}))["createProject"]
    assert payload["userErrors"] == []
    assert payload["project"]["repositoryImport"] == {"state": "QUEUED"}
    return int(payload["project"]["databaseId"])


async def read_import(ask: Ask, user: tables.User, project_id: int) -> dict[str, Any]:
    shown: dict[str, Any] = (await ask.data(IMPORT, user, path=str(project_id)))["project"]
    return shown


class TestImport:
    async def test_copies_branches_tags_and_head(
        self, ask: Ask, make: DataFactory, open_services: Services, host: tuple[int, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        port, head = host
        monkeypatch.setattr(project_imports, "REPORT_SECONDS", 0.01)
        user, guest = await make.user(), await make.user()
        key = await create(ask, user, f"http://ada:secret%20word@code.invalid:{port}/closed.git")
        project = await make.fetch(tables.Project, key)
        assert project is not None
        await make.member(project, guest, AccessLevel.DEVELOPER)

        await project_imports.run_pending(open_services)

        shown = await read_import(ask, user, key)
        state = shown["repositoryImport"]
        assert (state["state"], state["url"], state["error"]) == ("FINISHED", f"http://code.invalid:{port}/closed.git", None)
        assert state["finishedAt"] is not None
        assert shown["defaultBranch"] == "topic"
        assert {each["name"] for each in shown["branches"]["nodes"]} == {"master", "topic"}
        assert [each["oid"] for each in shown["commits"]["nodes"]] == [head]
        row = await make.fetch(tables.ProjectImport, 1)
        assert row is not None and row.sealed_credentials is None
        assert (await read_import(ask, guest, key))["repositoryImport"] is None
        again = await ask.data(UPDATE, user, input={"projectPath": str(key), "importUrl": f"http://code.invalid:{port}/open.git"})
        assert again["updateProject"]["userErrors"] == [{"field": "importUrl", "message": "can be set only while the repository is empty"}]

    async def test_reports_failures_and_starts_again(
        self, ask: Ask, make: DataFactory, open_services: Services, host: tuple[int, str]
    ) -> None:
        port, _ = host
        user = await make.user()
        key = await create(ask, user, f"http://code.invalid:{port}/closed.git")
        urls = {"wrong": f"http://x:wrongpass@code.invalid:{port}/closed.git", "none": f"http://code.invalid:{port}/open-none.git"}
        urls |= {"redirect": f"http://code.invalid:{port}/away.git", "good": f"http://code.invalid:{port}/open.git"}

        for name, url in urls.items():
            await project_imports.run_pending(open_services)
            failed = (await read_import(ask, user, key))["repositoryImport"]
            assert (failed["state"], failed["error"][:34]) == ("FAILED", "The repository cannot be imported:"), name
            assert "wrongpass" not in failed["error"]
            payload = await ask.data(UPDATE, user, input={"projectPath": str(key), "importUrl": url})
            assert payload["updateProject"]["userErrors"] == []
        await project_imports.run_pending(open_services)

        assert (await read_import(ask, user, key))["repositoryImport"]["state"] == "FINISHED"

    async def test_of_inner_addresses_is_refused(self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        user = await make.user()
        for url, reason in (
            ("http://127.0.0.1/a.git", "127.0.0.1 is at 127.0.0.1, which is not a public address"),
            ("http://[::1]/a.git", "[::1] is at ::1, which is not a public address"),
            ("file:///etc", "must begin with http:// or https://"),
            ("/etc", "must begin with http:// or https://"),
            ("ext::sh -c id", "must not contain spaces"),
        ):
            payload = (await ask.data(CREATE, user, input={"name": "App", "importUrl": url}))["createProject"]
            assert [(each["field"], each["code"]) for each in payload["userErrors"]] == [("importUrl", "INVALID")], url
            assert payload["userErrors"][0]["message"].endswith(reason[-20:]), payload
        assert await make.count(tables.Project) == 0
        # A name that gets an inner address after the request.
        addresses = [["93.184.216.34"], ["10.0.0.1"]]

        async def resolve(host: str, port: int) -> list[str]:
            return addresses.pop(0)

        monkeypatch.setattr(make.services.outbox.sender, "guard", AddressGuard(resolve=resolve))
        key = await create(ask, user, "http://rebinding.example/a.git")
        await project_imports.run_pending(make.services)
        failed = (await read_import(ask, user, key))["repositoryImport"]
        assert (failed["state"], failed["error"]) == ("FAILED", "rebinding.example is at 10.0.0.1, which is not a public address")

    async def test_keeps_its_lease_while_the_result_is_uploaded(
        self, ask: Ask, make: DataFactory, open_services: Services, host: tuple[int, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        port, _ = host
        user, offset, leases = await make.user(), timedelta(), []
        services = replace(open_services, clock=lambda: open_services.clock() + offset)
        publish = services.repositories.publish_staged
        report = project_imports._report
        renewed = asyncio.Event()

        async def report_and_count(*given: Any) -> None:
            await report(*given)
            renewed.set()

        async def publish_slowly(folder: Path) -> Any:
            nonlocal offset
            for _ in range(3):
                offset += project_imports.LEASE_DURATION * 0.75
                for _ in range(2):
                    renewed.clear()
                    await renewed.wait()
                leases.append(await project_imports._lease_next(services))
            return await publish(folder)

        key = await create(ask, user, f"http://code.invalid:{port}/open.git")
        monkeypatch.setattr(project_imports, "REPORT_SECONDS", 0.02)
        monkeypatch.setattr(project_imports, "_report", report_and_count)
        monkeypatch.setattr(services.repositories, "publish_staged", publish_slowly)
        async with asyncio.timeout(30):
            await project_imports.run_pending(services)

        assert leases == [None] * 3
        assert (await read_import(ask, user, key))["repositoryImport"]["state"] == "FINISHED"

    async def test_that_is_canceled_does_not_wait_for_a_silent_host(
        self, ask: Ask, make: DataFactory, open_services: Services, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(remote_import, "LIST_SECONDS", 20.0)
        connected = asyncio.Event()

        async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.set()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(never_answer, "127.0.0.1", 0)
        try:
            await create(ask, await make.user(), f"http://code.invalid:{server.sockets[0].getsockname()[1]}/open.git")
            running = asyncio.create_task(project_imports.run_pending(open_services))
            async with asyncio.timeout(15):
                await connected.wait()
            running.cancel()
            await wait_until(running.done)
            assert running.cancelled()
        finally:
            server.close()

    async def test_that_fails_unexpectedly_does_not_begin_again(
        self, ask: Ask, make: DataFactory, open_services: Services, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any) -> None:
            raise ValueError("what nobody thought of")

        monkeypatch.setattr(project_imports, "import_remote", fail)
        user = await make.user()
        key = await create(ask, user, "http://code.invalid/open.git")
        await project_imports.run_pending(open_services)
        state = (await read_import(ask, user, key))["repositoryImport"]
        assert (state["state"], state["error"]) == ("FAILED", UNEXPECTED_MESSAGE)

    async def test_that_fails_waits_for_the_one_beside_it(self, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        """Otherwise those that begin after the failure would run beside it."""
        beside, ended = asyncio.Event(), list[bool]()

        async def run_pending(_: Services) -> None:
            if beside.is_set():
                raise RuntimeError("an import fails")
            beside.set()
            try:
                await asyncio.sleep(0.01)
            finally:
                ended.append(True)

        monkeypatch.setattr(project_imports, "run_pending", run_pending)
        with pytest.raises(RuntimeError, match="an import fails"):
            await project_imports.run_forever(make.services)
        assert ended

    async def test_continues_after_a_crash_and_stops_with_its_project(
        self, ask: Ask, make: DataFactory, open_services: Services, host: tuple[int, str]
    ) -> None:
        port, _ = host
        user = await make.user()
        key = await create(ask, user, f"http://code.invalid:{port}/open.git")
        # A process that crashed has the lease.
        assert await project_imports._lease_next(open_services) is not None
        await project_imports.run_pending(open_services)
        assert (await read_import(ask, user, key))["repositoryImport"]["state"] == "RUNNING"
        later = replace(open_services, clock=lambda: open_services.clock() + 2 * project_imports.LEASE_DURATION)
        job = await project_imports._lease_next(later)
        assert job is not None
        delete = "mutation ($path: String!) { deleteProject(input: {projectPath: $path}) { deletedId } }"
        await Ask(Graph(open_services)).data(delete, user, path=str(key))

        with pytest.raises(LeaseLost):
            await project_imports._run(later, job)

        assert await make.count(tables.ProjectImport) == 0
        assert not [path for path in open_services.repositories.root.iterdir() if path.name.startswith(".incoming-")]


class TestPushes:
    async def test_before_an_import_keep_their_objects(
        self, ask: Ask, make: DataFactory, open_services: Services, host: tuple[int, str]
    ) -> None:
        port, _ = host
        user = await make.user()
        key = await create(ask, user, f"http://code.invalid:{port}/open.git")
        tagged, reason = await push(make, user, key, "refs/tags/mine")
        assert reason is None

        await project_imports.run_pending(open_services)

        failed = (await read_import(ask, user, key))["repositoryImport"]
        assert (failed["state"], failed["error"][:44]) == ("FAILED", "Something was pushed while the import ran. D")
        assert git(make.services.repositories.path_of(key), "rev-parse", "--verify", f"{tagged}^{{tree}}")
        payload = await ask.data(UPDATE, user, input={"projectPath": str(key), "importUrl": f"http://code.invalid:{port}/open.git"})
        assert payload["updateProject"]["userErrors"] == [
            {"field": "importUrl", "message": "can be set only while the repository is empty"}
        ]

    async def test_that_wait_for_an_import_keep_their_objects(
        self, ask: Ask, make: DataFactory, open_services: Services, host: tuple[int, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        port, head = host
        user = await make.user()
        key = await create(ask, user, f"http://code.invalid:{port}/open.git")
        prepare = ref_updates.prepare_updates

        async def prepare_then_import(*arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(ref_updates, "prepare_updates", prepare)
            prepared = await prepare(*arguments, **options)
            await project_imports.run_pending(open_services)
            return prepared

        monkeypatch.setattr(ref_updates, "prepare_updates", prepare_then_import)
        pushed, reason = await push(make, user, key, "refs/heads/mine")

        assert reason is None
        shown = await read_import(ask, user, key)
        assert {each["name"] for each in shown["branches"]["nodes"]} == {"master", "mine", "topic"}
        path = make.services.repositories.path_of(key)
        assert git(path, "for-each-ref", "--format=%(objectname)", "refs/heads/mine", "refs/heads/topic").split() == [pushed, head]
        assert git(path, "fsck", "--full", "--no-dangling") == ""


async def push(make: DataFactory, user: tables.User, project_id: int, ref: str) -> tuple[str, str | None]:
    """Pushes a commit to a new ref. Returns its id, and the reason if it was refused."""
    oid = commit_files(make.services.repositories.path_of(project_id), {"file": b"mine"})
    access, project = GitAccess(make.services), await make.fetch(tables.Project, project_id)
    assert project is not None
    grant = await access.authorize_push(f"{user.username}/{project.path}", token_of(user), "test")
    (reason,) = await access.move_refs(grant, [RefCommand(ref, None, oid)], "test", atomic=False)
    await access.finish_push(grant)
    return oid, reason
