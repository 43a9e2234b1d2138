"""Subscriptions to merge requests: an event for each change that a list would show, however it is made."""

from typing import Any

import pytest
from sqlalchemy import delete, update
from sqlmodel import col

from graph.git_access import RepositoryGrant
from graph.jobs import maintenance
from graph.live.subscription_streams import SubscriptionStream
from graph.operations.execution import Graph
from storage import tables
from storage.git.protocol.push import RefCommand
from storage.tables import AccessLevel, CheckStatus, MergeStatus
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.repositories import push as push_refs
from tests.support.merge_requests import MergeRequestFactory
from tests.support.servers.streams import next_event, open_stream, queued_events, rejection_code, subscribed

CHANGED = """subscription ($projects: [String!], $after: String) { mergeRequestChanged(projects: $projects, afterSeq: $after) {
    seq from to at mergeRequest { databaseId title state project { path } } } }"""
UPDATE = "mutation ($i: UpdateMergeRequestInput!) { updateMergeRequest(input: $i) { userErrors { message } } }"
CREATE = "mutation ($i: CreateMergeRequestInput!) { createMergeRequest(input: $i) { mergeRequest { databaseId } userErrors { message } } }"
NOTE = "mutation ($i: CreateNoteInput!) { createNote(input: $i) { note { databaseId } userErrors { message } } }"
ACCEPT = "mutation ($i: AcceptMergeRequestInput!) { acceptMergeRequest(input: $i) { userErrors { message } } }"
CANCEL = "mutation ($i: CancelMergeWhenBuildSucceedsInput!) { cancelMergeWhenBuildSucceeds(input: $i) { userErrors { message } } }"


@pytest.fixture
async def master(make: DataFactory) -> tables.User:
    return await make.user("max")


@pytest.fixture
async def project(make: DataFactory, master: tables.User) -> tables.Project:
    return await make.project(history={"commits": 3}, members=[(master, AccessLevel.MASTER)])


@pytest.fixture
def merges(make: DataFactory, project: tables.Project, master: tables.User) -> MergeRequestFactory:
    return MergeRequestFactory(make, project, master)


class StreamWatcher:
    """New events of a stream since the last call, as (from, to)."""

    def __init__(self, stream: SubscriptionStream, merges: MergeRequestFactory) -> None:
        self._stream = stream
        self._services = merges.services

    async def __call__(self) -> list[tuple[str | None, str]]:
        await self._services.broadcaster.catch_up(self._services.database)
        found = []
        for next_one in await queued_events(self._stream):
            assert next_one.result.errors == []
            event = (next_one.result.data or {})["mergeRequestChanged"]
            found.append((event["from"], event["to"]))
        return found


NO_CHANGE = [("OPENED", "OPENED")]


