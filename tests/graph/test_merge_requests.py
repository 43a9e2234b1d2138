"""Merge requests through the graph: opening, and what they show."""

from typing import Any

import pytest

from graph.rules.states import in_progress
from storage import tables
from storage.tables import AccessLevel, MergeRequestState, MergeStatus, Visibility
from tests.forge import Ask
from tests.make import Make
from tests.merges import commit
from tests.statements import Statements

HISTORY = {"commits": 6}
CREATE = """mutation ($input: CreateMergeRequestInput!) { createMergeRequest(input: $input) { mergeRequest {
    id databaseId iid projectId sourceProjectId targetProjectId title description state sourceBranch targetBranch restPath
    author { username } assignee { username } milestone { title } labels labelNodes { name } workInProgress mergeWhenBuildSucceeds
    mergeStatus upvotes downvotes noteCount firstResponseAt diffStat { files additions deletions } mergedBy { username }
    headCommit { oid } mergeCommit { oid } commits { totalCount nodes { title } } changes { newPath additions } blockers
    closesIssues { totalCount } viewerCan { update merge cancelMerge comment } project { databaseId } sourceProject { databaseId }
    } userErrors { field message code } } }"""


async def repository(make: Make, project: tables.Project, work: Any) -> Any:
    return await make.services.repositories.read(project.id, work)


@pytest.fixture
async def project(make: Make) -> tables.Project:
    return await make.project(history=HISTORY, owner=await make.user("owner"))


async def owner_of(make: Make, project: tables.Project) -> tables.User:
    found = await make.fetch(tables.User, project.creator_id or 0)
    assert found is not None
    return found


class TestCreate:
    async def test_opens_one_between_branches_of_a_project(self, ask: Ask, make: Make, project: tables.Project) -> None:
        owner = await owner_of(make, project)
        milestone = await make.milestone(project, title="Soon")
        await make.label(project, "old")

        payload = (
            await ask.data(
                CREATE,
                owner,
                input={
                    "projectPath": str(project.id),
                    "sourceBranch": "topic",
                    "targetBranch": "master",
                    "title": " WIP: Topic ",
                    "description": "Why",
                    "assigneeId": owner.id,
                    "milestoneId": milestone.id,
                    "labels": ["old", "new"],
                },
            )
        )["createMergeRequest"]

        assert payload["userErrors"] == []
        made = payload["mergeRequest"]
        assert made == {
            **made,
            "iid": 1,
            "projectId": project.id,
            "sourceProjectId": project.id,
            "targetProjectId": project.id,
            "title": "WIP: Topic",
            "description": "Why",
            "state": "OPENED",
            "sourceBranch": "topic",
            "targetBranch": "master",
            "author": {"username": "owner"},
            "assignee": {"username": "owner"},
            "milestone": {"title": "Soon"},
            "labels": ["new", "old"],
            "labelNodes": [{"name": "new"}, {"name": "old"}],
            "workInProgress": True,
            "mergeStatus": "CAN_BE_MERGED",
            "mergedBy": None,
            "mergeCommit": None,
            "blockers": ["WORK_IN_PROGRESS"],
            "viewerCan": {"update": True, "merge": False, "cancelMerge": False, "comment": True},
            "restPath": f"/api/v3/projects/{project.id}/merge_requests/{made['databaseId']}",
        }
        assert made["commits"]["totalCount"] == 2
        assert len(made["commits"]["nodes"]) == 2
        assert made["headCommit"]["oid"]
        assert made["diffStat"]["files"] == len(made["changes"]) > 0
