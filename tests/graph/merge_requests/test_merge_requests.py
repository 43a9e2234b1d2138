"""Creation of merge requests through the graph."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlmodel import col

from graph.operations.execution import Graph
from graph.rules.merge_requests import branch_comparison, merge_request_refresh
from graph.rules.states import is_work_in_progress
from storage import tables
from storage.git.packing import packs
from storage.git.repository_cache import RepositoryCache
from storage.objects.folder_store import FolderStore
from storage.tables import AccessLevel, MergeRequestState, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.merge_requests import commit_text_files

HISTORY = {"commits": 6}
CREATE = """mutation ($input: CreateMergeRequestInput!) { createMergeRequest(input: $input) { mergeRequest {
    id databaseId iid projectId sourceProjectId targetProjectId title description state sourceBranch targetBranch restPath
    author { username } assignee { username } milestone { title } labels labelNodes { name } workInProgress mergeWhenBuildSucceeds
    mergeStatus upvotes downvotes noteCount firstResponseAt diffStat { files additions deletions } mergedBy { username }
    headCommit { oid } mergeCommit { oid } commits { totalCount nodes { title } } changes { newPath additions } blockers
    closesIssues { nodes { iid } } viewerCan { update merge cancelMerge comment } project { databaseId } sourceProject { databaseId }
    } userErrors { field message code } } }"""
REFUSED = "mutation ($input: CreateMergeRequestInput!) { createMergeRequest(input: $input) { userErrors { field message code } } }"


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user("owner")


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.project(history=HISTORY, owner=owner)


def create_input(project: tables.Project, **values: Any) -> dict[str, Any]:
    return {"projectPath": str(project.id), "sourceBranch": "topic", "targetBranch": "master", "title": "Topic", **values}


async def user_error_codes(ask: Ask, viewer: tables.User, **wanted: Any) -> list[tuple[str | None, str, str]]:
    errors = (await ask.data(REFUSED, viewer, input=wanted))["createMergeRequest"]["userErrors"]
    return [(error["field"], error["message"], error["code"]) for error in errors]


async def fork(make: DataFactory, project: tables.Project, owner: tables.User, **columns: Any) -> tables.Project:
    """A fork with a commit on the branch `feature` that its parent has not."""
    made = await make.project(owner=owner, history=HISTORY, forked_from_id=project.id, **columns)
    await make.services.repositories.read(
        made.id, lambda repository: commit_text_files(repository, "feature", {"new.txt": "new\n"}, message="Feature")
    )
    return made


class TestCreateMergeRequest:
    async def test_creates_one_between_branches_of_a_project(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User
    ) -> None:
        milestone = await make.milestone(project, title="Soon")
        await make.label(project, "old")
        await make.issue(project)
        more = {"assigneeId": owner.id, "milestoneId": milestone.id, "labels": ["old", "new"], "description": "Closes #1"}

        payload = (await ask.data(CREATE, owner, input=create_input(project, title=" WIP: Topic ", **more)))["createMergeRequest"]

        assert payload["userErrors"] == []
        made = payload["mergeRequest"]
        assert made == {
            **made,
            "iid": 1,
            "projectId": project.id,
            "sourceProjectId": project.id,
            "targetProjectId": project.id,
            "title": "WIP: Topic",
            "description": "Closes #1",
            "state": "OPENED",
            "sourceBranch": "topic",
            "targetBranch": "master",
            "author": {"username": "owner"},
            "assignee": {"username": "owner"},
            "milestone": {"title": "Soon"},
            "labels": ["new", "old"],
            "labelNodes": [{"name": "new"}, {"name": "old"}],
            "workInProgress": True,
            "mergeWhenBuildSucceeds": False,
            "mergeStatus": "CAN_BE_MERGED",
            "mergedBy": None,
            "mergeCommit": None,
            "noteCount": 0,
            "firstResponseAt": None,
            "closesIssues": {"nodes": [{"iid": 1}]},
            "blockers": ["WORK_IN_PROGRESS"],
            "viewerCan": {"update": True, "merge": False, "cancelMerge": False, "comment": True},
            "project": {"databaseId": project.id},
            "sourceProject": {"databaseId": project.id},
            "restPath": f"/api/v3/projects/{project.id}/merge_requests/{made['databaseId']}",
        }
        assert made["commits"]["totalCount"] == len(made["commits"]["nodes"]) == 2
        assert made["headCommit"] is not None
        assert made["diffStat"]["files"] == len(made["changes"]) > 0

    async def test_creates_one_from_a_fork_into_its_source(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User
    ) -> None:
        stranger = await make.user()
        project.visibility_level = int(Visibility.PUBLIC)
        await make.save(project)
        milestone = await make.milestone(project)
        forked = await fork(make, project, stranger)
        triage = {"assigneeId": owner.id, "milestoneId": milestone.id, "labels": ["mine"]}

        expected = create_input(forked, sourceBranch="feature", targetProjectId=project.id, **triage)
        made = (await ask.data(CREATE, stranger, input=expected))["createMergeRequest"]["mergeRequest"]

        assert (made["projectId"], made["sourceProjectId"], made["iid"]) == (project.id, forked.id, 1)
        assert made["commits"]["nodes"][0] == {"title": "Feature"}
        assert [entry["newPath"] for entry in made["changes"]] == ["new.txt"]
        assert (made["assignee"], made["milestone"], made["labels"]) == (None, None, []), "for developers of the target"
        assert made["blockers"] == ["NO_PERMISSION"]
        assert made["viewerCan"] == {"update": True, "merge": False, "cancelMerge": False, "comment": True}

    async def test_hides_the_fork_from_users_without_access(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User
    ) -> None:
        forked = await fork(make, project, await make.user())
        row = await make.merge_request(project, source_project_id=forked.id)
        query = "query ($path: String!, $iid: Int!) { project(path: $path) { mergeRequest(iid: $iid) { sourceProject { name } } } }"

        shown = await ask.data(query, owner, path=str(project.id), iid=row.iid)

        assert shown["project"]["mergeRequest"] == {"sourceProject": None}

    async def test_numbers_are_without_gaps(self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User) -> None:
        await ask.data(CREATE, owner, input=create_input(project))
        await user_error_codes(ask, owner, **create_input(project))
        await make.services.repositories.read(project.id, lambda repository: commit_text_files(repository, "other", {"a": "b"}))

        made = (await ask.data(CREATE, owner, input=create_input(project, sourceBranch="other")))["createMergeRequest"]["mergeRequest"]

        assert made["iid"] == 2

    async def test_notes_mentions_in_the_description(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User
    ) -> None:
        issue = await make.issue(project)

        await ask.data(CREATE, owner, input=create_input(project, description="For #1"))

        query = "query ($path: String!, $id: Int!) { project(path: $path) { issue(databaseId: $id) { notes { nodes { body } } } } }"
        notes = (await ask.data(query, owner, path=str(project.id), id=issue.id))["project"]["issue"]["notes"]["nodes"]
        assert notes == [{"body": "mentioned in merge request !1"}]


class TestRejections:
    @pytest.mark.parametrize(
        ("values", "field", "code"),
        [
            ({"title": " "}, "title", "REQUIRED"),
            ({"title": "x" * 256}, "title", "INVALID"),
            ({"sourceBranch": ""}, "sourceBranch", "REQUIRED"),
            ({"targetBranch": " "}, "targetBranch", "REQUIRED"),
            ({"sourceBranch": "nothing"}, "sourceBranch", "INVALID"),
            ({"targetBranch": "nothing"}, "targetBranch", "INVALID"),
            ({"sourceBranch": "v1"}, "sourceBranch", "INVALID"),
            ({"sourceBranch": "--output=x"}, "sourceBranch", "INVALID"),
            ({"targetBranch": "@{-1}"}, "targetBranch", "INVALID"),
            ({"sourceBranch": "../heads/topic"}, "sourceBranch", "INVALID"),
            ({"sourceBranch": "x" * 256}, "sourceBranch", "INVALID"),
            ({"assigneeId": 2**31 - 1}, "assigneeId", "INVALID"),
            ({"labels": ["a,b"]}, "labels", "INVALID"),
        ],
    )
    async def test_of_values(
        self, ask: Ask, project: tables.Project, owner: tables.User, values: dict[str, Any], field: str, code: str
    ) -> None:
        assert [(found[0], found[2]) for found in await user_error_codes(ask, owner, **create_input(project, **values))] == [(field, code)]

    async def test_of_a_branch_into_itself(self, ask: Ask, project: tables.Project, owner: tables.User) -> None:
        found = await user_error_codes(ask, owner, **create_input(project, targetBranch="topic"))

        assert found == [("targetBranch", "You can not use same project/branch for source and target", "NOT_ALLOWED")]

    async def test_of_unrelated_projects(self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User) -> None:
        other = await make.project(owner=owner, history=HISTORY)

        found = await user_error_codes(ask, owner, **create_input(project, targetProjectId=other.id))

        assert found == [(None, "Source project is not a fork of target project", "NOT_ALLOWED")]

    async def test_of_the_same_branch_of_a_fork_there_are_none(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User
    ) -> None:
        forked = await make.project(owner=owner, history=HISTORY, forked_from_id=project.id)

        assert (
            await user_error_codes(
                ask, owner, **create_input(forked, sourceBranch="topic", targetBranch="topic", targetProjectId=project.id)
            )
            == []
        )

    async def test_of_an_equal_open_one(self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User) -> None:
        await ask.data(CREATE, owner, input=create_input(project, title='The "first"'))

        found = await user_error_codes(ask, owner, **create_input(project))

        assert found == [(None, 'Cannot Create: This merge request already exists: ["The \\"first\\""]', "CONFLICT")]

    async def test_of_all_but_one_of_several_at_once(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User
    ) -> None:
        found = await asyncio.gather(*(user_error_codes(ask, owner, **create_input(project)) for _ in range(4)))

        assert sorted(each[2] for refused in found for each in refused) == ["CONFLICT"] * 3
        assert await make.count(tables.MergeRequest) == 1

    async def test_a_closed_duplicate_is_no_conflict(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User
    ) -> None:
        await make.merge_request(project, source_branch="topic", state=MergeRequestState.CLOSED)
        await make.merge_request(project, source_branch="topic", state=MergeRequestState.MERGED)

        assert await user_error_codes(ask, owner, **create_input(project)) == []

    async def test_of_a_milestone_of_another_project(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User
    ) -> None:
        milestone = await make.milestone(await make.project(owner=owner))

        assert [each[0] for each in await user_error_codes(ask, owner, **create_input(project, milestoneId=milestone.id))] == [
            "milestoneId"
        ]

    async def test_where_the_target_is_hidden_disabled_or_archived(
        self, ask: Ask, make: DataFactory, project: tables.Project, owner: tables.User
    ) -> None:
        stranger = await make.user()
        forked = await fork(make, project, stranger)
        expected = create_input(forked, sourceBranch="feature", targetProjectId=project.id)
        assert await ask.codes(REFUSED, stranger, input=expected) == ["NOT_FOUND"]

        await make.member(project, stranger, AccessLevel.GUEST)
        project.archived = True
        await make.save(project)
        assert await ask.codes(REFUSED, stranger, input=expected) == ["FORBIDDEN"]

        project.archived, project.merge_requests_enabled = False, False
        await make.save(project)
        assert await ask.codes(REFUSED, stranger, input=expected) == ["FORBIDDEN"]

        project.merge_requests_enabled = True
        await make.save(project)
        assert await ask.codes(REFUSED, stranger, input=expected) == []

    async def test_where_the_source_shows_none(self, ask: Ask, make: DataFactory, owner: tables.User) -> None:
        for column in ("archived", "merge_requests_enabled"):
            closed = await make.project(owner=owner, history=HISTORY)
            setattr(closed, column, column == "archived")
            await make.save(closed)
            assert await ask.codes(REFUSED, owner, input=create_input(closed)) == ["FORBIDDEN"]

    async def test_for_a_target_that_is_no_project(self, ask: Ask, project: tables.Project, owner: tables.User) -> None:
        for number in (0, -1, 2**31 - 1):
            assert await ask.codes(REFUSED, owner, input=create_input(project, targetProjectId=number)) == ["NOT_FOUND"]


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("WIP: a", True),
        ("wip:a", True),
        ("WIP a", True),
        ("[WIP] a", True),
        ("[wip]a", True),
        ("Wip", False),
        ("WIPE a", False),
        ("A WIP: b", False),
        ("WIP-a", False),
        ("(WIP) a", False),
        ("", False),
    ],
)
def test_titles_of_work_in_progress(title: str, expected: bool) -> None:
    assert is_work_in_progress(title) is expected


class BucketScenario:
    """A project and its fork with a branch `feature`, whose objects are in a bucket."""

    def __init__(
        self, make: DataFactory, cache: RepositoryCache, owner: tables.User, project: tables.Project, forked: tables.Project
    ) -> None:
        self.make, self.cache, self.owner, self.project, self.forked = make, cache, owner, project, forked
        self.services = replace(make.services, repositories=cache)
        self.ask = Ask(Graph(self.services))

    async def create(self) -> list[Any]:
        wanted = create_input(self.forked, sourceBranch="feature", targetProjectId=self.project.id)
        return await user_error_codes(self.ask, self.owner, **wanted)

    async def update(self, **values: Any) -> None:
        row = await self.make.merge_request(
            self.project, source_project_id=self.forked.id, source_branch="feature", **values.pop("row", {})
        )
        document = """mutation ($input: UpdateMergeRequestInput!) { updateMergeRequest(input: $input) {
            mergeRequest { headCommit { oid } } userErrors { message } } }"""
        wanted = {"projectPath": str(self.project.id), "databaseId": row.id, **values}
        payload = (await self.ask.data(document, self.owner, input=wanted))["updateMergeRequest"]
        assert payload["userErrors"] == [] and payload["mergeRequest"]["headCommit"] is not None

    async def count_packs(self) -> int:
        held = tables.Pack
        async with self.services.database.read_session() as session:
            statement = select(func.count()).select_from(held).where(col(held.project_id) == self.project.id)
            return (await session.execute(statement)).scalar_one()  # type: ignore[no-any-return]

    async def publishes_with(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Checks that the work publishes the objects of the fork in the target, and leaves no transaction open."""
        before = await self.count_packs()
        async with asyncio.timeout(5):
            assert not await work()
            assert await self.count_packs() == before + 1
            await self.cache.publish(self.project.id)
            await self.make.user()
        assert not packs.has_unpublished(self.cache.path_of(self.project.id))


