"""Records changes of builds, merge requests, issues and branches for subscriptions.

Each change is one row, in the transaction that makes it. `graph/live/broadcaster.py` reads the rows in order after the commit. A row
records that an object has changed, not its new content: the broadcaster reads the content when it sends the event, for each subscriber
who may see it then.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from graph.context import Context
from graph.rules.snapshots import BuildSnapshot, MergeRequestSnapshot
from storage import tables
from storage.tables import ChangeKind, IssueState, MergeRequestState
from storage.tables.events import changes


async def record_builds(
    context: Context, changed: Iterable[tuple[int, int, str]], before: BuildSnapshot | None, current: BuildSnapshot
) -> None:
    """Record that builds, as (id, project id, ref), were created or changed status; `before` is None for new ones."""
    old_state = before.status if before is not None else None
    common = {"old_state": old_state, "new_state": current.status}
    rows = [{**common, "project_id": project_id, "build_id": key, "ref": ref} for key, project_id, ref in changed]
    _insert(context, ChangeKind.BUILD, rows)


async def record_merge_request(
    context: Context, row: tables.MergeRequest, before: MergeRequestSnapshot | None, *, labels_changed: bool = False
) -> None:
    """Record a change of a merge request if anything that lists show of it has changed.

    `before` is None for a new one. `labels_changed` says whether its labels have changed.
    """
    current = MergeRequestSnapshot.of(row)
    if current != before or labels_changed:
        old_state = before.state if before is not None else None
        await record_merge_requests(context, [(row.id, row.project_id, row.target_branch, old_state, row.state)])


async def record_discussion(context: Context, row: tables.MergeRequest) -> None:
    """Record that a thread or a note of a merge request has changed."""
    await record_merge_requests(context, [(row.id, row.project_id, row.target_branch, row.state, row.state)])


async def record_merge_requests(
    context: Context, changed: Iterable[tuple[int, int, str, MergeRequestState | None, MergeRequestState]]
) -> None:
    """Record changes of merge requests, by the end of the transaction.

    Each is (id, target project id, target branch, state before, state now).
    """
    rows = [
        {"project_id": project_id, "merge_request_id": key, "ref": branch, "old_state": old_state, "new_state": new_state}
        for key, project_id, branch, old_state, new_state in changed
    ]
    _insert(context, ChangeKind.MERGE_REQUEST, rows)


def record_new_issue(context: Context, row: tables.Issue) -> None:
    """Record that an issue that waits for its number was created."""
    context.add_follower(row, _make_issue_change(context, row, None), "issue_id")
    _notify(context)


def record_note(context: Context, note: tables.Note, issue: tables.Issue) -> None:
    """Record that an issue has a new note, which waits to be inserted."""
    change = _make_issue_change(context, issue, issue.state)
    change.issue_id = issue.id
    context.add_follower(note, change)
    _notify(context)


def record_issues(context: Context, changed: Iterable[tuple[tables.Issue, IssueState]]) -> None:
    """Record changes of issues, their notes and labels included, by the end of the transaction. Each is (issue, state before)."""
    rows = [
        {"project_id": row.project_id, "issue_id": row.id, "ref": "", "old_state": old_state, "new_state": row.state}
        for row, old_state in changed
    ]
    _insert(context, ChangeKind.ISSUE, rows)


def _make_issue_change(context: Context, row: tables.Issue, old_state: IssueState | None) -> tables.Change:
    return tables.Change.new(
        kind=ChangeKind.ISSUE, project_id=row.project_id, ref="", old_state=old_state, new_state=row.state, created_at=context.now()
    )


async def record_branches(context: Context, changed: Iterable[tuple[int, str, str | None, str]]) -> None:
    """Record that branches have another health or another head.

    Each is (project id, name, health last recorded, health now).
    """
    rows = [
        {"project_id": project_id, "ref": name, "old_state": old_state, "new_state": new_state}
        for project_id, name, old_state, new_state in changed
    ]
    _insert(context, ChangeKind.BRANCH, rows)


def _insert(context: Context, kind: ChangeKind, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        common = {"kind": kind, "build_id": None, "merge_request_id": None, "issue_id": None, "created_at": context.now()}
        context.insert_later(changes.insert_changes(), [{**common, **row} for row in rows])
        _notify(context)


def _notify(context: Context) -> None:
    context.after_commit.append(context.services.broadcaster.notify)
