"""Merges of a served process that is killed, and pushes at the same time (R6, R7, R8)."""

import asyncio
import contextlib
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from sqlalchemy import func, select
from sqlmodel import col

from storage import soundness, tables
from storage.database import Database
from storage.tables import AccessLevel, MergeRequestState
from tests.hostile_packs import PackWriter
from tests.make import Make, token_of
from tests.merges import Merges, Proposal
from tests.promises import SEEDS, promise, promised
from tests.reliability.served import Served, served

KILLS = promised(50)
ROUNDS = promised(200, 2)
"""Rounds of two merges at once."""
PUSHES_A_SECOND = 20
PUSHERS = 4
"""A push takes several processes, so one after the other would not be as quick."""
AT_ONCE = 8
REPAIRED_SECONDS = 10.0
"""After a start, the merges whose ref has moved are finished by then."""
ACCEPT = """mutation ($input: AcceptMergeRequestInput!) {
    acceptMergeRequest(input: $input) { mergeRequest { state } userErrors { code message } } }"""


@dataclass
class Merged:
    """What callers were told: the merge requests that were acknowledged, and the other answers."""

    acknowledged: set[int] = field(default_factory=set)
    refusals: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0

    async def accept(self, client: httpx.AsyncClient, proposal: Proposal, user: tables.User) -> str | None:
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


def client_of(server: Served) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, timeout=30)


async def prepare(make: Make) -> tuple[Merges, list[tables.User]]:
    users = [await make.user() for _ in range(AT_ONCE)]
    project = await make.project(history={"commits": 4}, members=[(user, AccessLevel.DEVELOPER) for user in users])
    return Merges(make, project, users[0]), users


async def git(merges: Merges, *arguments: str) -> str:
    command = ["git", "-C", str(merges.services.repositories.path_of(merges.project.id)), *arguments]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def linear(merges: Merges, start: str) -> int:
    """Master's line of first parents leads to `start`; its length."""
    line = [row.split() for row in (await git(merges, "rev-list", "--first-parent", "--parents", f"{start}..master")).splitlines()]
    assert [parents[1] for parents in line] == [*(parents[0] for parents in line[1:]), start][: len(line)]
    return len(line)


async def unfinished(merges: Merges) -> list[int]:
    """Merge requests whose row does not say what the repository does."""
    held = set((await git(merges, "rev-list", "master")).split())
    async with merges.services.database.reading() as session:
        rows = (await session.execute(select(tables.MergeRequest.id, tables.MergeRequest.state, tables.MergeRequest.head_oid))).all()  # type: ignore[call-overload]
    return [key for key, state, head in rows if (state is MergeRequestState.MERGED) != (head in held)]


