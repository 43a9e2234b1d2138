"""Snapshots: every column of a compared table is in its snapshot or has a reason, and a difference is reported."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from typing import Any

import pytest
from sqlalchemy import select

from graph.context import Context, Services
from graph.operations.transaction import commit_and_notify
from graph.rules.issues import issues
from graph.rules.merge_requests import merge_requests, merging
from graph.rules.snapshots import NOT_IN_SNAPSHOT, SNAPSHOTS, IssueSnapshot, MergeRequestSnapshot
from graph.types.issues.issues import UpdateIssueInput
from graph.types.merge_requests.merge_request_mutations import UpdateMergeRequestInput
from storage import tables
from storage.tables import IssueState, MergeRequestState, MergeStatus
from tests.make import DataFactory

DERIVED = {"has_conflicts"}
"""Fields of snapshots that are no columns."""
ISSUE_CHANGES = {
    "state": (IssueState.CLOSED, "close"),
    "title": ("Another", "update"),
    "description": ("Another", "update"),
    "assignee_id": (1, "update"),
    "milestone_id": (1, "update"),
}
MERGE_REQUEST_CHANGES = ISSUE_CHANGES | {
    "state": (MergeRequestState.CLOSED, "close"),
    "target_branch": ("stable", "update"),
    "head_oid": ("a" * 40, "update"),
    "merge_status": (MergeStatus.CANNOT_BE_MERGED, "update"),
    "merge_when_build_succeeds": (True, "update"),
}


def names_in(snapshot: type) -> set[str]:
    return {field.name for field in fields(snapshot)}


def reasons_of(table: type) -> list[str]:
    return [name for names in NOT_IN_SNAPSHOT[table].values() for name in names.split()]


class TestColumns:
    @pytest.mark.parametrize("table", SNAPSHOTS, ids=lambda table: table.__name__)
    def test_are_in_the_snapshot_or_have_a_reason(self, table: Any) -> None:
        included, excluded = names_in(SNAPSHOTS[table]), reasons_of(table)
        for name in table.model_fields:
            assert name in included or name in excluded, (
                f"{table.__name__}.{name} is neither in {SNAPSHOTS[table].__name__} nor in NOT_IN_SNAPSHOT (graph/rules/snapshots.py):"
                " add it to the snapshot, so that notes, hooks and live events report its changes, or give the reason why not"
            )

    @pytest.mark.parametrize("table", SNAPSHOTS, ids=lambda table: table.__name__)
    def test_that_are_named_exist_and_are_named_once(self, table: Any) -> None:
        named = [*names_in(SNAPSHOTS[table]) - DERIVED, *reasons_of(table)]
        assert sorted(named) == sorted(table.model_fields)

    @pytest.mark.parametrize(("table", "kind"), [(tables.Issue, UpdateIssueInput), (tables.MergeRequest, UpdateMergeRequestInput)])
    def test_that_an_update_sets_are_in_the_snapshot(self, table: Any, kind: type) -> None:
        """The rules set `updated_at` where the snapshots differ."""
        fixed = NOT_IN_SNAPSHOT[table]["set when the row is created"].split()
        settable = (names_in(kind) & set(table.model_fields)).difference(fixed)
        assert {"title", "milestone_id"} <= settable
        missing = sorted(settable - names_in(SNAPSHOTS[table]))
        assert not missing, f"add {missing} to {SNAPSHOTS[table].__name__}: else a change of it does not move `updated_at`"

    def test_every_table_has_both(self) -> None:
        assert SNAPSHOTS.keys() == NOT_IN_SNAPSHOT.keys()


async def save_project(make: DataFactory) -> tuple[tables.User, tables.Project]:
    """With a hook, and with the user 1 and the milestone 1."""
    await make.save(tables.Hook(url="http://hooks.example/", issues_events=True, merge_requests_events=True))
    owner = await make.user("ada")
    project = await make.project(owner=owner)
    await make.milestone(project)
    return owner, project


async def change_column(
    services: Services,
    viewer: tables.User,
    lock: Callable[..., Awaitable[Any]],
    notify: Callable[..., Awaitable[None]],
    row: Any,
    column: str,
    value: Any,
) -> None:
    """Sets a column of an issue or a merge request, and notifies as the rules `lock` and `notify` of its module do."""
    async with services.database.write_session() as session:
        context = Context(services, session, viewer, "test")
        locked = await lock(context, row)
        before = SNAPSHOTS[type(row)].of(locked)
        setattr(locked, column, value)
        await notify(context, locked, before)
        await commit_and_notify(context)


async def reported_actions(services: Services) -> Sequence[str]:
    async with services.database.read_session() as session:
        return [payload["object_attributes"]["action"] for (payload,) in await session.read(select(tables.Event.payload))]


class TestDifferences:
    def test_all_are_tried(self) -> None:
        assert ISSUE_CHANGES.keys() == names_in(IssueSnapshot)
        assert MERGE_REQUEST_CHANGES.keys() == names_in(MergeRequestSnapshot) - DERIVED | {"merge_status"}

    @pytest.mark.parametrize("column", ISSUE_CHANGES)
    async def test_of_issues_are_reported_to_hooks(self, services: Services, make: DataFactory, column: str) -> None:
        owner, project = await save_project(make)
        value, action = ISSUE_CHANGES[column]
        await change_column(services, owner, issues.lock_issue, issues.notify_changes, await make.issue(project), column, value)
        assert await reported_actions(services) == [action]

    @pytest.mark.parametrize("column", MERGE_REQUEST_CHANGES)
    async def test_of_merge_requests_are_reported_to_hooks_and_subscribers(
        self, services: Services, make: DataFactory, column: str
    ) -> None:
        owner, project = await save_project(make)
        value, action = MERGE_REQUEST_CHANGES[column]

        async def lock(context: Context, row: tables.MergeRequest) -> tables.MergeRequest:
            return await merging.lock_merge_request(context, row.id)

        await change_column(services, owner, lock, merge_requests.notify_changes, await make.merge_request(project), column, value)
        assert await reported_actions(services) == [action]
        assert await make.count(tables.Change) == 1
