"""The section Milestones of the interface document."""

from rest_v3.requests.params import choice, date, iids, integer, text
from rest_v3.route import Route

PROJECT = text("id", required=True)
MILESTONE = (PROJECT, integer("milestone_id", required=True))
CONTENT = (text("description"), date("due_date"))

MILESTONES = (
    Route(
        call="GET /projects/:id/milestones",
        params=(PROJECT, iids("iid")),
        operation="ProjectMilestones",
        result_path="project.milestones",
        shape="Milestone",
        section="Milestones",
        summary="List the milestones of a project",
    ),
    Route(
        call="GET /projects/:id/milestones/:milestone_id",
        params=MILESTONE,
        operation="ProjectMilestone",
        result_path="project.milestone",
        shape="Milestone",
        section="Milestones",
        summary="Get a milestone",
    ),
    Route(
        call="POST /projects/:id/milestones",
        params=(PROJECT, text("title", required=True), *CONTENT),
        operation="CreateMilestone",
        result_path="createMilestone.milestone",
        guard="MayAdminMilestones",
        shape="Milestone",
        section="Milestones",
        summary="Create a milestone",
    ),
    Route(
        call="PUT /projects/:id/milestones/:milestone_id",
        params=(*MILESTONE, text("title"), *CONTENT, choice("state_event", "close", "activate")),
        operation="UpdateMilestone",
        result_path="updateMilestone.milestone",
        guard="MayUpdateMilestone",
        shape="Milestone",
        section="Milestones",
        summary="Update, close or activate a milestone",
    ),
    Route(
        call="GET /projects/:id/milestones/:milestone_id/issues",
        params=MILESTONE,
        operation="MilestoneIssues",
        result_path="project.milestone.issues",
        shape="Issue",
        section="Milestones",
        summary="List the issues of a milestone",
    ),
)
