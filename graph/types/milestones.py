"""Milestones."""

from datetime import date, datetime

import strawberry

from graph.declare import Node, column, entity
from storage import tables

MilestoneState = strawberry.enum(tables.MilestoneState, description="Whether a milestone is being worked on.")


@entity(tables.Milestone, description="A goal with a date, to which issues are counted.", project_key="project_id")
class Milestone(Node):
    database_id: int = column(tables.Milestone.id, description="The v3 id.")
    iid: int = column(description="The number within the project.")
    project_id: int = column(description="The v3 id of the project.")
    title: str = column(description="The title, unique in the project.")
    description: str = column(description="What it is about; empty when nothing was said.")
    due_date: date | None = column(description="The day by which it should be reached.")
    state: MilestoneState = column(description="Whether it is being worked on.")  # type: ignore[valid-type]
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")

    @strawberry.field(description="The path of the same thing in v3.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/milestones/{self.id}"
