"""Concurrent merges and pushes lose no commit (R7, R8), at the size of a suite.

The same against a served process that is killed stands in tests/reliability.
"""

import asyncio
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.errors import Conflict, NotAllowed, NotMergeable
from graph.git_access import GitAccess, RepositoryGrant
from graph.rules.git import ref_reservations
from graph.rules.merge_requests import merging
from graph.rules.merge_requests.merging import MergeOptions
from storage import tables
from storage.git import merge
from storage.git.protocol.push import RefCommand
from storage.tables import AccessLevel, MergeRequestState
from tests.make import DataFactory
from tests.support.merge_requests import MergeRequestFactory, OpenMergeRequest, acting, write_text_commit

AT_ONCE = 8
ROUNDS = 3


@pytest.fixture
async def user(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def merges(make: DataFactory, user: tables.User) -> MergeRequestFactory:
    return MergeRequestFactory(make, await make.project(history={"commits": 4}, members=[(user, AccessLevel.DEVELOPER)]), user)


async def accept(merges: MergeRequestFactory, proposal: OpenMergeRequest, user: tables.User, *, elsewhere: bool = False) -> str:
    """What came of it, by its name. `elsewhere` is another process of the instance, which knows nothing of this one's turns."""
    services = replace(merges.services) if elsewhere else merges.services
    try:
        async with acting(services, user) as context:
            return str((await merging.accept_now(context, proposal.row, MergeOptions())).state)
    except (Conflict, NotAllowed, NotMergeable) as error:
        return type(error).__name__


async def first_parents(merges: MergeRequestFactory, start: str) -> list[list[str]]:
    """The line of first parents of master since `start`, newest first: each commit's parents."""
    path = merges.services.repositories.path_of(merges.project.id)
    command = ["git", "-C", str(path), "rev-list", "--first-parent", "--parents", f"{start}..refs/heads/master"]
    result = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)
    return [line.split() for line in result.stdout.splitlines()]


async def assert_consistent(merges: MergeRequestFactory, start: str, proposals: list[OpenMergeRequest]) -> int:
    """A row says merged exactly when master holds its source; the line of first parents has one commit a merge. How many were merged."""
    count = 0
    for proposal in proposals:
        row = await merges.reload(proposal)
        assert (row.state is MergeRequestState.MERGED) == await merges.contains(proposal.head)
        count += row.state is MergeRequestState.MERGED
    line = await first_parents(merges, start)
    assert [parents[1] for parents in line] == [oid for oid, *_ in line[1:]] + [start]
    sources = {proposal.head for proposal in proposals}
    assert sum(len(parents) == 3 and parents[2] in sources for parents in line) == count
    return count


@pytest.mark.parametrize("elsewhere", [False, True], ids=["one process", "two processes"])
class TestIntoOneBranch:
    async def test_two_concurrent_merges(self, merges: MergeRequestFactory, user: tables.User, elsewhere: bool) -> None:
        start = await merges.tip() or ""
        proposals = []
        for turn in range(ROUNDS):
            pair = [await merges.proposal(f"{turn}-{number}") for number in range(2)]
            outcomes = await asyncio.gather(accept(merges, pair[0], user), accept(merges, pair[1], user, elsewhere=elsewhere))
            assert list(outcomes) == ["merged", "merged"]
            proposals += pair
        assert await assert_consistent(merges, start, proposals) == 2 * ROUNDS

    async def test_eight_concurrent_merges(self, merges: MergeRequestFactory, user: tables.User, elsewhere: bool) -> None:
        start = await merges.tip() or ""
        proposals = [await merges.proposal(f"branch{number}") for number in range(AT_ONCE)]
        outcomes = await asyncio.gather(*(accept(merges, proposal, user, elsewhere=elsewhere) for proposal in proposals))
        assert set(outcomes) <= {"merged", "Conflict"}
        count = await assert_consistent(merges, start, proposals)
        assert count == outcomes.count("merged") >= (1 if elsewhere else AT_ONCE)

    async def test_concurrent_merges_of_one_request(self, merges: MergeRequestFactory, user: tables.User, elsewhere: bool) -> None:
        start, proposal = await merges.tip() or "", await merges.proposal("feature")
        outcomes = await asyncio.gather(*(accept(merges, proposal, user, elsewhere=elsewhere and bool(n % 2)) for n in range(4)))
        # Of two processes, the same user's merge of the same second is the same commit, and so the same merge.
        assert outcomes.count("merged") == 1 or (elsewhere and "merged" in outcomes)
        assert set(outcomes) <= {"merged", "NotAllowed", "NotMergeable"}
        async with merges.services.database.read_session() as session:
            bodies = list(await session.scalars(select(col(tables.Note.body)).where(col(tables.Note.source).is_(None))))
        assert bodies == ["Status changed to merged"]
        assert await assert_consistent(merges, start, [proposal]) == 1

    async def test_concurrent_merges_that_conflict(self, merges: MergeRequestFactory, user: tables.User, elsewhere: bool) -> None:
        start = await merges.tip() or ""
        proposals = [await merges.proposal(f"branch{number}", {"same": f"{number}\n"}) for number in range(2)]
        outcomes = await asyncio.gather(accept(merges, proposals[0], user), accept(merges, proposals[1], user, elsewhere=elsewhere))
        assert sorted(outcomes) == ["NotMergeable", "merged"]
        assert await assert_consistent(merges, start, proposals) == 1


