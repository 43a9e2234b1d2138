"""Lookup, state and progress of milestones."""

from collections.abc import Mapping
from typing import Any

from graph.context import Context
from graph.errors import NotFound
from graph.rules import timestamps, validation
from graph.rules.events import activities
from graph.rules.issues import issues
from graph.rules.states import MILESTONE_TRANSITIONS, MilestoneTransition
from storage import tables
from storage.tables import ActivityAction, ActivitySubject, IssueState, MilestoneState
from storage.tables.issues import milestones


async def get_milestone(context: Context, project: tables.Project, title: str) -> tables.Milestone:
    """The milestone with this title, case-sensitive. Raises NotFound."""
    found = await context.first(milestones.of_title(project.id, title.strip()))
    if found is None:
        raise NotFound("Milestone")
    return found


async def create_milestone(context: Context, project: tables.Project, values: Mapping[str, Any]) -> tables.Milestone:
    """Add a milestone with the values of `CreateMilestoneInput`. Raises Required, Invalid."""
    moment = context.now()
    milestone = tables.Milestone(
        project_id=project.id,
        iid=0,
        title=validation.validate_title("title", values["title"]),
        description=validation.validate_string("description", values.get("description") or ""),
        due_date=values.get("due_date"),
        created_at=moment,
        updated_at=moment,
    )
    milestone.iid = await issues.allocate_iid(context, project, tables.CounterKind.MILESTONE)
    await context.add(milestone)
    activities.record(context, ActivityAction.OPENED, ActivitySubject.MILESTONE, project.id, target_id=milestone.id)
    return milestone


async def update_milestone(context: Context, found: tables.Milestone, values: Mapping[str, Any]) -> tables.Milestone:
    """Change a milestone by the values of `UpdateMilestoneInput` that were sent. Raises NotFound, Required, Invalid."""
    # Under the lock a second request to close it finds that it is closed.
    milestone = await context.first(milestones.for_update(found.id))
    if milestone is None:
        raise NotFound("Milestone")
    old_state = milestone.state
    if values.get("state_event") is not None:
        change_state(milestone, values["state_event"])
    if values.get("title") is not None:
        milestone.title = validation.validate_title("title", values["title"])
    if "description" in values:
        milestone.description = validation.validate_string("description", values["description"] or "")
    if "due_date" in values:
        milestone.due_date = values["due_date"]
    timestamps.touch_if_changed(context, milestone)
    await context.session.flush()
    if milestone.state is not old_state:
        action = ActivityAction.CLOSED if milestone.state is MilestoneState.CLOSED else ActivityAction.REOPENED
        activities.record(context, action, ActivitySubject.MILESTONE, milestone.project_id, target_id=milestone.id)
    return milestone


async def delete_milestone(context: Context, milestone: tables.Milestone) -> tables.Milestone:
    """Delete the milestone. The database takes it away from its issues and merge requests."""
    await context.delete(milestone)
    return milestone


def change_state(milestone: tables.Milestone, event: MilestoneTransition) -> None:
    """Apply the transition if the state allows it; otherwise nothing changes."""
    milestone.state = MILESTONE_TRANSITIONS.get((milestone.state, event), milestone.state)


def compute_percent_complete(counts: Mapping[IssueState, int]) -> int:
    """The share of closed issues in whole percent, rounded down; 0 without issues."""
    total = sum(counts.values())
    return counts.get(IssueState.CLOSED, 0) * 100 // total if total else 0
