"""The activity log of projects: recording, and which activities a viewer may see.

An activity is a row in the transaction of what it records. Its title and texts are read from its target, so they are current. Notes of
snippets are not recorded, because each snippet has a visibility of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, false, or_
from sqlmodel import col

from graph.context import Context
from graph.rules.permissions.policy import Action, can_see_project, filter_allowed_projects
from graph.rules.permissions.policy_conditions import any_allowed
from graph.rules.permissions.sql_policy import SqlViewer
from storage import tables
from storage.database.statements.insert_cache import Numbering
from storage.tables import ActivityAction, ActivitySubject
from storage.tables.accounts import access_conditions
from storage.tables.events import activities

if TYPE_CHECKING:
    # A circular import otherwise: the index of commits records what it finds.
    from graph.rules.git.commit_index import RefUpdate

MAX_COMMITS = 20
MAX_MESSAGE_CHARACTERS = 1_000
"""Maximum characters of a commit message in the log."""

READ_ACTIONS: Mapping[ActivitySubject, Action] = {
    ActivitySubject.PROJECT: Action.READ_PROJECT,
    ActivitySubject.MEMBER: Action.READ_PROJECT_MEMBER,
    ActivitySubject.REF: Action.READ_CODE,
    ActivitySubject.ISSUE: Action.READ_ISSUE,
    ActivitySubject.MERGE_REQUEST: Action.READ_MERGE_REQUEST,
    ActivitySubject.MILESTONE: Action.READ_MILESTONE,
    ActivitySubject.ISSUE_NOTE: Action.READ_ISSUE,
    ActivitySubject.MERGE_REQUEST_NOTE: Action.READ_MERGE_REQUEST,
    ActivitySubject.COMMIT_COMMENT: Action.READ_CODE,
}
"""What the viewer must be allowed to do in the project to see an activity."""

TARGET_TABLES: Mapping[ActivitySubject, Any] = {
    ActivitySubject.ISSUE: tables.Issue,
    ActivitySubject.MERGE_REQUEST: tables.MergeRequest,
    ActivitySubject.MILESTONE: tables.Milestone,
    ActivitySubject.ISSUE_NOTE: tables.Note,
    ActivitySubject.MERGE_REQUEST_NOTE: tables.Note,
    ActivitySubject.COMMIT_COMMENT: tables.CommitComment,
}

PAGE_SECTIONS: Mapping[Any, str] = {tables.Issue: "issues", tables.MergeRequest: "merge_requests", tables.Milestone: "milestones"}
"""Sections of a project's pages in which targets have a page."""

ACTION_OF_EVENT: Mapping[str, ActivityAction] = {
    "open": ActivityAction.OPENED,
    "close": ActivityAction.CLOSED,
    "reopen": ActivityAction.REOPENED,
    "merge": ActivityAction.ACCEPTED,
}
"""The activity for the `action` of a hook event; other changes, such as of a title, are no activities."""


def record(
    context: Context, action: ActivityAction, subject: ActivitySubject, project_id: int, *, target_id: int | None = None, user_id: int = 0
) -> None:
    """Record what the viewer did, or the user `user_id`, by the end of the transaction."""
    context.add_deferred(_make_row(context, action, subject, project_id, target_id, user_id))


def record_change(context: Context, subject: ActivitySubject, row: tables.Issue | tables.MergeRequest, event_action: str) -> None:
    """Record the change of an issue or a merge request for which hooks get an event with this `action`, by the end of the transaction."""
    action = ACTION_OF_EVENT.get(event_action)
    if action is not None:
        common = {"author_id": context.viewer.id, "project_id": row.project_id, "target_id": row.id, "push": None}
        _insert(context, [{**common, "action": action, "subject": subject}])


def add_comment(context: Context, row: Any, subject: ActivitySubject | None) -> None:
    """Insert a note or a comment of the viewer together with its activity, as `Context.add_with_follower` does."""
    if subject is None:
        context.add_deferred(row)
    else:
        activity = _make_row(context, ActivityAction.COMMENTED, subject, row.project_id, None, 0)
        context.add_with_follower(row, activity, "target_id")


def add_numbered(context: Context, row: tables.Issue, subject: ActivitySubject, numbering: Numbering) -> None:
    """Insert a new row that gets a number, together with the activity that the viewer opened it, as `Context.add_numbered` does."""
    activity = _make_row(context, ActivityAction.OPENED, subject, row.project_id, None, 0)
    context.add_numbered(row, numbering, activity, "target_id")


def record_closed_issues(context: Context, closed: Sequence[tuple[int, tables.Issue]]) -> None:
    """Record that users, by id, closed issues, by the end of the transaction."""
    common = {"action": ActivityAction.CLOSED, "subject": ActivitySubject.ISSUE, "push": None}
    rows = [{**common, "author_id": user_id, "project_id": issue.project_id, "target_id": issue.id} for user_id, issue in closed]
    _insert(context, rows)


