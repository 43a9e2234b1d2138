"""What a milestone may be, and how far it has come."""

from collections.abc import Mapping

from graph.context import Context
from graph.errors import NotFound
from graph.rules.states import MILESTONE_TRANSITIONS, MilestoneTransition
from storage import tables
from storage.tables import IssueState, milestones


async def get_milestone(context: Context, project: tables.Project, title: str) -> tables.Milestone:
    """The milestone of this title, with case. Raises NotFound."""
    found = await context.first(milestones.of_title(project.id, title.strip()))
    if found is None:
        raise NotFound("Milestone")
    return found


def change_state(milestone: tables.Milestone, event: MilestoneTransition) -> None:
    """Applies the event where the state lists it; otherwise the milestone stays as it is."""
    milestone.state = MILESTONE_TRANSITIONS.get((milestone.state, event), milestone.state)


def compute_percent_complete(counts: Mapping[IssueState, int]) -> int:
    """The share of closed issues in whole per cent, rounded down; 0 without issues."""
    total = sum(counts.values())
    return counts.get(IssueState.CLOSED, 0) * 100 // total if total else 0
