"""Lookup, state and progress of milestones."""

from collections.abc import Mapping

from graph.context import Context
from graph.errors import NotFound
from graph.rules.states import MILESTONE_TRANSITIONS, MilestoneTransition
from storage import tables
from storage.tables import IssueState
from storage.tables.issues import milestones


async def get_milestone(context: Context, project: tables.Project, title: str) -> tables.Milestone:
    """The milestone with this title, case-sensitive. Raises NotFound."""
    found = await context.first(milestones.of_title(project.id, title.strip()))
    if found is None:
        raise NotFound("Milestone")
    return found


def change_state(milestone: tables.Milestone, event: MilestoneTransition) -> None:
    """Apply the transition if the state allows it; otherwise nothing changes."""
    milestone.state = MILESTONE_TRANSITIONS.get((milestone.state, event), milestone.state)


def compute_percent_complete(counts: Mapping[IssueState, int]) -> int:
    """The share of closed issues in whole percent, rounded down; 0 without issues."""
    total = sum(counts.values())
    return counts.get(IssueState.CLOSED, 0) * 100 // total if total else 0