async def repaired(merges: Merges) -> float:
    """Waits until rows and repository agree; the seconds that it took."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    while left := await unfinished(merges):
        assert loop.time() - started < REPAIRED_SECONDS, f"not repaired: {left}"
        await asyncio.sleep(0.1)
    return loop.time() - started


async def count_where(database: Database, condition: object) -> int:
    async with database.reading() as session:
        return int(await session.scalar(select(func.count()).select_from(tables.MergeRequest).where(condition)))  # type: ignore[arg-type]


@promise("R6")
@pytest.mark.parametrize("seed", SEEDS)
async def test_kills(make: Make, database: Database, tmp_path: Path, database_url: str, figure: Callable[[str], None], seed: int) -> None:
    merges, users = await prepare(make)
    start = await merges.tip() or ""
    chance, told, cut, waits, intents = random.Random(seed), Merged(), 0, [0.0], 0
    open_ones: list[Proposal] = []
    for turn in range(KILLS):
        open_ones += [await merges.proposal(f"turn{turn}-{number}") for number in range(AT_ONCE * 3 - len(open_ones))]
        with served(tmp_path, database_url) as server:
            waits.append(await repaired(merges))
            async with client_of(server) as client:

                async def work(number: int, wanted: list[Proposal], client: httpx.AsyncClient = client) -> None:
                    for proposal in wanted:
                        if await told.accept(client, proposal, users[number]) is None:
                            return

                async with asyncio.TaskGroup() as group:
                    for number in range(AT_ONCE):
                        group.create_task(work(number, open_ones[number::AT_ONCE]))
                    await asyncio.sleep(chance.uniform(0.05, 1.5))
                    server.kill()
        # A git of the killed server, and PostgreSQL at a commit that nobody waits for any more, may still be at work.
        await asyncio.sleep(0.3)
        cut += len(await unfinished(merges))
        intents += await make.count(tables.MergeIntent) > 0
        assert await soundness.broken_pages(database) == []
        assert await soundness.broken_references(database) == []
        await git(merges, "fsck", "--full", "--strict", "--no-dangling", "--connectivity-only")
        rows = [(proposal, await merges.now(proposal)) for proposal in open_ones]
        open_ones = [proposal for proposal, row in rows if row.state is not MergeRequestState.MERGED]
    with served(tmp_path, database_url) as server:
        waits.append(await repaired(merges))
        async with client_of(server) as client:
            last = await merges.proposal("after-all-kills")
            assert await told.accept(client, last, users[0]) == "MERGED"
            for proposal in open_ones:
                await told.accept(client, proposal, users[0])
        assert (await server.stop())[0] == 0

    assert await unfinished(merges) == []
    merged = await count_where(database, col(tables.MergeRequest.state) == MergeRequestState.MERGED)
    acknowledged = await count_where(
        database, col(tables.MergeRequest.id).in_(told.acknowledged) & (col(tables.MergeRequest.state) == MergeRequestState.MERGED)
    )
    assert acknowledged == len(told.acknowledged)
    assert merged == await make.count(tables.MergeRequest) == await linear(merges, start)
    await git(merges, "fsck", "--full", "--strict", "--no-dangling")
    figure(
        f"{KILLS} kills: {len(told.acknowledged)} acknowledged, 0 lost; {merged} merged, each once; {told.unanswered} unanswered; "
        f"{cut} cut between ref and row, {intents} times an intent was left; repaired at most {max(waits):.1f} s after the start; "
        f"answers otherwise {dict(told.refusals)}; fsck clean"
    )
    assert set(told.refusals) <= {"NOT_ALLOWED", "CONFLICT", "NOT_MERGEABLE"}


@promise("R7")
async def test_at_once(make: Make, tmp_path: Path, database_url: str, figure: Callable[[str], None]) -> None:
    merges, users = await prepare(make)
    start, told = await merges.tip() or "", Merged()
    with served(tmp_path, database_url) as server:
        async with client_of(server) as client:
            for size in [2] * ROUNDS + [AT_ONCE] * (ROUNDS // 4):
                proposals = [await merges.proposal(f"branch{merges._numbers}") for _ in range(size)]
                await asyncio.gather(*(told.accept(client, proposal, user) for proposal, user in zip(proposals, users[:size], strict=True)))
        assert server.lines(level="error") == []
        assert (await server.stop())[0] == 0
    assert await unfinished(merges) == []
    assert await linear(merges, start) == len(told.acknowledged)
    figure(
        f"{ROUNDS} x 2 and {ROUNDS // 4} x {AT_ONCE} at once: {len(told.acknowledged)} merged, others {dict(told.refusals)}; history linear"
    )
    assert told.unanswered == 0
    assert set(told.refusals) <= {"CONFLICT", "NOT_MERGEABLE"}


class Pusher:
    """Moves master forward, as a client that knows its tip, and as often as it is meant to."""

    def __init__(self, merges: Merges, client: httpx.AsyncClient, path: str, user: tables.User) -> None:
        self._merges = merges
        self._client = client
        self._path = path
        self._user = user
        self._numbers = 0
        self.pushed: list[str] = []
        self.refused = 0
        self.done = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.done.is_set():
            started = loop.time()
            await self._push()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0, started + PUSHERS / PUSHES_A_SECOND - loop.time())):
                    await self.done.wait()

    async def _push(self) -> None:
        self._numbers += 1
        old = await self._merges.tip() or ""
        tree = (await git(self._merges, "rev-parse", f"{old}^{{tree}}")).strip()
        who = f"P <p@example.org> {1_700_000_000 + self._numbers} +0000"
        pack = PackWriter()
        new = pack.add("commit", f"tree {tree}\nparent {old}\nauthor {who}\ncommitter {who}\n\nPushed {id(pack)}\n".encode())
        line = f"{old} {new} refs/heads/master\0 report-status".encode()
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


@promise("R8")
async def test_pushes_meanwhile(make: Make, tmp_path: Path, database_url: str, figure: Callable[[str], None]) -> None:
    """The target is pushed to twenty times a second while merges into it go on."""
    merges, users = await prepare(make)
    start, told = await merges.tip() or "", Merged()
    proposals = [await merges.proposal(f"branch{number}") for number in range(ROUNDS)]
    loop = asyncio.get_running_loop()
    with served(tmp_path, database_url) as server:
        async with client_of(server) as client:
            asked = {"query": f'{{ project(path: "{merges.project.id}") {{ fullPath }} }}'}
            answer = (await client.post("/graphql", json=asked, headers={"PRIVATE-TOKEN": token_of(users[0])})).json()
            pusher = Pusher(merges, client, answer["data"]["project"]["fullPath"], users[0])
            began = loop.time()
            async with asyncio.TaskGroup() as group:
                for _ in range(PUSHERS):
                    group.create_task(pusher.run())
                for first in range(0, ROUNDS, 2):
                    await asyncio.gather(*(told.accept(client, proposal, users[0]) for proposal in proposals[first : first + 2]))
                pusher.done.set()
            seconds = loop.time() - began
        assert server.lines(level="error") == []
        assert (await server.stop())[0] == 0
    held = set((await git(merges, "rev-list", "master")).split())
    lost = len(set(pusher.pushed) - held)
    attempts = len(pusher.pushed) + pusher.refused
    figure(
        f"{lost} of {len(pusher.pushed)} pushed commits lost; {attempts / seconds:.1f} pushes a second, {pusher.refused} of them"
        f" refused since the target had moved; {len(told.acknowledged)} of {ROUNDS} merged, others {dict(told.refusals)}"
    )
    assert lost == 0
    assert await unfinished(merges) == []
    assert await linear(merges, start) == len(told.acknowledged) + len(pusher.pushed)
    assert set(told.refusals) <= {"CONFLICT", "NOT_MERGEABLE"}
