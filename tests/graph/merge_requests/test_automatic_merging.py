"""Automatic merges when the builds succeed, and both mutations of merging: effects and refusals."""

from typing import Any

import pytest
from sqlalchemy import delete, select, update
from sqlmodel import col

from graph.context import Context
from graph.jobs import maintenance
from graph.rules.merge_requests import automatic_merging, merging
from graph.rules.merge_requests.automatic_merging import CANCELED_NOTE
from storage import tables
from storage.tables import AccessLevel, CheckStatus, MergeRequestState, UserState
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.merge_requests import MergeRequestFactory, OpenMergeRequest

ACCEPT = """mutation ($input: AcceptMergeRequestInput!) { acceptMergeRequest(input: $input) {
    mergeRequest { state mergeWhenBuildSucceeds mergedBy { username } mergeCommit { oid title } } userErrors { field code message } } }"""
CANCEL = """mutation ($input: CancelMergeWhenBuildSucceedsInput!) { cancelMergeWhenBuildSucceeds(input: $input) {
    mergeRequest { state mergeWhenBuildSucceeds } userErrors { field code message } } }"""


@pytest.fixture
async def people(make: DataFactory) -> dict[str, tables.User]:
    return {name: await make.user() for name in ("guest", "reporter", "developer", "master", "outsider")}


@pytest.fixture
async def merges(make: DataFactory, people: dict[str, tables.User]) -> MergeRequestFactory:
    levels = {name: AccessLevel[name.upper()] for name in ("guest", "reporter", "developer", "master")}
    project = await make.project(history={"commits": 4}, members=[(people[name], level) for name, level in levels.items()])
    return MergeRequestFactory(make, project, people["reporter"])


def of(proposal: OpenMergeRequest, **more: Any) -> dict[str, Any]:
    return {"projectPath": str(proposal.row.project_id), "databaseId": proposal.row.id, **more}


async def notes_of(merges: MergeRequestFactory, proposal: OpenMergeRequest) -> list[tuple[str, int]]:
    conditions = (col(tables.Note.merge_request_id) == proposal.row.id, col(tables.Note.source).is_(None))
    statement = select(col(tables.Note.body), col(tables.Note.author_id)).where(*conditions)
    async with merges.services.database.read_session() as session:
        return [(body, author) for body, author in (await session.execute(statement.order_by(col(tables.Note.id)))).all()]


async def create_status(
    merges: MergeRequestFactory, proposal: OpenMergeRequest, status: CheckStatus, name: str = "test"
) -> tables.CommitStatus:
    return await merges.make.commit_status(merges.project, proposal.head, name=name, status=status)


async def finish_build(merges: MergeRequestFactory, status: CheckStatus) -> None:
    """Every check ends like this."""
    async with merges.services.database.write_session() as session:
        await session.execute(update(tables.CommitStatus).values(status=status))
        await session.commit()


@pytest.fixture
async def waiting(ask: Ask, merges: MergeRequestFactory, people: dict[str, tables.User]) -> OpenMergeRequest:
    """One that the developer wants merged when its build succeeds."""
    proposal = await merges.proposal("feature")
    await create_status(merges, proposal, CheckStatus.PENDING)
    options = {"mergeWhenBuildSucceeds": True, "mergeCommitMessage": "At last", "shouldRemoveSourceBranch": True}
    data = await ask.data(ACCEPT, people["developer"], input=of(proposal, **options))
    assert data["acceptMergeRequest"]["userErrors"] == []
    assert data["acceptMergeRequest"]["mergeRequest"] == {
        "state": "OPENED",
        "mergeWhenBuildSucceeds": True,
        "mergedBy": None,
        "mergeCommit": None,
    }
    return proposal


