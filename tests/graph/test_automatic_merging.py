"""Merging when the builds succeed, and both mutations of merging: what they do and forbid."""

from typing import Any

import pytest
from sqlalchemy import delete, select, update
from sqlmodel import col

from graph import upkeep
from graph.rules.automatic_merging import CANCELED
from storage import tables
from storage.tables import AccessLevel, CheckStatus, MergeRequestState, UserState
from tests.forge import Ask
from tests.make import Make
from tests.merges import Merges, Proposal

ACCEPT = """mutation ($input: AcceptMergeRequestInput!) { acceptMergeRequest(input: $input) {
    mergeRequest { state mergeWhenBuildSucceeds mergedBy { username } mergeCommit { oid title } } userErrors { field code message } } }"""
CANCEL = """mutation ($input: CancelMergeWhenBuildSucceedsInput!) { cancelMergeWhenBuildSucceeds(input: $input) {
    mergeRequest { state mergeWhenBuildSucceeds } userErrors { field code message } } }"""


@pytest.fixture
async def people(make: Make) -> dict[str, tables.User]:
    return {name: await make.user() for name in ("guest", "reporter", "developer", "master", "outsider")}


@pytest.fixture
async def merges(make: Make, people: dict[str, tables.User]) -> Merges:
    levels = {name: AccessLevel[name.upper()] for name in ("guest", "reporter", "developer", "master")}
    project = await make.project(history={"commits": 4}, members=[(people[name], level) for name, level in levels.items()])
    return Merges(make, project, people["reporter"])


def of(proposal: Proposal, **more: Any) -> dict[str, Any]:
    return {"projectPath": str(proposal.row.project_id), "databaseId": proposal.row.id, **more}


async def notes_of(merges: Merges, proposal: Proposal) -> list[tuple[str, int]]:
    wanted = (col(tables.Note.merge_request_id) == proposal.row.id, col(tables.Note.source).is_(None))
    statement = select(col(tables.Note.body), col(tables.Note.author_id)).where(*wanted)
    async with merges.services.database.reading() as session:
        return [(body, author) for body, author in (await session.execute(statement.order_by(col(tables.Note.id)))).all()]


async def check(merges: Merges, proposal: Proposal, status: CheckStatus, name: str = "test") -> tables.CommitStatus:
    return await merges.make.commit_status(merges.project, proposal.head, name=name, status=status)


async def end(merges: Merges, status: CheckStatus) -> None:
    """Every check ends like this."""
    async with merges.services.database.writing() as session:
        await session.execute(update(tables.CommitStatus).values(status=status))
        await session.commit()


@pytest.fixture
async def waiting(ask: Ask, merges: Merges, people: dict[str, tables.User]) -> Proposal:
    """One that the developer wants merged when its build succeeds."""
    proposal = await merges.proposal("feature")
    await check(merges, proposal, CheckStatus.PENDING)
    wish = {"mergeWhenBuildSucceeds": True, "mergeCommitMessage": "At last", "shouldRemoveSourceBranch": True}
    data = await ask.data(ACCEPT, people["developer"], input=of(proposal, **wish))
    assert data["acceptMergeRequest"]["userErrors"] == []
    assert data["acceptMergeRequest"]["mergeRequest"] == {
        "state": "OPENED",
        "mergeWhenBuildSucceeds": True,
        "mergedBy": None,
        "mergeCommit": None,
    }
    return proposal


class TestAccepting:
    async def test_answers_what_was_merged(self, ask: Ask, merges: Merges, people: dict[str, tables.User]) -> None:
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

    async def test_of_the_head_that_was_seen(self, ask: Ask, merges: Merges, people: dict[str, tables.User]) -> None:
        proposal = await merges.proposal("feature")
        assert await ask.codes(ACCEPT, people["developer"], input=of(proposal, sha="0" * 40)) == ["CONFLICT"]
        assert await ask.codes(ACCEPT, people["developer"], input=of(proposal, sha="--all")) == ["CONFLICT"]

    @pytest.mark.parametrize(
        ("name", "code"), [("outsider", "NOT_FOUND"), ("guest", "FORBIDDEN"), ("reporter", "FORBIDDEN"), ("developer", None)]
    )
    async def test_is_for_who_may_push(self, ask: Ask, merges: Merges, people: dict[str, tables.User], name: str, code: str | None) -> None:
        proposal = await merges.proposal("feature")
        assert await ask.codes(ACCEPT, people[name], input=of(proposal)) == ([code] if code else [])

    async def test_where_merge_requests_are_switched_off(self, ask: Ask, make: Make, people: dict[str, tables.User]) -> None:
        project = await make.project(history={"commits": 4}, merge_requests_enabled=False, members=[(people["master"], 40)])
        proposal = await Merges(make, project, people["master"]).proposal("feature")
        for query in (ACCEPT, CANCEL):
            assert await ask.codes(query, people["master"], input=of(proposal)) == ["FORBIDDEN"]

    async def test_of_another_project_is_not_found(self, ask: Ask, make: Make, merges: Merges, people: dict[str, tables.User]) -> None:
        proposal, other = await merges.proposal("feature"), await make.project(owner=people["master"])
        for query in (ACCEPT, CANCEL):
            assert await ask.codes(query, people["master"], input={**of(proposal), "projectPath": str(other.id)}) == ["NOT_FOUND"]


