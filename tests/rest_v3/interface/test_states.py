"""The section States and transitions of the interface document, and changes that no other section describes."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from storage import tables
from storage.tables import CheckStatus, IssueState, MergeRequestState, MilestoneState, UserState
from tests.make import DataFactory
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api

Written = Callable[[DataFactory, tables.Project, Any], Awaitable[object]]

OF_A_PROJECT: dict[str, tuple[Any, set[str], Written]] = {
    "builds": (
        CheckStatus,
        {"pending", "running", "failed", "success", "canceled"},
        lambda make, project, status: make.build(project, "f" * 40, status=status),
    ),
    "issues": (IssueState, {"opened", "closed"}, lambda make, project, state: make.issue(project, state=state)),
    "merge_requests": (
        MergeRequestState,
        {"opened", "closed", "merged", "reopened"},
        lambda make, project, state: make.merge_request(project, state=state),
    ),
    "milestones": (MilestoneState, {"active", "closed"}, lambda make, project, state: make.milestone(project, state=state)),
}
"""The list → the states that its rows can have, the words of the document, and how a row of a state is made."""


class TestStateNames:
    @cites("States: states of a build", "States: states of an issue", "States: states of a merge request", "States: states of a milestone")
    @pytest.mark.parametrize("noun", OF_A_PROJECT)
    async def test_are_the_documents_and_no_others(self, api: Api, make: DataFactory, noun: str) -> None:
        kinds, words, write = OF_A_PROJECT[noun]
        project = await make.project(owner=(owner := await make.user()))
        for kind in kinds:
            await write(make, project, kind)

        entries = (await api.get(f"/projects/{project.id}/{noun}", owner)).json()

        assert len(entries) == len(words)
        assert {entry["status" if noun == "builds" else "state"] for entry in entries} == words

    @cites("States: states of a commit status")
    async def test_of_commit_statuses(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 4})
        words = {"pending", "running", "success", "failed", "canceled"}
        for word in words:
            await api.post(f"/projects/{project.id}/statuses/master", owner, state=word, name=word)

        shown = (await api.get(f"/projects/{project.id}/repository/commits/master/statuses", owner)).json()

        assert {status["status"] for status in shown} == words == {kind.value for kind in CheckStatus} - {CheckStatus.MANUAL}

    @cites("States: states of a user", "States: a user is blocked by block", "States: a user is active after unblock")
    async def test_of_users_who_are_blocked_and_unblocked(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()
        shown = []
        for verb in ("block", "unblock"):
            assert (await api.put(f"/users/{user.id}/{verb}", admin)).status_code == 200
            shown.append((await api.get(f"/users/{user.id}", admin)).json()["state"])

        assert shown == ["blocked", "active"]
        assert {kind.value for kind in UserState} == set(shown)


class TestErase:
    @cites("States: erase removes artifacts and trace")
    async def test_leaves_neither_artifacts_nor_trace(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        build = await make.build(project, "f" * 40, status=CheckStatus.FAILED)
        artifact = await make.artifact(build)
        await make.trace(build, "It ", "broke\n")
        path = f"/projects/{project.id}/builds/{build.id}"
        assert (await api.get(f"{path}/artifacts", owner)).content == b"bytes"

        assert (await api.post(f"{path}/erase", owner)).json()["status"] == "failed"

        assert (await api.get(f"{path}/artifacts", owner)).status_code == 404
        assert await make.fetch(tables.Artifact, artifact.id) is None
        assert await make.count(tables.TracePart) == 0
        row = await make.fetch(tables.Build, build.id)
        assert row is not None and row.trace_size == 0
