"""Validation and changes of issues, shared in part with merge requests."""

from collections.abc import Callable, Mapping
from typing import Any

from graph.context import Context
from graph.errors import Invalid, NotFound
from graph.events import object_payloads
from graph.events.publisher import publish
from graph.rules import lookup, validation
from graph.rules.accounts import accounts
from graph.rules.events import activities, change_records
from graph.rules.notes import system_notes
from graph.rules.permissions.policy import Action, can
from graph.rules.snapshots import IssueSnapshot
from graph.rules.states import ISSUE_TRANSITIONS, IssueTransition
from storage import tables
from storage.tables import ActivitySubject, IssueState, Visibility, counters
from storage.tables.accounts import members
from storage.tables.issues import issues, labels

DEFAULT_LABEL_COLOR = "#428BCA"


async def lock_issue(context: Context, issue: tables.Issue) -> tables.Issue:
    """The current issue, locked until the transaction ends, or as it was read if the commit finds out whether it has changed since.

    Raises NotFound when it has been deleted.
    """
    if context.lock_later(issue):
        return issue
    row = await context.first(issues.for_update(issue.id))
    if row is None:
        raise NotFound("Issue")
    return row


async def allocate_iid(context: Context, project: tables.Project, kind: tables.CounterKind) -> int:
    """Allocate the next `iid` of this kind in the project.

    Concurrent callers wait until this transaction ends, so there are no gaps.
    """
    value = await context.session.scalar(counters.advance(context.services.database.dialect, project.id, kind))
    assert isinstance(value, int)  # noqa: S101 - the statement returns the row it wrote
    return value


async def resolve_assignee_id(
    context: Context, project: tables.Project, user_id: int | None, *, current_id: int | None = None
) -> int | None:
    """The id of the user to assign; None and 0 mean nobody.

    Raises Invalid when there is no such user or the user may not see the project, unless it is the current assignee: clients send back all
    values of an object to change one.
    """
    if not user_id:
        return None
    if user_id == current_id:
        return current_id
    user = await context.rows_by_id(tables.User).get(user_id) if user_id > 0 else None
    if user is None or user.username == accounts.GHOST_USERNAME:
        raise Invalid("assigneeId", "is not a user")
    if project.visibility_level == Visibility.PRIVATE and not user.admin:
        levels = await context.tuples(members.LEVELS_IN_PROJECTS, user_id=user.id, project_ids=[project.id])
        if not levels:
            raise Invalid("assigneeId", "is not a member of this private project")
    return user.id


async def resolve_milestone_id(context: Context, project: tables.Project, milestone_id: int | None) -> int | None:
    """The id of the milestone to set; None and 0 mean none.

    Raises Invalid for a milestone of another project.
    """
    if not milestone_id:
        return None
    found = await lookup.find_in_project(context, tables.Milestone, project, database_id=milestone_id)
    if found is None:
        raise Invalid("milestoneId", "is not a milestone of this project")
    return found.id


LABEL_FOREIGN_KEYS: dict[type, Any] = {
    tables.Issue: tables.IssueLabel.issue_id,
    tables.MergeRequest: tables.MergeRequestLabel.merge_request_id,
}
"""Tables whose rows have labels, mapped to their foreign key in the association table."""


async def set_labels(context: Context, issuable: tables.Issue | tables.MergeRequest, names: list[str]) -> bool:
    """Set exactly these labels on a new or locked row, creating missing ones with the default color.

    Raises Invalid. Returns whether anything changed. Rows are always locked in this order: the issue or merge request, its new labels,
    its current labels. Concurrent transactions that label it, or delete or rename the labels, therefore wait for each other instead of
    failing.
    """
    key = LABEL_FOREIGN_KEYS[type(issuable)]
    titles = validation.validate_label_titles(names)
    found = await _find_or_create_labels(context, issuable.project_id, titles) if titles else []
    label_ids = [label.id for label in found]
    before = set((await context.session.execute(labels.detach_all(key, issuable.id))).scalars())
    if label_ids:
        await context.session.execute(labels.attach(key, issuable.id, label_ids))
    context.loaders.clear()
    return before != set(label_ids)


async def _find_or_create_labels(context: Context, project_id: int, titles: list[str]) -> list[tables.Label]:
    """The labels with these titles, created if missing.

    They are locked against deletion and renaming until the transaction ends.
    """
    found = await context.all(labels.for_key_share(project_id, titles))
    # Sorted, so that concurrent transactions creating the same labels do not deadlock.
    missing = sorted(set(titles) - {label.title for label in found})
    if missing:
        rows = [{"project_id": project_id, "title": title, "color": DEFAULT_LABEL_COLOR} for title in missing]
        await context.session.execute(labels.insert_missing(context.services.database.dialect, rows))
        found += await context.all(labels.for_key_share(project_id, missing))
    return found


