"""A disk that fills up under a running server: writes are refused, reads go on, nothing is half-written (R11)."""

import asyncio
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlmodel import col, select

from storage import integrity, tables
from storage.database.engine import Database
from tests.make import DataFactory, token_of
from tests.support.merge_requests import MergeRequestFactory
from tests.support.reliability_promises import promise
from tests.support.servers.server_process import CLIENT_SECONDS, run_server

DISK_MEGABYTES = 64
REFUSALS = {503, 507}
HEALED_SECONDS = 10.0
"""After space is back, every kind of write works by then."""
ROUNDS = 3
READS_SECONDS = 2.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own at `tmp_path`; request it before fixtures that create files there."""
    mounted = shutil.which("mount") and os.getuid() == 0
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "tmpfs", str(tmp_path)]
    if not mounted or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("NOT RUN: needs the right to mount a tmpfs")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill(disk: Path) -> Path:
    """Takes all space that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return filler


@dataclass
class DiskFullClient:
    """One client that does each kind of write; `statuses` counts the answers of each kind."""

    client: httpx.AsyncClient
    project: tables.Project
    user: tables.User
    clone: Path
    merges: MergeRequestFactory
    builds: list[tables.Build]
    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    titles: dict[str, int] = field(default_factory=dict)
    pushed: list[str] = field(default_factory=list)
    artifacts: set[int] = field(default_factory=set)
    number: int = 0

    async def each(self) -> dict[str, int]:
        """Does every kind once, at the same time; the status of each."""
        self.number += 1
        kinds = (self.issue, self.note, self.upload, self.push, self.merge, self.artifact, self.create_project)
        found = dict(zip([kind.__name__ for kind in kinds], await asyncio.gather(*(kind() for kind in kinds)), strict=True))
        for name, status in found.items():
            self.statuses.setdefault(name, Counter())[status] += 1
        return found

    async def issue(self) -> int:
        title = f"written {self.number}"
        response = await self.post(f"/api/v3/projects/{self.project.id}/issues", json={"title": title, "labels": "full"})
        if response.is_success:
            self.titles[title] = response.json()["iid"]
        return response.status_code

    async def note(self) -> int:
        text = f"note {self.number} " * 2000
        return (await self.post(f"/api/v3/projects/{self.project.id}/issues/1/notes", json={"body": text})).status_code

    async def upload(self) -> int:
        files = {"file": ("a.bin", os.urandom(2**18))}
        return (await self.post(f"/api/v3/projects/{self.project.id}/uploads", files=files)).status_code

    async def create_project(self) -> int:
        return await self.graph("createProject", {"name": f"made {self.number}", "path": f"made-{self.number}"}, "project { id }")

    async def merge(self) -> int:
        row = next((row for row in await self.open_merge_requests()), None)
        if row is None:
            return 0
        input = {"projectPath": str(self.project.id), "databaseId": row.id}
        return await self.graph("acceptMergeRequest", input, "mergeRequest { state }")

    async def artifact(self) -> int:
        build = self.builds[self.number]
        input = {"projectPath": str(self.project.id), "databaseId": build.id, "filename": "a.bin"}
        response = await self.post("/graphql", json=document("createArtifactUpload", input, "upload { url }"))
        if status := refused(response):
            return status
        url = response.json()["data"]["createArtifactUpload"]["upload"]["url"]
        sent = await self.client.put(url, content=os.urandom(2**18))
        if sent.is_success:
            self.artifacts.add(build.id)
        return sent.status_code

    async def push(self) -> int:
        """200 for a push that git calls done; the status that the server named in its refusal otherwise."""
        file = self.clone / "pushed.bin"
        file.write_bytes(os.urandom(2**18))
        await self.git("add", ".")
        await self.git("commit", "--quiet", "-m", f"Push {self.number}")
        done = await self.git("push", "--quiet", "origin", f"HEAD:refs/heads/pushed-{self.number}", check=False)
        if done.returncode == 0:
            self.pushed.append((await self.git("rev-parse", "HEAD")).stdout.strip())
            return 200
        full = any(word in done.stderr for word in ("No space left", "full", "507", "503"))
        return 507 if full else 500

    async def git(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        who = ("-c", "user.name=P", "-c", "user.email=p@example.org", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(self.clone), *who, *arguments]
        return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=check)

    async def open_merge_requests(self) -> list[tables.MergeRequest]:
        statement = select(tables.MergeRequest).where(col(tables.MergeRequest.state) == tables.MergeRequestState.OPENED)
        async with self.merges.services.database.read_session() as session:
            return [row for (row,) in (await session.execute(statement)).all()]

    async def graph(self, mutation: str, input: dict[str, Any], selection: str) -> int:
        return refused(await self.post("/graphql", json=document(mutation, input, selection))) or 200

    async def post(self, path: str, **content: Any) -> httpx.Response:
        return await self.client.post(path, headers={"PRIVATE-TOKEN": token_of(self.user)}, **content)


def document(mutation: str, fields: dict[str, Any], selection: str) -> dict[str, Any]:
    name = mutation[0].upper() + mutation[1:]
    text = f"mutation ($input: {name}Input!) {{ {mutation}(input: $input) {{ {selection} userErrors {{ code message }} }} }}"
    return {"query": text, "variables": {"input": fields}}


