"""The section Issues of the interface document."""

from rest_v3.operations import VIEWER
from rest_v3.requests.params import choice, iids, integer, names, text
from rest_v3.route import Route

PROJECT = text("id", required=True)
ISSUE = (PROJECT, integer("issue_id", required=True))

FILTERS = (
    choice("state", "opened", "closed", lenient=True),
    names("labels", blank_clears=True),
    choice("order_by", "created_at", "updated_at", lenient=True),
    choice("sort", "asc", "desc", lenient=True),
)

CONTENT = (
    text("description"),
    integer("assignee_id", blank_clears=True),
    integer("milestone_id", blank_clears=True),
    names("labels", blank_clears=True),
)

ISSUES = (
    Route(
        call="GET /issues",
        params=FILTERS,
        operation="Issues",
        result_path="issues",
        shape="Issue",
        section="Issues",
        summary="List the issues that the caller created",
    ),
    Route(
        call="GET /projects/:id/issues",
        params=(PROJECT, iids("iid"), text("milestone"), *FILTERS),
        operation="ProjectIssues",
        result_path="project.issues",
        shape="Issue",
        section="Issues",
        summary="List the issues of a project",
    ),
    Route(
        call="GET /projects/:id/issues/:issue_id",
        params=ISSUE,
        operation="ProjectIssue",
        result_path="project.issue",
        shape="Issue",
        section="Issues",
        summary="Get an issue",
    ),
    Route(
        call="POST /projects/:id/issues",
        params=(PROJECT, text("title", required=True), *CONTENT),
        operation="CreateIssue",
        result_path="createIssue.issue",
        guard="MayCreateIssue",
        status=200,
        shape="Issue",
        section="Issues",
        summary="Create an issue",
    ),
    Route(
        call="PUT /projects/:id/issues/:issue_id",
        params=(*ISSUE, text("title"), *CONTENT, choice("state_event", "close", "reopen")),
        operation="UpdateIssue",
        result_path="updateIssue.issue",
        guard="MayUpdateIssue",
        shape="Issue",
        section="Issues",
        summary="Update, close or reopen an issue",
    ),
    Route(
        call="DELETE /projects/:id/issues/:issue_id",
        params=ISSUE,
        operation=VIEWER,
        name="DeleteIssue",
        rejection_status=405,
        section="Issues",
        summary="Always refused: close the issue instead",
    ),
)
