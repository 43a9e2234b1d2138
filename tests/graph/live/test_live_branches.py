"""Subscriptions to the health of branches: one event for each change of health or head, and the final state."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete
from sqlmodel import col

from graph.context import Services
from graph.git_access import RepositoryGrant
from graph.jobs import maintenance
from graph.jobs.maintenance_wakeup import MaintenanceWakeup
from graph.live.broadcaster import ChangeBroadcaster
from graph.live.subscription_streams import SubscriptionStream
from graph.operations.execution import Graph
from graph.rules.branches import branch_health_job
from storage import tables
from storage.git.protocol.push import RefCommand
from storage.tables import AccessLevel
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.repositories import push as push_refs
from tests.support.merge_requests import MergeRequestFactory
from tests.support.servers.streams import next_event, open_stream, queued_events, rejection_code, subscribed

CHANGED = """subscription ($projects: [String!]!, $after: String) { branchHealthChanged(projects: $projects, afterSeq: $after) {
    seq from to at name project { path } branch { name } target { oid } health { state firstBad { oid } } } }"""
CREATE_STATUS = "mutation ($i: CreateCommitStatusInput!) { createCommitStatus(input: $i) { userErrors { message } } }"


@pytest.fixture
async def master(make: DataFactory) -> tables.User:
    return await make.user("max")


class BranchScenario:
    """A project, what is said of its commits, and where its branches move."""

    def __init__(self, ask: Ask, merges: MergeRequestFactory, master: tables.User) -> None:
        self.ask = ask
        self.merges = merges
        self.services = merges.services
        self.project = merges.project
        self.master = master

    @property
    def path(self) -> str:
        return str(self.project.id)

    async def create_status(self, sha: str | None, state: str, ref: str | None = "master", name: str = "test") -> None:
        """A check, not looked at yet."""
        assert sha is not None
        sent = {"projectPath": self.path, "sha": sha, "state": state, "name": name, "ref": ref}
        assert (await self.ask.data(CREATE_STATUS, self.master, i=sent))["createCommitStatus"]["userErrors"] == []

    async def push(self, branch: str, new: str | None, old: str | None) -> None:
        """Reports to the service that the branch has moved."""
        granted = RepositoryGrant(self.project.id, self.services.repositories.path_of(self.project.id), self.master.id)
        await push_refs(self.services, granted, [RefCommand(f"refs/heads/{branch}", old, new)], "test")

    async def pushed(self, branch: str) -> str:
        old = await self.merges.tip(branch)
        new = await self.merges.commit(branch)
        await self.push(branch, new, old)
        return new

    async def refresh_health(self) -> None:
        await maintenance.run_once(self.services)
        await self.services.broadcaster.catch_up(self.services.database)


@pytest.fixture
async def branches(ask: Ask, make: DataFactory, master: tables.User) -> BranchScenario:
    project = await make.indexed(await make.project(history={"commits": 3}, members=[(master, AccessLevel.MASTER)]))
    found = BranchScenario(ask, MergeRequestFactory(make, project, master), master)
    await found.refresh_health()
    return found


async def read_events(stream: SubscriptionStream) -> list[tuple[str | None, str]]:
    found = []
    for event in await queued_events(stream):
        assert event.result.errors == []
        data: dict[str, Any] = (event.result.data or {})["branchHealthChanged"]
        found.append((data["from"], data["to"]))
    return found


class TestEvents:
    async def test_each_change_of_colour_and_each_move(self, graph: Graph, branches: BranchScenario, master: tables.User) -> None:
        tip = await branches.merges.tip()
        async with subscribed(graph, master, CHANGED, projects=[branches.path]) as stream:
            for state, seen in (("pending", "PENDING"), ("running", "RUNNING"), ("success", "SUCCESS")):
                await branches.create_status(tip, state.upper())
                await branches.refresh_health()
                event = await next_event(stream)
                assert (event["to"], event["health"]["state"], event["name"]) == (seen, seen, "master")
                assert (event["project"]["path"], event["branch"]["name"]) == (branches.project.path, "master")
                assert event["target"]["oid"] == tip
            await branches.create_status(tip, "SUCCESS", name="lint")
            await branches.refresh_health()
            assert await read_events(stream) == []
            new = await branches.pushed("master")
            await branches.refresh_health()
            event = await next_event(stream)
            assert (event["from"], event["to"], event["target"]["oid"]) == ("SUCCESS", "SUCCESS", new)
            await branches.create_status(new, "FAILED", ref=None)
            await branches.refresh_health()
            event = await next_event(stream)
            assert (event["from"], event["to"], event["health"]["firstBad"]["oid"]) == ("SUCCESS", "FAILED", new)

    async def test_branch_creation_and_deletion_are_streamed(
        self, graph: Graph, branches: BranchScenario, master: tables.User, make: DataFactory
    ) -> None:
        async with subscribed(graph, master, CHANGED, projects=[branches.path]) as stream:
            tip = await branches.pushed("topic")
            await branches.refresh_health()
            assert await read_events(stream) == [(None, "NONE")]
            await branches.create_status(tip, "FAILED", ref="topic")
            await branches.merges.services.repositories.read(
                branches.project.id, lambda repository: repository.move_ref("refs/heads/topic", None, tip)
            )
            await branches.push("topic", None, tip)
            await branches.refresh_health()
            assert await read_events(stream) == []
        assert await make.count(tables.HealthCheckDue) == 0

    async def test_refresh_cost_does_not_grow_with_branches(
        self, branches: BranchScenario, make: DataFactory, statements: StatementRecorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await branch_health_job.refresh_health(branches.services)
        tip = await branches.merges.tip()
        for number in range(8):
            await branches.merges.services.repositories.read(
                branches.project.id, lambda repository, name=f"b{number}": repository.move_ref(f"refs/heads/{name}", tip, None)
            )
            await branches.push(f"b{number}", tip, None)
        with statements.assert_at_most(9):
            await branch_health_job.refresh_health(branches.services)
        monkeypatch.setattr(branch_health_job, "BRANCHES_PER_TRANSACTION", 2)
        await branches.create_status(tip, "SUCCESS")
        await branches.refresh_health()
        async with branches.services.database.read_session() as session:
            rows = await session.read(tables.all_rows(tables.GitRef))
        assert {(row.notified_health, row.notified_oid) for (row,) in rows if row.is_indexed} == {("success", tip)}

    async def test_the_last_event_matches_the_state_and_no_event_repeats(
        self, graph: Graph, branches: BranchScenario, master: tables.User, make: DataFactory
    ) -> None:
        """Two processes look while checks come."""
        other = replace(branches.services, broadcaster=ChangeBroadcaster(), maintenance_wakeup=MaintenanceWakeup())
        tip = await branches.merges.tip()
        done = asyncio.Event()

        async def look(services: Services) -> None:
            while not done.is_set():
                await branch_health_job.refresh_health(services)
                await asyncio.sleep(0)

        looks = [asyncio.create_task(look(each)) for each in (branches.services, other)]
        async with subscribed(graph, master, CHANGED, projects=[branches.path]) as stream:
            for state in ("PENDING", "RUNNING", "FAILED", "PENDING", "RUNNING", "SUCCESS"):
                await branches.create_status(tip, state)
            done.set()
            await asyncio.gather(*looks)
            await branch_health_job.refresh_health(other)
            await branches.services.broadcaster.catch_up(branches.services.database)
            seen = await read_events(stream)
        assert seen[0][0] == "NONE"
        assert [was for was, _ in seen[1:]] == [became for _, became in seen[:-1]]
        assert all(was != became for was, became in seen)
        assert seen[-1][1] == "SUCCESS"
        assert await make.count(tables.HealthCheckDue) == 0


class TestRights:
    async def test_hidden_objects_are_not_streamed(self, graph: Graph, make: DataFactory, branches: BranchScenario) -> None:
        member, guest, stranger = await make.user(), await make.user(), await make.user()
        await make.member(branches.project, member, AccessLevel.REPORTER)
        await make.member(branches.project, guest, AccessLevel.GUEST)
        tip = await branches.merges.tip()
        async with subscribed(graph, member, CHANGED, projects=[branches.path]) as stream:
            await branches.create_status(tip, "RUNNING")
            await branches.refresh_health()
            await next_event(stream)
            async with branches.services.database.write_session() as session:
                await session.execute(delete(tables.ProjectMember).where(col(tables.ProjectMember.user_id) == member.id))
                await session.commit()
            await branches.create_status(tip, "SUCCESS")
            await branches.refresh_health()
            assert await read_events(stream) == []
        assert await rejection_code(graph, guest, CHANGED, projects=[branches.path]) == "FORBIDDEN"
        assert await rejection_code(graph, stranger, CHANGED, projects=[branches.path]) == "NOT_FOUND"
        assert await rejection_code(graph, branches.master, CHANGED, projects=[branches.path], after="-1") == "BAD_REQUEST"


class TestResuming:
    async def test_resumes_after_the_last_sequence_number(self, graph: Graph, branches: BranchScenario, master: tables.User) -> None:
        tip, numbers = await branches.merges.tip(), []
        async with subscribed(graph, master, CHANGED, projects=[branches.path]) as stream:
            for state in ("PENDING", "RUNNING", "SUCCESS"):
                await branches.create_status(tip, state)
                await branches.refresh_health()
                numbers.append((await next_event(stream))["seq"])
        again = await open_stream(graph, master, CHANGED, projects=[branches.path], after=numbers[0])
        assert isinstance(again, SubscriptionStream)
        assert [(await next_event(again))["seq"] for _ in range(2)] == numbers[1:]
        assert await again.next(0.02) is None
        again.close()