class TestAccept:
    async def test_returns_the_merged_request(self, ask: Ask, merges: MergeRequestFactory, people: dict[str, tables.User]) -> None:
        proposal = await merges.proposal("feature")
        data = await ask.data(ACCEPT, people["developer"], input=of(proposal, mergeCommitMessage="Take it", sha=proposal.head))
        assert data["acceptMergeRequest"] == {
            "mergeRequest": {
                "state": "MERGED",
                "mergeWhenBuildSucceeds": False,
                "mergedBy": {"username": people["developer"].username},
                "mergeCommit": {"oid": await merges.tip(), "title": "Take it"},
            },
            "userErrors": [],
        }

    async def test_rejects_a_changed_head(self, ask: Ask, merges: MergeRequestFactory, people: dict[str, tables.User]) -> None:
        proposal = await merges.proposal("feature")
        assert await ask.codes(ACCEPT, people["developer"], input=of(proposal, sha="0" * 40)) == ["CONFLICT"]
        assert await ask.codes(ACCEPT, people["developer"], input=of(proposal, sha="--all")) == ["CONFLICT"]

    @pytest.mark.parametrize(
        ("name", "code"), [("outsider", "NOT_FOUND"), ("guest", "FORBIDDEN"), ("reporter", "FORBIDDEN"), ("developer", None)]
    )
    async def test_requires_permission_to_push(
        self, ask: Ask, merges: MergeRequestFactory, people: dict[str, tables.User], name: str, code: str | None
    ) -> None:
        proposal = await merges.proposal("feature")
        assert await ask.codes(ACCEPT, people[name], input=of(proposal)) == ([code] if code else [])

    async def test_rejects_a_project_without_merge_requests(self, ask: Ask, make: DataFactory, people: dict[str, tables.User]) -> None:
        project = await make.project(history={"commits": 4}, merge_requests_enabled=False, members=[(people["master"], 40)])
        proposal = await MergeRequestFactory(make, project, people["master"]).proposal("feature")
        for query in (ACCEPT, CANCEL):
            assert await ask.codes(query, people["master"], input=of(proposal)) == ["FORBIDDEN"]

    async def test_of_another_project_is_not_found(
        self, ask: Ask, make: DataFactory, merges: MergeRequestFactory, people: dict[str, tables.User]
    ) -> None:
        proposal, other = await merges.proposal("feature"), await make.project(owner=people["master"])
        for query in (ACCEPT, CANCEL):
            assert await ask.codes(query, people["master"], input={**of(proposal), "projectPath": str(other.id)}) == ["NOT_FOUND"]


class TestIssueClosing:
    async def test_closes_mentioned_issues_the_merger_may_update(
        self, ask: Ask, make: DataFactory, merges: MergeRequestFactory, people: dict[str, tables.User]
    ) -> None:
        mine = await make.issue(merges.project, author=people["reporter"])
        elsewhere = await make.project(
            path="elsewhere", owner=await make.user("stranger"), members=[(people["developer"], AccessLevel.GUEST)]
        )
        foreign = await make.issue(elsewhere)
        head = await merges.commit("feature", message=f"Do it\n\nFixes #{mine.iid} and stranger/elsewhere#{foreign.iid}\n")
        proposal = OpenMergeRequest(
            tables.MergeRequest(
                project_id=merges.project.id,
                source_project_id=merges.project.id,
                iid=1,
                author_id=people["reporter"].id,
                title="T",
                source_branch="feature",
                target_branch="master",
            ),
            head,
        )
        await make.save(proposal.row)
        await ask.data(ACCEPT, people["developer"], input=of(proposal))
        closed, open_issue = await make.fetch(tables.Issue, mine.id), await make.fetch(tables.Issue, foreign.id)
        assert closed is not None and open_issue is not None
        assert (closed.state, open_issue.state) == (tables.IssueState.CLOSED, tables.IssueState.OPENED)
        async with make.services.database.read_session() as session:
            bodies = list(await session.scalars(select(col(tables.Note.body)).where(col(tables.Note.issue_id) == mine.id)))
        assert "Status changed to closed by merge request !1" in bodies


