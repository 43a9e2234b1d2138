"""Merges of a server that is killed, and concurrent pushes (R6, R7, R8)."""

import asyncio
import contextlib
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select
from sqlmodel import col

from storage import integrity, tables
from storage.database.engine import Database
from storage.tables import AccessLevel, MergeRequestState
from storage.tables.git import commits, refs
from tests.make import DataFactory, token_of
from tests.support.git.hostile_packs import PackWriter
from tests.support.merge_requests import MergeRequestFactory, OpenMergeRequest
from tests.support.reliability_promises import SEEDS, promise, scaled_count
from tests.support.servers.server_process import ServerProcess, run_server
from tests.support.waiting import wait_for_killed_clients

KILLS = scaled_count(50)
ROUNDS = scaled_count(200, 2)
"""Rounds of two merges at once."""
PUSHES_A_SECOND = 20
PUSHERS = 4
"""A push takes several processes, so one after the other would not be as quick."""
AT_ONCE = 8
STATES = "query ($path: String!) { project(path: $path) { mergeRequests(first: 100) { nodes { databaseId state headCommit { oid } } } } }"
HEAD = """query ($path: String!, $name: String!) { project(path: $path) { branch(name: $name) { target { oid } } } }"""
CREATE_BRANCH = "mutation ($input: CreateBranchInput!) { createBranch(input: $input) { branch { name } userErrors { code } } }"
DELETE_BRANCH = "mutation ($input: DeleteBranchInput!) { deleteBranch(input: $input) { branch { name } userErrors { code } } }"
ACCEPT = """mutation ($input: AcceptMergeRequestInput!) {
    acceptMergeRequest(input: $input) { mergeRequest { state } userErrors { code message } } }"""


@dataclass
class MergeLog:
    """The answers to callers: the merge requests that were acknowledged, and the other answers."""

    acknowledged: set[int] = field(default_factory=set)
    refusals: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0

    async def accept(self, client: httpx.AsyncClient, proposal: OpenMergeRequest, user: tables.User) -> str | None:
        """What was answered: MERGED or a code; None without an answer."""
        body = {"query": ACCEPT, "variables": {"input": {"projectPath": str(proposal.row.project_id), "databaseId": proposal.row.id}}}
        try:
            response = await client.post("/graphql", json=body, headers={"PRIVATE-TOKEN": token_of(user)})
        except httpx.TransportError:
            self.unanswered += 1
            return None
        answer = response.json()
        if answer.get("errors"):
            code = str(answer["errors"][0]["extensions"]["code"])
        elif refused := answer["data"]["acceptMergeRequest"]["userErrors"]:
            code = str(refused[0]["code"])
        else:
            code = str(answer["data"]["acceptMergeRequest"]["mergeRequest"]["state"])
        if code == "MERGED":
            self.acknowledged.add(proposal.row.id)
        else:
            self.refusals[code] += 1
        return code


def client_of(server: ServerProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, timeout=30)


async def prepare(make: DataFactory) -> tuple[MergeRequestFactory, list[tables.User]]:
    users = [await make.user() for _ in range(AT_ONCE)]
    project = await make.project(history={"commits": 4}, members=[(user, AccessLevel.DEVELOPER) for user in users])
    return MergeRequestFactory(make, project, users[0]), users


async def git(merges: MergeRequestFactory, *arguments: str) -> str:
    return await git_in(merges.services.repositories.path_of(merges.project.id), *arguments)


