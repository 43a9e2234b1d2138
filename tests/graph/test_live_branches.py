"""Following the health of branches: told when it changes or the head moves, once, and as it is in the end."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete
from sqlmodel import col

from graph import upkeep
from graph.context import Services
from graph.execute import Graph
from graph.git_access import GitAccess, Granted
from graph.live import Live
from graph.rules import looking
from graph.subscribing import Stream
from graph.wake import Wake
from storage import tables
from storage.git.pushes import Update
from storage.tables import AccessLevel
from tests.followed import code, following, opened, told
from tests.forge import Ask
from tests.make import Make
from tests.merges import Merges
from tests.statements import Statements

CHANGED = """subscription ($projects: [String!]!, $after: String) { branchHealthChanged(projects: $projects, afterSeq: $after) {
    seq from to at name project { path } branch { name } target { oid } health { state firstBad { oid } } } }"""
SAY = "mutation ($i: CreateCommitStatusInput!) { createCommitStatus(input: $i) { userErrors { message } } }"


@pytest.fixture
async def master(make: Make) -> tables.User:
    return await make.user("max")


class Branches:
    """A project, what is said of its commits, and where its branches move."""

    def __init__(self, ask: Ask, merges: Merges, master: tables.User) -> None:
        self.ask = ask
        self.merges = merges
        self.services = merges.services
        self.project = merges.project
        self.master = master

    @property
    def path(self) -> str:
        return str(self.project.id)

    async def say(self, sha: str | None, state: str, ref: str | None = "master", name: str = "test") -> None:
        """A check, not looked at yet."""
        assert sha is not None
        sent = {"projectPath": self.path, "sha": sha, "state": state, "name": name, "ref": ref}
        assert (await self.ask.data(SAY, self.master, i=sent))["createCommitStatus"]["userErrors"] == []

    async def push(self, branch: str, new: str | None, old: str | None) -> None:
        """The service hears that the branch has moved."""
        granted = Granted(self.project.id, self.services.repositories.path_of(self.project.id), self.master.id)
        await GitAccess(self.services).pushed(granted, [Update(f"refs/heads/{branch}", old, new)], "test")

    async def pushed(self, branch: str) -> str:
        old = await self.merges.tip(branch)
        new = await self.merges.commit(branch)
        await self.push(branch, new, old)
        return new

    async def look(self) -> None:
        await upkeep.once(self.services)
        await self.services.live.settle(self.services.database)


@pytest.fixture
async def branches(ask: Ask, make: Make, master: tables.User) -> Branches:
    project = await make.indexed(await make.project(history={"commits": 3}, members=[(master, AccessLevel.MASTER)]))
    found = Branches(ask, Merges(make, project, master), master)
    await found.look()
    return found


async def all_told(stream: Stream) -> list[tuple[str | None, str]]:
    found = []
    while (event := await stream.next(0.02)) is not None:
        assert event.outcome.errors == []
        data: dict[str, Any] = (event.outcome.data or {})["branchHealthChanged"]
        found.append((data["from"], data["to"]))
    return found


class TestTelling:
    async def test_each_change_of_colour_and_each_move(self, graph: Graph, branches: Branches, master: tables.User) -> None:
        tip = await branches.merges.tip()
        async with following(graph, master, CHANGED, projects=[branches.path]) as stream:
            for state, seen in (("pending", "PENDING"), ("running", "RUNNING"), ("success", "SUCCESS")):
                await branches.say(tip, state.upper())
                await branches.look()
                event = await told(stream)
                assert (event["to"], event["health"]["state"], event["name"]) == (seen, seen, "master")
                assert (event["project"]["path"], event["branch"]["name"]) == (branches.project.path, "master")
                assert event["target"]["oid"] == tip
            await branches.say(tip, "SUCCESS", name="lint")
            await branches.look()
            assert await all_told(stream) == []
            new = await branches.pushed("master")
            await branches.look()
            event = await told(stream)
            assert (event["from"], event["to"], event["target"]["oid"]) == ("SUCCESS", "SUCCESS", new)
            await branches.say(new, "FAILED", ref=None)
            await branches.look()
            event = await told(stream)
            assert (event["from"], event["to"], event["health"]["firstBad"]["oid"]) == ("SUCCESS", "FAILED", new)

    async def test_branches_come_and_go(self, graph: Graph, branches: Branches, master: tables.User, make: Make) -> None:
        async with following(graph, master, CHANGED, projects=[branches.path]) as stream:
            tip = await branches.pushed("topic")
            await branches.look()
            assert await all_told(stream) == [(None, "NONE")]
            await branches.say(tip, "FAILED", ref="topic")
            await branches.merges.services.repositories.read(
                branches.project.id, lambda repository: repository.move_ref("refs/heads/topic", None, tip)
            )
            await branches.push("topic", None, tip)
            await branches.look()
            assert await all_told(stream) == []
        assert await make.count(tables.BranchLook) == 0

    async def test_a_look_costs_the_same_for_many_branches(
        self, branches: Branches, make: Make, statements: Statements, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await looking.look(branches.services)
        tip = await branches.merges.tip()
        for number in range(8):
            await branches.merges.services.repositories.read(
                branches.project.id, lambda repository, name=f"b{number}": repository.move_ref(f"refs/heads/{name}", tip, None)
            )
            await branches.push(f"b{number}", tip, None)
        with statements.at_most(9):
            await looking.look(branches.services)
        monkeypatch.setattr(looking, "AT_ONCE", 2)
        await branches.say(tip, "SUCCESS")
        await branches.look()
        async with branches.services.database.reading() as session:
            rows = await session.read(tables.all_rows(tables.Branch))
        assert {(row[0].told_health, row[0].told_oid) for row in rows} == {("success", tip)}

    async def test_what_is_told_last_is_how_it_is_and_nothing_is_told_twice(
        self, graph: Graph, branches: Branches, master: tables.User, make: Make
    ) -> None:
        """Two processes look while checks come."""
        other = replace(branches.services, live=Live(), upkeep=Wake())
        tip = await branches.merges.tip()
        done = asyncio.Event()

        async def look(services: Services) -> None:
            while not done.is_set():
                await looking.look(services)
                await asyncio.sleep(0)

        looks = [asyncio.create_task(look(each)) for each in (branches.services, other)]
        async with following(graph, master, CHANGED, projects=[branches.path]) as stream:
            for state in ("PENDING", "RUNNING", "FAILED", "PENDING", "RUNNING", "SUCCESS"):
                await branches.say(tip, state)
            done.set()
            await asyncio.gather(*looks)
            await looking.look(other)
            await branches.services.live.settle(branches.services.database)
            seen = await all_told(stream)
        assert seen[0][0] == "NONE"
        assert [was for was, _ in seen[1:]] == [became for _, became in seen[:-1]]
        assert all(was != became for was, became in seen)
        assert seen[-1][1] == "SUCCESS"
        assert await make.count(tables.BranchLook) == 0


class TestRights:
    async def test_nothing_of_what_is_not_seen(self, graph: Graph, make: Make, branches: Branches) -> None:
        member, guest, stranger = await make.user(), await make.user(), await make.user()
        await make.member(branches.project, member, AccessLevel.REPORTER)
        await make.member(branches.project, guest, AccessLevel.GUEST)
        tip = await branches.merges.tip()
        async with following(graph, member, CHANGED, projects=[branches.path]) as stream:
            await branches.say(tip, "RUNNING")
            await branches.look()
            await told(stream)
            async with branches.services.database.writing() as session:
                await session.execute(delete(tables.ProjectMember).where(col(tables.ProjectMember.user_id) == member.id))
                await session.commit()
            await branches.say(tip, "SUCCESS")
            await branches.look()
            assert await all_told(stream) == []
        assert await code(graph, guest, CHANGED, projects=[branches.path]) == "FORBIDDEN"
        assert await code(graph, stranger, CHANGED, projects=[branches.path]) == "NOT_FOUND"
        assert await code(graph, branches.master, CHANGED, projects=[branches.path], after="-1") == "BAD_REQUEST"


class TestResuming:
    async def test_goes_on_behind_the_last_number(self, graph: Graph, branches: Branches, master: tables.User) -> None:
        tip, numbers = await branches.merges.tip(), []
        async with following(graph, master, CHANGED, projects=[branches.path]) as stream:
            for state in ("PENDING", "RUNNING", "SUCCESS"):
                await branches.say(tip, state)
                await branches.look()
                numbers.append((await told(stream))["seq"])
        again = await opened(graph, master, CHANGED, projects=[branches.path], after=numbers[0])
        assert isinstance(again, Stream)
        assert [(await told(again))["seq"] for _ in range(2)] == numbers[1:]
        assert await again.next(0.02) is None
        again.close()
