"""Records changes of builds, merge requests, issues and branches for subscriptions.

Each change is one row, in the transaction that makes it. `graph/live/broadcaster.py` reads the rows in order after the commit. A row
records that an object has changed, not its new content: the broadcaster reads the content when it sends the event, for each subscriber
who may see it then.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import insert

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
    common = {"kind": ChangeKind.BUILD, "old_state": old_state, "new_state": current.status, "created_at": context.now()}
    await _write_changes(context, [{**common, "project_id": project_id, "build_id": key, "ref": ref} for key, project_id, ref in changed])


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
    """Record changes of merge requests in one statement.

    Each is (id, target project id, target branch, state before, state now).
    """
    moment = context.now()
    rows = [
        {
            "kind": ChangeKind.MERGE_REQUEST,
            "project_id": project_id,
            "merge_request_id": key,
            "ref": branch,
            "old_state": old_state,
            "new_state": new_state,
            "created_at": moment,
        }
        for key, project_id, branch, old_state, new_state in changed
    ]
    await _write_changes(context, rows)


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
    common = {"kind": ChangeKind.ISSUE, "ref": "", "created_at": context.now()}
    rows = [
        {**common, "project_id": row.project_id, "issue_id": row.id, "old_state": old_state, "new_state": row.state}
        for row, old_state in changed
    ]
    context.insert_later(changes.insert_changes(), rows)
    _notify(context)


def _make_issue_change(context: Context, row: tables.Issue, old_state: IssueState | None) -> tables.Change:
    return tables.Change.new(
        kind=ChangeKind.ISSUE, project_id=row.project_id, ref="", old_state=old_state, new_state=row.state, created_at=context.now()
    )


async def record_branches(context: Context, changed: Iterable[tuple[int, str, str | None, str]]) -> None:
    """Record that branches have another health or another head.

    Each is (project id, name, health last recorded, health now).
    """
    common = {"kind": ChangeKind.BRANCH, "created_at": context.now()}
    rows = [
        {**common, "project_id": project_id, "ref": name, "old_state": old_state, "new_state": new_state}
        for project_id, name, old_state, new_state in changed
    ]
    await _write_changes(context, rows)


async def _write_changes(context: Context, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        await context.session.execute(insert(tables.Change), list(rows))
        _notify(context)


def _notify(context: Context) -> None:
    context.after_commit.append(context.services.broadcaster.notify)
