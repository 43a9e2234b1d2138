"""Branches, which are not in the interface document (docs/wire-facts.md 14)."""

from rest_v3.requests.params import text
from rest_v3.route import Route

PROJECT = text("id", required=True)
BRANCH = (PROJECT, text("branch", required=True, spans_segments=True, description="The name of the branch; slashes may be escaped."))
SECTION = "Branches"

BRANCHES = (
    Route(
        call="GET /projects/:id/repository/branches",
        params=(PROJECT,),
        operation="ProjectBranches",
        result_path="project.branches",
        is_unpaged=True,
        shape="Branch",
        section=SECTION,
        summary="List the branches, by name",
    ),
    Route(
        call="GET /projects/:id/repository/branches/:branch",
        params=BRANCH,
        operation="ProjectBranch",
        result_path="project.branch",
        not_found_noun="Branch",
        shape="Branch",
        section=SECTION,
        summary="Get a branch",
    ),
    Route(
        call="PUT /projects/:id/repository/branches/:branch/protect",
        params=BRANCH,
        operation="ProtectBranch",
        result_path="protectBranch.branch",
        not_found_noun="Branch",
        shape="Branch",
        section=SECTION,
        summary="Protect a branch",
    ),
    Route(
        call="PUT /projects/:id/repository/branches/:branch/unprotect",
        params=BRANCH,
        operation="UnprotectBranch",
        result_path="unprotectBranch.branch",
        not_found_noun="Branch",
        shape="Branch",
        section=SECTION,
        summary="Remove the protection of a branch",
    ),
    Route(
        call="POST /projects/:id/repository/branches",
        params=(
            PROJECT,
            text("branch_name", required=True, description="The name of the new branch."),
            text("ref", required=True, description="The branch, tag or commit id at which it starts."),
        ),
        operation="CreateBranch",
        result_path="createBranch.branch",
        guard="MayPush",
        errors={
            "INVALID name": (400, "Branch name is invalid"),
            "INVALID ref": (400, "Invalid reference name"),
            "TAKEN": (400, "Branch already exists"),
            "CONFLICT": (400, "{message}"),
        },
        shape="Branch",
        section=SECTION,
        summary="Create a branch",
    ),
    Route(
        call="DELETE /projects/:id/repository/branches/:branch",
        params=BRANCH,
        operation="DeleteBranch",
        result_path="deleteBranch.branch",
        errors={"NOT_FOUND Branch": (404, "No such branch"), "NOT_ALLOWED": (405, "{message}")},
        error_codes=("NOT_ALLOWED",),
        shape="DeletedBranch",
        section=SECTION,
        summary="Delete a branch",
    ),
)