def refused(response: httpx.Response) -> int:
    """The HTTP status that corresponds to an answer of the graph; 0 for success."""
    answer = response.json()
    if not answer.get("errors"):
        payload = next(iter(answer["data"].values()))
        return 400 if payload["userErrors"] else 0
    return 503 if {each["extensions"]["code"] for each in answer["errors"]} == {"UNAVAILABLE"} else 500


async def read(client: httpx.AsyncClient, project: tables.Project, user: tables.User) -> float:
    """Reads a list, a commit and a clone's refs; the seconds of the slowest."""
    slowest = 0.0
    for path in (f"/api/v3/projects/{project.id}/issues", f"/api/v3/projects/{project.id}/repository/commits"):
        started = time.monotonic()
        response = await client.get(path, headers={"PRIVATE-TOKEN": token_of(user)})
        assert response.status_code == 200, response.text
        slowest = max(slowest, time.monotonic() - started)
    return slowest


@promise("R11")
async def test_full_disk(
    small_disk: Path,
    make: DataFactory,
    database: Database,
    database_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    figure: Callable[[str], None],
) -> None:
    """On PostgreSQL its own data lie elsewhere: repositories, artifacts and uploads are on the full disk."""
    user = await make.user()
    project = await make.project(history={"commits": 4}, members=[(user, tables.AccessLevel.MASTER)])
    await make.issue(project)
    merges = MergeRequestFactory(make, project, user)
    for number in range(ROUNDS * 8):
        await merges.proposal(f"branch{number}")
    builds = [await make.build(project, "a" * 40) for _ in range(ROUNDS * 40)]
    clone = tmp_path_factory.mktemp("clone") / "clone"
    healed: list[float] = []
    slowest = 0.0
    with run_server(small_disk, database_url, tmp_path_factory.mktemp("log") / "serve.log") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=CLIENT_SECONDS) as client:
            body = {"query": f'{{ project(path: "{project.id}") {{ fullPath }} }}'}
            answer = (await client.post("/graphql", json=body, headers={"PRIVATE-TOKEN": token_of(user)})).json()
            url = f"{server.url.replace('://', f'://git:{token_of(user)}@')}/{answer['data']['project']['fullPath']}.git"
            await asyncio.to_thread(subprocess.run, ["git", "clone", "--quiet", url, str(clone)], check=True)
            writes = DiskFullClient(client, project, user, clone, merges, builds)
            assert set((await writes.each()).values()) <= {200, 201}
            for _ in range(ROUNDS):
                filler = fill(small_disk)
                for _ in range(8):
                    found = await writes.each()
                    wrong = {name: status for name, status in found.items() if status not in {0, 200, 201, *REFUSALS}}
                    assert not wrong, (wrong, server.log_entries(level="error"))
                    slowest = max(slowest, await read(client, project, user))
                filler.unlink()
                freed = time.monotonic()
                while not set((found := await writes.each()).values()) <= {0, 200, 201}:
                    assert time.monotonic() - freed < HEALED_SECONDS, found
                    await asyncio.sleep(0.1)
                healed.append(time.monotonic() - freed)
        failures = [line for line in server.log_entries() if "exception" in line]
        assert (await server.stop())[0] == 0

    assert failures == []
    assert slowest < READS_SECONDS
    assert {503, 507} & set(writes.statuses["upload"]), "the disk was not full"
    await check_consistency(writes, make, small_disk)
    summary = ", ".join(f"{name} {dict(sorted(counts.items()))}" for name, counts in writes.statuses.items())
    figure(f"{ROUNDS} times full: {summary}; slowest read {slowest:.2f} s; all works {max(healed):.1f} s after space is back")


def check_repository(repository: Path, pushed: list[str]) -> None:
    for arguments in (["fsck", "--full", "--strict", "--no-dangling"], *(["cat-file", "-e", oid] for oid in pushed)):
        done = subprocess.run(["git", "-C", str(repository), *arguments], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


async def check_consistency(writes: DiskFullClient, make: DataFactory, disk: Path) -> None:
    database = make.services.database
    assert await integrity.find_broken_pages(database) == []
    assert await integrity.find_broken_references(database) == []
    async with database.read_session() as session:
        statement = select(col(tables.Issue.title), col(tables.Issue.iid)).where(col(tables.Issue.title).startswith("written "))
        stored = dict(map(tuple, (await session.execute(statement)).all()))
        artifacts = [row for (row,) in (await session.execute(select(tables.Artifact))).all()]
    assert {title: stored.get(title) for title in writes.titles} == writes.titles
    assert sorted(stored.values()) == list(range(2, len(stored) + 2)), "a number was lost"
    for row in artifacts:
        assert (disk / "artifacts" / row.key[:2] / row.key).stat().st_size == row.size
    assert writes.artifacts <= {row.build_id for row in artifacts}
    repository = make.services.repositories.path_of(writes.project.id)
    await asyncio.to_thread(check_repository, repository, writes.pushed)
    left = [path for folder in ("artifacts", "uploads") for path in (disk / folder).rglob(".*") if path.is_file()]
    assert left == []
    quarantines = list((repository / "objects").glob("tmp_objdir*")) + list((repository / "objects").glob("incoming-*"))
    assert quarantines == []
