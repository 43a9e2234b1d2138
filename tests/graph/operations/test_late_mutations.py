"""A mutation whose time limit passes: it is rejected with nothing changed, or its answer says that the change was made."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import select

from graph.context import Context, Services
from graph.errors import Code
from graph.operations import transaction
from graph.operations.deadlines import Deadline
from graph.operations.execution import Graph, prepare
from graph.operations.results import OperationResult
from storage import tables
from storage.database.write_session import WriteSession
from storage.tables import AccessLevel, MergeRequestState
from tests.make import DataFactory, token_of
from tests.support.merge_requests import MergeRequestFactory
from tests.support.waiting import wait_until

MERGE = """mutation Accept($path: String!, $iid: Int!) {
  acceptMergeRequest(input: {projectPath: $path, iid: $iid}) { mergeRequest { state } userErrors { code } } }"""
DELETE = "mutation Delete($path: String!) { deleteProject(input: {projectPath: $path}) { deletedId } }"


@pytest.fixture
async def developer(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def merges(make: DataFactory, developer: tables.User) -> MergeRequestFactory:
    project = await make.project(history={"commits": 2}, members=[(developer, AccessLevel.DEVELOPER)])
    return MergeRequestFactory(make, project, developer)


def around_commit_of_merge(patch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Calls `action` immediately before and after the database commits a merge."""
    commit = WriteSession.commit

    async def committing(session: WriteSession) -> None:
        is_merge = session._has_begun and any(isinstance(row, tables.MergeRequest) for row in session.identity_map.values())
        if is_merge:
            action()
        await commit(session)
        if is_merge:
            action()

    patch.setattr(WriteSession, "commit", committing)


def expire_all(graph: Graph) -> int:
    """The deadlines of all operations pass. Returns their number."""
    expiries = graph._deadlines._expiries
    expired = list(expiries)
    expiries.clear()
    for deadline in expired:
        assert deadline.task is not None
        deadline.expired = True
        deadline.task.cancel()
    return len(expired)


class TestDeadline:
    async def test_a_late_merge_is_never_rejected_after_its_commit(
        self, services: Services, merges: MergeRequestFactory, developer: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        graph = Graph(services)
        expired = 0

        def expire() -> None:
            nonlocal expired
            expired += expire_all(graph)

        async def accept(branch: str, *, prepared: bool = False) -> tuple[OperationResult, MergeRequestState]:
            proposal = await merges.proposal(branch)
            variables, token = {"path": str(merges.project.id), "iid": proposal.row.iid}, token_of(developer)
            if prepared:
                result = await graph.run(prepare(MERGE, "Accept"), variables, token, request_id="r")
            else:
                result = await graph.run_document(MERGE, variables, None, token, request_id="r")
            return result, (await merges.reload(proposal)).state

        with monkeypatch.context() as patch:
            around_commit_of_merge(patch, expire)
            result, state = await accept("during")
            assert result.data == {"acceptMergeRequest": {"mergeRequest": {"state": "MERGED"}, "userErrors": []}}
            assert (result.errors, state, expired) == ([], MergeRequestState.MERGED, 0)

        suspend = Deadline.suspend

        async def suspend_late(deadline: Deadline) -> None:
            expire()
            await suspend(deadline)

        with monkeypatch.context() as patch:
            patch.setattr(Deadline, "suspend", suspend_late)
            result, state = await accept("before")
            assert ([error.code for error in result.errors], state) == ([Code.LIMIT_EXCEEDED], MergeRequestState.OPENED)

        read_session = services.database.read_session

        async def run_late(context: Context) -> None:
            expire()
            await run_after_commit(context)
            async with read_session() as session:
                await session.read(select(tables.MergeRequest))

        run_after_commit = transaction.run_after_commit
        monkeypatch.setattr(transaction, "run_after_commit", run_late)
        for prepared in (False, True):
            result, state = await accept(f"after-{prepared}", prepared=prepared)
            (error,) = result.errors
            assert (error.code, error.retry_after, state) == (Code.INTERNAL, None, MergeRequestState.MERGED)
            assert error.message.startswith("The change was made, but its result could not be read in time.")

    async def test_a_failing_effect_of_a_commit_does_not_fail_the_mutation(
        self, services: Services, merges: MergeRequestFactory, developer: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail() -> None:
            raise OSError("the disk is gone")

        monkeypatch.setattr(services.broadcaster, "notify", fail)
        proposal = await merges.proposal("feature")
        variables = {"path": str(merges.project.id), "iid": proposal.row.iid}
        result = await Graph(services).run_document(MERGE, variables, None, token_of(developer), request_id="r")
        assert result.data is not None and result.data["acceptMergeRequest"]["mergeRequest"] == {"state": "MERGED"}
        assert result.errors == []

    async def test_what_follows_a_commit_is_done_although_the_time_limit_passes(
        self, services: Services, merges: MergeRequestFactory, make: DataFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        graph, loop, may_go_on = Graph(services), asyncio.get_running_loop(), threading.Event()
        removed: list[str] = []

        def remove_slowly(project_id: int) -> None:
            loop.call_soon_threadsafe(expire_all, graph)
            may_go_on.wait(60)
            removed.append("repository")

        monkeypatch.setattr(services.repositories, "remove", remove_slowly)
        monkeypatch.setattr(services.uploads, "remove_all", lambda project_id: removed.append("uploads"))
        variables, token = {"path": str(merges.project.id)}, token_of(await make.user(admin=True))
        try:
            result = await graph.run_document(DELETE, variables, None, token, request_id="r")
        finally:
            may_go_on.set()
        assert [error.code for error in result.errors] == [Code.INTERNAL]
        await wait_until(lambda: removed == ["repository", "uploads"])