@pytest.mark.parametrize("elsewhere", [False, True], ids=["one process", "two processes"])
async def test_concurrent_pushes_are_not_lost(merges: MergeRequestFactory, user: tables.User, elsewhere: bool) -> None:
    """Pushes to the target go on all the while, as often as the service takes them."""
    start = await merges.tip() or ""
    proposals = [await merges.proposal(f"branch{number}") for number in range(AT_ONCE)]
    pushed: list[str] = []
    done = asyncio.Event()

    async def push() -> None:
        # One push at least succeeds, when the merges are done.
        while not done.is_set() or not pushed:
            number = len(pushed)

            old = await merges.tip() or ""
            oid = await merges.services.repositories.read(
                merges.project.id, lambda repository, old=old, number=number: write_text_commit(repository, old, {f"pushed{number}": "x"})
            )
            grant = RepositoryGrant(merges.project.id, merges.services.repositories.path_of(merges.project.id), user.id)
            update = RefCommand("refs/heads/master", old, oid)
            if await GitAccess(merges.services).move_refs(grant, [update], "test", atomic=False) == [None]:
                pushed.append(oid)
            await asyncio.sleep(0.1 if elsewhere else 0)

    pusher = asyncio.create_task(push())
    try:
        async with asyncio.timeout(60):
            outcomes = await asyncio.gather(*(accept(merges, proposal, user, elsewhere=elsewhere) for proposal in proposals))
    finally:
        done.set()
    await pusher
    # Of two processes it depends on the machine how many succeed; the others get an error. Of one, pushes wait for a repeated merge.
    assert set(outcomes) <= ({"merged", "Conflict"} if elsewhere else {"merged"})
    assert pushed and [await merges.contains(oid) for oid in pushed] == [True] * len(pushed)
    assert await assert_consistent(merges, start, proposals) == outcomes.count("merged")


async def test_merges_wait_for_a_push_that_has_arrived(
    merges: MergeRequestFactory, user: tables.User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the push that names the current commit, once, and not for long."""
    start = await merges.tip() or ""
    proposals = [await merges.proposal(f"branch{number}") for number in range(3)]
    access = GitAccess(merges.services)
    grant = RepositoryGrant(merges.project.id, merges.services.repositories.path_of(merges.project.id), user.id)
    oid = await merges.services.repositories.read(merges.project.id, lambda repository: write_text_commit(repository, start, {"new": "x"}))
    update, stale = RefCommand("refs/heads/master", start, oid), RefCommand("refs/heads/master", proposals[0].head, oid)
    monkeypatch.setattr(ref_reservations, "MAX_RESERVED_SECONDS", 30)
    async with access.reserve(grant, [update]), access.reserve(grant, [update]):
        merging = asyncio.create_task(accept(merges, proposals[0], user))
        await asyncio.sleep(0.3)
        assert not merging.done()
        assert await access.move_refs(grant, [update], "test", atomic=False) == [None]
    async with asyncio.timeout(20):
        assert await merging == "merged"
        async with access.reserve(grant, [update, stale]):
            assert await accept(merges, proposals[1], user) == "merged"
    monkeypatch.setattr(ref_reservations, "MAX_RESERVED_SECONDS", 0.05)
    async with access.reserve(grant, [RefCommand("refs/heads/master", await merges.tip(), oid)]), asyncio.timeout(20):
        assert await accept(merges, proposals[2], user) == "merged"
    assert not ref_reservations._reservations
    assert await merges.contains(oid)
    assert await assert_consistent(merges, start, proposals) == 3


async def test_no_writer_waits_while_git_works(
    merges: MergeRequestFactory, user: tables.User, make: DataFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal = await merges.proposal("feature")
    reached, go_on = asyncio.Event(), asyncio.Event()
    loop, whole = asyncio.get_running_loop(), merge.write_merge

    def slowly(*arguments: Any) -> str:
        loop.call_soon_threadsafe(reached.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(10)
        return whole(*arguments)

    monkeypatch.setattr(merge, "write_merge", slowly)
    task, reaching = asyncio.create_task(accept(merges, proposal, user)), asyncio.create_task(reached.wait())
    await asyncio.wait((task, reaching), timeout=20, return_when=asyncio.FIRST_COMPLETED)
    assert reaching.done(), task
    await asyncio.wait_for(make.user(), 2)
    go_on.set()
    assert await asyncio.wait_for(task, 20) == "merged"