class TestEvents:
    async def test_changes_by_users_are_streamed(
        self, graph: Graph, ask: Ask, make: DataFactory, merges: MergeRequestFactory, master: tables.User
    ) -> None:
        milestone = await make.milestone(merges.project)
        await merges.commit("feature")
        await merges.commit("next", start="master")
        async with subscribed(graph, master, CHANGED) as stream:
            watched = StreamWatcher(stream, merges)
            new = {"projectPath": str(merges.project.id), "sourceBranch": "feature", "targetBranch": "master", "title": "A"}
            made = await ask.data(CREATE, master, i=new)
            assert await watched() == [(None, "OPENED")]
            named = {"projectPath": str(merges.project.id), "databaseId": made["createMergeRequest"]["mergeRequest"]["databaseId"]}

            async def change(**said: Any) -> list[tuple[str | None, str]]:
                done = await ask.data(UPDATE, master, i={**named, **said})
                assert done["updateMergeRequest"]["userErrors"] == []
                return await watched()

            for output in (
                {"title": "B"},
                {"description": "At length"},
                {"assigneeId": master.id},
                {"milestoneId": milestone.id},
                {"labels": ["bug"]},
                {"targetBranch": "next"},
                {"targetBranch": "master", "title": "C"},
            ):
                assert await change(**output) == NO_CHANGE
                assert await change(**output) == []
            note = {"projectPath": named["projectPath"], "mergeRequestDatabaseId": named["databaseId"], "body": "Hm."}
            written = await ask.data(NOTE, master, i=note)
            assert await watched() == NO_CHANGE
            note = {"projectPath": named["projectPath"], "databaseId": written["createNote"]["note"]["databaseId"], "body": "Well."}
            await ask.data(NOTE.replace("create", "update").replace("Create", "Update"), master, i=note)
            assert await watched() == NO_CHANGE
            assert await change(stateEvent="CLOSE") == [("OPENED", "CLOSED")]
            assert await change(stateEvent="CLOSE") == []
            assert await change(stateEvent="REOPEN") == [("CLOSED", "REOPENED")]
            assert (await ask.data(ACCEPT, master, i=named))["acceptMergeRequest"]["userErrors"] == []
            assert await watched() == [("REOPENED", "MERGED")]

    async def test_automatic_merge_changes_are_streamed(
        self, graph: Graph, ask: Ask, merges: MergeRequestFactory, master: tables.User
    ) -> None:
        proposal = await merges.proposal("feature", merge_status=MergeStatus.CAN_BE_MERGED)
        await merges.make.commit_status(merges.project, proposal.head, status=CheckStatus.PENDING)
        named = {"projectPath": str(merges.project.id), "databaseId": proposal.row.id}
        async with subscribed(graph, master, CHANGED) as stream:
            watched = StreamWatcher(stream, merges)
            for mutation, output in ((ACCEPT, {"mergeWhenBuildSucceeds": True}), (CANCEL, {}), (ACCEPT, {"mergeWhenBuildSucceeds": True})):
                await ask.data(mutation, master, i={**named, **output})
                assert await watched() == NO_CHANGE
            async with merges.services.database.write_session() as session:
                await session.execute(update(tables.CommitStatus).values(status=CheckStatus.SUCCESS))
                await session.commit()
            await maintenance.run_once(merges.services)
            assert (await watched())[-1] == ("OPENED", "MERGED")

    async def test_pushes_are_streamed(
        self, graph: Graph, merges: MergeRequestFactory, project: tables.Project, master: tables.User, statements: StatementRecorder
    ) -> None:
        """A new head, conflicts that come and go, and a push of the target that brings the source with it."""
        old = await merges.tip()
        one, other, third = [await merges.proposal(name, {"same.txt": name}) for name in ("one", "other", "third")]
        grant = RepositoryGrant(project.id, merges.services.repositories.path_of(project.id), master.id)

        async def push(branch: str, old: str | None, new: str | None) -> None:
            await push_refs(merges.services, grant, [RefCommand(f"refs/heads/{branch}", old, new)])
            await maintenance.run_once(merges.services)

        await push("master", None, old)
        async with subscribed(graph, master, CHANGED) as stream:
            watched = StreamWatcher(stream, merges)
            for name in ("one", "other", "third"):
                before = await merges.tip(name)
                await push(name, before, await merges.commit(name, {f"{name}.txt": "more"}))
            assert await watched() == 3 * NO_CHANGE
            head = (await merges.reload(one)).head_oid
            await merges.services.repositories.read(project.id, lambda repository: repository.move_ref("refs/heads/master", head, old))
            await push("master", old, head)
            seen = await watched()
            # The others conflict with it from now on.
            assert sorted(seen) == [("OPENED", "MERGED"), *NO_CHANGE, *NO_CHANGE]
            assert {(await merges.reload(each)).merge_status for each in (other, third)} == {MergeStatus.CANNOT_BE_MERGED}
            with statements.record() as sent:
                await push("master", head, await merges.commit("master", {"more.txt": "more"}))
            # One for both that are marked, one for each as it is looked at, one for the branch.
            assert sum("INSERT INTO changes" in text for text in sent) == 4
            # They were compared again with the same result: no event in between.
            assert await watched() == 4 * NO_CHANGE


class TestRights:
    async def test_hidden_objects_are_not_streamed(
        self, graph: Graph, ask: Ask, make: DataFactory, merges: MergeRequestFactory, master: tables.User
    ) -> None:
        member, stranger = await make.user(), await make.user()
        await make.save(tables.ProjectMember(project_id=merges.project.id, user_id=member.id, access_level=AccessLevel.GUEST))
        row = (await merges.proposal("feature")).row
        title = {"projectPath": str(row.project_id), "databaseId": row.id}
        live, database = merges.services.broadcaster, merges.services.database
        async with subscribed(graph, member, CHANGED, projects=[str(row.project_id)]) as one, subscribed(graph, stranger, CHANGED) as other:
            await ask.data(UPDATE, master, i={**title, "title": "Seen"})
            await live.catch_up(database)
            assert (await next_event(one))["mergeRequest"]["title"] == "Seen"
            async with database.write_session() as session:
                await session.execute(delete(tables.ProjectMember).where(col(tables.ProjectMember.user_id) == member.id))
                await session.commit()
            await ask.data(UPDATE, master, i={**title, "title": "Hidden"})
            await live.catch_up(database)
            assert await one.next(0.02) is None
            assert await other.next(0.02) is None
        assert await rejection_code(graph, stranger, CHANGED, projects=[str(row.project_id)]) == "NOT_FOUND"
        off = await make.project(owner=master, merge_requests_enabled=False)
        assert await rejection_code(graph, master, CHANGED, projects=[str(off.id)]) == "FORBIDDEN"
        assert await rejection_code(graph, master, CHANGED, after="x") == "BAD_REQUEST"


class TestResuming:
    async def test_resumes_after_the_last_sequence_number(
        self, graph: Graph, ask: Ask, make: DataFactory, merges: MergeRequestFactory, master: tables.User, project: tables.Project
    ) -> None:
        """What else is in the log, as changes of builds, is not this stream's."""
        row = (await merges.proposal("feature")).row
        build = await make.build(project, "f" * 40)
        await make.save(tables.Change(kind="build", project_id=project.id, build_id=build.id, ref="master", new_state="pending"))
        for title in "abc":
            await ask.data(UPDATE, master, i={"projectPath": str(row.project_id), "databaseId": row.id, "title": title})
        stream = await open_stream(graph, master, CHANGED, after="2")
        assert isinstance(stream, SubscriptionStream)
        assert [(await next_event(stream))["seq"] for _ in range(2)] == ["3", "4"]
        assert await stream.next(0.02) is None
        stream.close()
