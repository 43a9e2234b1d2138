"""Clients of subscriptions, and a server that is stopped and killed while builds change.

Each client resumes by its own means. The events that it received are compared with the changes: each once, in order.
"""

import asyncio
import importlib.util
import json
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import httpx
from typer.testing import CliRunner

from forgefront.cli import main
from storage import tables
from tests.forgefront.support.browser import BrowserPage
from tests.make import DataFactory, token_of
from tests.support.api_clients import Ask
from tests.support.database.databases import free_port
from tests.support.servers.server_process import run_server

CHANGES = "subscription Changes { buildChanged { seq build { databaseId } } }"
UPDATE = "mutation($i: UpdateBuildInput!) { updateBuild(input: $i) { userErrors { message } } }"
FETCHER = Path(__file__).parents[3] / "forgefront" / "pages" / "graphiql" / "fetcher.js"
WAIT_SECONDS = 60.0


class StreamClient(Protocol):
    """A client that runs in the background; `seen` grows with the ids of the builds of its events."""

    received_ids: list[int]

    async def check(self) -> None:
        """Raises what has ended it."""

    async def close(self) -> None: ...


class NodeStreamClient:
    """A client of npm's in a process of its own; see `clients/follow.mjs`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.received_ids: list[int] = []
        self._process = process
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, folder: Path, kind: str, url: str, token: str) -> "NodeStreamClient":
        command = ("node", "follow.mjs", kind, f"{url}/graphql", token, str(FETCHER))
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=pipe, stderr=pipe))

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.received_ids.append(int(line))

    async def check(self) -> None:
        if self._process.returncode is not None:
            assert self._process.stderr is not None
            raise AssertionError((await self._process.stderr.read()).decode())

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading


class PageStreamClient:
    """The stream reader of the pages (`pages/static/live.js`) in a browser; it must report no gap after any disconnect."""

    def __init__(self, page: BrowserPage) -> None:
        self.received_ids: list[int] = []
        self._page = page
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, page: BrowserPage, url: str, token: str, path: str) -> "PageStreamClient":
        await page.open(f"{url}/-/health")
        await page.wait_for("location.pathname === '/-/health' && document.body")
        session = json.dumps({"token": token, "until": None})
        await page.evaluate(f"sessionStorage.setItem('forgefront.session', {json.dumps(session)})")
        variables = json.dumps({"path": path})
        await page.evaluate(
            "Object.assign(window, {seen: [], gaps: 0}) && await import('/-/pages/live.js').then(({follow}) => follow('build', 'Changed',"
            f" {variables}, {{event: (data) => seen.push(data.buildChanged.build.databaseId), gap: () => gaps++, state: () => 0}},"
            " new AbortController().signal))"
        )
        return cls(page)

    async def _read(self) -> None:
        while True:
            self.received_ids, gaps = await self._page.evaluate("[seen, gaps]")
            assert gaps == 0
            await asyncio.sleep(0.1)

    async def check(self) -> None:
        if self._reading.done():
            self._reading.result()

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


class AsyncStreamClient:
    """The asynchronous client that `forgefront client` prints."""

    def __init__(self, module: ModuleType, url: str, token: str) -> None:
        self.received_ids: list[int] = []
        self._task = asyncio.create_task(self._follow(module, url, token))

    async def _follow(self, module: Any, url: str, token: str) -> None:
        async with module.AsyncClient(url, token) as client:
            async for change in client.changes():
                self.received_ids.append(change.build_changed.build.database_id)

    async def check(self) -> None:
        if self._task.done():
            self._task.result()
            raise AssertionError("the client took the subscription for ended")

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class ThreadStreamClient:
    """The synchronous client that `forgefront client` prints, in a thread, which ends with the process."""

    def __init__(self, module: ModuleType, url: str, token: str) -> None:
        self.received_ids: list[int] = []
        self._ended: BaseException | None = None
        threading.Thread(target=self._follow, args=(module, url, token), daemon=True).start()

    def _follow(self, module: Any, url: str, token: str) -> None:
        try:
            with module.Client(url, token) as client:
                for change in client.changes():
                    self.received_ids.append(change.build_changed.build.database_id)
            raise AssertionError("the client took the subscription for ended")
        except BaseException as error:
            self._ended = error

    async def check(self) -> None:
        if self._ended is not None:
            raise self._ended

    async def close(self) -> None:
        """It sees the end of its server; nothing is left to be closed."""


@contextmanager
def generated_client(folder: Path) -> Any:
    """The module that `forgefront client` prints for CHANGES."""
    (folder / "operations").mkdir()
    (folder / "operations" / "changes.graphql").write_text(CHANGES)
    path = folder / "restarted_client.py"
    result = CliRunner().invoke(main, ["client", str(folder / "operations"), "--output", str(path)])
    assert result.exit_code == 0, result.output
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[path.stem]


@dataclass
class RestartScenario:
    """A server that is started again and again at one address. `started` are the builds that have changed, in order."""

    make: DataFactory
    ask: Ask
    database_url: str
    folder: Path
    owner: tables.User
    project: tables.Project
    port: int = field(default_factory=free_port)
    changed_build_ids: list[int] = field(default_factory=list)
    clients: dict[str, StreamClient] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return token_of(self.owner)

    async def run(self, restarts: int, start: Callable[["RestartScenario"], Any]) -> None:
        """`start` makes the followers once the server answers. Stops and kills take turns."""
        async with AsyncExitStack() as stack:
            for restart in range(restarts + 1):
                with run_server(self.folder, self.database_url, port=self.port) as server:
                    if restart == 0:
                        await start(self)
                        for follower in self.clients.values():
                            stack.push_async_callback(follower.close)
                        await self._wait_until_connected()
                    else:
                        # What happened while the server was away.
                        await self._wait_for_events()
                        await self._change_build()
                        await self._wait_for_events()
                    if restart == restarts:
                        return
                    if restart:
                        # On its way, or not yet, when the server goes.
                        await self._change_build()
                    server.process.send_signal((signal.SIGTERM, signal.SIGKILL)[restart % 2])
                    await asyncio.to_thread(server.process.wait, 30)
                await self._change_build()

    async def _change_build(self) -> None:
        """Has another build run: by this process, so that the server need not be there."""
        build = await self.make.build(self.project, "f" * 40)
        sent = {"projectPath": str(build.project_id), "databaseId": build.id, "status": "RUNNING"}
        assert await self.ask.data(UPDATE, self.owner, i=sent) == {"updateBuild": {"userErrors": []}}
        self.changed_build_ids.append(build.id)

    async def _wait_until_connected(self) -> None:
        async with httpx.AsyncClient() as client, asyncio.timeout(WAIT_SECONDS):
            sockets = sum(name.endswith("graphql-ws") for name in self.clients)
            # A WebSocket has a place of its own besides that of its stream.
            expected_metric = f"forgefront_graphql_streams {len(self.clients) + sockets}.0"
            while expected_metric not in (await client.get(f"{self.url}/-/metrics")).text:
                for follower in self.clients.values():
                    await follower.check()
                await asyncio.sleep(0.05)

    async def _wait_for_events(self) -> None:
        """Waits until each client has received as many events as there were changes, and compares them."""
        for name, follower in self.clients.items():
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    while len(follower.received_ids) < len(self.changed_build_ids):
                        await follower.check()
                        await asyncio.sleep(0.02)
            except TimeoutError:
                missed = {
                    each: [id for id in self.changed_build_ids if id not in other.received_ids] for each, other in self.clients.items()
                }
                raise AssertionError(
                    f"{name} did not receive all in time; of {self.changed_build_ids[-5:]} still to come: {missed}"
                ) from None
            assert follower.received_ids == self.changed_build_ids, name