@pytest.fixture
async def bucketed(make: DataFactory, project: tables.Project, owner: tables.User, tmp_path: Path) -> BucketScenario:
    forked = await make.indexed(await fork(make, project, owner))
    cache = RepositoryCache(make.services.repositories.root, make.services.database, FolderStore(tmp_path / "store"))
    scenario = BucketScenario(make, cache, owner, await make.indexed(project), forked)
    await cache.publish_all(lambda: None)
    return scenario


class TestMergeRequestsOfForksInABucket:
    async def test_creating_one_publishes_the_objects_of_the_fork(self, bucketed: BucketScenario) -> None:
        await bucketed.publishes_with(bucketed.create)

    async def test_creating_one_whose_branch_moves_meanwhile_publishes_them_in_its_transaction(
        self, bucketed: BucketScenario, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compare = branch_comparison.compare_branches

        async def overtaken(*args: Any, **settings: Any) -> branch_comparison.BranchComparison:
            if settings.get("session") is None:
                return replace(branch_comparison.BranchComparison(0, 0, "", ""), head_oid="1" * 40, target_oid="2" * 40)
            return await compare(*args, **settings)

        monkeypatch.setattr(branch_comparison, "compare_branches", overtaken)
        await bucketed.publishes_with(bucketed.create)

    async def test_reopening_one_publishes_them(self, bucketed: BucketScenario) -> None:
        closed = {"state": MergeRequestState.CLOSED}
        await bucketed.publishes_with(lambda: bucketed.update(stateEvent="REOPEN", row=closed))

    async def test_changing_the_target_of_one_publishes_them(self, bucketed: BucketScenario) -> None:
        await bucketed.publishes_with(lambda: bucketed.update(targetBranch="topic"))

    async def test_refreshing_one_publishes_them(self, bucketed: BucketScenario) -> None:
        await bucketed.make.merge_request(bucketed.project, source_project_id=bucketed.forked.id, source_branch="feature")
        await bucketed.publishes_with(lambda: merge_request_refresh.refresh_unchecked(bucketed.services))
