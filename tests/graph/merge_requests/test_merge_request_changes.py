"""Updates of merge requests through the graph."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.rules.merge_requests import merge_request_refresh
from storage import tables
from storage.tables import AccessLevel, MergeRequestState, MergeStatus
from tests.graph.merge_requests.test_refresh import RefreshScenario
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.merge_requests import MergeRequestFactory, commit_text_files

HISTORY = {"commits": 6}
UPDATE = """mutation ($input: UpdateMergeRequestInput!) { updateMergeRequest(input: $input) { mergeRequest {
    title description state targetBranch mergeStatus labels assignee { username } milestone { title } closedAt mergedAt
    mergeWhenBuildSucceeds mergedBy { username } mergeCommit { title } closesIssues { nodes { iid } } headCommit { oid }
    notes { nodes { body system } } } userErrors { field message code } } }"""


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user("owner")


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.project(history=HISTORY, owner=owner)


@pytest.fixture
async def row(make: DataFactory, project: tables.Project) -> tables.MergeRequest:
    return await make.merge_request(project, source_branch="topic", title="Topic")


def update_input(row: tables.MergeRequest, **values: Any) -> dict[str, Any]:
    return {"projectPath": str(row.project_id), "iid": row.iid, **values}


async def update(ask: Ask, viewer: tables.User, row: tables.MergeRequest, **values: Any) -> dict[str, Any]:
    payload: dict[str, Any] = (await ask.data(UPDATE, viewer, input=update_input(row, **values)))["updateMergeRequest"]
    assert payload["userErrors"] == []
    shown: dict[str, Any] = payload["mergeRequest"]
    return shown


async def user_error_codes(ask: Ask, viewer: tables.User, row: tables.MergeRequest, **values: Any) -> list[tuple[str | None, str, str]]:
    errors = (await ask.data(UPDATE, viewer, input=update_input(row, **values)))["updateMergeRequest"]["userErrors"]
    return [(error["field"], error["message"], error["code"]) for error in errors]


async def create_branch(make: DataFactory, project: tables.Project, name: str, **settings: Any) -> str:
    files = {f"{name}.txt": "x"}
    oid: str = await make.services.repositories.read(project.id, lambda repository: commit_text_files(repository, name, files, **settings))
    return oid


class TestUpdate:
    async def test_changes_given_fields_and_adds_notes(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User, row: tables.MergeRequest
    ) -> None:
        milestone = await make.milestone(project, title="Soon")
        await make.issue(project)

        shown = await update(
            ask, owner, row, title="Other", description="Fixes #1", assigneeId=owner.id, milestoneId=milestone.id, labels=["b", "a"]
        )

        assert (shown["title"], shown["description"], shown["labels"]) == ("Other", "Fixes #1", ["a", "b"])
        assert (shown["assignee"], shown["milestone"]) == ({"username": "owner"}, {"title": "Soon"})
        assert shown["closesIssues"]["nodes"] == [{"iid": 1}]
        assert [note["body"] for note in shown["notes"]["nodes"]] == [
            "Title changed from **Topic** to **Other**",
            f"Milestone changed to [Soon](http://forge.example/owner/{project.path}/milestones/1)",
            "Reassigned to @owner",
        ]
        assert all(note["system"] for note in shown["notes"]["nodes"])
        cleared = await update(ask, owner, row, description=None, assigneeId=0, milestoneId=None, labels=[])
        assert (cleared["title"], cleared["description"], cleared["labels"]) == ("Other", None, [])
        assert (cleared["assignee"], cleared["milestone"], cleared["closesIssues"]["nodes"]) == (None, None, [])

    async def test_omitted_fields_are_preserved(self, ask: Ask, make: DataFactory, owner: tables.User, row: tables.MergeRequest) -> None:
        shown = await update(ask, owner, row)

        assert (shown["title"], shown["notes"]["nodes"], shown["mergeStatus"]) == ("Topic", [], "UNCHECKED")

    async def test_requires_a_master_the_author_or_the_assignee(self, ask: Ask, make: DataFactory, project: tables.Project) -> None:
        author, assignee, developer = await make.user(), await make.user(), await make.user()
        for user, level in ((author, AccessLevel.GUEST), (assignee, AccessLevel.REPORTER), (developer, AccessLevel.DEVELOPER)):
            await make.member(project, user, level)
        row = await make.merge_request(project, author=author, assignee_id=assignee.id)
        await make.label(project, "there")
        milestone = await make.milestone(project)

        assert await ask.codes(UPDATE, developer, input=update_input(row, title="T")) == ["FORBIDDEN"]
        shown = await update(ask, author, row, title="By the author", labels=["there", "new"], milestoneId=milestone.id, assigneeId=0)
        assert (shown["title"], shown["milestone"], shown["assignee"] is None) == ("By the author", None, False)
        assert shown["labels"] == ["there"], "labels are made by who may make them"
        assert (await update(ask, assignee, row, labels=["new"]))["labels"] == ["new"]

    async def test_rejects_invalid_values(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User, row: tables.MergeRequest
    ) -> None:
        elsewhere = await make.milestone(await make.project(owner=owner))

        assert [each[0] for each in await user_error_codes(ask, owner, row, milestoneId=elsewhere.id)] == ["milestoneId"]
        assert [each[2] for each in await user_error_codes(ask, owner, row, title=" ")] == ["REQUIRED"]
        assert [each[0] for each in await user_error_codes(ask, owner, row, labels=["?"])] == ["labels"]

    async def test_the_source_branch_cannot_change(self, ask: Ask, owner: tables.User, row: tables.MergeRequest) -> None:
        refused = [(None, "Source branch cannot be changed", "INVALID")]

        assert await user_error_codes(ask, owner, row, sourceBranch="master") == refused
        assert await user_error_codes(ask, owner, row, sourceBranch="master", stateEvent="MERGE") == refused
        assert (await update(ask, owner, row, sourceBranch="topic", title="T"))["title"] == "T"

    async def test_missing_and_hidden_ones_are_not_found(
        self, ask: Ask, make: DataFactory, owner: tables.User, row: tables.MergeRequest
    ) -> None:
        other = await make.project(owner=owner)

        assert await ask.codes(UPDATE, await make.user(), input=update_input(row)) == ["NOT_FOUND"]
        assert await ask.codes(UPDATE, owner, input={"projectPath": str(other.id), "databaseId": row.id}) == ["NOT_FOUND"]
        assert await ask.codes(UPDATE, owner, input={"projectPath": str(other.id), "stateEvent": "MERGE", "iid": 1}) == ["NOT_FOUND"]


class TestTargetBranch:
    async def test_changing_the_target_compares_again(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User, row: tables.MergeRequest
    ) -> None:
        await create_branch(make, project, "stable")

        shown = await update(ask, owner, row, targetBranch="stable")

        assert (shown["targetBranch"], shown["mergeStatus"]) == ("stable", "CAN_BE_MERGED")
        assert shown["headCommit"] is not None
        assert [note["body"] for note in shown["notes"]["nodes"]] == ["Target branch changed from `master` to `stable`"]

    async def test_cancels_the_automatic_merge(self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User) -> None:
        await create_branch(make, project, "stable")
        row = await make.merge_request(
            project, source_branch="topic", merge_when_build_succeeds=True, merge_user_id=owner.id, merge_params={"sha": None}
        )

        shown = await update(ask, owner, row, targetBranch="stable")

        assert shown["mergeWhenBuildSucceeds"] is False
        assert "Canceled the automatic merge" in [note["body"] for note in shown["notes"]["nodes"]]

    async def test_refusals(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User, row: tables.MergeRequest
    ) -> None:
        await create_branch(make, project, "stable")
        await make.merge_request(project, source_branch="topic", target_branch="stable", title="Equal")

        assert await user_error_codes(ask, owner, row, targetBranch="none") == [
            ("targetBranch", "is not a branch of the target project", "INVALID")
        ]
        assert [each[2] for each in await user_error_codes(ask, owner, row, targetBranch="topic")] == ["NOT_ALLOWED"]
        assert await user_error_codes(ask, owner, row, targetBranch="stable") == [
            (None, 'Cannot Create: This merge request already exists: ["Equal"]', "CONFLICT")
        ]
        merged = await make.merge_request(project, state=MergeRequestState.MERGED)
        assert [each[:1] for each in await user_error_codes(ask, owner, merged, targetBranch="stable")] == [("targetBranch",)]
        assert (await update(ask, owner, merged, targetBranch="master"))["targetBranch"] == "master", "the same is no change"


class TestStateEvents:
    async def test_closing_cancels_the_automatic_merge(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User
    ) -> None:
        row = await make.merge_request(project, merge_when_build_succeeds=True, merge_user_id=owner.id, merge_params={})

        shown = await update(ask, owner, row, stateEvent="CLOSE")

        assert (shown["state"], shown["mergeWhenBuildSucceeds"]) == ("CLOSED", False)
        assert [note["body"] for note in shown["notes"]["nodes"]] == ["Status changed to closed"]

    async def test_reopening_compares_again(self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User) -> None:
        row = await make.merge_request(project, source_branch="topic", state=MergeRequestState.CLOSED)

        shown = await update(ask, owner, row, stateEvent="REOPEN")

        assert (shown["state"], shown["closedAt"], shown["mergeStatus"]) == ("REOPENED", None, "CAN_BE_MERGED")
        assert [note["body"] for note in shown["notes"]["nodes"]] == ["Status changed to reopened"]

    @pytest.mark.parametrize("values", [{"stateEvent": "REOPEN"}, {"targetBranch": "stable"}], ids=["reopen", "target"])
    async def test_a_push_during_a_comparison_is_not_missed(
        self,
        ask: Ask,
        make: DataFactory,
        project: tables.Project,
        owner: tables.User,
        monkeypatch: pytest.MonkeyPatch,
        dialect: str,
        values: dict[str, Any],
    ) -> None:
        pusher, pushing = RefreshScenario(make, project, owner), list[asyncio.Task[str]]()
        state = MergeRequestState.CLOSED if "stateEvent" in values else MergeRequestState.OPENED
        await pusher.push_branch("stable")
        row = await make.merge_request(project, source_branch="topic", state=state)
        apply_comparison = merge_request_refresh.apply_comparison

        async def interrupted(*arguments: Any) -> None:
            if not pushing:
                pushing.append(asyncio.create_task(pusher.push_branch("topic" if "stateEvent" in values else "stable")))
                await asyncio.wait(pushing, timeout=0.5)
            await apply_comparison(*arguments)

        monkeypatch.setattr(merge_request_refresh, "apply_comparison", interrupted)
        await update(ask, owner, row, **values)
        head = await pushing[0]
        found = await make.fetch(tables.MergeRequest, row.id)
        assert found is not None
        assert found.head_oid == head if "stateEvent" in values else found.merge_status is MergeStatus.UNCHECKED

    async def test_reopens_without_a_source_branch_as_one_that_cannot_be_merged(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User
    ) -> None:
        row = await make.merge_request(project, state=MergeRequestState.CLOSED)

        shown = await update(ask, owner, row, stateEvent="REOPEN")

        assert (shown["state"], shown["mergeStatus"]) == ("REOPENED", "CANNOT_BE_MERGED")

    async def test_two_equal_ones_are_not_open_at_once(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User
    ) -> None:
        row = await make.merge_request(project, source_branch="topic", state=MergeRequestState.CLOSED)
        await make.merge_request(project, source_branch="topic")

        assert [each[2] for each in await user_error_codes(ask, owner, row, stateEvent="REOPEN")] == ["CONFLICT"]
        stored = await make.fetch(tables.MergeRequest, row.id)
        assert stored is not None and stored.state is MergeRequestState.CLOSED

    async def test_hooks_are_notified_of_each_change(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User, row: tables.MergeRequest
    ) -> None:
        await make.save(tables.Hook(url="http://hooks.example/", merge_requests_events=True))

        await update(ask, owner, row, title="Other")
        await update(ask, owner, row, labels=["a"])
        await update(ask, owner, row, labels=["a"])
        await update(ask, owner, row, stateEvent="CLOSE")
        await update(ask, owner, row, stateEvent="REOPEN")

        async with make.services.database.read_session() as session:
            events = (await session.execute(select(tables.Event).order_by(col(tables.Event.id)))).scalars().all()
        found = [event.payload["object_attributes"]["action"] for event in events if event.name == "merge_request"]
        assert found == ["update", "update", "close", "reopen"]


class TestMerge:
    @pytest.fixture
    async def merges(self, make: DataFactory, project: tables.Project, owner: tables.User) -> MergeRequestFactory:
        return MergeRequestFactory(make, project, owner)

    async def test_is_the_accept_rule(self, ask: Ask, owner: tables.User, merges: MergeRequestFactory) -> None:
        proposal = await merges.proposal("feature")

        shown = await update(ask, owner, proposal.row, stateEvent="MERGE")

        assert (shown["state"], shown["mergedBy"]) == ("MERGED", {"username": "owner"})
        assert shown["mergedAt"] and shown["mergeCommit"]["title"] == "Merge branch 'feature' into 'master'"
        assert await merges.contains(proposal.head)

    async def test_applies_other_changes_before_the_merge(self, ask: Ask, owner: tables.User, merges: MergeRequestFactory) -> None:
        proposal = await merges.proposal("feature", title="WIP: Feature")

        shown = await update(ask, owner, proposal.row, stateEvent="MERGE", title="Feature", targetBranch="master")

        assert (shown["title"], shown["state"]) == ("Feature", "MERGED")

    async def test_requires_permission_to_push_to_the_target(
        self, ask: Ask, make: DataFactory, project: tables.Project, merges: MergeRequestFactory
    ) -> None:
        developer, reporter = await make.user(), await make.user()
        await make.member(project, developer, AccessLevel.DEVELOPER)
        await make.member(project, reporter, AccessLevel.REPORTER)
        proposal = await merges.proposal("feature")

        assert await ask.codes(UPDATE, reporter, input=update_input(proposal.row, stateEvent="MERGE")) == ["FORBIDDEN"]
        assert await ask.codes(UPDATE, developer, input=update_input(proposal.row, stateEvent="MERGE", title="T")) == ["FORBIDDEN"]
        assert (await update(ask, developer, proposal.row, stateEvent="MERGE"))["state"] == "MERGED"

    async def test_author_without_the_right_changes_nothing(
        self, ask: Ask, make: DataFactory, project: tables.Project, merges: MergeRequestFactory
    ) -> None:
        author = await make.user()
        await make.member(project, author, AccessLevel.REPORTER)
        proposal = await merges.proposal("feature")
        proposal.row.author_id = author.id
        await make.save(proposal.row)

        assert await ask.codes(UPDATE, author, input=update_input(proposal.row, stateEvent="MERGE", title="Other")) == ["FORBIDDEN"]
        assert (await merges.reload(proposal)).title == "Merge feature"

    @pytest.mark.parametrize("state", [MergeRequestState.CLOSED, MergeRequestState.MERGED])
    async def test_not_of_one_that_is_not_open(
        self, ask: Ask, owner: tables.User, merges: MergeRequestFactory, state: MergeRequestState
    ) -> None:
        proposal = await merges.proposal("feature", state=state)

        assert await ask.codes(UPDATE, owner, input=update_input(proposal.row, stateEvent="MERGE")) == ["NOT_ALLOWED"]

    async def test_not_of_work_in_progress(self, ask: Ask, owner: tables.User, merges: MergeRequestFactory) -> None:
        proposal = await merges.proposal("feature", title="[WIP] Feature", merge_status=MergeStatus.CAN_BE_MERGED)

        assert await ask.codes(UPDATE, owner, input=update_input(proposal.row, stateEvent="MERGE")) == ["NOT_ALLOWED"]

    async def test_a_refused_one_changes_nothing_else(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, merges: MergeRequestFactory
    ) -> None:
        """The other changes are a transaction of their own, before that of the merge."""
        developer = await make.user()
        await make.member(project, developer, AccessLevel.DEVELOPER)
        await create_branch(make, project, "stable")
        await make.save(tables.ProtectedBranch(project_id=project.id, name="stable"))
        proposal = await merges.proposal("feature")
        proposal.row.author_id = developer.id
        await make.save(proposal.row)
        conflicting = await merges.proposal("clash", {"same.txt": "one\n"})
        await merges.commit("master", {"same.txt": "other\n"})

        for viewer, row, values, code in (
            (owner, proposal.row, {"title": "WIP: Other"}, "NOT_ALLOWED"),
            (developer, proposal.row, {"title": "Other", "targetBranch": "stable"}, "FORBIDDEN"),
            (owner, conflicting.row, {"title": "Other"}, "NOT_MERGEABLE"),
        ):
            assert await ask.codes(UPDATE, viewer, input=update_input(row, stateEvent="MERGE", **values)) == [code]
        for each in (proposal, conflicting):
            row = await merges.reload(each)
            assert (row.title, row.target_branch, row.state) == (each.row.title, "master", MergeRequestState.OPENED)