class TestWaiting:
    async def test_merges_once_every_check_succeeded(
        self, ask: Ask, merges: MergeRequestFactory, people: dict[str, tables.User], waiting: OpenMergeRequest
    ) -> None:
        await create_status(merges, waiting, CheckStatus.RUNNING, "lint")
        await maintenance.run_once(merges.services)
        assert (await merges.reload(waiting)).state is MergeRequestState.OPENED
        await finish_build(merges, CheckStatus.SUCCESS)
        await maintenance.run_once(merges.services)
        row = await merges.reload(waiting)
        assert (row.state, row.merge_user_id) == (MergeRequestState.MERGED, people["developer"].id)
        assert await merges.tip("feature") is None
        commit = await merges.services.repositories.read(merges.project.id, lambda found: found.commit(row.merge_commit_oid or ""))
        assert (commit.title, commit.author_name) == ("At last", people["developer"].name)
        assert await notes_of(merges, waiting) == [
            (f"Enabled an automatic merge when the build for {waiting.head} succeeds", people["developer"].id),
            ("Status changed to merged", people["developer"].id),
        ]

    async def test_a_repeated_request_replaces_the_options_and_writes_no_note(
        self, ask: Ask, merges: MergeRequestFactory, people: dict[str, tables.User], waiting: OpenMergeRequest
    ) -> None:
        before = await merges.reload(waiting)
        input = of(waiting, mergeWhenBuildSucceeds=True, mergeCommitMessage="Later")

        await ask.data(ACCEPT, people["developer"], input=input)
        repeated = await merges.reload(waiting)
        await ask.data(ACCEPT, people["master"], input=input)

        assert repeated.merge_params == {"message": "Later", "remove_source_branch": False, "sha": waiting.head}
        assert (repeated.merge_when_build_succeeds, repeated.updated_at) == (True, before.updated_at)
        assert [author for _, author in await notes_of(merges, waiting)] == [people["developer"].id, people["master"].id]

    async def test_an_unexpected_error_of_one_is_no_obstacle_for_the_others(
        self,
        ask: Ask,
        merges: MergeRequestFactory,
        people: dict[str, tables.User],
        waiting: OpenMergeRequest,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        later = await merges.proposal("later")
        await create_status(merges, later, CheckStatus.PENDING)
        await ask.data(ACCEPT, people["developer"], input=of(later, mergeWhenBuildSucceeds=True))
        await finish_build(merges, CheckStatus.SUCCESS)
        accept, tried = merging.accept_now, list[int]()

        async def accept_second(context: Context, row: tables.MergeRequest, *options: Any) -> tables.MergeRequest:
            tried.append(row.id)
            if row.id == waiting.row.id:
                raise ValueError("what nobody thought of")
            return await accept(context, row, *options)

        monkeypatch.setattr(merging, "accept_now", accept_second)
        await automatic_merging.merge_waiting(merges.services)
        assert tried == [waiting.row.id, later.row.id]

    @pytest.mark.parametrize("status", [CheckStatus.FAILED, CheckStatus.CANCELED])
    async def test_keeps_waiting_until_every_check_succeeds(
        self, merges: MergeRequestFactory, waiting: OpenMergeRequest, status: CheckStatus
    ) -> None:
        await finish_build(merges, status)
        await maintenance.run_once(merges.services)
        row = await merges.reload(waiting)
        assert (row.state, row.merge_when_build_succeeds) == (MergeRequestState.OPENED, True)

    @pytest.mark.parametrize("status", [None, CheckStatus.SUCCESS, CheckStatus.FAILED, CheckStatus.CANCELED])
    async def test_merges_immediately_without_pending_checks(
        self, ask: Ask, merges: MergeRequestFactory, people: dict[str, tables.User], status: CheckStatus | None
    ) -> None:
        proposal = await merges.proposal("feature")
        if status is not None:
            await create_status(merges, proposal, status)
        data = await ask.data(ACCEPT, people["developer"], input=of(proposal, mergeWhenBuildSucceeds=True))
        assert data["acceptMergeRequest"]["mergeRequest"]["state"] == "MERGED"

    async def test_is_rejected_for_the_same_reasons_as_a_merge(
        self, ask: Ask, merges: MergeRequestFactory, people: dict[str, tables.User]
    ) -> None:
        proposal = await merges.proposal("feature", {"same": "one\n"})
        await create_status(merges, proposal, CheckStatus.RUNNING)
        await merges.commit("master", {"same": "other\n"})
        input = of(proposal, mergeWhenBuildSucceeds=True)
        assert await ask.codes(ACCEPT, people["reporter"], input=input) == ["FORBIDDEN"]
        assert await ask.codes(ACCEPT, people["developer"], input=input) == ["NOT_MERGEABLE"]
        assert await ask.codes(ACCEPT, people["developer"], input={**input, "sha": "0" * 40}) == ["CONFLICT"]
        draft = await merges.proposal("draft", title="WIP: draft")
        await create_status(merges, draft, CheckStatus.RUNNING)
        assert await ask.codes(ACCEPT, people["developer"], input=of(draft, mergeWhenBuildSucceeds=True)) == ["NOT_ALLOWED"]

    async def test_is_canceled_when_the_user_loses_permission(
        self, merges: MergeRequestFactory, people: dict[str, tables.User], waiting: OpenMergeRequest
    ) -> None:
        async with merges.services.database.write_session() as session:
            await session.execute(delete(tables.ProjectMember).where(col(tables.ProjectMember.user_id) == people["developer"].id))
            await session.commit()
        await finish_build(merges, CheckStatus.SUCCESS)
        await self.assert_canceled(
            merges, waiting, f"{CANCELED_NOTE}: {people['developer'].name} is no longer allowed to merge into this branch"
        )

    async def test_is_canceled_on_conflict(self, merges: MergeRequestFactory, waiting: OpenMergeRequest) -> None:
        await merges.commit("master", {"feature.txt": "other\n"})
        await finish_build(merges, CheckStatus.SUCCESS)
        await self.assert_canceled(merges, waiting, f"{CANCELED_NOTE}: the branch cannot be merged")

    async def test_is_canceled_when_the_user_is_blocked(
        self, merges: MergeRequestFactory, people: dict[str, tables.User], waiting: OpenMergeRequest
    ) -> None:
        async with merges.services.database.write_session() as session:
            await session.execute(update(tables.User).where(col(tables.User.id) == people["developer"].id).values(state=UserState.BLOCKED))
            await session.commit()
        await self.assert_canceled(merges, waiting, f"{CANCELED_NOTE}: the user who requested it is no longer active")

    async def test_is_canceled_when_the_user_is_deleted(
        self, merges: MergeRequestFactory, people: dict[str, tables.User], waiting: OpenMergeRequest
    ) -> None:
        async with merges.services.database.write_session() as session:
            await session.execute(update(tables.MergeRequest).values(merge_user_id=None))
            await session.commit()
        await self.assert_canceled(merges, waiting, f"{CANCELED_NOTE}: the user who requested it is no longer active")
        assert (await notes_of(merges, waiting))[-1][1] == people["reporter"].id

    async def test_is_canceled_without_a_note_when_the_source_moves(self, merges: MergeRequestFactory, waiting: OpenMergeRequest) -> None:
        await merges.commit("feature", {"more": "more"})
        await finish_build(merges, CheckStatus.SUCCESS)
        before = await notes_of(merges, waiting)
        await maintenance.run_once(merges.services)
        row = await merges.reload(waiting)
        assert (row.state, row.merge_when_build_succeeds) == (MergeRequestState.OPENED, False)
        assert not [body for body, _ in (await notes_of(merges, waiting))[len(before) :] if body.startswith(CANCELED_NOTE)]

    async def assert_canceled(self, merges: MergeRequestFactory, waiting: OpenMergeRequest, body: str) -> None:
        await maintenance.run_once(merges.services)
        row = await merges.reload(waiting)
        assert (row.state, row.merge_when_build_succeeds, row.merge_params) == (MergeRequestState.OPENED, False, None)
        assert (await notes_of(merges, waiting))[-1][0] == body
        assert await merges.tip("feature") == waiting.head
        await maintenance.run_once(merges.services)
        assert (await notes_of(merges, waiting))[-1][0] == body

    async def test_a_wip_merge_request_waits(self, merges: MergeRequestFactory, waiting: OpenMergeRequest) -> None:
        await finish_build(merges, CheckStatus.SUCCESS)
        for title, state in (("WIP: hold on", MergeRequestState.OPENED), ("Go", MergeRequestState.MERGED)):
            async with merges.services.database.write_session() as session:
                await session.execute(update(tables.MergeRequest).values(title=title))
                await session.commit()
            await maintenance.run_once(merges.services)
            assert (await merges.reload(waiting)).state is state


class TestCancel:
    @pytest.mark.parametrize("name", ["developer", "master", "reporter"])
    async def test_requires_the_author_or_permission_to_merge(
        self, ask: Ask, merges: MergeRequestFactory, people: dict[str, tables.User], waiting: OpenMergeRequest, name: str
    ) -> None:
        data = await ask.data(CANCEL, people[name], input=of(waiting))
        assert data["cancelMergeWhenBuildSucceeds"] == {
            "mergeRequest": {"state": "OPENED", "mergeWhenBuildSucceeds": False},
            "userErrors": [],
        }
        assert (await notes_of(merges, waiting))[-1] == (CANCELED_NOTE, people[name].id)
        await finish_build(merges, CheckStatus.SUCCESS)
        await maintenance.run_once(merges.services)
        assert (await merges.reload(waiting)).state is MergeRequestState.OPENED

    @pytest.mark.parametrize(("name", "code"), [("outsider", "NOT_FOUND"), ("guest", "FORBIDDEN")])
    async def test_is_not_for_others(
        self, ask: Ask, people: dict[str, tables.User], waiting: OpenMergeRequest, name: str, code: str
    ) -> None:
        assert await ask.codes(CANCEL, people[name], input=of(waiting)) == [code]

    async def test_of_one_that_does_not_wait(self, ask: Ask, merges: MergeRequestFactory, people: dict[str, tables.User]) -> None:
        proposal = await merges.proposal("feature")
        assert await ask.codes(CANCEL, people["developer"], input=of(proposal)) == ["NOT_SET"]

    @pytest.mark.parametrize("state", [MergeRequestState.MERGED, MergeRequestState.CLOSED])
    async def test_of_one_that_is_not_open(
        self, ask: Ask, merges: MergeRequestFactory, people: dict[str, tables.User], state: MergeRequestState
    ) -> None:
        proposal = await merges.proposal("feature", state=state)
        assert await ask.codes(CANCEL, people["developer"], input=of(proposal)) == ["NOT_ALLOWED"]
