"""`forgefront serve` as a process that tests load, kill and restart."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from storage import tables
from storage.secrets import KEY_FILE
from tests.make import DataFactory, token_of
from tests.support.reliability_promises import COUNT_SHARE
from tests.support.servers.fork_server import start_program

READY = "Ctrl-C stops it.\n"
CLIENT_SECONDS = 30.0
"""A request without a response after this time counts as hanging."""
MAX_START_SECONDS = 60.0
WARM_UP = str(bool(COUNT_SHARE)).lower()
"""Takes a quarter of a core as long as a server of an ordinary test runs; what is measured runs as with users."""


@dataclass
class ServerProcess:
    """A running server. `seconds` is the time from the start of its process to its first response."""

    process: subprocess.Popen[str]
    url: str
    seconds: float
    log: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    async def stop(self) -> tuple[int, float]:
        """Sends SIGTERM; returns the exit code, and the seconds until then."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(self.process.wait, 30)
        return code, time.monotonic() - started

    def log_entries(self, **wanted: Any) -> list[dict[str, Any]]:
        """The lines of its log that have these values."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if all(line.get(key) == value for key, value in wanted.items())]

    def client(self, connections: int = 64) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        return httpx.AsyncClient(base_url=f"{self.url}/api/v3", limits=limits, timeout=CLIENT_SECONDS)


@contextmanager
def run_server(
    folder: Path, database_url: str, log: Path | None = None, *, port: int = 0, revisions: Path | None = None, **settings: str
) -> Iterator[ServerProcess]:
    """The server over this folder and database, ready; killed at the end unless it has ended. Its log is in the folder by default.

    `revisions` is the folder of those of another version of the program; `settings` are FORGEFRONT_ variables.
    """
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FORGEFRONT_")},
        "FORGEFRONT_DATABASE_URL": database_url,
        "FORGEFRONT_HOOKS_ALLOW_LOCAL": "true",
        "FORGEFRONT_RATE_LIMIT": "0",
        "FORGEFRONT_WARM_UP": WARM_UP,
        **{f"FORGEFRONT_{name.upper()}": value for name, value in settings.items()},
    }
    log = log or folder / "serve.log"
    started = time.monotonic()
    with log.open("w") as errors:
        module = ("forgefront.cli",) if revisions is None else ("tests.support.database.other_version", revisions)
        pipes: dict[str, Any] = {"env": environment, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
        process = start_program(*module, "serve", "--data", folder, "--port", port, **pipes)
    assert process.stdout is not None
    try:
        output: list[str] = []
        for line in process.stdout:
            output.append(line)
            if line == READY:
                break
        assert output, log.read_text()
        url = output[0].split()[-1]
        # A check may take too long on a busy machine.
        while (response := httpx.get(f"{url}/-/readiness", timeout=CLIENT_SECONDS)).status_code != 200:
            assert time.monotonic() < started + MAX_START_SECONDS, response.text
        yield ServerProcess(process, url, time.monotonic() - started, log)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def create_data_folder(place: Path) -> Path:
    """A new data folder in that of the services, with their key: a server with another one is refused."""
    folder = place / "data"
    folder.mkdir()
    shutil.copy(place / KEY_FILE, folder)
    return folder


@dataclass
class WriteLog:
    """The responses to writers: the number (`iid`) of each acknowledged title and its time, seconds by request, and other responses."""

    iids: dict[str, int] = field(default_factory=dict)
    acknowledged_at: dict[str, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    refusals: list[httpx.Response] = field(default_factory=list)
    unanswered: Counter[str] = field(default_factory=Counter)

    @property
    def statuses(self) -> Counter[int]:
        return Counter(response.status_code for response in self.refusals)

    def percentile(self, part: float) -> float:
        return sorted(self.seconds)[int(len(self.seconds) * part)] if self.seconds else 0.0

    async def create_issue(self, client: httpx.AsyncClient, project_id: int, user: tables.User, title: str) -> bool:
        """Creates an issue with two labels, once; returns whether there was a response."""
        body = {"title": title, "labels": f"all,{user.username}"}
        return await self._post(client, f"/projects/{project_id}/issues", user, body, title, "iid")

    async def create_note(self, client: httpx.AsyncClient, issue: tables.Issue, user: tables.User, body: str) -> bool:
        """Creates a note, whose id is recorded as its number, once; returns whether there was a response."""
        return await self._post(client, f"/projects/{issue.project_id}/issues/{issue.id}/notes", user, {"body": body}, body, "id")

    async def _post(self, client: httpx.AsyncClient, path: str, user: tables.User, body: Any, title: str, number: str) -> bool:
        started = time.monotonic()
        try:
            response = await client.post(path, json=body, headers={"PRIVATE-TOKEN": token_of(user)})
        except httpx.TransportError as error:
            self.unanswered[type(error).__name__] += 1
            return False
        self.seconds.append(time.monotonic() - started)
        if response.is_success:
            self.iids[title] = response.json()[number]
            self.acknowledged_at[title] = time.monotonic()
        else:
            self.refusals.append(response)
        return True


async def create_writers(make: DataFactory, number: int) -> tuple[tables.Project, list[tables.User]]:
    """A project and the users who may write into it."""
    users = [await make.user() for _ in range(number)]
    return await make.project(members=[(user, tables.AccessLevel.MASTER) for user in users]), users


async def run_for_each(users: list[tables.User], work: Callable[[tables.User], Awaitable[None]]) -> None:
    """Runs `work` for every user concurrently."""
    async with asyncio.TaskGroup() as group:
        for user in users:
            group.create_task(work(user))  # type: ignore[arg-type]
