"""The section Merge requests of the interface document."""

from dataclasses import replace

from rest_v3.requests.params import boolean, choice, iids, integer, names, text
from rest_v3.route import Route

PROJECT = text("id", required=True)
MERGE_REQUEST = (PROJECT, integer("merge_request_id", required=True))

CONTENT = (
    text("description", blank_clears=True),
    integer("assignee_id", blank_clears=True),
    integer("milestone_id", blank_clears=True),
    names("labels", blank_clears=True),
)

UNAUTHORIZED = (401, "401 Unauthorized")
"""The error of a caller who may not merge into the target branch."""
EQUAL_EXISTS = (409, ["{message}"])
"""The error if an open merge request has the same branches: a list, as GitLab sent it (docs/wire-facts.md 2.1)."""

CANCEL = Route(
    call="PUT /projects/:id/merge_requests/:merge_request_id/cancel_merge_when_build_succeeds",
    params=MERGE_REQUEST,
    operation="CancelMergeWhenBuildSucceeds",
    error_codes=("NOT_ALLOWED", "NOT_SET"),
    result_path="cancelMergeWhenBuildSucceeds.mergeRequest",
    errors={"FORBIDDEN": UNAUTHORIZED},
    shape="MergeRequest",
    section="Merge requests",
    summary="Cancel a merge that waits for builds",
)

MERGE_REQUESTS = (
    Route(
        call="GET /projects/:id/merge_requests",
        params=(
            PROJECT,
            iids("iid"),
            choice("state", "closed", "merged", lenient=True, means={"opened": ["opened", "reopened"], "all": None}),
            choice("order_by", "created_at", "updated_at", lenient=True),
            choice("sort", "asc", "desc", lenient=True),
        ),
        operation="ProjectMergeRequests",
        result_path="project.mergeRequests",
        shape="MergeRequest",
        section="Merge requests",
        summary="List the merge requests of a project",
    ),
    Route(
        call="GET /projects/:id/merge_requests/:merge_request_id",
        params=MERGE_REQUEST,
        operation="ProjectMergeRequest",
        result_path="project.mergeRequest",
        shape="MergeRequest",
        section="Merge requests",
        summary="Get a merge request",
    ),
    Route(
        call="GET /projects/:id/merge_requests/:merge_request_id/commits",
        params=MERGE_REQUEST,
        operation="MergeRequestCommits",
        result_path="project.mergeRequest.commits",
        shape="CommitOfMergeRequest",
        section="Merge requests",
        summary="List the commits of a merge request",
    ),
    Route(
        call="GET /projects/:id/merge_requests/:merge_request_id/changes",
        params=MERGE_REQUEST,
        operation="MergeRequestChanges",
        result_path="project.mergeRequest",
        shape="MergeRequestWithChanges",
        section="Merge requests",
        summary="Get a merge request with its changes",
    ),
    Route(
        call="POST /projects/:id/merge_requests",
        params=(
            PROJECT,
            text("source_branch", required=True),
            text("target_branch", required=True),
            text("title", required=True),
            *CONTENT,
            integer("target_project_id"),
        ),
        operation="CreateMergeRequest",
        result_path="createMergeRequest.mergeRequest",
        guard="MayCreateMergeRequest",
        status=200,
        errors={"NOT_ALLOWED": (422, "{message}"), "CONFLICT": EQUAL_EXISTS},
        shape="MergeRequest",
        section="Merge requests",
        summary="Create a merge request",
    ),
    Route(
        call="PUT /projects/:id/merge_requests/:merge_request_id",
        params=(
            *MERGE_REQUEST,
            text("target_branch"),
            text("title"),
            *CONTENT,
            choice("state_event", "close", "reopen", "merge"),
            text("source_branch", description="Cannot be changed: any other value than the current one returns 400."),
        ),
        operation="UpdateMergeRequest",
        name="UpdateMergeRequest",
        error_codes=("NOT_ALLOWED", "NOT_MERGEABLE"),
        result_path="updateMergeRequest.mergeRequest",
        guard="MayUpdateMergeRequest",
        errors={
            "FORBIDDEN Branch": UNAUTHORIZED,
            "NOT_ALLOWED targetBranch": (422, "{message}"),
            "CONFLICT": EQUAL_EXISTS,
        },
        shape="MergeRequest",
        section="Merge requests",
        summary="Update, close, reopen or merge a merge request",
    ),
    Route(
        call="PUT /projects/:id/merge_requests/:merge_request_id/merge",
        params=(
            *MERGE_REQUEST,
            text("merge_commit_message"),
            boolean("should_remove_source_branch"),
            boolean("merged_when_build_succeeds", aliases=("merge_when_build_succeeds",)),
        ),
        operation="AcceptMergeRequest",
        error_codes=("NOT_ALLOWED", "NOT_MERGEABLE"),
        result_path="acceptMergeRequest.mergeRequest",
        guard="MayAcceptMergeRequest",
        errors={"FORBIDDEN": UNAUTHORIZED},
        shape="MergeRequest",
        section="Merge requests",
        summary="Merge, now or when the build succeeds",
    ),
    CANCEL,
    Route(
        call="GET /projects/:id/merge_requests/:merge_request_id/closes_issues",
        params=MERGE_REQUEST,
        operation="MergeRequestClosesIssues",
        result_path="project.mergeRequest.closesIssues",
        shape="Issue",
        section="Merge requests",
        summary="List the issues that merging would close",
    ),
)

CANCEL_BY_POST = replace(CANCEL, call=CANCEL.call.replace("PUT", "POST"), status=201, name="CancelMergeWhenBuildSucceedsByPost")
"""GitLab accepted POST, where its document has PUT (docs/wire-facts.md 15, row 20)."""