class TestClosing:
    async def test_closes_the_issues_that_it_names_as_far_as_the_merger_may(
        self, ask: Ask, make: Make, merges: Merges, people: dict[str, tables.User]
    ) -> None:
        mine = await make.issue(merges.project, author=people["reporter"])
        elsewhere = await make.project(
            path="elsewhere", owner=await make.user("stranger"), members=[(people["developer"], AccessLevel.GUEST)]
        )
        foreign = await make.issue(elsewhere)
        head = await merges.commit("feature", message=f"Do it\n\nFixes #{mine.iid} and stranger/elsewhere#{foreign.iid}\n")
        proposal = Proposal(
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
        closed, kept = await make.fetch(tables.Issue, mine.id), await make.fetch(tables.Issue, foreign.id)
        assert closed is not None and kept is not None
        assert (closed.state, kept.state) == (tables.IssueState.CLOSED, tables.IssueState.OPENED)
        async with make.services.database.reading() as session:
            bodies = list(await session.scalars(select(col(tables.Note.body)).where(col(tables.Note.issue_id) == mine.id)))
        assert "Status changed to closed by merge request !1" in bodies


class TestWaiting:
    async def test_merges_once_every_check_succeeded(
        self, ask: Ask, merges: Merges, people: dict[str, tables.User], waiting: Proposal
    ) -> None:
        await check(merges, waiting, CheckStatus.RUNNING, "lint")
        await upkeep.once(merges.services)
        assert (await merges.now(waiting)).state is MergeRequestState.OPENED
        await end(merges, CheckStatus.SUCCESS)
        await upkeep.once(merges.services)
        row = await merges.now(waiting)
        assert (row.state, row.merge_user_id) == (MergeRequestState.MERGED, people["developer"].id)
        assert await merges.tip("feature") is None
        commit = await merges.services.repositories.read(merges.project.id, lambda found: found.commit(row.merge_commit_oid or ""))
        assert (commit.title, commit.author_name) == ("At last", people["developer"].name)
        assert await notes_of(merges, waiting) == [
            (f"Enabled an automatic merge when the build for {waiting.head} succeeds", people["developer"].id),
            ("Status changed to merged", people["developer"].id),
        ]

    @pytest.mark.parametrize("status", [CheckStatus.FAILED, CheckStatus.CANCELED])
    async def test_waits_on_while_a_check_has_not_succeeded(self, merges: Merges, waiting: Proposal, status: CheckStatus) -> None:
        await end(merges, status)
        await upkeep.once(merges.services)
        row = await merges.now(waiting)
        assert (row.state, row.merge_when_build_succeeds) == (MergeRequestState.OPENED, True)

    @pytest.mark.parametrize("status", [None, CheckStatus.SUCCESS, CheckStatus.FAILED, CheckStatus.CANCELED])
    async def test_merges_at_once_where_nothing_is_under_way(
        self, ask: Ask, merges: Merges, people: dict[str, tables.User], status: CheckStatus | None
    ) -> None:
        proposal = await merges.proposal("feature")
        if status is not None:
            await check(merges, proposal, status)
        data = await ask.data(ACCEPT, people["developer"], input=of(proposal, mergeWhenBuildSucceeds=True))
        assert data["acceptMergeRequest"]["mergeRequest"]["state"] == "MERGED"

    async def test_is_refused_as_a_merge_is(self, ask: Ask, merges: Merges, people: dict[str, tables.User]) -> None:
        proposal = await merges.proposal("feature", {"same": "one\n"})
        await check(merges, proposal, CheckStatus.RUNNING)
        await merges.commit("master", {"same": "other\n"})
        wish = of(proposal, mergeWhenBuildSucceeds=True)
        assert await ask.codes(ACCEPT, people["reporter"], input=wish) == ["FORBIDDEN"]
        assert await ask.codes(ACCEPT, people["developer"], input=wish) == ["NOT_MERGEABLE"]
        assert await ask.codes(ACCEPT, people["developer"], input={**wish, "sha": "0" * 40}) == ["CONFLICT"]
        draft = await merges.proposal("draft", title="WIP: draft")
        await check(merges, draft, CheckStatus.RUNNING)
        assert await ask.codes(ACCEPT, people["developer"], input=of(draft, mergeWhenBuildSucceeds=True)) == ["NOT_ALLOWED"]

    async def test_ends_when_the_right_is_lost(self, merges: Merges, people: dict[str, tables.User], waiting: Proposal) -> None:
        async with merges.services.database.writing() as session:
            await session.execute(delete(tables.ProjectMember).where(col(tables.ProjectMember.user_id) == people["developer"].id))
            await session.commit()
        await end(merges, CheckStatus.SUCCESS)
        await self.ended(merges, waiting, f"{CANCELED}: {people['developer'].name} is not allowed to merge into this branch any more")

    async def test_ends_when_it_conflicts(self, merges: Merges, waiting: Proposal) -> None:
        await merges.commit("master", {"feature.txt": "other\n"})
        await end(merges, CheckStatus.SUCCESS)
        await self.ended(merges, waiting, f"{CANCELED}: the branch cannot be merged")

    async def test_ends_when_the_user_is_blocked(self, merges: Merges, people: dict[str, tables.User], waiting: Proposal) -> None:
        async with merges.services.database.writing() as session:
            await session.execute(update(tables.User).where(col(tables.User.id) == people["developer"].id).values(state=UserState.BLOCKED))
            await session.commit()
        await self.ended(merges, waiting, f"{CANCELED}: who asked for it is not active any more")

    async def test_ends_when_the_user_is_gone(self, merges: Merges, people: dict[str, tables.User], waiting: Proposal) -> None:
        async with merges.services.database.writing() as session:
            await session.execute(update(tables.MergeRequest).values(merge_user_id=None))
            await session.commit()
        await self.ended(merges, waiting, f"{CANCELED}: who asked for it is not active any more")
        assert (await notes_of(merges, waiting))[-1][1] == people["reporter"].id

    async def test_ends_silently_when_the_source_moves(self, merges: Merges, waiting: Proposal) -> None:
        await merges.commit("feature", {"more": "more"})
        await end(merges, CheckStatus.SUCCESS)
        before = await notes_of(merges, waiting)
        await upkeep.once(merges.services)
        row = await merges.now(waiting)
        assert (row.state, row.merge_when_build_succeeds) == (MergeRequestState.OPENED, False)
        assert not [body for body, _ in (await notes_of(merges, waiting))[len(before) :] if body.startswith(CANCELED)]

    async def ended(self, merges: Merges, waiting: Proposal, body: str) -> None:
        await upkeep.once(merges.services)
        row = await merges.now(waiting)
        assert (row.state, row.merge_when_build_succeeds, row.merge_params) == (MergeRequestState.OPENED, False, None)
        assert (await notes_of(merges, waiting))[-1][0] == body
        assert await merges.tip("feature") == waiting.head
        await upkeep.once(merges.services)
        assert (await notes_of(merges, waiting))[-1][0] == body

    async def test_in_progress_waits_until_it_is_not(self, merges: Merges, waiting: Proposal) -> None:
        await end(merges, CheckStatus.SUCCESS)
        for title, state in (("WIP: hold on", MergeRequestState.OPENED), ("Go", MergeRequestState.MERGED)):
            async with merges.services.database.writing() as session:
                await session.execute(update(tables.MergeRequest).values(title=title))
                await session.commit()
            await upkeep.once(merges.services)
            assert (await merges.now(waiting)).state is state


class TestCanceling:
    @pytest.mark.parametrize("name", ["developer", "master", "reporter"])
    async def test_is_for_who_may_merge_and_the_author(
        self, ask: Ask, merges: Merges, people: dict[str, tables.User], waiting: Proposal, name: str
    ) -> None:
        data = await ask.data(CANCEL, people[name], input=of(waiting))
        assert data["cancelMergeWhenBuildSucceeds"] == {
            "mergeRequest": {"state": "OPENED", "mergeWhenBuildSucceeds": False},
            "userErrors": [],
        }
        assert (await notes_of(merges, waiting))[-1] == (CANCELED, people[name].id)
        await end(merges, CheckStatus.SUCCESS)
        await upkeep.once(merges.services)
        assert (await merges.now(waiting)).state is MergeRequestState.OPENED

    @pytest.mark.parametrize(("name", "code"), [("outsider", "NOT_FOUND"), ("guest", "FORBIDDEN")])
    async def test_is_not_for_others(self, ask: Ask, people: dict[str, tables.User], waiting: Proposal, name: str, code: str) -> None:
        assert await ask.codes(CANCEL, people[name], input=of(waiting)) == [code]

    async def test_of_one_that_does_not_wait(self, ask: Ask, merges: Merges, people: dict[str, tables.User]) -> None:
        proposal = await merges.proposal("feature")
        assert await ask.codes(CANCEL, people["developer"], input=of(proposal)) == ["NOT_SET"]

    @pytest.mark.parametrize("state", [MergeRequestState.MERGED, MergeRequestState.CLOSED])
    async def test_of_one_that_is_not_open(
        self, ask: Ask, merges: Merges, people: dict[str, tables.User], state: MergeRequestState
    ) -> None:
        proposal = await merges.proposal("feature", state=state)
        assert await ask.codes(CANCEL, people["developer"], input=of(proposal)) == ["NOT_ALLOWED"]
