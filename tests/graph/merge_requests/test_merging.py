"""Acceptance of merge requests: effects, refusals, and that an interruption never leaves a half merge."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.context import Context
from graph.errors import Conflict, Forbidden, NotAllowed, NotMergeable, Unavailable
from graph.jobs import object_collections
from graph.rules import states
from graph.rules.git import ref_updates
from graph.rules.merge_requests import merging
from graph.rules.merge_requests.merging import MergeOptions
from storage import tables
from storage.database.clock import now
from storage.git import merge
from storage.git.repository import Repository
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables import AccessLevel, MergeRequestState, MergeStatus
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import commit_files
from tests.support.merge_requests import MergeRequestFactory, OpenMergeRequest

pytestmark = pytest.mark.usefixtures("people")

COMPARED: dict[str, Any] = {"merge_status": MergeStatus.CAN_BE_MERGED}
"""Of a merge request whose branches were compared already."""
MAX_STATEMENTS = 22
"""Of one accept: reads, and on SQLite one for each table that it writes to."""
MAX_REMOVAL_STATEMENTS = 4
"""More, for a merge that deletes the source branch."""


@pytest.fixture
async def people(make: DataFactory) -> dict[str, tables.User]:
    return {"reporter": await make.user(), "developer": await make.user(), "master": await make.user(), "outsider": await make.user()}


@pytest.fixture
async def merges(make: DataFactory, people: dict[str, tables.User]) -> MergeRequestFactory:
    levels = {"reporter": AccessLevel.REPORTER, "developer": AccessLevel.DEVELOPER, "master": AccessLevel.MASTER}
    members = [(people[name], level) for name, level in levels.items()]
    project = await make.project(history={"commits": 4}, members=members)
    return MergeRequestFactory(make, project, people["reporter"])


async def accept(merges: MergeRequestFactory, proposal: OpenMergeRequest, user: tables.User, **options: Any) -> tables.MergeRequest:
    async with merges.acting(user) as context:
        return await merging.accept_now(context, proposal.row, MergeOptions(**options))


async def notes_of(merges: MergeRequestFactory, proposal: OpenMergeRequest) -> list[str]:
    """The notes of the service on it, except the mention by the merge commit itself."""
    statement = select(col(tables.Note.body)).where(col(tables.Note.merge_request_id) == proposal.row.id, col(tables.Note.source).is_(None))
    async with merges.services.database.read_session() as session:
        return list((await session.execute(statement.order_by(col(tables.Note.id)))).scalars())


async def assert_not_merged(merges: MergeRequestFactory, proposal: OpenMergeRequest, before: str | None) -> None:
    """Nothing of the merge is to be seen, now or later."""
    assert await merges.tip() == before
    assert (await merges.reload(proposal)).state is MergeRequestState.OPENED
    assert await notes_of(merges, proposal) == []


async def assert_merged(merges: MergeRequestFactory, proposal: OpenMergeRequest) -> tables.MergeRequest:
    """The row and the repository agree: it is merged, with one event."""
    row = await merges.reload(proposal)
    assert row.state is MergeRequestState.MERGED
    assert row.merge_commit_oid is not None and await merges.contains(row.merge_commit_oid)
    assert await merges.contains(proposal.head)
    assert await notes_of(merges, proposal) == ["Status changed to merged"]
    return row


class TestAccept:
    async def test_creates_a_merge_commit_and_updates_the_row(self, merges: MergeRequestFactory, people: dict[str, tables.User]) -> None:
        before = await merges.tip()
        proposal = await merges.proposal("feature", title="A title", description="Why.\n")
        row = await accept(merges, proposal, people["developer"])
        stored = await assert_merged(merges, proposal)
        assert row.merge_commit_oid == stored.merge_commit_oid == await merges.tip()
        assert (stored.merge_user_id, stored.head_oid) == (people["developer"].id, proposal.head)
        assert stored.merged_at is not None and stored.merge_status is MergeStatus.CAN_BE_MERGED

        def look(repository: Repository) -> Any:
            return repository.commit(row.merge_commit_oid or "")

        made = await merges.services.repositories.read(merges.project.id, look)
        assert made.parents == (before, proposal.head)
        assert made.message == f"Merge branch 'feature' into 'master'\n\nA title\n\nWhy.\n\nSee merge request !{row.iid}\n"
        assert (made.author_name, made.author_email) == (people["developer"].name, people["developer"].email)
        assert made.committer_name == people["developer"].name
        project = await merges.make.fetch(tables.Project, merges.project.id)
        assert project is not None and project.last_activity_at > merges.project.last_activity_at

    async def test_accepts_the_given_message(self, merges: MergeRequestFactory, people: dict[str, tables.User]) -> None:
        proposal = await merges.proposal("feature")
        row = await accept(merges, proposal, people["developer"], message="As I say")
        commit = await merges.services.repositories.read(merges.project.id, lambda found: found.commit(row.merge_commit_oid or ""))
        assert commit.message == "As I say\n"

    async def test_an_empty_message_is_none(self, merges: MergeRequestFactory, people: dict[str, tables.User]) -> None:
        proposal = await merges.proposal("feature")
        row = await accept(merges, proposal, people["developer"], message=" \n")
        commit = await merges.services.repositories.read(merges.project.id, lambda found: found.commit(row.merge_commit_oid or ""))
        assert commit.title == "Merge branch 'feature' into 'master'"

    async def test_rejects_a_changed_head(self, merges: MergeRequestFactory, people: dict[str, tables.User]) -> None:
        proposal = await merges.proposal("feature")
        head = await merges.commit("feature", {"more": "more"})
        with pytest.raises(Conflict):
            await accept(merges, proposal, people["developer"], sha=proposal.head)
        await accept(merges, proposal, people["developer"], sha=head.upper())
        assert await merges.contains(head)

    async def test_fetches_commits_of_a_fork(self, make: DataFactory, merges: MergeRequestFactory, people: dict[str, tables.User]) -> None:
        fork = MergeRequestFactory(
            make, await make.project(source=merges.services.repositories.path_of(merges.project.id)), people["reporter"]
        )
        head = await fork.commit("theirs")
        row = await make.merge_request(merges.project, author=people["reporter"], source_branch="theirs", source_project_id=fork.project.id)
        await accept(merges, OpenMergeRequest(row, head), people["developer"])
        stored = await assert_merged(merges, OpenMergeRequest(row, head))
        assert (stored.commit_count, stored.files) == (1, 1)

    async def test_writes_its_commit_again_if_old_objects_were_deleted_meanwhile(
        self, merges: MergeRequestFactory, people: dict[str, tables.User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proposal = await merges.proposal("feature")
        path = merges.services.repositories.path_of(merges.project.id)
        stray = commit_files(path, {"stray": b"stray"})
        await object_collections.collect_project(merges.services, merges.project.id)
        prepare, prepared = ref_updates.prepare_updates, list[int]()

        async def prepare_then_collect(*arguments: Any, **options: Any) -> Any:
            found = await prepare(*arguments, **options)
            prepared.append(found.since)
            if len(prepared) == 1:
                later = replace(merges.services, clock=lambda: now() + timedelta(days=15))
                assert await object_collections.collect_project(later, merges.project.id)
            return found

        monkeypatch.setattr(ref_updates, "prepare_updates", prepare_then_collect)
        await accept(merges, proposal, people["developer"])

        await assert_merged(merges, proposal)
        assert len(prepared) == 2 and prepared[0] < prepared[1]
        assert not await merges.services.repositories.read(merges.project.id, lambda repository: repository.has_commit(stray))


class TestRejections:
    @pytest.mark.parametrize("name", ["outsider", "reporter"])
    async def test_requires_permission_to_push_to_the_target(
        self, merges: MergeRequestFactory, people: dict[str, tables.User], name: str
    ) -> None:
        before, proposal = await merges.tip(), await merges.proposal("feature", state=MergeRequestState.OPENED)
        with pytest.raises(Forbidden):
            await accept(merges, proposal, people[name])
        await assert_not_merged(merges, proposal, before)

    @pytest.mark.parametrize(("developers", "allowed"), [(False, ["master"]), (True, ["master", "developer"])])
    async def test_a_protected_target(
        self, merges: MergeRequestFactory, people: dict[str, tables.User], developers: bool, allowed: list[str]
    ) -> None:
        await merges.make.save(tables.ProtectedBranch(project_id=merges.project.id, name="master", developers_can_push=developers))
        for name in ("developer", "master"):
            proposal = await merges.proposal(f"of-{name}")
            if name in allowed:
                await accept(merges, proposal, people[name])
            else:
                with pytest.raises(Forbidden):
                    await accept(merges, proposal, people[name])

    @pytest.mark.parametrize(
        "columns",
        [
            {"state": MergeRequestState.CLOSED},
            {"state": MergeRequestState.MERGED},
            {"title": "WIP: not yet"},
            {"title": "[wip] not yet"},
            {"title": "Wip not yet"},
        ],
    )
    async def test_unmergeable_states(self, merges: MergeRequestFactory, people: dict[str, tables.User], columns: dict[str, Any]) -> None:
        before, proposal = await merges.tip(), await merges.proposal("feature", **columns)
        with pytest.raises(NotAllowed):
            await accept(merges, proposal, people["master"])
        assert await merges.tip() == before

    async def test_branches_that_git_cannot_join(self, merges: MergeRequestFactory, people: dict[str, tables.User]) -> None:
        proposals = {
            "conflict": await merges.proposal("conflict", {"same": "one\n"}),
            "no target": await merges.proposal("feature", target_branch="gone"),
            "no source": await merges.proposal("doomed"),
        }
        await merges.commit("master", {"same": "other\n"})
        await merges.services.repositories.read(
            merges.project.id, lambda found: found.move_ref("refs/heads/doomed", None, proposals["no source"].head)
        )
        proposals["nothing new"] = await merges.proposal("behind")
        await merges.services.repositories.read(
            merges.project.id,
            lambda found: found.move_ref("refs/heads/behind", found.find_ref("refs/heads/master"), proposals["nothing new"].head),
        )
        before = await merges.tip()
        for proposal in proposals.values():
            with pytest.raises(NotMergeable):
                await accept(merges, proposal, people["master"])
            await assert_not_merged(merges, proposal, before)

    async def test_an_archived_project(self, make: DataFactory, people: dict[str, tables.User]) -> None:
        project = await make.project(history={"commits": 4}, archived=True, members=[(people["master"], AccessLevel.MASTER)])
        merges = MergeRequestFactory(make, project, people["reporter"])
        with pytest.raises(Forbidden):
            await accept(merges, await merges.proposal("feature"), people["master"])

    async def test_merging_twice(self, merges: MergeRequestFactory, people: dict[str, tables.User]) -> None:
        proposal = await merges.proposal("feature")
        await accept(merges, proposal, people["master"])
        with pytest.raises(NotAllowed):
            await accept(merges, proposal, people["master"])

    def test_titles_of_work_in_progress(self) -> None:
        assert all(states.is_work_in_progress(title) for title in ("WIP: a", "wip a", "[WIP] a", "WIP] a", "[WIP: a"))
        assert not any(states.is_work_in_progress(title) for title in ("WIPE", "a WIP: b", "", "[W", "Fix [WIP]"))


class TestSourceBranch:
    async def test_is_deleted_when_requested(self, merges: MergeRequestFactory, people: dict[str, tables.User]) -> None:
        proposal = await merges.proposal("feature")
        await accept(merges, proposal, people["developer"], remove_source_branch=True)
        assert await merges.tip("feature") is None
        await assert_merged(merges, proposal)

    async def test_is_preserved_by_default(self, merges: MergeRequestFactory, people: dict[str, tables.User]) -> None:
        proposal = await merges.proposal("feature")
        await accept(merges, proposal, people["developer"])
        assert await merges.tip("feature") == proposal.head

    async def test_a_protected_or_default_branch_is_preserved(self, merges: MergeRequestFactory, people: dict[str, tables.User]) -> None:
        await merges.make.save(tables.ProtectedBranch(project_id=merges.project.id, name="kept"))
        stored, default = await merges.proposal("kept"), await merges.proposal("master", target_branch="topic")
        for proposal in (stored, default):
            await accept(merges, proposal, people["master"], remove_source_branch=True)
            assert await merges.tip(proposal.row.source_branch) is not None

    async def test_a_fork_branch_is_preserved_without_push_permission(
        self, make: DataFactory, merges: MergeRequestFactory, people: dict[str, tables.User]
    ) -> None:
        fork = await make.project(source=merges.services.repositories.path_of(merges.project.id))
        proposal = await merges.proposal("feature", source_project_id=fork.id)
        await make.services.repositories.read(fork.id, lambda found: copy_commit(found, merges, proposal.head))
        await accept(merges, proposal, people["master"], remove_source_branch=True)
        tip = await make.services.repositories.read(fork.id, lambda found: found.find_ref("refs/heads/feature"))
        assert tip == proposal.head
        await assert_merged(merges, proposal)


def copy_commit(repository: Repository, merges: MergeRequestFactory, oid: str) -> None:
    from storage.git.subprocesses import git_command

    source = merges.services.repositories.path_of(merges.project.id)
    git_command.run(repository.path, "fetch", "--quiet", str(source), "+refs/heads/feature:refs/heads/feature")


class SimulatedCrash(BaseException):
    """The process ends here."""


Broken = Callable[..., Any]


STEPS = (
    (merging, "_lock"),
    (merging.issue_closing, "close_after_merge"),
    (merging.ref_updates, "apply_updates"),
    (ref_updates.refs, "write_moves"),
    (ref_updates.pipelines, "create_pipelines"),
    (ref_updates.commit_index, "record_moves"),
    (ref_updates.moved_branches, "apply"),
)
"""What the transaction of a merge calls."""


class TestCrashes:
    """At each step of the transaction: nothing was merged, and the next process finds nothing to repair."""

    @pytest.mark.parametrize("after", [False, True])
    @pytest.mark.parametrize(("module", "name"), STEPS)
    async def test_leave_nothing(
        self,
        merges: MergeRequestFactory,
        people: dict[str, tables.User],
        monkeypatch: pytest.MonkeyPatch,
        module: Any,
        name: str,
        after: bool,
    ) -> None:
        before, proposal = await merges.tip(), await merges.proposal("feature")
        whole: Broken = getattr(module, name)

        async def broken(*arguments: Any) -> Any:
            if after:
                await whole(*arguments)
            raise SimulatedCrash

        def broken_at_once(*arguments: Any) -> Any:
            if after:
                whole(*arguments)
            raise SimulatedCrash

        with monkeypatch.context() as patch:
            patch.setattr(module, name, broken if iscoroutinefunction(whole) else broken_at_once)
            with pytest.raises(SimulatedCrash):
                await accept(merges, proposal, people["developer"], remove_source_branch=True)
        await assert_not_merged(merges, proposal, before)
        assert await merges.tip("feature") == proposal.head
        row = await accept(merges, proposal, people["developer"], remove_source_branch=True)
        assert row.merge_user_id == people["developer"].id
        await assert_merged(merges, proposal)
        assert await merges.tip("feature") is None


class TestUnlockedRows:
    """Nothing is locked before the commit, which finds out what has changed since it was read."""

    async def test_a_merge_takes_few_statements(
        self, ask: Ask, merges: MergeRequestFactory, people: dict[str, tables.User], statements: StatementRecorder
    ) -> None:
        first, second, removing = [
            await merges.proposal(name, target_branch=f"into-{name}", **COMPARED) for name in ("one", "two", "three")
        ]
        for proposal in (first, second, removing):
            await merges.commit(proposal.row.target_branch)
        question = "mutation($input: AcceptMergeRequestInput!) { acceptMergeRequest(input: $input) { mergeRequest { state } } }"
        for proposal in (first, second, removing):
            value = {"projectPath": str(merges.project.id), "databaseId": proposal.row.id, "shouldRemoveSourceBranch": proposal is removing}
            # The first one indexes the branches, which the tests have written into the repository.
            maximum = {second.row.id: MAX_STATEMENTS, removing.row.id: MAX_STATEMENTS + MAX_REMOVAL_STATEMENTS}.get(proposal.row.id, 99)
            with statements.assert_at_most(maximum) as seen:
                data = await ask.data(question, people["developer"], input=value)
            assert data["acceptMergeRequest"]["mergeRequest"]["state"] == "MERGED"
            assert proposal is first or not any("FOR NO KEY UPDATE" in statement for statement in seen)
        assert (await merges.reload(second)).state is MergeRequestState.MERGED
        assert await merges.tip("three") is None

    @pytest.mark.parametrize("changed", ["merge request", "project", "target", "other merge request"])
    async def test_a_change_before_the_commit_is_not_lost(
        self, merges: MergeRequestFactory, people: dict[str, tables.User], monkeypatch: pytest.MonkeyPatch, changed: str
    ) -> None:
        proposal, whole, runs = await merges.proposal("feature", **COMPARED), merging._merge, list[tables.MergeRequest]()
        description, other = "Changed meanwhile", list[OpenMergeRequest]()

        async def change_before_commit(*arguments: Any) -> Any:
            found = await whole(*arguments)
            runs.append(found)
            if len(runs) > 1:
                return found
            if changed == "target":
                await merges.commit("master", {"pushed": "x"})
            elif changed == "other merge request":
                other.append(await merges.proposal("other", **COMPARED))
            else:
                async with merges.services.database.write_session() as session:
                    table = tables.Project if changed == "project" else tables.MergeRequest
                    row = await session.get(table, merges.project.id if changed == "project" else proposal.row.id)
                    row.description = description
                    await session.commit()
            return found

        monkeypatch.setattr(merging, "_merge", change_before_commit)
        await accept(merges, proposal, people["developer"])
        row, project = await assert_merged(merges, proposal), await merges.make.fetch(tables.Project, merges.project.id)
        assert len(runs) == 2
        assert (row.description == description) == (changed == "merge request")
        assert (project is not None and project.description == description) == (changed == "project")
        for each in other:
            assert (await merges.reload(each)).merge_status is MergeStatus.UNCHECKED


class TestCompareAndSwap:
    def others_push(self, merges: MergeRequestFactory, monkeypatch: pytest.MonkeyPatch, times: int) -> list[str]:
        """Just before the swap, somebody else moves the target: that often."""
        whole = merging._merge
        pushed: list[str] = []

        async def swap(*arguments: Any) -> Any:
            if len(pushed) < times:
                pushed.append(await merges.commit("master", {f"pushed{len(pushed)}": "x"}))
            return await whole(*arguments)

        monkeypatch.setattr(merging, "_merge", swap)
        return pushed

    async def test_lost_swaps_are_retried(
        self, merges: MergeRequestFactory, people: dict[str, tables.User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proposal = await merges.proposal("feature")
        pushed = self.others_push(merges, monkeypatch, merging.MAX_ATTEMPTS - 1)
        await accept(merges, proposal, people["developer"])
        await assert_merged(merges, proposal)
        assert [await merges.contains(oid) for oid in pushed] == [True] * (merging.MAX_ATTEMPTS - 1)

    async def test_five_lost_swaps_are_rejected(
        self, merges: MergeRequestFactory, people: dict[str, tables.User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proposal = await merges.proposal("feature")
        pushed = self.others_push(merges, monkeypatch, 99)
        with pytest.raises(Conflict):
            await accept(merges, proposal, people["developer"])
        assert len(pushed) == merging.MAX_ATTEMPTS
        await assert_not_merged(merges, proposal, pushed[-1])

    async def test_a_push_to_the_source_meanwhile(
        self, merges: MergeRequestFactory, people: dict[str, tables.User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proposal = await merges.proposal("feature")
        whole = merging._merge
        heads: list[str] = []

        async def push_first(prepared: merging.PreparedMerge, own: Context) -> Any:
            if not heads:
                heads.append(await merges.commit("feature", {"more": "more"}))
            return await whole(prepared, own)

        monkeypatch.setattr(merging, "_merge", push_first)
        row = await accept(merges, proposal, people["developer"])
        assert row.head_oid == heads[0]
        assert await merges.contains(heads[0])

    async def test_rights_revoked_during_the_merge(
        self, merges: MergeRequestFactory, people: dict[str, tables.User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before, proposal, whole = await merges.tip(), await merges.proposal("feature"), merging._prepare

        async def plan(*arguments: Any) -> Any:
            planned = await whole(*arguments)
            await merges.make.save(tables.ProtectedBranch(project_id=merges.project.id, name="master"))
            return planned

        monkeypatch.setattr(merging, "_prepare", plan)
        with pytest.raises(Forbidden):
            await accept(merges, proposal, people["developer"])
        await assert_not_merged(merges, proposal, before)

    @pytest.mark.parametrize(("error", "expected"), [(OSError(28, "full"), Unavailable), (GitCommandError("x"), NotMergeable)])
    async def test_a_git_failure_is_reported(
        self,
        merges: MergeRequestFactory,
        people: dict[str, tables.User],
        monkeypatch: pytest.MonkeyPatch,
        error: Exception,
        expected: type[Exception],
    ) -> None:
        before, proposal = await merges.tip(), await merges.proposal("feature")

        def fail(*arguments: object) -> str:
            raise error

        monkeypatch.setattr(merge, "write_merge", fail)
        with pytest.raises(expected):
            await accept(merges, proposal, people["developer"])
        monkeypatch.undo()
        await assert_not_merged(merges, proposal, before)


async def accept_until_canceled(
    merges: MergeRequestFactory, proposal: OpenMergeRequest, viewer: tables.User, reached: asyncio.Event
) -> None:
    """Accepts, and cancels the request when it has reached this point."""
    task = asyncio.create_task(accept(merges, proposal, viewer))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class TestCancellation:
    async def test_cancellation_in_the_transaction_leaves_nothing(
        self, merges: MergeRequestFactory, people: dict[str, tables.User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before, proposal, reached = await merges.tip(), await merges.proposal("feature"), asyncio.Event()
        whole = merging._merge

        async def slowly(*arguments: Any) -> Any:
            row = await whole(*arguments)
            reached.set()
            await asyncio.sleep(60)
            return row

        with monkeypatch.context() as patch:
            patch.setattr(merging, "_merge", slowly)
            await accept_until_canceled(merges, proposal, people["developer"], reached)
        await assert_not_merged(merges, proposal, before)
        await accept(merges, proposal, people["developer"])
        await assert_merged(merges, proposal)

    async def test_cancellation_before_the_swap_leaves_nothing(
        self, merges: MergeRequestFactory, people: dict[str, tables.User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before, proposal, reached = await merges.tip(), await merges.proposal("feature"), asyncio.Event()

        async def never(*arguments: Any) -> Any:
            reached.set()
            await asyncio.sleep(60)

        monkeypatch.setattr(merging, "_prepare", never)
        await accept_until_canceled(merges, proposal, people["developer"], reached)
        await assert_not_merged(merges, proposal, before)