async def git_in(repository: Path, *arguments: str, stdin: str = "") -> str:
    command = ["git", "-C", str(repository), *arguments]
    done = await asyncio.to_thread(subprocess.run, command, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def check_linear_history(merges: MergeRequestFactory, start: str) -> int:
    """Master's line of first parents leads to `start`; its length."""
    tip = await merges.tip()
    line = [row.split() for row in (await git(merges, "rev-list", "--first-parent", "--parents", f"{start}..{tip}")).splitlines()]
    assert [parents[1] for parents in line] == [*(parents[0] for parents in line[1:]), start][: len(line)]
    return len(line)


async def disagreements(merges: MergeRequestFactory) -> list[str]:
    """Rows that do not say what the refs do. Call it while nobody writes."""
    repository = merges.services.repositories.path_of(merges.project.id)
    return await find_disagreements(merges.services.database, repository, merges.project.id)


async def find_disagreements(database: Database, repository: Path, project_id: int) -> list[str]:
    """As `disagreements`, also refs whose objects the repository lacks."""
    async with database.read_session() as session:
        statement = select(tables.GitRef.name, tables.GitRef.oid).where(col(tables.GitRef.project_id) == project_id)
        stored = dict(map(tuple, await session.read(statement)))
        heads = dict(map(tuple, await session.read(refs.indexed_heads(project_id))))
        indexed = {oid for (oid,) in await session.read(commits.existing_oids(project_id, list(heads.values())))}
        rows = [row for (row,) in await session.read(select(tables.MergeRequest).where(col(tables.MergeRequest.project_id) == project_id))]
    reachable = set((await git_in(repository, "rev-list", stored["refs/heads/master"])).split())
    found = [f"!{row.iid} is {row.state}" for row in rows if (row.state is MergeRequestState.MERGED) != (row.head_oid in reachable)]
    for row in rows:
        source = stored.get(f"refs/heads/{row.source_branch}")
        if row.state is not MergeRequestState.MERGED and row.head_oid != source:
            found.append(f"!{row.iid} has {row.head_oid}, its branch {source}")
    found += [f"{name} is indexed without its head" for name, oid in heads.items() if oid not in indexed]
    missing = await git_in(repository, "cat-file", "--batch-check", stdin="".join(f"{oid}\n" for oid in stored.values()))
    return found + [line for line in missing.splitlines() if line.endswith("missing")]


class ConsistentReader:
    """Reads merge requests and the head of their target in turn, and compares each two answers.

    A merge request that an answer shows as merged is in the head of a later answer, and one that a head contains is merged in a later one.
    """

    def __init__(self, merges: MergeRequestFactory, user: tables.User) -> None:
        self._merges = merges
        self._user = user
        self._contained: dict[str, set[str]] = {}
        self.answers = 0
        self.wrong: list[str] = []

    async def run(self, client: httpx.AsyncClient) -> None:
        """Reads until there is no answer."""
        with contextlib.suppress(httpx.TransportError):
            while True:
                await self.compare(client)

    async def compare(self, client: httpx.AsyncClient) -> None:
        states, head, later = await self._states(client), await self._head(client), await self._states(client)
        contained = await self._commits_of(head)
        self.wrong += [
            f"!{key} is merged, not in {head}" for key, (state, oid) in states.items() if state == "MERGED" and oid not in contained
        ]
        self.wrong += [f"!{key} is in {head}, not merged" for key, (state, oid) in later.items() if state != "MERGED" and oid in contained]
        self.answers += 3

    async def _ask(self, client: httpx.AsyncClient, query: str, **variables: str) -> Any:
        body = {"query": query, "variables": {"path": str(self._merges.project.id), **variables}}
        response = await client.post("/graphql", json=body, headers={"PRIVATE-TOKEN": token_of(self._user)})
        return response.json()["data"]["project"]

    async def _states(self, client: httpx.AsyncClient) -> dict[int, tuple[str, str]]:
        nodes = (await self._ask(client, STATES))["mergeRequests"]["nodes"]
        return {node["databaseId"]: (node["state"], node["headCommit"]["oid"]) for node in nodes}

    async def _head(self, client: httpx.AsyncClient) -> str:
        return str((await self._ask(client, HEAD, name="master"))["branch"]["target"]["oid"])

    async def _commits_of(self, head: str) -> set[str]:
        if head not in self._contained:
            self._contained = {head: set((await git(self._merges, "rev-list", head)).split())}
        return self._contained[head]


async def move_branches(client: httpx.AsyncClient, project_id: int, user: tables.User, turn: int) -> None:
    """Creates and deletes branches until there is no answer."""
    number = 0
    with contextlib.suppress(httpx.TransportError):
        while True:
            name, number = f"moved{turn}-{number}", number + 1
            for query, more in ((CREATE_BRANCH, {"ref": "master"}), (DELETE_BRANCH, {})):
                body = {"query": query, "variables": {"input": {"projectPath": str(project_id), "name": name, **more}}}
                await client.post("/graphql", json=body, headers={"PRIVATE-TOKEN": token_of(user)})


class RepeatedFetcher:
    """Clones until the server is killed: each clone must be complete, whatever moves meanwhile."""

    def __init__(self, address: str, folder: Path) -> None:
        self._address = address
        self._folder = folder
        self.clones = 0
        self.wrong: list[str] = []

    async def run(self, is_killed: asyncio.Event) -> None:
        target = self._folder / "clone"
        while not is_killed.is_set():
            done = await self._git("clone", "-q", "--bare", self._address, str(target))
            if done.returncode == 0:
                done = await self._git("-C", str(target), "fsck", "--connectivity-only", "--no-dangling")
                self.clones += 1
            elif is_killed.is_set():
                break
            if done.returncode:
                self.wrong.append(done.stderr)
            await asyncio.to_thread(shutil.rmtree, target, ignore_errors=True)

    async def _git(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return await asyncio.to_thread(subprocess.run, ["git", *arguments], capture_output=True, text=True, check=False)


async def full_path(merges: MergeRequestFactory) -> str:
    namespace = await merges.make.fetch(tables.Namespace, merges.project.namespace_id)
    assert namespace is not None
    return f"{namespace.path}/{merges.project.path}"


async def count_where(database: Database, condition: object) -> int:
    async with database.read_session() as session:
        return int(await session.scalar(select(func.count()).select_from(tables.MergeRequest).where(condition)))  # type: ignore[arg-type]


@promise("R6")
@pytest.mark.parametrize("seed", SEEDS)
async def test_kills(
    make: DataFactory, database: Database, tmp_path: Path, database_url: str, figure: Callable[[str], None], seed: int
) -> None:
    """Merges, pushes into another branch and the target, branches that come and go, and readers, until the server is killed."""
    merges, users = await prepare(make)
    start = await merges.tip() or ""
    chance, log, reader = random.Random(seed), MergeLog(), ConsistentReader(merges, users[0])
    open_ones: list[OpenMergeRequest] = []
    pushed: list[str] = []
    clones, path = 0, await full_path(merges)
    for turn in range(KILLS):
        open_ones += [await merges.proposal(f"turn{turn}-{number}") for number in range(AT_ONCE * 3 - len(open_ones))]
        await merges.make.indexed(merges.project)
        with run_server(tmp_path, database_url) as server:
            async with client_of(server) as client:
                # The first answers after the kill.
                await reader.compare(client)
                pusher, is_killed = BranchPusher(merges, client, path, users[0]), asyncio.Event()
                address = server.url.replace("://", f"://me:{token_of(users[0])}@")
                fetcher = RepeatedFetcher(f"{address}/{path}.git", tmp_path)

                async def work(number: int, wanted: list[OpenMergeRequest], client: httpx.AsyncClient = client) -> None:
                    for proposal in wanted:
                        if await log.accept(client, proposal, users[number]) is None:
                            return

                async with asyncio.TaskGroup() as group:
                    for number in range(AT_ONCE):
                        group.create_task(work(number, open_ones[number::AT_ONCE]))
                    moves = move_branches(client, merges.project.id, users[1], turn)
                    for task in (reader.run(client), pusher.run(), moves, fetcher.run(is_killed)):
                        group.create_task(task)
                    await asyncio.sleep(chance.uniform(0.05, 1.5))
                    is_killed.set()
                    server.kill()
                pushed += pusher.pushed
                clones += fetcher.clones
                assert fetcher.wrong == []
        # A git of the killed server, and PostgreSQL at a commit that nobody waits for any more, may still be at work.
        await asyncio.sleep(0.3)
        await wait_for_killed_clients(database)
        assert await disagreements(merges) == []
        assert reader.wrong == []
        assert await integrity.find_broken_pages(database) == []
        assert await integrity.find_broken_references(database) == []
        tip = await merges.tip() or ""
        await git(merges, "fsck", "--full", "--strict", "--no-dangling", "--connectivity-only")
        lost = set(pushed) - set((await git(merges, "rev-list", tip)).split())
        assert lost == set()
        rows = [(proposal, await merges.reload(proposal)) for proposal in open_ones]
        open_ones = [proposal for proposal, row in rows if row.state is not MergeRequestState.MERGED]
    with run_server(tmp_path, database_url) as server:
        async with client_of(server) as client:
            await reader.compare(client)
            last = await merges.proposal("after-all-kills")
            assert await log.accept(client, last, users[0]) == "MERGED"
            for proposal in open_ones:
                await log.accept(client, proposal, users[0])
            await reader.compare(client)
        assert (await server.stop())[0] == 0

    assert (await disagreements(merges), reader.wrong) == ([], [])
    merged = await count_where(database, col(tables.MergeRequest.state) == MergeRequestState.MERGED)
    acknowledged = await count_where(
        database, col(tables.MergeRequest.id).in_(log.acknowledged) & (col(tables.MergeRequest.state) == MergeRequestState.MERGED)
    )
    assert acknowledged == len(log.acknowledged)
    assert merged == await make.count(tables.MergeRequest)
    assert await check_linear_history(merges, start) >= merged + len(pushed)
    await git(merges, "fsck", "--full", "--strict", "--no-dangling")
    figure(
        f"{KILLS} kills: {len(log.acknowledged)} merges and {len(pushed)} pushes acknowledged, 0 lost; {merged} merged, each once;"
        f" {log.unanswered} unanswered; {reader.answers} answers compared, 0 wrong; {clones} clones, each complete;"
        f" answers otherwise {dict(log.refusals)}; fsck clean"
    )
    assert set(log.refusals) <= {"NOT_ALLOWED", "CONFLICT", "NOT_MERGEABLE"}


@promise("R7")
async def test_at_once(make: DataFactory, tmp_path: Path, database_url: str, figure: Callable[[str], None]) -> None:
    merges, users = await prepare(make)
    start, log = await merges.tip() or "", MergeLog()
    with run_server(tmp_path, database_url) as server:
        async with client_of(server) as client:
            for size in [2] * ROUNDS + [AT_ONCE] * (ROUNDS // 4):
                proposals = [await merges.proposal(f"branch{merges._numbers}") for _ in range(size)]
                await asyncio.gather(*(log.accept(client, proposal, user) for proposal, user in zip(proposals, users[:size], strict=True)))
        assert server.log_entries(level="error") == []
        assert (await server.stop())[0] == 0
    assert await disagreements(merges) == []
    assert await check_linear_history(merges, start) == len(log.acknowledged)
    figure(
        f"{ROUNDS} x 2 and {ROUNDS // 4} x {AT_ONCE} at once: {len(log.acknowledged)} merged, others {dict(log.refusals)}; history linear"
    )
    assert log.unanswered == 0
    assert set(log.refusals) <= {"CONFLICT", "NOT_MERGEABLE"}


class BranchPusher:
    """Moves master forward, as a client that knows its tip, and as often as it is meant to."""

    def __init__(self, merges: MergeRequestFactory, client: httpx.AsyncClient, path: str, user: tables.User) -> None:
        self._merges = merges
        self._client = client
        self._path = path
        self._user = user
        self._numbers = 0
        self.pushed: list[str] = []
        self.refused = 0
        self.overtaken = 0
        self.done = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.done.is_set():
            started = loop.time()
            await self._push()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0, started + PUSHERS / PUSHES_A_SECOND - loop.time())):
                    await self.done.wait()

    async def _tip(self) -> str:
        """The head of master as the service shows it to a client that wants to push."""
        answer = await self._client.get(
            f"/{self._path}.git/info/refs", params={"service": "git-receive-pack"}, headers={"PRIVATE-TOKEN": token_of(self._user)}
        )
        match = re.search(rb"([0-9a-f]{40}) refs/heads/master[\0\n]", answer.content)
        return match[1].decode() if match is not None else ""

    async def _push(self) -> None:
        try:
            await self._push_commit()
        except httpx.TransportError:
            self.done.set()

    async def _push_commit(self) -> None:
        self._numbers += 1
        old = await self._tip()
        tree = (await git(self._merges, "rev-parse", f"{old}^{{tree}}")).strip()
        who = f"P <p@example.org> {1_700_000_000 + self._numbers} +0000"
        pack = PackWriter()
        new = pack.add("commit", f"tree {tree}\nparent {old}\nauthor {who}\ncommitter {who}\n\nPushed {id(pack)}\n".encode())
        # Most pushes as git's own clients send them, others as those without a side band, which receive-pack serves.
        side_band = " side-band-64k" if self._numbers % 4 else ""
        line = f"{old} {new} refs/heads/master\0 report-status{side_band}".encode()
        is_current = await self._tip() == old
        answer = await self._client.post(
            f"/{self._path}.git/git-receive-pack",
            content=f"{len(line) + 4:04x}".encode() + line + b"0000" + pack.pack(),
            headers={"PRIVATE-TOKEN": token_of(self._user), "Content-Type": "application/x-git-receive-pack-request"},
        )
        assert answer.status_code == 200, answer.text
        if b"ok refs/heads/master" in answer.content:
            self.pushed.append(new)
        else:
            self.refused += 1
            self.overtaken += is_current


@promise("R8")
async def test_pushes_meanwhile(make: DataFactory, tmp_path: Path, database_url: str, figure: Callable[[str], None]) -> None:
    """The target is pushed to twenty times a second while merges into it go on."""
    merges, users = await prepare(make)
    start, log = await merges.tip() or "", MergeLog()
    proposals = [await merges.proposal(f"branch{number}") for number in range(ROUNDS)]
    loop = asyncio.get_running_loop()
    with run_server(tmp_path, database_url) as server:
        async with client_of(server) as client:
            pusher = BranchPusher(merges, client, await full_path(merges), users[0])
            began = loop.time()
            async with asyncio.TaskGroup() as group:
                for _ in range(PUSHERS):
                    group.create_task(pusher.run())
                for first in range(0, ROUNDS, 2):
                    await asyncio.gather(*(log.accept(client, proposal, users[0]) for proposal in proposals[first : first + 2]))
                pusher.done.set()
            seconds = loop.time() - began
        assert server.log_entries(level="error") == []
        assert (await server.stop())[0] == 0
    commits = set((await git(merges, "rev-list", await merges.tip() or "")).split())
    lost = len(set(pusher.pushed) - commits)
    attempts = len(pusher.pushed) + pusher.refused
    figure(
        f"{lost} of {len(pusher.pushed)} pushed commits lost; {attempts / seconds:.1f} pushes a second, {pusher.refused} of them"
        f" refused since the target had moved, {pusher.overtaken} of these after they were sent;"
        f" {len(log.acknowledged)} of {ROUNDS} merged, others {dict(log.refusals)}"
    )
    assert lost == 0
    assert await disagreements(merges) == []
    assert await check_linear_history(merges, start) == len(log.acknowledged) + len(pusher.pushed)
    assert set(log.refusals) <= {"CONFLICT", "NOT_MERGEABLE"}