def record_pushes(context: Context, project_id: int, ref_updates: "Iterable[RefUpdate]") -> None:
    """Record the ref updates of the viewer, by the end of the transaction."""
    common = {"author_id": context.viewer.id, "project_id": project_id, "action": ActivityAction.PUSHED, "subject": ActivitySubject.REF}
    _insert(context, [{**common, "target_id": None, "push": _describe_push(each)} for each in ref_updates])


def _insert(context: Context, rows: Sequence[Mapping[str, Any]]) -> None:
    moment = context.now()
    context.insert_later(activities.insert_activities(), [{**row, "created_at": moment} for row in rows])


def _make_row(
    context: Context, action: ActivityAction, subject: ActivitySubject, project_id: int, target_id: int | None, user_id: int
) -> tables.Activity:
    return tables.Activity.new(
        project_id=project_id,
        author_id=user_id or context.viewer.id,
        action=action,
        subject=subject,
        target_id=target_id,
        created_at=context.now(),
    )


def _describe_push(ref_update: "RefUpdate") -> dict[str, Any]:
    return {
        **ref_update.update.describe(),
        "commits": [
            {
                "id": commit.oid,
                "message": commit.message[:MAX_MESSAGE_CHARACTERS],
                "timestamp": commit.committed_at.isoformat(),
                "author_name": commit.author_name,
                "author_email": commit.author_email,
            }
            for commit in reversed(ref_update.commits[:MAX_COMMITS])
        ],
        "total_commits_count": ref_update.total,
    }


async def visible_conditions(context: Context, projects: Sequence[tables.Project]) -> ColumnElement[bool]:
    """The SQL condition on `Activity` that it is one of these projects' and the viewer may see it; takes at most one statement."""
    readable = {action: await filter_allowed_projects(context, action, projects) for action in set(READ_ACTIONS.values())}
    ids_by_subjects: dict[frozenset[ActivitySubject], list[int]] = {}
    for project in projects:
        subjects = frozenset(subject for subject, action in READ_ACTIONS.items() if project.id in readable[action])
        if subjects:
            ids_by_subjects.setdefault(subjects, []).append(project.id)
    row = tables.Activity
    return or_(
        false(),
        *(and_(col(row.project_id).in_(ids), col(row.subject).in_(sorted(subjects))) for subjects, ids in ids_by_subjects.items()),
    )


def readable_conditions(viewer: SqlViewer) -> list[ColumnElement[bool]]:
    """The SQL conditions on `Activity` under which the viewer, whose `is_admin` is a constant, may see it."""
    subjects: dict[Action, list[ActivitySubject]] = {}
    for subject, action in READ_ACTIONS.items():
        subjects.setdefault(action, []).append(subject)
    row = tables.Activity
    conditions = {action: col(row.subject).in_(sorted(each)) for action, each in subjects.items()}
    return [access_conditions.in_projects(row.project_id, any_allowed(conditions, viewer.id, is_admin=viewer.is_admin))]


async def filter_visible(context: Context, rows: Sequence[tables.Activity]) -> list[tables.Activity]:
    """Those that the viewer may see."""
    found = await context.rows_by_id(tables.Project).get_many({row.project_id for row in rows})
    visible = [project for project in found.values() if project is not None and await can_see_project(context, project)]
    readable = {action: await filter_allowed_projects(context, action, visible) for action in set(READ_ACTIONS.values())}
    return [row for row in rows if row.project_id in readable[READ_ACTIONS[row.subject]]]


async def load_targets(context: Context, activities: Sequence[tables.Activity]) -> list[Any]:
    """The target of each activity; None where there is none, or it was deleted. One statement for each kind of target."""
    ids: dict[Any, list[int]] = {}
    for row in activities:
        if row.target_id is not None:
            ids.setdefault(TARGET_TABLES[row.subject], []).append(row.target_id)
    found = {table: await context.rows_by_id(table).get_many(keys) for table, keys in ids.items()}
    return [None if row.target_id is None else found[TARGET_TABLES[row.subject]][row.target_id] for row in activities]


async def load_pages(context: Context, activities: Sequence[tables.Activity]) -> list[str | None]:
    """The path of the page of each target below that of its project, such as `issues/3`; None without a target.

    A note has the page of its issue or merge request.
    """
    targets = await load_targets(context, activities)
    notes = [target for target in targets if isinstance(target, tables.Note)]
    issues = await context.rows_by_id(tables.Issue).get_many({note.issue_id for note in notes if note.issue_id})
    requests = await context.rows_by_id(tables.MergeRequest).get_many({note.merge_request_id for note in notes if note.merge_request_id})

    def page_of(target: Any) -> str | None:
        if isinstance(target, tables.Note):
            target = issues[target.issue_id] if target.issue_id else requests[target.merge_request_id or 0]
        if isinstance(target, tables.CommitComment):
            return f"commit/{target.sha}"
        return None if target is None else f"{PAGE_SECTIONS[type(target)]}/{target.iid}"

    return [page_of(target) for target in targets]