async def count_issues_by_state(context: Context, row: Any, statement: Callable[[list[int]], Any]) -> Mapping[IssueState, int] | None:
    """The number of issues per state of an object in a project; None when the viewer may not see issues.

    `statement(ids)` selects (id of the object, state, count); it runs once for all objects of a level.
    """
    if not await can(context, Action.READ_ISSUE, row):
        return None

    async def fetch(ids: list[int]) -> dict[int, dict[IssueState, int]]:
        counted: dict[int, dict[IssueState, int]] = {}
        for key, state, number in await context.tuples(statement(ids)):
            counted.setdefault(key, {})[state] = number
        return counted

    return await context.loader(statement, fetch).get(row.id) or {}


def change_state(context: Context, issue: tables.Issue, event: IssueTransition) -> bool:
    """Apply the transition if the state allows it; returns whether anything changed."""
    next_state = ISSUE_TRANSITIONS.get((issue.state, event))
    if next_state is None:
        return False
    issue.state = next_state
    issue.closed_at = context.now() if next_state is IssueState.CLOSED else None
    return True


async def create_issue(context: Context, project: tables.Project, values: Mapping[str, Any]) -> tables.Issue:
    """Open an issue with the values of `CreateIssueInput`. Raises Required, Invalid.

    Without the right to triage, assignee, milestone and labels are ignored.
    """
    issue = tables.Issue.new(
        project_id=project.id,
        iid=0,
        author_id=context.viewer.id,
        title=validation.validate_title("title", values["title"]),
        description=validation.validate_string("description", values.get("description") or "") or None,
        created_at=context.now(),
        updated_at=context.now(),
    )
    may_triage = await can(context, Action.TRIAGE_ISSUE, project)
    if may_triage:
        issue.assignee_id = await resolve_assignee_id(context, project, values.get("assignee_id"))
        issue.milestone_id = await resolve_milestone_id(context, project, values.get("milestone_id"))
    activities.add_numbered(context, issue, ActivitySubject.ISSUE, counters.numbering(project.id, tables.CounterKind.ISSUE))
    change_records.record_new_issue(context, issue)
    if may_triage and values.get("labels"):
        await context.session.flush()
        await set_labels(context, issue, values["labels"])
    else:
        # The answer of the mutation shows them, and need not read them.
        context.after_commit.append(lambda: context.names_by_id(labels.titles_of_issues).prime(issue.id, []))
    await system_notes.write_mentions(context, issue, issue.description)
    await publish(context, object_payloads.IssueChanged, issue, "open")
    return issue


async def update_issue(context: Context, project: tables.Project, issue: tables.Issue, values: Mapping[str, Any]) -> tables.Issue:
    """Change an issue by the values of `UpdateIssueInput` that were sent. Raises NotFound, Required, Invalid.

    Without the right to triage, assignee, milestone and labels are ignored.
    """
    row = await lock_issue(context, issue)
    before, labels_changed = IssueSnapshot.of(row), False
    if values.get("state_event") is not None:
        change_state(context, row, values["state_event"])
    if values.get("title") is not None:
        row.title = validation.validate_title("title", values["title"])
    if "description" in values:
        row.description = validation.validate_string("description", values["description"] or "") or None
    if await can(context, Action.TRIAGE_ISSUE, project):
        if "assignee_id" in values:
            row.assignee_id = await resolve_assignee_id(context, project, values["assignee_id"], current_id=row.assignee_id)
        if "milestone_id" in values:
            row.milestone_id = await resolve_milestone_id(context, project, values["milestone_id"])
        if "labels" in values:
            labels_changed = await set_labels(context, row, values["labels"] or [])
    if labels_changed or IssueSnapshot.of(row) != before:
        row.updated_at = context.now()
    await notify_changes(context, row, before, labels_changed=labels_changed)
    return row


async def change_state_and_notify(context: Context, issue: tables.Issue, event: IssueTransition) -> tables.Issue:
    """Close or reopen an issue, with what follows; nothing happens if the state does not allow it. Raises NotFound."""
    row = await lock_issue(context, issue)
    before = IssueSnapshot.of(row)
    if change_state(context, row, event):
        row.updated_at = context.now()
    await notify_changes(context, row, before)
    return row


async def notify_changes(context: Context, issue: tables.Issue, before: IssueSnapshot, *, labels_changed: bool = False) -> None:
    """Write system notes, and publish hook and live events, for a change of the issue, if there is one.

    `labels_changed` says whether its labels have changed.
    """
    current = IssueSnapshot.of(issue)
    if current != before or labels_changed:
        await system_notes.write_changes(context, issue, before, current)
        activities.record_change(context, ActivitySubject.ISSUE, issue, before.hook_action(current))
        if labels_changed or before.differs_beside_description(current):
            # A change of the description alone inserts no row, so that it stays one statement.
            change_records.record_issues(context, [(issue, before.state)])
        await publish(context, object_payloads.IssueChanged, issue, before.hook_action(current))


def touch(context: Context, row: Any) -> None:
    row.updated_at = context.now()
